import json

import pytest

from official_bert.commands import create_pretraining_data
from official_bert.data.records.framing import read_examples, read_records
from official_bert.options.data_tools import PretrainingDataOptions
from tests import toy
from tests.scripts import end_of, flag_list, run_script
from tests.shared import GOLDEN, ROOT, recording

SCRIPT = "create_pretraining_data.py"


@pytest.mark.parametrize("name", ["default", "wwm", "mask30", "cased512"])
def test_the_originals_files(tmp_path, name):
    flags = json.loads(recording(f"pretrain_{name}.json").read_text())
    expected_next, expected_instances = flags.pop("next_random"), flags.pop("instances")
    paths = [tmp_path / f"{i}.tfrecord" for i in range(flags.pop("output_files"))]
    cased = "uncased" if flags["do_lower_case"] else "cased"
    options = PretrainingDataOptions(
        input_file=[str(recording("corpus.txt"))],
        output_file=[str(path) for path in paths],
        vocab_file=str(recording(f"{cased}_vocab.txt")),
        **flags,
    )
    assert create_pretraining_data.run(options).random() == expected_next
    num_instances = 0
    for i, path in enumerate(paths):
        expected = list(read_records(str(GOLDEN / f"pretrain_{name}-{i}.tfrecord.gz")))
        assert list(read_records(str(path))) == expected
        num_instances += len(expected)
    assert num_instances == expected_instances


@pytest.fixture
def arguments(tmp_path):
    """Flags for the toy corpus, as a dictionary to be changed."""
    return {
        "input_file": toy.write_text(tmp_path),
        "output_file": str(tmp_path / "out.tfrecord"),
        "vocab_file": toy.write_vocabulary(tmp_path),
        "max_seq_length": 24,
        "max_predictions_per_seq": 4,
        "dupe_factor": 2,
    }


def test_the_readme_command(tmp_path):
    text = ROOT / "sample_text.txt"
    output = tmp_path / "tf_examples.tfrecord"
    finished = run_script(
        SCRIPT,
        *flag_list(
            input_file="./sample_text.txt" if text.exists() else toy.write_text(tmp_path),
            output_file=output,
            vocab_file=toy.write_vocabulary(tmp_path),
            do_lower_case=True,
            max_seq_length=128,
            max_predictions_per_seq=20,
            masked_lm_prob=0.15,
            random_seed=12345,
            dupe_factor=5,
        ),
    )
    examples = [example for _, example in read_examples(str(output))]
    assert f"Wrote {len(examples)} total instances" in finished.stderr
    assert len(examples) >= 15  # five passes over three documents at least
    for example in examples:
        assert {name: len(values) for name, values in example.items()} == {
            "input_ids": 128,
            "input_mask": 128,
            "masked_lm_ids": 20,
            "masked_lm_positions": 20,
            "masked_lm_weights": 20,
            "next_sentence_labels": 1,
            "segment_ids": 128,
        }
        assert example["input_ids"][0] == 2
        assert (example["masked_lm_ids"] > 0).sum() == example["masked_lm_weights"].sum()


def test_logs_files_and_examples_and_needs_no_tensorflow(tmp_path, arguments):
    poison = tmp_path / "poison" / "tensorflow"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise SystemExit('imported TensorFlow')")
    finished = run_script(
        SCRIPT, *flag_list(**arguments, num_workers=2, verbosity=1), PYTHONPATH=f"{poison.parent}:{ROOT}"
    )
    assert "*** Reading from input files ***" in finished.stderr
    assert "*** Writing to output files ***" in finished.stderr
    assert "3 documents, 8 sentences, 60 tokens" in finished.stderr
    assert finished.stderr.count("*** Example ***") == 10
    assert "tokens: [CLS] a train left the [MASK] at noon . [SEP] [MASK] single cat document" in finished.stderr
    assert "masked_lm_positions: 5 10 12 0\n" in finished.stderr
    assert "masked_lm_weights: 1.0 1.0 1.0 0.0\n" in finished.stderr
    assert "Wrote 10 total instances" in finished.stderr


def test_workers_and_globs_change_nothing(tmp_path, arguments):
    create_pretraining_data.run(options_of(arguments))
    expected = (tmp_path / "out.tfrecord").read_bytes()
    assert expected
    first, second = toy.TEXT.split("\n\n", 1)
    toy.write_text(tmp_path, first + "\n\n", name="part-0")
    toy.write_text(tmp_path, second, name="part-1")
    create_pretraining_data.run(options_of(arguments | {"input_file": f"{tmp_path}/part-*", "num_workers": 2}))
    assert (tmp_path / "out.tfrecord").read_bytes() == expected


def test_accents_and_case_are_flags(tmp_path, arguments):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "été", "ete", "Été"]
    arguments |= {"vocab_file": toy.write_vocabulary(tmp_path, pieces), "max_predictions_per_seq": 1}
    arguments["input_file"] = toy.write_text(tmp_path, "Été Été\nÉté\n\nÉté Été\n")
    for flags, expected in (({}, 6), ({"strip_accents": False}, 5), ({"do_lower_case": False}, 7)):
        create_pretraining_data.run(options_of(arguments | flags))
        labels = {int(example["masked_lm_ids"][0]) for _, example in read_examples(arguments["output_file"])}
        assert labels == {expected}


def options_of(arguments) -> PretrainingDataOptions:
    lists = {name: arguments[name].split(",") for name in ("input_file", "output_file")}
    return PretrainingDataOptions(**(arguments | lists))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"input_file": "{folder}/absent*"}, r"--input_file: no file matches '{folder}/absent*'"),
        ({"input_file": "{folder}/empty"}, "--input_file: no text in {folder}/empty; give files"),
        (
            {"vocab_file": "{folder}/empty"},
            "--vocab_file: the vocabulary lacks [CLS], [SEP], [MASK], [UNK]; add a line",
        ),
        ({"vocab_file": "{folder}/absent"}, "{folder}/absent: no such file"),
        ({"output_file": "{folder}/absent/out"}, "{folder}/absent/out: cannot be written (No such file or directory)"),
        ({"output_file": "{folder}"}, "{folder}: cannot be written, it is a folder"),
        ({"output_file": ""}, "--output_file=[]: a name is empty; give one"),
        ({"input_file": "{folder}"}, "{folder}: is a folder; name a file"),
        ({"max_seq_length": "4"}, "--max_seq_length=4: must be at least 5"),
        ({"masked_lm_prob": "1.5"}, "--masked_lm_prob=1.5: must lie between 0 and 1"),
        ({"short_seq_prob": "-0.1"}, "--short_seq_prob=-0.1: must lie between 0 and 1"),
        ({"dupe_factor": "0"}, "--dupe_factor=0: must be positive"),
        ({"mask_rates": "0.9,0.1"}, "--mask_rates: --generator=exact makes the original's files"),
        ({"use_next_sentence": "false"}, "--use_next_sentence: --generator=exact makes the original's files"),
    ],
)
def test_errors_are_one_sentence_with_status_1(tmp_path, arguments, changes, sentence):
    (tmp_path / "empty").write_text("\n")
    arguments |= {name: value.format(folder=tmp_path) for name, value in changes.items()}
    before = sorted(tmp_path.iterdir())
    ended = end_of(SCRIPT, *flag_list(**arguments))
    assert ended.status == 1
    assert sentence.format(folder=tmp_path) in ended.sentence
    assert sorted(tmp_path.iterdir()) == before


def test_a_failure_while_writing_leaves_the_old_file(tmp_path, arguments, monkeypatch):
    (tmp_path / "out.tfrecord").write_bytes(b"old")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(
        create_pretraining_data.InstanceVocabulary, "of", lambda vocab: None
    )  # fails within the creation
    with pytest.raises(AttributeError):
        create_pretraining_data.run(options_of(arguments))
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "out.tfrecord").read_bytes() == b"old"

"""create_pretraining_data.py: the original's files, byte for byte, its log, and what is refused."""

import glob
import json

import pytest

from official_bert.commands import create_pretraining_data
from official_bert.data.records.framing import read_examples, read_records
from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.options.data_tools import PretrainingDataOptions
from official_bert.options.training import PretrainingOptions
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.scripts import end_of, flag_list, run_interpreter
from tests.shared import GOLDEN, ROOT, recording

SCRIPT = "create_pretraining_data.py"


@pytest.mark.parametrize("name", ["default", "wwm", "mask30", "cased512"])
def test_the_originals_files(tmp_path, name):
    flags = json.loads(recording(f"pretrain_{name}.json").read_text())
    expected_next = flags.pop("next_random")
    expected_instances = flags.pop("instances")
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
        recorded = GOLDEN / f"pretrain_{name}-{i}.tfrecord.gz"
        expected = list(read_records(str(recorded)))
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


def test_logs_files_and_examples_and_needs_no_tensorflow(tmp_path, arguments):
    poison = tmp_path / "poison" / "tensorflow"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise SystemExit('imported TensorFlow')")
    flags = flag_list(**arguments, num_workers=2, verbosity=1)
    finished = run_interpreter(
        ROOT / SCRIPT,
        *flags,
        PYTHONPATH=f"{poison.parent}:{ROOT}",
    )
    assert "*** Reading from input files ***" in finished.stderr
    assert "*** Writing to output files ***" in finished.stderr
    assert "3 documents, 8 sentences, 60 tokens" in finished.stderr
    assert finished.stderr.count("*** Example ***") == 10
    assert (
        "tokens: [CLS] a train left the [MASK] at noon . [SEP] [MASK] single cat document"
        in finished.stderr
    )
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
    create_pretraining_data.run(
        options_of(arguments | {"input_file": f"{tmp_path}/part-*", "num_workers": 2})
    )
    assert (tmp_path / "out.tfrecord").read_bytes() == expected


def test_accents_and_case_are_flags(tmp_path, arguments):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "été", "ete", "Été"]
    arguments |= {
        "vocab_file": toy.write_vocabulary(tmp_path, pieces),
        "max_predictions_per_seq": 1,
    }
    arguments["input_file"] = toy.write_text(tmp_path, "Été Été\nÉté\n\nÉté Été\n")

    def masked_pieces(**flags) -> set[str]:
        create_pretraining_data.run(options_of(arguments | flags))
        examples = [example for _, example in read_examples(arguments["output_file"])]
        return {pieces[example["masked_lm_ids"][0]] for example in examples}

    assert masked_pieces() == {"ete"}
    assert masked_pieces(strip_accents=False) == {"été"}
    assert masked_pieces(do_lower_case=False) == {"Été"}


@pytest.mark.parametrize(
    ("generator", "ending"),
    [("exact", ""), ("sharded", "-00000-of-00001")],
)
def test_a_pretraining_learns_from_beside_the_records_how_their_text_was_read(
    tmp_path, arguments, generator, ending, caplog
):
    """A cased vocabulary and the default of this script gave a model that its folder called
    cased.
    """
    config_file = tmp_path / "bert_config.json"
    out = arguments["output_file"]
    pieces = [*toy.VOCABULARY, "The"]
    config = toy.BERT_CONFIG | {"vocab_size": len(pieces)}
    config_file.write_text(json.dumps(config))
    arguments["vocab_file"] = toy.write_vocabulary(tmp_path, pieces)
    create_pretraining_data.run(
        options_of(arguments | {"generator": generator, "strip_accents": False})
    )
    assert (
        "vocab.txt: has capitals, but the text is lower-cased: is --do_lower_case=True right?"
        in caplog.text
    )
    assert (glob.glob(f"{out}*") == [out]) is (generator == "exact")  # no glob may find more

    def found(**flags):
        files = {
            "vocab_file": arguments["vocab_file"],
            "bert_config_file": str(config_file),
        }
        options = PretrainingOptions(input_file=[out], output_dir="absent", **files, **flags)
        return resolve(options).vocabulary([out + ending])[1]

    assert (
        found()
        == found(do_lower_case=True, strip_accents=False)
        == TokenizerConfig(True, False, 512)
    )
    for flag, name in (("do_lower_case", "do_lower_case"), ("strip_accents", "strips_accents")):
        value = flag == "strip_accents"
        with pytest.raises(
            InputError,
            match=f"into records with {name}={not value}, and a flag, .* says {value}; corr",
        ):
            found(**{flag: value})
    with open(out + ending, "ab") as file:
        file.write(b"other records")
    assert found() == TokenizerConfig(None, None, 512)


def options_of(arguments) -> PretrainingDataOptions:
    lists = {name: arguments[name].split(",") for name in ("input_file", "output_file")}
    return PretrainingDataOptions(**(arguments | lists))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"input_file": "{folder}/absent*"}, r"--input_file: no file matches '{folder}/absent*'"),
        ({"input_file": "{folder}/empty"}, "--input_file: no text in {folder}/empty; give files"),
        (
            {"output_file": "{folder}/absent/out"},
            "{folder}/absent/out: cannot be written (No such file or directory)",
        ),
        ({"output_file": ""}, "--output_file=[]: a name is empty; give one"),
        ({"max_seq_length": "4"}, "--max_seq_length=4: must be at least 5"),
        ({"mask_rates": "0.9,0.1"}, "--mask_rates: --generator=exact makes the original's files"),
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

"""A wrong path ends a command before TensorFlow is imported, in the sentence of the command."""

from typing import Any

import pytest

from official_bert.commands import first_checks
from official_bert.options.fields import names_missing_file
from official_bert.options.fine_tuning import ClassificationOptions, SquadOptions
from official_bert.options.serving import PredictOptions
from official_bert.options.training import PretrainingOptions
from tests.scripts import end_of, run_interpreter
from tests.shared import GOLDEN

_PROGRAM = """
import atexit, sys
heavy = ("tensorflow", "keras")
atexit.register(lambda: print([name for name in heavy if name in sys.modules]))
from official_bert.cli.commands import main
main()
"""


@pytest.fixture(scope="module")
def model(base) -> list[str]:
    """The flags of a model without weights."""
    return [
        f"--vocab_file={base}/vocab.txt",
        f"--bert_config_file={base}/bert_config.json",
        "--do_lower_case",
        "--max_seq_length=16",
    ]


_RECORDS = GOLDEN / "scripts" / "records.tfrecord"
_PRETRAIN = ("run_pretraining", "--do_train", "--output_dir=out")
_ANSWER = ("run_squad", "--do_train", "--output_dir=out", "--max_query_length=4", "--doc_stride=4")
_CLASSIFY = ("run_classifier", "--do_train", "--output_dir=out")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((*_PRETRAIN, "--input_file=no/*.tfrecord"), id="records"),
        pytest.param((*_PRETRAIN, "--input_file=no", "--bert_config_file=no.json"), id="config"),
        pytest.param((*_PRETRAIN, "--input_file=no", "--vocab_file=", "--model=./no"), id="model"),
        pytest.param(
            (*_PRETRAIN, f"--input_file={_RECORDS}", "--init_checkpoint=./no"), id="start"
        ),
        pytest.param((*_CLASSIFY, "--task_name=text", "--train_file=no.tsv"), id="table"),
        pytest.param((*_CLASSIFY, "--task_name=text", "--train_file=no*.tsv"), id="glob"),
        pytest.param(
            (*_CLASSIFY, "--task_name=text", f"--train_file={__file__},no.tsv"), id="list"
        ),
        pytest.param((*_CLASSIFY, "--task_name=cola", "--vocab_file=no.txt"), id="vocabulary"),
        pytest.param((*_CLASSIFY, "--task_name=cola", "--init_checkpoint=./no"), id="checkpoint"),
        pytest.param((*_ANSWER, "--train_file=no.json"), id="SQuAD"),
        pytest.param(("predict", "--model=./no"), id="export"),
        pytest.param(("predict", "--model={base}/no"), id="prefix"),
        pytest.param(("predict", "--model=./no", "--input_file=no.txt"), id="requests"),
    ],
)
def test_the_sentence_is_that_of_the_command_without_tensorflow(words, model, base):
    name, *flags = (word.replace("{base}", str(base)) for word in words)
    if name != "predict":
        flags = [*model, *flags]
    finished = run_interpreter("-c", _PROGRAM, name, *flags, status=1)
    assert finished.stdout == "[]\n"
    sentence = finished.stderr.splitlines()[-1].partition(": ")[2]
    command_sentence = end_of(name, *flags).sentence.partition(": ")[2]
    assert sentence == command_sentence
    assert "no" in sentence


def test_a_wrong_data_dir_is_named(model):
    words = [*_CLASSIFY, "--task_name=cola", "--data_dir=no", *model]
    finished = run_interpreter("-c", _PROGRAM, *words, status=1)
    assert finished.stdout == "[]\n"
    assert finished.stderr.endswith(": --data_dir=no: no such folder; check the path\n")


@pytest.fixture
def values(base, tmp_path) -> dict[str, Any]:
    """The values of the flags of a fine-tuning that starts with a checkpoint."""
    return {
        "vocab_file": f"{base}/vocab.txt",
        "bert_config_file": f"{base}/bert_config.json",
        "init_checkpoint": f"{base}/bert_model.ckpt",
        "do_lower_case": True,
        "max_seq_length": 16,
        "output_dir": str(tmp_path / "out"),
    }


def test_files_that_the_run_does_not_read_may_be_missing(values, tmp_path):
    (tmp_path / "test.json").write_text("{}")
    files = {"train_file": "no.json", "predict_file": str(tmp_path / "test.json")}
    options = SquadOptions(**values, **files, do_predict=True)
    assert names_missing_file(options)
    first_checks.check_fine_tuning(options)


@pytest.mark.parametrize("train_file", ["[ab].tsv", "b.tsv,a.tsv", "a*,?.tsv"])
def test_lists_and_globs_of_tables_pass(train_file, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).touch()
    options = ClassificationOptions(
        **values, task_name="text", train_file=train_file, do_train=True
    )
    assert names_missing_file(options)
    first_checks.check_fine_tuning(options)


@pytest.mark.parametrize("is_search", [False, True])
def test_a_run_that_resumes_needs_no_other_checkpoint(is_search, values, tmp_path):
    (tmp_path / "out").mkdir()
    flags = {"init_checkpoint": "./no", "search": "paper"}
    if not is_search:
        (tmp_path / "out" / "checkpoint").touch()
        flags["search"] = None
    first_checks.check_fine_tuning(ClassificationOptions(**values | flags, task_name="cola"))


def test_the_prefix_of_a_checkpoint_is_a_model(base):
    options = PredictOptions(model=f"{base}/bert_model.ckpt")
    assert names_missing_file(options)
    first_checks.check_prediction(options)


@pytest.mark.parametrize(
    ("flags", "is_missing"),
    [
        pytest.param({"train_file": "no.tsv"}, True, id="file"),
        pytest.param({"data_dir": "no"}, True, id="folder"),
        pytest.param({"init_checkpoint": "no.ckpt"}, True, id="checkpoint"),
        pytest.param({"train_file": "gs://bucket/no.tsv"}, False, id="remote file"),
        pytest.param({"train_file": __file__}, False, id="file that is there"),
    ],
)
def test_flags_of_paths_are_told_from_others(flags, is_missing):
    options = ClassificationOptions(output_dir="not/yet", task_name="cola", **flags)
    assert names_missing_file(options) is is_missing


def test_outputs_and_standard_input_are_not_missing():
    options = PredictOptions(model=__file__, output_file="not_yet.jsonl")
    assert not names_missing_file(options)
    lists = PretrainingOptions(output_dir="not/yet", input_file=[__file__, "no"])
    assert names_missing_file(lists)

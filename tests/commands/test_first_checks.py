"""A wrong path ends a command before TensorFlow is imported, in the sentence of the command."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from official_bert import catalog
from official_bert.commands import first_checks
from official_bert.options.fields import names_missing_file
from official_bert.options.fine_tuning import ClassificationOptions, SquadOptions
from official_bert.options.serving import PredictOptions
from official_bert.options.training import PretrainingOptions
from tests.scripts import MAIN, end_of, run_here, run_interpreter
from tests.shared import GOLDEN

# Runs each command line in a forked process, so that the modules of the checks are imported once.
_PROGRAM = """
import json, os, sys
from official_bert.cli.commands import main
from official_bert.commands import first_checks
heavy = ("tensorflow", "keras")
for words in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    sys.argv = ["official-bert", *words]
    try:
        main()
    except SystemExit as end:
        print(json.dumps([end.code, [name for name in heavy if name in sys.modules]]), flush=True)
    os._exit(0)
"""


_MODEL = (
    "--vocab_file={base}/vocab.txt --bert_config_file={base}/bert_config.json --do_lower_case "
    "--max_seq_length=16"
)
_PRETRAIN = f"run_pretraining --do_train --output_dir=out {_MODEL}"
_CLASSIFY = f"run_classifier --do_train --output_dir=out {_MODEL}"
_TEXT = f"{_CLASSIFY} --task_name=text"
_SQUAD = f"run_squad --do_train --output_dir=out --max_query_length=4 --doc_stride=4 {_MODEL}"
_VECTORS = "run_embeddings --do_eval --output_dir=out"
_FEW = "run_few_shot --output_dir=out"
_EXTRACT = "extract_features --output_file=out --layers=-1"
_EXPORT = "export_saved_model --export_dir=out"
_CONVERT = "convert_checkpoint --output_format=tf1 --output_dir=out"
_STUDENT = "create_student --num_layers=1 --output_dir=out"
_MINE = "mine_hard_negatives --output_file=out"
# The trainings on tables of related texts.
_TRAININGS = ("run_embeddings", "run_reranker", "run_sparse_embeddings", "run_late_interaction")
# The command lines with a wrong path. {base} is the folder of a model, and {there} a folder with
# files that exist.
_LINES = (
    f"{_PRETRAIN} --input_file=no/*.tfrecord",
    f"{_PRETRAIN} --input_file=no --bert_config_file=no.json",
    f"{_PRETRAIN} --input_file=no --vocab_file= --model=./no",
    f"{_PRETRAIN} --input_file={GOLDEN}/scripts/records.tfrecord --init_checkpoint=./no",
    f"{_TEXT} --train_file=no.tsv",
    f"{_TEXT} --train_file=no*.tsv",
    f"{_TEXT} --train_file={{there}}/pairs.tsv,no.tsv",
    f"{_CLASSIFY} --task_name=cola --vocab_file=no.txt",
    f"{_CLASSIFY} --task_name=cola --init_checkpoint=./no",
    f"{_SQUAD} --train_file=no.json",
    "predict --model=./no",
    "predict --model={base}/no",
    "predict --model=./no --input_file=no.txt",
    *(f"{name} --do_train --output_dir=out {_MODEL} --train_file=no.tsv" for name in _TRAININGS),
    *(f"{name} --do_train --output_dir=out --model=./no" for name in _TRAININGS),
    f"{_VECTORS} {_MODEL} --dev_file=no.txt",
    f"{_VECTORS} {_MODEL} --dev_file=no*",
    f"{_VECTORS} {_MODEL} --init_checkpoint=./no",
    f"{_VECTORS} --dev_file=no.tsv --vectors=./no",
    f"{_VECTORS} --dev_file={{there}}/pairs.tsv --vectors=no.npy",
    f"{_VECTORS} --dev_file={{there}}/pairs.tsv --vectors=./no",
    f"{_FEW} --train_file=no.tsv --model={{base}}",
    f"{_FEW} --train_file={{there}}/labels.tsv --dev_file=no.tsv --model={{base}}",
    f"{_FEW} --train_file={{there}}/labels.tsv --model=./no",
    f"{_FEW} --train_file={{there}}/labels.tsv --model=bert-base-uncasd",
    f"{_EXPORT} --model=./no",
    f"{_EXPORT} --init_checkpoint={{base}}/no.ckpt",
    f"{_EXPORT} --init_checkpoint={{base}} --vocab_file=no.txt",
    f"{_EXPORT} --model={{base}} --bert_config_file=no.json",
    f"{_EXTRACT} --model=./no --input_file=no.txt",
    f"{_EXTRACT} --input_file=no.txt {_MODEL} --init_checkpoint={{base}}/bert_model.ckpt",
    f"{_EXTRACT} --input_file={{there}}/pairs.tsv {_MODEL} --init_checkpoint=./no",
    f"{_EXTRACT} --input_file=no --model={{base}} --vocab_file=no.txt",
    f"{_EXTRACT} --input_file=no --model={{base}} --bert_config_file=no.json",
    f"{_CONVERT} --model=./no",
    f"{_CONVERT} --model={{base}} --vocab_file=no.txt",
    f"{_CONVERT} --model={{base}} --bert_config_file=no.json",
    f"{_STUDENT} --model=./no",
    f"{_STUDENT} --model={{base}} --bert_config_file=no.json",
    f"{_STUDENT} --model={{base}} --vocab_file=no.txt",
    "build_vocab --input_file=no.txt --output_file=out",
    "build_vocab --input_file={base}/vocab.txt,no*.txt --output_file=out",
    "evaluate_minimal_pairs --input_file=no.zip --model=./no",
    "evaluate_minimal_pairs --input_file={there} --model=./no",
    f"{_MINE} --input_file=no.tsv --model=./no",
    f"{_MINE} --input_file={{there}}/pairs.tsv,{{there}}/no.csv --model=./no",
    f"{_MINE} --input_file={{there}}/pairs.tsv --model=./no --corpus_file=no.txt",
    "serve --port=0 --model=./no",
    "serve --port=0 --model={base} --model=name=./no",
    "serve --port=0 --model=name=bert-base-uncasd",
    "export_heads --export_dir=out --heads=a=./no,b={base}",
    "export_heads --export_dir={there} --heads=a={base},b=./no",
)
_WRONG_FOLDERS = (
    f"{_CLASSIFY} --task_name=cola --data_dir=no",
    f"run_reranker --do_train --output_dir=out {_MODEL} --data_dir=no",
)


@pytest.fixture(scope="module")
def places(base, tmp_path_factory) -> dict[str, str]:
    """The folders that the command lines name."""
    there = tmp_path_factory.mktemp("there")
    (there / "pairs.tsv").write_text("anchor\tpositive\nthe cat\tthe mat\nit was\ta day\n")
    (there / "labels.tsv").write_text("text\tlabel\na\tx\nb\tx\nc\ty\nd\ty\n")
    pair = {"sentence_good": "a", "sentence_bad": "b", "UID": "c", "linguistics_term": "d"}
    (there / "pairs.jsonl").write_text(json.dumps(pair))
    return {"base": str(base), "there": str(there)}


def split(line: str, places: dict[str, str]) -> list[str]:
    """Returns the words of a command line."""
    return line.format(**places).split()


def has_command(line: str) -> bool:
    """Returns whether the command of a line is there: somebody may have deleted its extension."""
    return line.partition(" ")[0] in catalog.commands()


@pytest.fixture(scope="module")
def ends(places) -> dict[str, tuple[str, list[str]]]:
    """The sentence of each command line, and the heavy modules that it has imported."""
    lines = [line for line in (*_LINES, *_WRONG_FOLDERS) if has_command(line)]
    words = json.dumps([split(line, places) for line in lines])
    finished = run_interpreter("-c", _PROGRAM, words)
    outcomes = map(json.loads, finished.stdout.splitlines())
    return dict(zip(lines, outcomes, strict=True))


def list_params(lines: Sequence[str]) -> list:
    """Returns the lines of the commands that are there; the server itself needs packages."""
    packages = pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client")
    return [
        pytest.param(
            line,
            id=line.replace(f" {_MODEL}", ""),
            marks=packages if line.startswith("serve ") else (),
        )
        for line in lines
        if has_command(line)
    ]


@pytest.mark.parametrize("line", list_params(_LINES))
def test_the_sentence_is_that_of_the_command_without_tensorflow(line, places, ends):
    sentence, modules = ends[line]
    assert modules == []
    assert sentence == end_of(*split(line, places)).sentence
    assert "no" in sentence.partition(": ")[2]


@pytest.mark.parametrize("line", list_params(_WRONG_FOLDERS))
def test_a_wrong_data_dir_is_named(line, ends):
    sentence, modules = ends[line]
    assert modules == []
    assert sentence.endswith(": --data_dir=no: no such folder; check the path")


def test_the_command_ends_with_status_1():
    finished = run_interpreter("-c", MAIN, "predict", "--model=./no", status=1)
    assert finished.stderr.startswith("official-bert predict: ./no: holds no model; ")


# Command lines that a check lets pass: names with commas and globs, prefixes of checkpoints, names
# of served models, and files of weights, whose reader says more.
_VALID_LINES = (
    "run_embeddings --do_eval --output_dir=out --dev_file={there}/p*.tsv --vectors={base}",
    "run_few_shot --output_dir=out --train_file={there}/pairs.tsv,{there}/labels.tsv "
    "--model={base}/bert_model.ckpt",
    "export_saved_model --export_dir=out --init_checkpoint={base}/bert_model.ckpt",
    "export_saved_model --export_dir=out --model={there}/model.safetensors",
    "extract_features --output_file=out --input_file={there}/pairs.tsv "
    "--model={base}/bert_model.ckpt",
    "convert_checkpoint --output_format=tf1 --output_dir=out --model={base}/bert_model.ckpt",
    "create_student --num_layers=1 --output_dir=out --model={base}/bert_model.ckpt",
    "evaluate_minimal_pairs --input_file={there} --model={base}/bert_model.ckpt",
    "mine_hard_negatives --output_file=out --input_file={there}/*.tsv --model={base} "
    "--corpus_file={there}/pairs.tsv,{there}/labels.tsv",
    "serve --model=name={base} --model={base}/bert_model.ckpt",
    "export_heads --export_dir={there} --heads=a={base},b={base}/bert_model.ckpt",
)


@pytest.mark.parametrize("line", filter(has_command, _VALID_LINES))
def test_valid_paths_pass(line, places, monkeypatch):
    name, *words = split(line, places)
    command = catalog.commands()[name]
    checked = []

    def check_and_end(options: Any):
        assert names_missing_file(options)
        catalog.load(command.check)(options)
        checked.append(name)

    monkeypatch.setattr("tests.scripts.load", lambda command: check_and_end)
    run_here(name, *words)
    assert checked == [name]


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

"""Hostile command lines: flags that contradict each other, or whose values nothing can be done with."""

import dataclasses
import math
import socket
import types
import typing

import pytest
import tensorflow as tf

from official_bert.cli.commands import COMMANDS
from official_bert.options.fields import flag_fields
from official_bert.tasks.classification.tsv import TsvProcessor
from official_bert.training import distribution
from tests.hostile.rows import Row, check, model_flags, table
from tests.scripts import end_of
from tests.shared import ROOT

SCRIPTS = tuple(sorted(path.name for path in ROOT.glob("*.py")))


def options_of(script):
    return COMMANDS[script.removesuffix(".py")].options_class()


def kind_of(options_class, name):
    kind = typing.get_type_hints(options_class)[name]
    return kind.__args__[0] if isinstance(kind, types.UnionType) else kind


def required_of(script):
    """Values for the flags that a script requires, so that the one under test is the only fault."""
    for field in flag_fields(options_of(script)):
        if field.default is dataclasses.MISSING:
            usual = "1" if kind_of(options_of(script), field.name) is int else "x"
            yield f"--{field.name}={(field.metadata['choices'] or (usual,))[0]}"


def too_large():
    """Every number flag, in one script that has it, with values that are too large for it."""
    seen = set()
    for script in SCRIPTS:
        for field in flag_fields(options_of(script)):
            kind = kind_of(options_of(script), field.name)
            if field.name in seen:
                continue
            seen.add(field.name)
            if kind not in (int, float) or field.name == "null_score_diff_threshold":  # any number has a meaning
                continue
            values = [2**70, "1" * 5000] if kind is int else [1e308, "nan"]
            for value in values:
                yield pytest.param(script, field.name, value, id=f"{script}-{field.name}-{str(value)[:8]}")


@pytest.mark.parametrize(("script", "name", "value"), too_large())
def test_numbers_have_bounds(script, name, value):
    ended = end_of(script, *required_of(script), f"--{name}={value}")
    assert ended.status == 1
    assert f"--{name}=" in ended.sentence
    assert "\n" not in ended.sentence
    assert any(word in ended.sentence for word in ("must", "integer")), ended.sentence


def classifier(folder, *others, **flags):
    given = {
        "data_dir": folder / "classification",
        "output_dir": folder / "out",
        "task_name": "tsv",
        "max_seq_length": 16,
    }
    return [*model_flags(folder, **(given | flags)), "--do_train", *others]


def corpus(folder, *others):
    return [
        f"--input_file={folder}/corpus.txt",
        f"--vocab_file={folder}/vocab.txt",
        f"--output_file={folder}/a.tfrecord",
        "--max_seq_length=16",
        "--dupe_factor=1",
        *others,
    ]


def table_of(folder, text, set_name="train", **flags):
    (folder / "classification" / f"{set_name}.tsv").write_text(text)
    return classifier(folder, **flags)


def module(folder, text, task_name):
    """Writes a module; `task_name` begins with its name, which is the test folder's own."""
    name = f"hostile_{abs(hash(folder))}"
    (folder / f"{name}.py").write_text(text)
    return classifier(folder, task_name=task_name.replace("MODULE", name))


RAISES = """
from official_bert.tasks.classification.processor import DataProcessor

class NeedsMore(DataProcessor):
    def __init__(self, colour):
        pass

class Raises(DataProcessor):
    def __init__(self):
        raise KeyError("colour")
"""

ROWS = [
    Row(
        "nothing to do",
        "run_classifier.py",
        lambda folder: [*model_flags(folder), "--task_name=tsv", f"--data_dir={folder}", f"--output_dir={folder}/out"],
        says=("nothing to do", "--do_train"),
    ),
    Row(
        "corpus that is not there",
        "create_pretraining_data.py",
        lambda folder: [
            f"--vocab_file={folder}/vocab.txt",
            "--input_file=no*.txt",
            f"--output_file={folder}/a.tfrecord",
        ],
        says=("--input_file", "no*.txt"),
    ),
    # Words that belong to no flag.
    *(
        Row(
            f"stray word: {' '.join(words)}",
            "create_pretraining_data.py",
            lambda folder, words=words: corpus(folder, *words),
            says=(f"the word {stray!r} belongs to no flag", f"write {instead}"),
        )
        for words, stray, instead in (
            (("--do_lower_case", "False"), "False", "--do_lower_case=False"),
            (("--random_seed=1", "2"), "2", "--flag=value"),
            (("more.txt",), "more.txt", "--flag=value"),
            (("--unknown=1", "2"), "2", "--flag=value"),
            (("--", "x"), "x", "--flag=value"),
            (("",), "", "--flag=value"),
        )
    ),
    Row(
        "stray word in place of a flag that must be given",
        "predict.py",
        lambda folder: [f"{folder}/model"],
        says=("/model' belongs to no flag; write --flag=value",),
    ),
    *(
        Row(
            f"unknown flag: {' '.join(words)}",
            "create_pretraining_data.py",
            lambda folder, words=words: corpus(folder, *words),
            warns=(f"unknown flag, ignored: {words[0]}",),
            leaves=("a.tfrecord",),
        )
        for words in (("--unknown",), ("--unknown", "1", "--random_seed", "1"))
    ),
    # Lists of numbers.
    *(
        Row(
            f"search of {flag}={value}",
            "run_classifier.py",
            lambda folder, flag=flag, value=value: classifier(folder, f"--search={flag}={value}"),
            says=("--search", f"{flag}={value}"),
        )
        for flag, values in (
            ("train_batch_size", ("0", "2.5", str(2**40))),
            ("learning_rate", ("0", "nan", "1e308")),
            ("num_train_epochs", ("0", "1;2")),
            ("restarts", ("1,2",)),
        )
        for value in values
    ),
    *(
        Row(
            f"class weights {value}",
            "run_classifier.py",
            lambda folder, value=value: classifier(folder, f"--class_weights={value}"),
            says=(f"--class_weights={value}",),
            leaves=("out/*",),
        )
        for value in ("1,x", "1,-1", "0,0")
    ),
    *(
        Row(
            f"layers {value}",
            "extract_features.py",
            lambda folder, value=value: model_flags(
                folder, input_file=folder / "corpus.txt", output_file=folder / "f", layers=value
            ),
            says=(f"--layers={value}",),
        )
        for value in ("", "1.5", "-2", "-1,")
    ),
    # Tasks of the user's own.
    *(
        Row(
            f"task {name}",
            "run_classifier.py",
            lambda folder, name=name: classifier(folder, task_name=name),
            says=(f"--task_name={name}", says),
        )
        for name, says in (
            (".module:Class", "'.module' is relative"),
            (":Class", "there is no module ''"),
            ("nowhere:Class", "there is no module 'nowhere'"),
            ("json..x:Class", "there is no module 'json..x'"),
            ("json:Class", "defines no class 'Class'"),
            ("collections:OrderedDict", "is neither a DataProcessor nor a Task"),
        )
    ),
    *(
        Row(
            f"module that {what}",
            "run_classifier.py",
            lambda folder, text=text, name=name: module(folder, text, name),
            says=("--task_name=hostile_", *says),
            leaves=("__pycache__/*",),
        )
        for what, text, name, says in (
            ("is no Python", "class Mine(:\n", "MODULE:Mine", ("SyntaxError", ".py, line 1")),
            ("raises", "\nraise RuntimeError('out of tea')\n", "MODULE:Mine", ("line 2: out of tea",)),
            ("imports a name that is not there", "from json import x\n", "MODULE:Mine", ("ImportError", "'x'")),
            ("needs more", RAISES, "MODULE:NeedsMore", ("making the task fails (TypeError", "'colour'")),
            ("raises in its constructor", RAISES, "MODULE:Raises", ("KeyError", "line 10", "colour")),
        )
    ),
    # Tables.
    Row(
        "table with one label",
        "run_classifier.py",
        lambda folder: table_of(folder, "text\tlabel\na\tyes\nb\tyes\n"),
        says=("train.tsv", "all examples have the label 'yes'", "--columns"),
    ),
    Row(
        "one label in a flag",
        "run_classifier.py",
        lambda folder: classifier(folder, "--labels=yes"),
        says=("--labels=yes", "name all labels"),
    ),
    *(
        Row(
            f"table with a column name twice, {flag}",
            "run_classifier.py",
            lambda folder, flag=flag, value=value: table_of(
                folder, "text\tx\tx\tlabel\na\tb\tc\tyes\nd\te\tf\tno\n", columns=f"{flag}={value}"
            ),
            says=(f"--columns: {flag}=x", "several columns of this name"),
        )
        for flag, value in (("text_a", "x"), ("label", "x"))
    ),
]


@pytest.fixture
def found_modules(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))


@table(ROWS)
def test_flags(row, folder, found_modules):
    check(row, folder)


@pytest.mark.parametrize(
    ("text", "settings", "label"),
    [
        ("good\tyes\nbad\tno\nfine\tyes\n", {}, "yes"),
        ("good\t1\nbad\t0\nfine\t1\n", {}, "1"),
        ("good\t1.5\nbad\t0.5\n", {"label_type": "score"}, "1.5"),
    ],
)
def test_an_example_taken_for_the_header_is_warned_of(tmp_path, caplog, text, settings, label):
    (tmp_path / "train.tsv").write_text(text)
    labels = None if settings else sorted({line.split("\t")[1] for line in text.splitlines()})
    processor = TsvProcessor.from_settings({"columns": "label=1", "labels": labels, **settings})
    processor.get_train_examples(str(tmp_path))
    warned = f"train.tsv: line 1 is taken for the names of the columns, but that of the labels would be '{label}'"
    assert warned in caplog.text


@pytest.fixture
def tpu(monkeypatch):
    """A TPU whose address accepts connections and never answers."""
    monkeypatch.setattr(distribution, "_TPU_LIMIT_SECS", 0.3)
    distribution._cached_strategy.cache_clear()
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda **flags: flags["tpu"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_tpu_that_does_not_answer_is_waited_for_with_a_limit(folder, tpu, monkeypatch):
    def connect(resolver):
        host, port = resolver.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.recv(1)

    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
    monkeypatch.setattr("official_bert.io.processes._FIRST_MESSAGE_SECS", 0.1)
    ended = end_of("run_classifier.py", *classifier(folder, "--use_tpu", f"--tpu_name={tpu}"))
    assert ended.status == 1
    assert f"--tpu_name={tpu}: no TPU system answers there (no answer within 0.3 s)" in ended.sentence
    assert f"waiting for the TPU {tpu}" in ended.log


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (tf.errors.NotFoundError(None, None, "a.ckpt; gone\nmore"), ("NotFoundError: a.ckpt; gone; check the",)),
        (tf.errors.PermissionDeniedError(None, None, "a.ckpt"), ("PermissionDeniedError: a.ckpt", "permissions")),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), ("ResourceExhaustedError: OOM; make room",)),
        (tf.errors.UnimplementedError(None, None, "no s3"), ("UnimplementedError: no s3; give a path",)),
        (tf.errors.UnavailableError(None, None, "socket"), ("UnavailableError: socket; check the network",)),
        (MemoryError("Unable to allocate 8 TiB"), ("memory is full (Unable to allocate 8 TiB); give smaller",)),
        (OSError(28, "No space left on device"), ("No space left on device; make room",)),
        (OSError(28, "No space left on device", "a"), ("a: No space left on device; make room",)),
    ],
)
def test_errors_from_outside_are_one_sentence(folder, monkeypatch, error, parts):
    def fail(options):
        raise error

    monkeypatch.setattr("official_bert.commands.create_pretraining_data.run", fail)
    ended = end_of("create_pretraining_data.py", *corpus(folder))
    assert ended.status == 1
    assert "\n" not in ended.sentence
    for part in parts:
        assert part in ended.sentence


def test_a_defect_is_no_fault_of_the_user(folder, monkeypatch):
    def fail(options):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("official_bert.commands.create_pretraining_data.run", fail)
    with pytest.raises(ZeroDivisionError):
        end_of("create_pretraining_data.py", *corpus(folder))


def test_no_number_flag_is_without_a_bound():
    """A new flag comes with a check that has an upper bound."""
    for script in SCRIPTS:
        for field in flag_fields(options_of(script)):
            if kind_of(options_of(script), field.name) in (int, float):
                holds, _ = field.metadata["check"]
                assert not holds(math.nan)
                assert not holds(2.0**70) or field.name == "null_score_diff_threshold"

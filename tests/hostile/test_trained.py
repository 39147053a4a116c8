"""Hostile uses of a trained model: as that of another task, or with labels, classes and files of another one."""

import json
import pathlib

from official_bert.tasks.base import DataFiles
from tests import toy
from tests.hostile.checkpoints import tensors_of, with_head, write_output_dir
from tests.hostile.commands import CLASSIFIER, CONVERT, EXPORT, FEATURES, classifier, conversion, features
from tests.hostile.rows import check, model_flags, row, table


def trained(folder: pathlib.Path, labels: str = "a\nb\nc\n"):
    """Writes what a training of the classifier leaves in `out`: a checkpoint, its labels, and the record of the run."""
    write_output_dir(folder, with_head(tensors_of(folder), 3))
    (folder / "out" / "labels.txt").write_text(labels)
    record = {"task_name": "tsv", "family": "classification", "settings": {"max_seq_length": 16}}
    (folder / "out" / "task.json").write_text(json.dumps(record))


def export(folder: pathlib.Path, task_name: str, *flags: str) -> list[str]:
    trained(folder)
    given = {"init_checkpoint": folder / "out", "task_name": task_name, "export_dir": folder / "export"}
    return [*model_flags(folder, **given), *flags]


def with_a_label_twice(folder: pathlib.Path) -> list[str]:
    trained(folder, "a\nb\nb\n")
    return classifier(folder, "--do_eval")


def with_another_vocabulary(folder: pathlib.Path) -> list[str]:
    trained(folder)
    (folder / "there").mkdir()
    (folder / "there" / "vocab.txt").write_text("of\nanother\n")
    return conversion(folder, checkpoint="out")


def to_another_class(folder: pathlib.Path) -> list[str]:
    trained(folder)
    return [*conversion(folder, checkpoint="out", output_format="huggingface"), "--task_name=ner"]


def with_short_vocabulary(folder: pathlib.Path) -> list[str]:
    toy.write_vocabulary(folder, toy.VOCABULARY[:-3])
    return features(folder)


ROWS = [
    row(EXPORT, "a classifier as a tagger", lambda folder: export(folder, "ner"), "a, b, c: no tags", "run_ner.py"),
    row(
        EXPORT,
        "labels in another order",
        lambda folder: export(folder, "tsv", "--labels=b,a,c"),
        "--labels: they are b, a, c, but those beside the checkpoint are a, b, c",
    ),
    row(
        EXPORT,
        "another task",
        lambda folder: export(folder, "CoLA"),
        "--task_name=CoLA: ",
        "out/task.json says tsv; leave the flag out",
    ),
    row(CLASSIFIER, "a label twice", with_a_label_twice, "out/labels.txt: must name each label once"),
    row(CONVERT, "another vocabulary", with_another_vocabulary, "there/vocab.txt: is of another conversion"),
    row(
        CONVERT,
        "another class than the training's",
        to_another_class,
        warns=("task.json says that the model is a BertForSequenceClassification",),
        leaves=("there/*",),
    ),
    row(
        FEATURES,
        "a vocabulary that was cut",
        with_short_vocabulary,
        warns=("vocab.txt: has 47 lines, fewer than the model's vocab_size 50",),
        leaves=("features.jsonl",),
    ),
]


@table(ROWS)
def test_trained_models(row, folder):
    check(row, folder)


def test_the_file_that_is_not_read_is_named(tmp_path, caplog):
    for name in ("train.conll", "train.txt"):
        (tmp_path / name).touch()
    assert DataFiles(str(tmp_path)).path("train", ["train.conll", "train.txt"]) == f"{tmp_path}/train.conll"
    assert f"{tmp_path}/train.conll is read, and {tmp_path}/train.txt, which is there, too, is not" in caplog.text

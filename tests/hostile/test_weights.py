"""Hostile weights: what a checkpoint lacks or holds, and a trained model with the task or labels
of another one.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from official_bert.checkpoints import huggingface, tf1
from official_bert.config import BertConfig
from tests import toy
from tests.hostile.checkpoints import (
    KERNEL,
    Tensors,
    tensors_of,
    with_head,
    with_value,
    without,
    write_output_dir,
)
from tests.hostile.commands import classifier, conversion, export, features, pretraining
from tests.hostile.rows import Row, check, edit_json, model_flags, row, table


class Use(NamedTuple):
    """A use of a trained checkpoint without training, which needs the heads of pre-training or
    one with outputs.
    """

    command: Callable[[pathlib.Path], list[str]]
    leaves: str = "out/*"
    num_outputs: int = 0
    scope: str = ""


def _squad(folder: pathlib.Path) -> list[str]:
    files = {"predict_file": folder / "squad" / "dev.json", "output_dir": folder / "out"}
    return ["run_squad.py", *model_flags(folder, **files), "--do_predict"]


CLASSIFICATION = Use(
    lambda folder: classifier(folder, "--labels=a,b,c", "--do_predict"), num_outputs=3
)
SQUAD = Use(_squad, num_outputs=2, scope="cls/squad/")
EVALUATION = Use(lambda folder: pretraining(folder, "--do_eval"))
EXTRACTION = Use(features, leaves="features.jsonl")
EXPORTING = Use(export, leaves="export/*")


def _row(
    name: str,
    use: Use,
    fault: Callable[[Tensors], Tensors],
    *says: str,
    warns: tuple[str, ...] = (),
    config: dict | None = None,
    head: bool = True,
    flags: tuple[str, ...] = (),
) -> Row:
    """A use with a fault in its checkpoint, which lies in a folder of its own; `config` changes
    the configuration.
    """

    def make(folder: pathlib.Path) -> list[str]:
        own = use.command(folder)
        tensors = tensors_of(folder)
        if head and use.num_outputs:
            tensors = with_head(tensors, use.num_outputs, use.scope)
        tf1.write(str(folder / "faulty.ckpt"), fault(tensors))
        edit_json(folder / "bert_config.json", **(config or {}))
        return [*own, f"--init_checkpoint={folder}/faulty.ckpt", *flags]

    return row(name, make, *says, warns=warns, leaves=() if says else (use.leaves,))


def _without_checkpoint(folder: pathlib.Path) -> list[str]:
    return [flag for flag in SQUAD.command(folder) if not flag.startswith("--init_checkpoint")]


def _of_huggingface(dtype: np.dtype) -> Callable[[pathlib.Path], list[str]]:
    """Features of a model.safetensors, one tensor of which has another type."""

    def make(folder: pathlib.Path) -> list[str]:
        there = folder / "hf"
        there.mkdir()
        config = BertConfig.from_json_file(str(folder / "bert_config.json"))
        huggingface.write(str(there), without("cls/")(tensors_of(folder)), config)
        stored = safetensors.numpy.load_file(there / "model.safetensors")
        (name,) = (name for name in stored if name.endswith("embeddings.word_embeddings.weight"))
        safetensors.numpy.save_file(
            stored | {name: stored[name].astype(dtype)}, there / "model.safetensors"
        )
        return [*features(folder), f"--init_checkpoint={there}"]

    return make


def _same(tensors: Tensors) -> Tensors:
    return tensors


def _with_second_layer(tensors: Tensors) -> Tensors:
    return tensors | {name.replace("layer_0", "layer_1"): value for name, value in tensors.items()}


ON_PURPOSE = ("--allow_missing_weights",)
TWO_LAYERS = {"num_hidden_layers": 2}
HEAD_MISSES = ("therefore randomly initialised", "output_weights")

ROWS = [
    _row(
        "no head of a task",
        CLASSIFICATION,
        _same,
        "lacks output_weights, output_bias, which would stay random",
        head=False,
    ),
    _row("no head", EVALUATION, without("cls/predictions"), "lacks cls/predictions/", "random"),
    _row(
        "no head on purpose", CLASSIFICATION, _same, warns=HEAD_MISSES, head=False, flags=ON_PURPOSE
    ),
    *(
        _row(
            f"no layer, {use.leaves}", use, _same, "lacks bert/encoder/layer_1/", config=TWO_LAYERS
        )
        for use in (EXTRACTION, EXPORTING)
    ),
    _row("no pooler, which features do not need", EXTRACTION, without("pooler")),
    _row("no pooler, which answers do not need", SQUAD, without("pooler")),
    _row("a layer too many", EXTRACTION, _with_second_layer, "has bert/encoder/layer_1/", "more"),
    _row(
        "too many on purpose",
        EXTRACTION,
        _with_second_layer,
        warns=("does not use", "layer_1"),
        flags=ON_PURPOSE,
    ),
    _row(
        "no number on purpose",
        EXTRACTION,
        with_value(np.nan),
        f"{KERNEL} holds nan",
        flags=ON_PURPOSE,
    ),
    _row(
        "integers",
        EXTRACTION,
        lambda tensors: tensors | {KERNEL: tensors[KERNEL].astype(int)},
        "type int64",
    ),
    row("safetensors of int64", _of_huggingface(np.int64), "word_embeddings", "type I64"),
    row("no checkpoint", _without_checkpoint, "--init_checkpoint", "random"),
]


def trained(folder: pathlib.Path, labels: str = "a\nb\nc\n"):
    """Writes what a training of the classifier leaves in `out`: a checkpoint, its labels, and
    the record of the run.
    """
    write_output_dir(folder, with_head(tensors_of(folder), 3))
    (folder / "out" / "labels.txt").write_text(labels)
    told = {"number": 3, "sha256": hashlib.sha256(b"a\nb\nc\n").hexdigest()}
    record = {
        "task_name": "tsv",
        "family": "classification",
        "settings": {"max_seq_length": 16},
        "labels": told,
    }
    (folder / "out" / "task.json").write_text(json.dumps(record))


def export_as(folder: pathlib.Path, task_name: str, *flags: str) -> list[str]:
    trained(folder)
    return export(folder, f"--init_checkpoint={folder}/out", f"--task_name={task_name}", *flags)


def with_labels(labels: str) -> Callable[[pathlib.Path], list[str]]:
    def make(folder: pathlib.Path) -> list[str]:
        trained(folder, labels)
        return classifier(folder, "--do_eval")

    return make


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


TRAINED = [
    row(
        "a classifier as a tagger",
        lambda folder: export_as(folder, "ner"),
        "a, b, c: no tags",
        "run_ner.py",
    ),
    row(
        "labels in another order",
        lambda folder: export_as(folder, "tsv", "--labels=b,a,c"),
        "--labels: they are b, a, c, but those beside the checkpoint are a, b, c",
    ),
    row(
        "another task",
        lambda folder: export_as(folder, "CoLA"),
        "--task_name=CoLA: ",
        "out/task.json says tsv; leave the flag out",
    ),
    row("a label twice", with_labels("a\nb\nb\n"), "out/labels.txt: must name each label once"),
    row(
        "labels.txt in another order",
        with_labels("b\na\nc\n"),
        "out/labels.txt: the model was trained with other labels",
    ),
    row("another vocabulary", with_another_vocabulary, "there/vocab.txt: is of another conversion"),
    row(
        "another class than the training's",
        to_another_class,
        warns=("task.json says that the model is a BertForSequenceClassification",),
        leaves=("there/*",),
    ),
    row(
        "a vocabulary that was cut",
        with_short_vocabulary,
        warns=("vocab.txt: has 47 lines, fewer than the model's vocab_size 50",),
        leaves=("features.jsonl",),
    ),
]


@table([*ROWS, *TRAINED])
def test_weights(row, folder):
    check(row, folder)

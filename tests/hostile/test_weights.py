"""Hostile weights: what a checkpoint lacks, has too much of, or holds in place of numbers."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from official_bert.checkpoints import huggingface, tf1
from official_bert.config import BertConfig
from tests.hostile.checkpoints import KERNEL, Tensors, tensors_of, with_head, with_value, without
from tests.hostile.commands import CLASSIFIER, EXPORT, FEATURES, PRETRAINING, classifier, features, pretraining
from tests.hostile.rows import Row, check, edit_json, model_flags, row, table


class Use(NamedTuple):
    """A use of a trained checkpoint without training, which needs the heads of pre-training or one with outputs."""

    script: str
    flags: Callable[[pathlib.Path], list[str]]
    leaves: str = "out/*"
    num_outputs: int = 0
    scope: str = ""


def _squad(folder: pathlib.Path) -> list[str]:
    files = {"predict_file": folder / "squad" / "dev.json", "output_dir": folder / "out"}
    return [*model_flags(folder, **files), "--do_predict"]


def _export(folder: pathlib.Path) -> list[str]:
    return [*model_flags(folder, task_name="pretraining", export_dir=folder / "export"), "--max_seq_length=16"]


def _classification(folder: pathlib.Path) -> list[str]:
    return classifier(folder, "--labels=a,b,c", "--do_predict")


CLASSIFICATION = Use(CLASSIFIER, _classification, num_outputs=3)
SQUAD = Use("run_squad.py", _squad, num_outputs=2, scope="cls/squad/")
EVALUATION = Use(PRETRAINING, lambda folder: pretraining(folder, "--do_eval"))
EXTRACTION = Use(FEATURES, features, leaves="features.jsonl")
EXPORTING = Use(EXPORT, _export, leaves="export/*")


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
    """A use with a fault in its checkpoint, which lies in a folder of its own; `config` changes the configuration."""

    def make(folder: pathlib.Path) -> list[str]:
        own = use.flags(folder)
        tensors = tensors_of(folder)
        if head and use.num_outputs:
            tensors = with_head(tensors, use.num_outputs, use.scope)
        tf1.write(str(folder / "faulty.ckpt"), fault(tensors))
        edit_json(folder / "bert_config.json", **(config or {}))
        return [*own, f"--init_checkpoint={folder}/faulty.ckpt", *flags]

    return row(use.script, f"{use.script}: {name}", make, *says, warns=warns, leaves=() if says else (use.leaves,))


def _without_checkpoint(folder: pathlib.Path) -> list[str]:
    return [flag for flag in SQUAD.flags(folder) if not flag.startswith("--init_checkpoint")]


def _of_huggingface(dtype: np.dtype) -> Callable[[pathlib.Path], list[str]]:
    """Features of a model.safetensors, one tensor of which has another type."""

    def make(folder: pathlib.Path) -> list[str]:
        there = folder / "hf"
        there.mkdir()
        config = BertConfig.from_json_file(str(folder / "bert_config.json"))
        huggingface.write(str(there), without("cls/")(tensors_of(folder)), config)
        stored = safetensors.numpy.load_file(there / "model.safetensors")
        (name,) = (name for name in stored if name.endswith("embeddings.word_embeddings.weight"))
        safetensors.numpy.save_file(stored | {name: stored[name].astype(dtype)}, there / "model.safetensors")
        return [*features(folder), f"--init_checkpoint={there}"]

    return make


def _same(tensors: Tensors) -> Tensors:
    return tensors


def _with_second_layer(tensors: Tensors) -> Tensors:
    added = {name.replace("layer_0", "layer_1"): value for name, value in tensors.items() if "layer_0" in name}
    return tensors | added


def _with_integers(tensors: Tensors) -> Tensors:
    return tensors | {KERNEL: tensors[KERNEL].astype(np.int32)}


ON_PURPOSE = ("--allow_missing_weights",)
TWO_LAYERS = {"num_hidden_layers": 2}
HEAD_MISSES = ("lacks these variables of the model", "output_weights")

ROWS = [
    _row("no head", CLASSIFICATION, _same, "lacks output_weights, output_bias, which would stay random", head=False),
    _row("no head", EVALUATION, without("cls/predictions"), "lacks cls/predictions/", "random"),
    _row("no head on purpose", CLASSIFICATION, _same, warns=HEAD_MISSES, head=False, flags=ON_PURPOSE),
    *(
        _row("no layer", use, _same, "lacks bert/encoder/layer_1/", config=TWO_LAYERS)
        for use in (EXTRACTION, EXPORTING)
    ),
    _row("no pooler, which features do not need", EXTRACTION, without("pooler")),
    _row("no pooler, which answers do not need", SQUAD, without("pooler")),
    _row("a layer too many", EXTRACTION, _with_second_layer, "has bert/encoder/layer_1/", "more"),
    _row("too many on purpose", EXTRACTION, _with_second_layer, warns=("does not use", "layer_1"), flags=ON_PURPOSE),
    _row("no number on purpose", EXTRACTION, with_value(np.nan), f"{KERNEL} holds nan", flags=ON_PURPOSE),
    _row("integers", EXTRACTION, _with_integers, KERNEL, "type int32", "float32"),
    row(FEATURES, "safetensors of int64", _of_huggingface(np.int64), "word_embeddings", "type I64"),
    row("run_squad.py", "no checkpoint", _without_checkpoint, "--init_checkpoint", "random"),
]


@table(ROWS)
def test_weights(row, folder):
    check(row, folder)

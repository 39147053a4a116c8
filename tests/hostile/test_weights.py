"""Hostile weights: what a checkpoint lacks, has too much of, or holds in place of numbers."""

import json
import pathlib
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from official_bert.checkpoints import huggingface, tf1
from official_bert.config import BertConfig
from tests.hostile.checkpoints import (
    KERNEL,
    Tensors,
    as_type,
    tensors_of,
    with_head,
    with_second_layer,
    with_value,
    without,
)
from tests.hostile.commands import CLASSIFIER, EXPORT, FEATURES, PRETRAINING, classifier, features, pretraining
from tests.hostile.rows import Row, check, edit_json, model_flags, row, table


class Use(NamedTuple):
    """A use of a trained checkpoint without training, which ends the flags with those of the checkpoint.

    Attributes:
        script: the script.
        flags: of the run.
        num_outputs: of the head that the run needs; 0 for the heads of pre-training.
        scope: of the names of the head.
        leaves: the files of a successful run.
    """

    script: str
    flags: Callable[[pathlib.Path], list[str]]
    num_outputs: int = 0
    scope: str = ""
    leaves: tuple[str, ...] = ("out/*",)


def _squad(folder: pathlib.Path) -> list[str]:
    files = {"predict_file": folder / "squad" / "dev.json", "output_dir": folder / "out"}
    return [*model_flags(folder, **files), "--do_predict"]


def _export(folder: pathlib.Path) -> list[str]:
    return [*model_flags(folder, task_name="pretraining", export_dir=folder / "export"), "--max_seq_length=16"]


USES = {
    "classification": Use(CLASSIFIER, lambda folder: classifier(folder, "--labels=a,b,c", "--do_predict"), 3),
    "squad": Use("run_squad.py", _squad, 2, "cls/squad/"),
    "pretraining": Use(PRETRAINING, lambda folder: pretraining(folder, "--do_eval")),
    "extraction": Use(FEATURES, features, leaves=("features.jsonl",)),
    "export": Use(EXPORT, _export, leaves=("export/*",)),
}
SCRIPTS = ("classification", "pretraining", "extraction", "export")  # those with code of their own that loads weights


def _row(
    name: str,
    use: str,
    fault: Callable[[Tensors], Tensors],
    *says: str,
    warns: tuple[str, ...] = (),
    config: dict | None = None,
    head: bool = True,
    flags: tuple[str, ...] = (),
) -> Row:
    """A use with a fault in its checkpoint, which lies in a folder of its own; `config` changes the configuration."""
    used = USES[use]

    def make(folder: pathlib.Path) -> list[str]:
        own = used.flags(folder)
        tensors = tensors_of(folder)
        if head and used.num_outputs:
            tensors = with_head(tensors, used.num_outputs, used.scope)
        tf1.write(str(folder / "faulty.ckpt"), fault(tensors))
        edit_json(folder / "bert_config.json", **(config or {}))
        return [*own, f"--init_checkpoint={folder}/faulty.ckpt", *flags]

    return row(used.script, f"{use}: {name}", make, *says, warns=warns, leaves=() if says else used.leaves)


def _without_checkpoint(use: str) -> Row:
    def make(folder: pathlib.Path) -> list[str]:
        return [flag for flag in USES[use].flags(folder) if not flag.startswith("--init_checkpoint")]

    return row(USES[use].script, f"{use}: no checkpoint", make, "--init_checkpoint", "random")


def _huggingface_row(name: str, dtype: str, num_bytes: int, *says: str) -> Row:
    """Features of a model.safetensors, one tensor of which has another type; its bytes are zeros."""

    def make(folder: pathlib.Path) -> list[str]:
        there = folder / "hf"
        there.mkdir()
        tensors = without("cls/")(tensors_of(folder))
        config = BertConfig.from_json_file(str(folder / "bert_config.json"))
        huggingface.write(str(there), tensors, config)
        _retype(there / "model.safetensors", "embeddings.word_embeddings.weight", dtype, num_bytes)
        return [*features(folder), f"--init_checkpoint={there}"]

    return row(FEATURES, name, make, *says, leaves=() if says else ("features.jsonl",))


def _retype(path: pathlib.Path, name: str, dtype: str, num_bytes: int):
    """Gives a tensor of a safetensors file another type by rewriting the header, and zeros of the new size."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    body, entries = b"", {}
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        part = data[start:end]
        if key == name:
            entry["dtype"], part = dtype, bytes(int(np.prod(entry["shape"])) * num_bytes)
        entries[key] = entry | {"data_offsets": [len(body), len(body) + len(part)]}
        body += part
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def _same(tensors: Tensors) -> Tensors:
    return tensors


ON_PURPOSE = ("--allow_missing_weights",)
TWO_LAYERS = {"num_hidden_layers": 2}

ROWS = [
    *(
        _row("head left random", use, _same, f"lacks {head}output_weights, {head}output_bias, which would", head=False)
        for use, head in (("classification", ""), ("squad", "cls/squad/"))
    ),
    _row("head left random", "pretraining", without("cls/predictions"), "lacks cls/predictions/", "random"),
    *(_row("layer left random", use, _same, "lacks bert/encoder/layer_1/", config=TWO_LAYERS) for use in SCRIPTS),
    *(_row("layer left out", use, with_second_layer, "has bert/encoder/layer_1/", "more") for use in SCRIPTS),
    *(_row("weight that is no number", use, with_value(np.nan), f"{KERNEL} holds nan") for use in SCRIPTS),
    _row("infinite weight", "extraction", with_value(-np.inf), f"{KERNEL} holds -inf"),
    _row("weight of a diverged run", "extraction", with_value(3e30), f"{KERNEL} holds 3e+30", "diverged"),
    *(
        _row(f"weights of type {dtype}", "extraction", as_type(dtype), KERNEL, f"type {dtype}", "float32")
        for dtype in ("int32", "bool", "complex64", "string", "float8_e5m2")
    ),
    _row("head of type int32", "classification", as_type("int32", "output_bias"), "type int32"),
    *(_row(f"weights of type {dtype}", "extraction", as_type(dtype)) for dtype in ("float16", "bfloat16", "float64")),
    _row("pooler that features do not need", "extraction", without("pooler")),
    _row("pooler that answers do not need", "squad", without("pooler")),
    _row(
        "head left random on purpose",
        "classification",
        _same,
        head=False,
        warns=("lacks these variables of the model", "output_weights"),
        flags=ON_PURPOSE,
    ),
    _row(
        "layer left out on purpose",
        "extraction",
        with_second_layer,
        warns=("weights that the model does not use", "layer_1"),
        flags=ON_PURPOSE,
    ),
    _row("no number on purpose", "extraction", with_value(np.nan), "holds nan", flags=ON_PURPOSE),
    *(
        _huggingface_row(f"safetensors of type {dtype}", dtype, size, "word_embeddings", f"type {dtype}")
        for dtype, size in (("F8_E4M3", 1), ("BOOL", 1), ("I64", 8))
    ),
    *(
        _huggingface_row(f"safetensors of type {dtype}", dtype, size)
        for dtype, size in (("F16", 2), ("BF16", 2), ("F64", 8))
    ),
    *map(_without_checkpoint, ("classification", "squad", "pretraining")),
]


@table(ROWS)
def test_weights(row, folder):
    check(row, folder)

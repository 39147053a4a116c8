"""Hostile weights: what a checkpoint lacks, has too much of, or holds in place of numbers."""

import json
import pathlib
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from official_bert.checkpoints import huggingface, tf1
from official_bert.config import BertConfig
from tests.commands.pretraining_run import PREDICTIONS, SEQ, write_records
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
from tests.hostile.rows import Row, check, edit_json, model_flags, table


class Use(NamedTuple):
    """A use of a trained checkpoint without training.

    Attributes:
        script: the script.
        flags: of the run, beside those of the model.
        num_outputs: of the head that the run needs; 0 for the heads of pre-training.
        scope: of the names of the head.
        prepare: makes further files.
        leaves: the files of a successful run.
    """

    script: str
    flags: Callable[[pathlib.Path], list[str]]
    num_outputs: int = 0
    scope: str = ""
    prepare: Callable[[pathlib.Path], object] = lambda folder: None
    leaves: tuple[str, ...] = ("out/*",)


def _fine_tuned(script: str, num_outputs: int, *flags: str, scope: str = "", labels: str = "") -> Use:
    def prepare(folder: pathlib.Path):
        if labels:
            (folder / "labels.txt").write_text(labels)

    return Use(
        script,
        lambda folder: [*(flag.format(folder) for flag in flags), "--do_predict", f"--output_dir={folder}/out"],
        num_outputs,
        scope,
        prepare,
    )


USES = {
    "classification": _fine_tuned(
        "run_classifier.py", 3, "--task_name=tsv", "--data_dir={}/classification", "--labels=a,b,c"
    ),
    "choice": _fine_tuned("run_swag.py", 1, "--task_name=codah", "--data_dir={}/choice"),
    "tagging": _fine_tuned("run_ner.py", 3, "--data_dir={}/tagging", labels="B-X\nI-X\nO\n"),
    "squad": _fine_tuned("run_squad.py", 2, "--predict_file={}/squad/dev.json", scope="cls/squad/"),
    "pretraining": Use(
        "run_pretraining.py",
        lambda folder: [
            f"--input_file={folder}/records.tfrecord",
            f"--output_dir={folder}/out",
            f"--max_seq_length={SEQ}",
            f"--max_predictions_per_seq={PREDICTIONS}",
            "--do_eval",
            "--max_eval_steps=1",
            "--vocab_file=",
        ],
        prepare=lambda folder: write_records(folder / "records.tfrecord", 8),
    ),
    "extraction": Use(
        "extract_features.py",
        lambda folder: [
            f"--input_file={folder}/corpus.txt",
            f"--output_file={folder}/features.jsonl",
            "--layers=-1",
            "--max_seq_length=16",
        ],
        leaves=("features.jsonl",),
    ),
    "export": Use(
        "export_saved_model.py",
        lambda folder: ["--task_name=pretraining", f"--export_dir={folder}/export", "--max_seq_length=16"],
        leaves=("export/*",),
    ),
}


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
        used.prepare(folder)
        tensors = tensors_of(folder)
        if head and used.num_outputs:
            tensors = with_head(tensors, used.num_outputs, used.scope)
        tf1.write(str(folder / "faulty.ckpt"), fault(tensors))
        if config:
            edit_json(folder / "bert_config.json", **config)
        given = model_flags(folder, init_checkpoint=folder / "faulty.ckpt")
        own = used.flags(folder)
        if "--vocab_file=" in own:  # the script reads no text
            own.remove("--vocab_file=")
            given = [flag for flag in given if not flag.startswith("--vocab_file")]
        return [*given, *own, *flags]

    return Row(f"{use}: {name}", used.script, make, says, warns, () if says else used.leaves)


def _huggingface_row(name: str, dtype: str, num_bytes: int, *says: str) -> Row:
    """Features of a model.safetensors, one tensor of which has another type; its bytes are zeros."""

    def make(folder: pathlib.Path) -> list[str]:
        there = folder / "hf"
        there.mkdir()
        tensors = without("cls/")(tensors_of(folder))
        config = BertConfig.from_json_file(str(folder / "bert_config.json"))
        huggingface.write(str(there), tensors, config)
        _retype(there / "model.safetensors", "embeddings.word_embeddings.weight", dtype, num_bytes)
        return [*model_flags(folder, init_checkpoint=there), *USES["extraction"].flags(folder)]

    return Row(name, "extract_features.py", make, says, leaves=() if says else ("features.jsonl",))


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


_RANDOM_HEAD = {
    "classification": "lacks output_weights, output_bias, which would stay random",
    "choice": "lacks output_weights, output_bias, which would stay random",
    "tagging": "lacks output_weights, output_bias, which would stay random",
    "squad": "lacks cls/squad/output_weights, cls/squad/output_bias, which would stay random",
}

ROWS = [
    *(
        _row("head left random", use, _same, said, "--allow_missing_weights", head=False)
        for use, said in _RANDOM_HEAD.items()
    ),
    _row("head left random", "pretraining", without("cls/predictions"), "lacks cls/predictions/", "random"),
    *(
        _row("layer left random", use, _same, "lacks bert/encoder/layer_1/", config={"num_hidden_layers": 2})
        for use in USES
    ),
    *(
        _row("layer left out", use, with_second_layer, "has bert/encoder/layer_1/", "more", "give the config")
        for use in USES
    ),
    *(
        _row("weight that is no number", use, with_value(np.nan), f"{KERNEL} holds nan", "earlier checkpoint")
        for use in USES
    ),
    _row("infinite weight", "extraction", with_value(-np.inf), f"{KERNEL} holds -inf"),
    _row("weight of a diverged run", "extraction", with_value(3e30), f"{KERNEL} holds 3e+30", "diverged"),
    _row("weight of a diverged run", "classification", with_value(3e30), f"{KERNEL} holds 3e+30"),
    *(
        _row(f"weights of type {dtype}", "extraction", as_type(dtype), KERNEL, f"type {dtype}", "float32")
        for dtype in ("int32", "int64", "bool", "complex64", "string", "float8_e5m2", "float8_e4m3fn")
    ),
    *(
        _row(f"head of type {dtype}", "classification", as_type(dtype, "output_bias"), f"type {dtype}")
        for dtype in ("int32", "bool", "complex128", "string")
    ),
    *(_row(f"weights of type {dtype}", "extraction", as_type(dtype)) for dtype in ("float16", "bfloat16", "float64")),
    _row("pooler that features do not need", "extraction", without("pooler")),
    _row("pooler that answers do not need", "squad", without("pooler")),
    *(
        _row(
            "head left random on purpose",
            use,
            _same,
            head=False,
            warns=("lacks these variables of the model", "output_weights"),
            flags=("--allow_missing_weights", "--predict_batch_size=4"),
        )
        for use in ("classification", "choice")
    ),
    _row(
        "layer left random on purpose",
        "extraction",
        _same,
        warns=("lacks these variables", "layer_1"),
        config={"num_hidden_layers": 2},
        flags=("--allow_missing_weights",),
    ),
    _row(
        "layer left out on purpose",
        "extraction",
        with_second_layer,
        warns=("weights that the model does not use", "layer_1"),
        flags=("--allow_missing_weights",),
    ),
    _row(
        "purpose does not excuse what is no number",
        "extraction",
        with_value(np.nan),
        "holds nan",
        flags=("--allow_missing_weights",),
    ),
    *(
        _huggingface_row(f"safetensors of type {dtype}", dtype, size, "word_embeddings", f"type {dtype}")
        for dtype, size in (("F8_E4M3", 1), ("F8_E5M2", 1), ("BOOL", 1), ("I64", 8), ("U8", 1), ("C64", 8))
    ),
    *(
        _huggingface_row(f"safetensors of type {dtype}", dtype, size)
        for dtype, size in (("F16", 2), ("BF16", 2), ("F64", 8))
    ),
]


def _without_checkpoint(use: str, *flags: str) -> Callable[[pathlib.Path], list[str]]:
    def make(folder: pathlib.Path) -> list[str]:
        used = USES[use]
        used.prepare(folder)
        given = model_flags(folder, init_checkpoint=None)
        own = used.flags(folder)
        if use == "pretraining":
            own.remove("--vocab_file=")
            given = [flag for flag in given if not flag.startswith("--vocab_file")]
        return [*given, *own, *flags]

    return make


ROWS += [
    Row(f"{use}: no checkpoint", USES[use].script, _without_checkpoint(use), ("--init_checkpoint", "random"))
    for use in ("classification", "choice", "squad", "pretraining")
]


@table(ROWS)
def test_weights(row, folder):
    check(row, folder)

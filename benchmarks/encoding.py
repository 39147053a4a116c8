#!/usr/bin/env python3
"""Compares the seconds in which texts become vectors with sentence-transformers on PyTorch.

In: a folder with corpus, as benchmarks/embeddings.py reads it, and a folder of
sentence-transformers. Out: a table, and a line of JSON in --output for each finished run. Runs that
this file already contains are not repeated; each is a process of its own.

    python benchmarks/encoding.py --data=data --model=minilm --work_dir=work --output=encoding.jsonl

A text is one to eight neighbouring lines of Wikipedia, most often one, and has at most 256 tokens.
The sides take turns with the same texts. `folder` is `SentenceEncoder` with the folder. The sides
`exports` use it with exports in float32, bfloat16 and 8 bits; the fastest runtime of each is chosen,
unless the side names one. `sentence-transformers` is `SentenceTransformer.encode`, in float32 and
bfloat16. All sort the texts by length, and have a thread for each core. Leave out bfloat16 with
`--sides` on processors without it.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from finetuning import device_name
from result_rows import measure_missing


class Export(NamedTuple):
    """How a side exports and opens the model. Sides of one type share an export."""

    dtype: str
    formats: tuple[str, ...]
    runtime: str = "auto"


_FLOAT_FORMATS = ("saved_model", "onnx", "litert", "openvino")
EXPORTS = {
    "exports": Export("float32", _FLOAT_FORMATS),
    "exports, OpenVINO in bfloat16": Export("float32", _FLOAT_FORMATS, "openvino_bfloat16"),
    "exports, bfloat16": Export("bfloat16", ("saved_model",)),
    "exports, int8": Export("int8", ("onnx", "litert")),
}
THEIRS = "sentence-transformers"
THEIRS_IN_BFLOAT16 = "sentence-transformers, bfloat16"
SIDES = ("folder", *EXPORTS, THEIRS, THEIRS_IN_BFLOAT16)
MAX_LENGTH, MOST_LINES, NUM_WARM = 256, 8, 500


def read_texts(data: pathlib.Path, count: int) -> list[str]:
    """Returns texts of mixed length, the same for each side."""
    draws = random.Random(0)
    texts = []
    for path in sorted((data / "corpus").glob("wiki_*.txt")):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if line]
        start = 0
        while start < len(lines):
            num_lines = 1
            while num_lines < MOST_LINES and draws.random() < 0.5:
                num_lines += 1
            texts.append(" ".join(lines[start : start + num_lines]))
            start += num_lines
    return draws.sample(texts, count)


def make_export(flags, side: str):
    """Exports the model for a side, unless it is there."""
    from official_bert import catalog
    from official_bert.serving import model as serving_model

    dtype, formats, _ = EXPORTS[side]
    folder = flags.work_dir / dtype
    if not (folder / "1").exists():
        options = catalog.options_class("export_saved_model")(
            task_name="embedding",
            model=str(flags.model),
            max_seq_length=MAX_LENGTH,
            export_dir=str(folder),
            export_format=list(formats),
            dtype=dtype,
        )
        serving_model.export(options)


def open_side(flags, side: str, batch_size: int) -> Callable[[list[str]], np.ndarray]:
    """Returns the function of a side that encodes texts."""
    num_threads = len(os.sched_getaffinity(0))
    if side in (THEIRS, THEIRS_IN_BFLOAT16):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(num_threads)
        dtype = "float32" if side == THEIRS else "bfloat16"
        theirs = SentenceTransformer(str(flags.model), device="cpu", model_kwargs={"dtype": dtype})
        theirs.max_seq_length = MAX_LENGTH
        return lambda texts: theirs.encode(texts, batch_size=batch_size)
    from official_bert import SentenceEncoder

    settings = {"max_seq_length": MAX_LENGTH, "num_threads": num_threads}
    if side in EXPORTS:
        folder = flags.work_dir / EXPORTS[side].dtype / "1"
        encoder = SentenceEncoder(str(folder), **settings, runtime=EXPORTS[side].runtime)
    else:
        encoder = SentenceEncoder(str(flags.model), **settings)
    return lambda texts: encoder.encode(texts, batch_size)


def one_run(flags, which: dict) -> dict:
    texts = read_texts(flags.data, flags.num_texts)
    load = os.getloadavg()[0]
    encode = open_side(flags, which["side"], which["batch_size"])
    encode(texts[:NUM_WARM])
    start, processor_start = time.perf_counter(), time.process_time()
    vectors = encode(texts)
    secs, processor_secs = time.perf_counter() - start, time.process_time() - processor_start
    return which | {
        "num_texts": flags.num_texts,
        "secs": secs,
        "processor_secs": processor_secs,
        "least_cosine": compare_with_first(flags, vectors),
        "load": load,
        "device": device_name(),
    }


def compare_with_first(flags, vectors: np.ndarray) -> float:
    """Returns the least cosine of the vectors with those of the first run, which it keeps."""
    path = flags.work_dir / f"vectors_{flags.num_texts}.npy"
    vectors = vectors.astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if not path.exists():
        np.save(path, vectors)
    return float((np.load(path) * vectors).sum(axis=1).min())


def list_runs(flags) -> list[dict]:
    """Returns what identifies each run; the sides take turns."""
    named = itertools.product(range(flags.rounds), flags.batch_sizes, flags.sides)
    return [
        {"round": number, "batch_size": size, "side": side, "num_texts": flags.num_texts}
        for number, size, side in named
    ]


def print_table(rows: list[dict]):
    """Prints the medians of the rounds, and how many times as fast as theirs each side is."""
    print("\n| texts | batch | side | rounds | seconds | texts a second | lead | least cosine |")
    print("|--:|--:|---|--:|--:|--:|--:|--:|")
    shapes = sorted({(row["num_texts"], row["batch_size"]) for row in rows})
    for (num_texts, batch_size), side in itertools.product(shapes, SIDES):
        secs = {
            name: [
                row["secs"]
                for row in rows
                if (row["num_texts"], row["batch_size"], row["side"])
                == (num_texts, batch_size, name)
            ]
            for name in (side, THEIRS)
        }
        if not all(secs.values()):
            continue
        ours, theirs = statistics.median(secs[side]), statistics.median(secs[THEIRS])
        cosines = [row["least_cosine"] for row in rows if row["side"] == side]
        figures = f"{len(secs[side])} | {ours:.1f} | {num_texts / ours:.0f} | {theirs / ours:.2f}x"
        print(f"| {num_texts:,} | {batch_size} | {side} | {figures} | {min(cosines):.4f} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with corpus")
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="folder of sentence-transformers"
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder of the exports"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument("--num_texts", type=int, default=20_000)
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    for side in set(flags.sides) & set(EXPORTS):
        make_export(flags, side)
    print_table(measure_missing(__file__, flags.output, list_runs(flags), {}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures the milliseconds of a batch by the size of the parts in which a runtime computes it.

In: exports of --task_name=embedding with files of onnxruntime or LiteRT. Out: a table of
milliseconds of a batch of random ids, and a line of JSON in --output for each row. Rows that this
file already contains are not measured again; each is a process of its own.

    python benchmarks/batch_parts.py --exports exports/int8/1 exports/float32/1 \
        --output=batch_parts.jsonl

A row is the best of a few calls for each number of rows in a part, with a thread for each core.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from result_rows import measure_missing

RUNTIMES = ("onnxruntime", "litert")
NUM_TIMED = 4
ID_RANGE = (1000, 20_000)


def one_run(flags, which: dict) -> dict:
    """Returns the milliseconds by the number of rows in a part. The keys are strings, as in JSON."""
    from finetuning import device_name

    from official_bert.config import BertConfig
    from official_bert.extensions.runtimes import parts
    from official_bert.serving.exported_model import OpenedExport

    num_threads = len(os.sched_getaffinity(0))
    opened = OpenedExport(which["export"], num_threads, settings={"runtime": which["runtime"]})
    shape = which["batch_size"], which["length"]
    ids = np.random.default_rng(0).integers(*ID_RANGE, size=shape).astype(np.int32)
    features = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    milliseconds = {}
    for rows in which["rows"]:
        opened._runtime.max_part_tokens = rows * which["length"]
        times = []
        for _ in range(1 + NUM_TIMED):
            start = time.perf_counter()
            opened("serving_default", features)
            times.append(time.perf_counter() - start)
        milliseconds[str(rows)] = 1e3 * min(times[1:])
    config = BertConfig.from_json_file(
        os.path.join(which["export"], "assets.extra/bert_config.json")
    )
    tokens = parts.compute_part_tokens(config.intermediate_size, num_threads)
    return which | {
        "model": f"{config.num_hidden_layers}/{config.hidden_size}",
        "dtype": opened.record.converted["dtype"],
        "milliseconds": milliseconds,
        "chosen_rows": max(1, tokens // which["length"]),
        "device": device_name(),
    }


def list_runs(flags) -> list[dict]:
    """Returns what identifies each row."""
    named = itertools.product(flags.exports, flags.runtimes, flags.lengths)
    which = {"batch_size": flags.batch_size, "rows": flags.rows}
    return [
        which | {"export": export, "runtime": runtime, "length": length}
        for export, runtime, length in named
    ]


def print_table(rows: list[dict], sizes: list[int]):
    heads = " | ".join(f"{size} rows" for size in sizes)
    print(f"\n| model | type | runtime | length | {heads} | rows chosen |")
    print("|---|---|---|--:|" + "--:|" * (1 + len(sizes)))
    for row in rows:
        if row["rows"] != sizes:
            continue
        times = " | ".join(f"{row['milliseconds'][str(size)]:.0f}" for size in sizes)
        names = f"{row['model']} | {row['dtype']} | {row['runtime']}"
        print(f"| {names} | {row['length']} | {times} | {row['chosen_rows']} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exports", nargs="+", required=True, help="folders of versions")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="JSON lines file")
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 64, 128, 256])
    parser.add_argument(
        "--rows", nargs="+", type=int, default=[128, 64, 32, 16, 8, 4], help="rows of a part"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    rows = measure_missing(__file__, flags.output, list_runs(flags), {})
    print_table(rows, flags.rows)


if __name__ == "__main__":
    main()

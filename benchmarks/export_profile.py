#!/usr/bin/env python3
"""Says what an exported model gains by the second core, operation by operation.

In: one sequence of random ids; the benchmark needs the packages of requirements-bench.txt. Out: a table of the kinds of
operations, and a line of JSON in --output for each row that this file does not have yet.

TensorFlow's profiler records every operation of a call of `serving_default`, in a process with one thread within
operations and in one with two, each with one thread among operations, so that their seconds add up. onnxruntime answers
the same sequence with as many threads; its time has no parts.

    python benchmarks/export_profile.py --models 6/384 --length 128
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import serving
from step_profile import read

RESULTS = pathlib.Path(__file__).resolve().parent / "results/export_profile.jsonl"
CALLS = 30
LEAST_MS = 0.2  # of an operation's line in the table


def profile(model: str, length: int, cpus: list[int]) -> dict:
    """Returns the milliseconds of a call, and those of its operations by type."""
    import tensorflow as tf

    threads = serving.prepare_threads(cpus, keeps_freed_memory=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        hugging_face = serving.make_hugging_face(model, "vectors", folder)
        ours = serving.our_runtime("vectors", folder)
        onnx = serving.onnx_runtime("vectors", hugging_face, folder, threads)
        features = serving.random_features(1, length, hugging_face.config.vocab_size)
        whole = {name: milliseconds(run, features) for name, run in (("ours", ours), ("onnxruntime", onnx))}
        durations = collections.defaultdict(list)
        for _ in range(CALLS):
            ours(features)
            logs = folder / "profile"
            tf.profiler.experimental.start(str(logs))
            ours(features)
            tf.profiler.experimental.stop()
            (path,) = logs.glob("plugins/profile/*/*.xplane.pb")
            for operation, secs in read(path).items():
                durations[operation].append(1000 * secs)
            path.unlink()
    by_kind, counts = collections.Counter(), collections.Counter()
    for (_, kind), values in durations.items():
        counts[kind] += 1
        by_kind[kind] += statistics.median(values)
    row = {"model": model, "length": length, "threads": threads} | whole
    return row | {"ms": {kind: round(ms, 4) for kind, ms in by_kind.most_common()}, "counts": counts}


def milliseconds(run: serving.Runtime, features: serving.Features) -> float:
    """Returns the median of some calls, which are not recorded."""
    times = []
    for _ in range(2 * CALLS):
        start = time.perf_counter()
        run(features)
        times.append(1000 * (time.perf_counter() - start))
    return round(statistics.median(times[CALLS:]), 3)


def print_table(one: dict, two: dict):
    """Prints the types of operations that take a noticeable time, with one thread and with two."""
    print(f"\n{one['model']}, one sequence of {one['length']} tokens\n")
    print("| operation | number | ms, 1 thread | ms, 2 threads | gain |\n|---|--:|--:|--:|--:|")

    def print_line(name, count, values):
        print(f"| {name} | {count} | {values[0]:.2f} | {values[1]:.2f} | {values[0] / values[1]:.2f}x |")

    shown = [kind for kind, ms in one["ms"].items() if ms >= LEAST_MS]
    for kind in shown:
        print_line(f"`{kind}`", one["counts"][kind], [row["ms"][kind] for row in (one, two)])
    rest = [sum(ms for kind, ms in row["ms"].items() if kind not in shown) for row in (one, two)]
    count = sum(one["counts"].values()) - sum(one["counts"][kind] for kind in shown)
    print_line("the other operations", count, rest)
    between = [row["ours"] - sum(row["ms"].values()) for row in (one, two)]
    print(f"| between operations | | {between[0]:.2f} | {between[1]:.2f} | |")
    print_line("a call", "", [row["ours"] for row in (one, two)])
    print_line("onnxruntime", "", [row["onnxruntime"] for row in (one, two)])
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="two cores")
    parser.add_argument("--models", nargs="+", choices=serving.MODELS, default=serving.MODELS)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    cpus = [int(cpu) for cpu in flags.cpus.split(",")]
    if flags.one:
        print(json.dumps(profile(flags.models[0], flags.length, cpus)), flush=True)
        return
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = {(row["model"], row["length"], row["threads"]): row for row in map(json.loads, lines)}
    for model in flags.models:
        for used in cpus[:1], cpus:
            key = model, flags.length, len(used)
            if key in rows:
                continue
            command = [sys.executable, __file__, "--one", "--models", model, f"--length={flags.length}"]
            command += ["--cpus", ",".join(map(str, used))]
            environment = os.environ | {"TF_NUM_INTEROP_THREADS": "1"}
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
            line = ran.stdout.splitlines()[-1]
            rows[key] = json.loads(line)
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        print_table(rows[model, flags.length, 1], rows[model, flags.length, len(cpus)])


if __name__ == "__main__":
    main()

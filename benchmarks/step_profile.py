#!/usr/bin/env python3
"""Says which operations take the time of a pre-training step.

In: a batch of random ids. Out: a table of the kinds of operations, and a line of JSON in --output for each size; sizes
that this file already contains are not profiled again.

TensorFlow's profiler records every operation of a step. The step runs on one thread, so that the seconds of operations
add up to its own. Several steps are recorded, each by itself, and medians count. The optimizer, which XLA compiles, is
no operation for the profiler; it is in the rest.

    python benchmarks/step_profile.py --sizes mini
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from training_step import BATCH_SIZES, VOCAB, our_step, prepare_threads, random_batch

RESULTS = pathlib.Path(__file__).resolve().parent / "results/step_profile.jsonl"
STEPS = 5
LEAST_SHARE = 0.01  # of an operation's line in the table


def profile(size: str) -> dict:
    """Returns the seconds of a step by type of operation."""
    import tensorflow as tf

    from official_bert import BertConfig

    step = our_step(BertConfig.from_size(size, VOCAB), BATCH_SIZES[size])
    batch = {name: tf.constant(value[None]) for name, value in random_batch(BATCH_SIZES[size]).items()}
    durations, whole = collections.defaultdict(list), []
    for _ in range(STEPS):
        step(batch)  # the profiler leaves fresh pages of memory behind
        start = time.process_time()
        step(batch)
        whole.append(time.process_time() - start)
        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            step(batch)
            tf.profiler.experimental.stop()
            (path,) = pathlib.Path(folder).glob("plugins/profile/*/*.xplane.pb")
            for operation, secs in read(path).items():
                durations[operation].append(secs)
    secs, counts = collections.Counter(), collections.Counter()
    for (_, kind), values in durations.items():
        counts[kind] += 1
        secs[kind] += statistics.median(values)
    return {
        "size": size,
        "batch_size": BATCH_SIZES[size],
        "step_secs": round(statistics.median(whole), 5),
        "secs": {kind: round(value, 5) for kind, value in secs.most_common()},
        "counts": counts,
    }


def read(path: pathlib.Path) -> dict[tuple[str, str], float]:
    """Returns the seconds of each operation of a profile, by its name and type."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    durations = collections.Counter()
    for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
        for line in plane.lines:
            for event in line.events:
                name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                # An operation is called "name:Type", a scope of TensorFlow's own code "Class::Function".
                if name and not name.endswith(":") and kind.isidentifier():
                    durations[name, kind] += event.duration_ps * 1e-12
    return durations


def print_table(row: dict):
    """Prints the types of operations that take a noticeable share."""
    whole, listed = row["step_secs"], sum(row["secs"].values())
    print(f"\n{row['size']}, batch {row['batch_size']}: {whole:.3f} s a step\n")
    print("| operation | number | secs | share |\n|---|--:|--:|--:|")
    for kind, secs in row["secs"].items():
        if secs > LEAST_SHARE * whole:
            print(f"| {kind} | {row['counts'][kind]:.0f} | {secs:.3f} | {secs / whole:.1%} |")
    print(f"| the rest, with the compiled optimizer | | {whole - listed:.3f} | {1.0 - listed / whole:.1%} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", type=int, default=0, help="the core to run on")
    parser.add_argument("--sizes", nargs="+", choices=BATCH_SIZES, default=list(BATCH_SIZES))
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    flags = parser.parse_args()
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = {row["size"]: row for row in map(json.loads, lines)}
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    prepare_threads([flags.cpu], want_peer=False)
    for size in flags.sizes:
        if size not in rows:
            rows[size] = profile(size)
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[size]) + "\n")
        print_table(rows[size])


if __name__ == "__main__":
    main()

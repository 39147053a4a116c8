#!/usr/bin/env python3
"""Compares the time of a pre-training step, and of a forward pass, with and without training/memory.py.

In: batches of random ids. Out: a table, and a line of JSON in --output for each finished row. Rows that this file
already contains are not measured again.

Each measurement is a process of its own, because the settings of a heap cannot be taken back; the two kinds take turns,
and medians count. The step is that of training_step.py; the forward pass is the encoder's on 32 sequences of 128
tokens. A page fault is a page of memory that the process touches for the first time: the system clears it.

    python benchmarks/freed_memory.py
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from training_step import BATCH_SIZES, LENGTH, VOCAB, our_timer, prepare_threads, random_batch, timed

RESULTS = pathlib.Path(__file__).resolve().parent / "results/freed_memory.jsonl"
STEP, FORWARD = "step", "forward"
GLIBC_AS_IT_IS = {"MALLOC_ARENA_MAX": str(8 * os.cpu_count())}  # its default, at which heap.py stands back
KINDS = {"usual": GLIBC_AS_IT_IS, "kept": {}}
SEQUENCES_FORWARD = 32
MEASURED = "secs", "processor_secs", "faults", "peak_mb"


def forward_timer(config):
    """Returns a function that computes a forward pass of the encoder and returns its seconds."""
    import tensorflow as tf

    from official_bert import BertModel
    from official_bert.features import ENCODER_INPUTS

    model = BertModel(config)
    batch = random_batch(SEQUENCES_FORWARD)
    features = {name: tf.constant(batch[name]) for name in ENCODER_INPUTS}
    run = tf.function(lambda: model(features).sequence_output)
    return timed(lambda: run().numpy())


def measure(what: str, size: str, cpus: list[int], repeats: int) -> dict[str, float]:
    """Measures in this process."""
    prepare_threads(cpus, want_peer=False)
    from official_bert import BertConfig

    config = BertConfig.from_size(size, VOCAB)
    timer = forward_timer(config) if what == FORWARD else our_timer(config, BATCH_SIZES[size])
    timer()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    secs = [timer() for _ in range(repeats)]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "secs": statistics.median(secs),
        "processor_secs": (time.process_time() - start) / repeats,
        "faults": (after.ru_minflt - before.ru_minflt) / repeats,
        "peak_mb": after.ru_maxrss // 1024,
    }


def measured_apart(flags, what: str, size: str, environment: dict[str, str]) -> dict[str, float]:
    """Measures in a new process, of whose environment only `environment` configures the heap."""
    from official_bert.training import memory

    command = [sys.executable, __file__, f"--measure={what}", f"--sizes={size}", f"--cpus={flags.cpus}"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(memory.SETTINGS)}
    done = subprocess.run(
        [*command, f"--repeats={flags.repeats}"], stdout=subprocess.PIPE, check=True, env=clean | environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def row_of(flags, what: str, size: str) -> dict:
    """Measures both kinds in turns, and returns the medians."""
    found = {kind: [] for kind in KINDS}
    for _ in range(flags.rounds):
        for kind, environment in KINDS.items():
            found[kind].append(measured_apart(flags, what, size, environment))
    medians = {
        f"{kind}_{name}": round(statistics.median(one[name] for one in found[kind]), 4)
        for kind in KINDS
        for name in MEASURED
    }
    batch_size = SEQUENCES_FORWARD if what == FORWARD else BATCH_SIZES[size]
    return {"what": what, "size": size, "batch_size": batch_size, "length": LENGTH} | medians


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--sizes", nargs="+", choices=BATCH_SIZES, default=list(BATCH_SIZES))
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--repeats", type=int, default=6, help="steps of a process")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--measure", choices=(STEP, FORWARD), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        cpus = [int(cpu) for cpu in flags.cpus.split(",")]
        print(json.dumps(measure(flags.measure, flags.sizes[0], cpus, flags.repeats)))
        return

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    for what in (STEP, FORWARD):
        for size in flags.sizes:
            if not any((row["what"], row["size"]) == (what, size) for row in rows):
                rows.append(row_of(flags, what, size))
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(
        "| what | model | batch | secs, usual | kept | gain | processor secs, usual | kept | faults, usual | kept |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        print(
            f"| {row['what']} | {row['size']} | {row['batch_size']} | {row['usual_secs']:.3f} | {row['kept_secs']:.3f} "
            f"| {row['usual_secs'] / row['kept_secs']:.2f}x | {row['usual_processor_secs']:.3f} "
            f"| {row['kept_processor_secs']:.3f} | {row['usual_faults']:,.0f} | {row['kept_faults']:,.0f} |"
        )


if __name__ == "__main__":
    main()

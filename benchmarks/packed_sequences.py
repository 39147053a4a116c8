#!/usr/bin/env python3
"""Compares the time of a pre-training step with and without --packed_sequences, on records of real text.

In: records of create_pretraining_data.py. Out: a table, and a line of JSON in --output for each finished row. Rows that
this file already contains are not measured again.

A step consists of forward pass, backward pass, clipping and the optimizer, in float32 with dropout 0.1. Both kinds make
the same batches, in turns, in one process. The seconds are medians, the gain is that of all batches together.
--processor_time measures the time of the processors instead of the clock's, on which other work on the machine has
little influence.

    python benchmarks/packed_sequences.py --input_file=records.tfrecord --max_seq_length=512 --size=mini
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from training_step import BATCH_SIZES, VOCAB, our_step

RESULTS = pathlib.Path(__file__).resolve().parent / "results/packed_sequences.jsonl"
PREDICTIONS = {512: 76, 128: 20}


def batches_of(path: str, length: int, batch_size: int, number: int) -> list[dict]:
    """Returns the first batches of a file, each with a dimension of 1 step in front."""
    import tensorflow as tf

    from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
    from official_bert.features import pretraining_features

    features = pretraining_features(length, PREDICTIONS[length])
    limits = pretraining_limits(VOCAB, 2, length)
    dataset = training_dataset([path], features, batch_size, 1, limits)
    return [
        {name: tf.constant(value[None]) for name, value in batch.items()} for batch in dataset.take(number)
    ]


def measure(flags) -> dict:
    import numpy as np

    from official_bert import BertConfig

    batch_size = flags.batch_size or BATCH_SIZES[flags.size] * 128 // flags.max_seq_length
    batches = batches_of(flags.input_file, flags.max_seq_length, batch_size, flags.steps + 1)
    kinds = {"padded": False, "packed": True}
    config = BertConfig.from_size(flags.size, vocab_size=VOCAB)
    steps = {kind: our_step(config, batch_size, packs=packs) for kind, packs in kinds.items()}
    clock = time.process_time if flags.processor_time else time.perf_counter
    secs = {kind: [] for kind in kinds}
    for number, batch in enumerate(batches):
        for kind, step in steps.items():
            start = clock()
            step(batch)
            if number:  # the first one is for tracing
                secs[kind].append(clock() - start)
    tokens = sum(int(batch["input_mask"].numpy().sum()) for batch in batches[1:])
    padding = 1.0 - tokens / (flags.steps * batch_size * flags.max_seq_length)
    medians = {kind: round(statistics.median(values), 4) for kind, values in secs.items()}
    gain = np.sum(secs["padded"]) / np.sum(secs["packed"])
    return medians | {"batch_size": batch_size, "padding": round(padding, 4), "gain": round(float(gain), 3)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", required=True, help="records of create_pretraining_data.py")
    parser.add_argument("--max_seq_length", type=int, choices=PREDICTIONS, default=512)
    parser.add_argument("--size", choices=BATCH_SIZES, default="mini")
    parser.add_argument("--batch_size", type=int, help="by default as many tokens as training_step.py has")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--processor_time", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    flags = parser.parse_args()
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    key = {"size": flags.size, "length": flags.max_seq_length, "processor_time": flags.processor_time}
    if not any(key.items() <= row.items() for row in rows):
        rows.append(key | {"cpus": len(os.sched_getaffinity(0))} | measure(flags))
        with flags.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print(
        "| model | length | batch | padding | padded, s | packed, s | gain |\n|---|--:|--:|--:|--:|--:|--:|"
    )
    for row in rows:
        print(
            f"| {row['size']} | {row['length']} | {row['batch_size']} | {row['padding']:.1%} | {row['padded']:.3f} "
            f"| {row['packed']:.3f} | {row['gain']:.2f}x |"
        )


if __name__ == "__main__":
    main()

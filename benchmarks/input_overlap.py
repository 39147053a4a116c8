#!/usr/bin/env python3
"""Measures how well reading hides behind the computation: a step's time against that of its
computation or its input.

In: nothing. Out: a table, and a line of JSON for each row in --output. `streamed` is the loop of
`Trainer.fit`, which takes each batch when its update is due; `stacked` draws the batches of a loop
before it, as it was before. Both are compared with the larger of a step with its input in memory
and of reading without a step. The computation sleeps, so that it takes no processor from the input;
the input sleeps, too, or reads random records, and then the computation takes as long as reading,
the hardest case.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import input_pipeline
import tensorflow as tf
from training_step import machine

from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
from official_bert.features import pretraining_features
from official_bert.io.reading import untuned
from official_bert.training.batches import BATCHES_AHEAD, RecordBatches
from official_bert.training.loop import compiled_steps

VOCAB_SIZE = 30522
PREDICTIONS = {128: 20, 512: 76}
PAIRS = ((20, 10), (20, 20), (10, 20))  # ms of a step, ms of its input
RECORDS = ((128, 1024), (512, 256))  # length, batch
STEPS_PER_LOOP = (1, 2, 10, 100)
STEPS_PER_ROUND = 40


class SleepingStep:
    """An update that takes a given time and no processor."""

    sum_names = ("loss",)

    def __init__(self, secs: float):
        self._secs = secs

    def update(self, features):
        def wait(_):
            time.sleep(self._secs)

        first = next(iter(features.values()))
        with tf.control_dependencies([tf.numpy_function(wait, [tf.reshape(first, [-1])[0]], [])]):
            return {"loss": tf.constant(0.0)}


def sleeping_dataset(secs: float) -> tf.data.Dataset:
    """Returns batches that take a given time to read, read ahead as those of records."""

    def batches():
        for number in itertools.count():
            time.sleep(secs)
            yield {"input_ids": [[number] * 8]}

    signature = {"input_ids": tf.TensorSpec([1, 8], tf.int32)}
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.prefetch(BATCHES_AHEAD).with_options(untuned())


class ConstantBatches:
    """A source that costs nothing."""

    def next_batch(self) -> dict:
        return {"input_ids": tf.zeros([1, 8], tf.int32)}


def best_secs(
    dataset: tf.data.Dataset, step_secs: float, steps_per_loop: int, rounds: int
) -> dict[str, float]:
    """Returns the seconds of a step with its input in memory, of reading alone, and of a step
    streamed and stacked.

    They take turns, and the best round of each counts.
    """
    strategy = tf.distribute.get_strategy()
    run = compiled_steps(strategy, SleepingStep(step_secs))
    constant_batches, batches, iterator = (
        ConstantBatches(),
        RecordBatches(dataset, strategy, seed=0, key=0),
        iter(dataset),
    )

    def read(count):
        return [next(iterator) for _ in range(count)]

    def streamed(count):
        run(batches, count)
        batches.have_run(count)

    def stacked(count):
        step_batches = read(count)
        run(
            {name: tf.stack([batch[name] for batch in step_batches]) for name in step_batches[0]},
            count,
        )

    ways = {
        "computation": lambda count: run(constant_batches, count),
        "reading": read,
        "streamed": streamed,
        "stacked": stacked,
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, loop in ways.items():
            loop(steps_per_loop)  # compiles, and takes what was read ahead
            loop(steps_per_loop)
            num_loops = -(-STEPS_PER_ROUND // steps_per_loop)
            start = time.perf_counter()
            for _ in range(num_loops):
                loop(steps_per_loop)
            best[name] = min(
                best[name], (time.perf_counter() - start) / (num_loops * steps_per_loop)
            )
    return best


def records_in(folder: str, length: int, batch_size: int, num_files: int) -> tf.data.Dataset:
    """Returns the training input of random records of a length."""
    input_pipeline.NUM_FILES = num_files
    features = pretraining_features(length, PREDICTIONS[length])
    files = input_pipeline.write_records(folder, features, 64 * batch_size)
    return training_dataset(
        files, features, batch_size, 0, pretraining_limits(VOCAB_SIZE, 2, length)
    )


def inputs(folder: str):
    """Yields the name of an input, its dataset, and the seconds that a step computes."""
    for step_ms, input_ms in PAIRS:
        yield f"sleeps {input_ms} ms", sleeping_dataset(input_ms / 1e3), step_ms / 1e3
    for length, batch_size in RECORDS:
        dataset = records_in(os.path.join(folder, str(length)), length, batch_size, 4)
        iterator = iter(dataset)
        secs = []
        for _ in range(STEPS_PER_ROUND):
            start = time.perf_counter()
            next(iterator)
            secs.append(time.perf_counter() - start)
        yield f"{batch_size} records of {length} tokens", dataset, statistics.median(secs)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps_per_loop", type=int, nargs="+", default=STEPS_PER_LOOP)
    parser.add_argument("--output", type=pathlib.Path, help="JSON lines file: rows are added")
    flags = parser.parse_args()

    # An operation that sleeps keeps a thread of TensorFlow's pool, which has one for each processor
    # by default.
    tf.config.threading.set_inter_op_parallelism_threads(8)
    print(
        "| input | step, ms | steps a loop | computation, ms | reading, ms | streamed | stacked |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, dataset, step_secs in inputs(folder):
            for steps_per_loop in flags.steps_per_loop:
                best = best_secs(dataset, step_secs, steps_per_loop, flags.rounds)
                alone = max(best["computation"], best["reading"])
                row = {
                    "input": name,
                    "step_ms": round(step_secs * 1e3, 1),
                    "steps_per_loop": steps_per_loop,
                }
                row |= {f"{way}_ms": round(secs * 1e3, 1) for way, secs in best.items()}
                row |= {
                    f"{way}_ratio": round(best[way] / alone, 3) for way in ("streamed", "stacked")
                }
                shown = [
                    value for key, value in row.items() if key not in ("streamed_ms", "stacked_ms")
                ]
                print(f"| {' | '.join(map(str, shown))} |", flush=True)
                row |= {"machine": machine(), "load": round(os.getloadavg()[0], 1)}
                if flags.output:
                    with flags.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

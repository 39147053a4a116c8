#!/usr/bin/env python3
"""Measures how well reading hides behind the computation: a step's time against that of its computation or its input.

In: nothing, or record files. Out: a table, and a line of JSON for each row in --output. `streamed` is the loop of
`Trainer.fit`, which takes each batch when its update is due; `stacked` draws the batches of a loop before it, as up to
version 1.0. Both take turns. The computation sleeps, so that it takes no processor from the input; the input sleeps,
too, or reads records, and then the computation takes as long as reading them, the hardest case. `alone` is the larger
of the time of a step with its input in memory, and of the input without a step.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import input_pipeline
import tensorflow as tf
from training_step import machine

from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
from official_bert.data.records.record_files import untuned
from official_bert.features import pretraining_features
from official_bert.training.batches import BATCHES_AHEAD, RecordBatches
from official_bert.training.loop import compiled_steps

VOCAB_SIZE = 30522
PREDICTIONS = {128: 20, 512: 76}
PAIRS = ((20, 10), (20, 20), (10, 20))  # ms of a step, ms of its input
RECORDS = ((128, 4096), (512, 1024))  # length, batch
STEPS_PER_LOOP = (1, 2, 10, 100)


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


class InMemory:
    """A source that costs nothing."""

    def next_batch(self) -> dict:
        return {"input_ids": tf.zeros([1, 8], tf.int32)}


def timed(run_loop, steps_per_loop: int, num_steps: int) -> float:
    """Returns the seconds of a step; two loops before do not count, which compile and fill what is read ahead."""
    run_loop(1)
    run_loop(steps_per_loop)
    start = time.perf_counter()
    for _ in range(num_steps // steps_per_loop):
        run_loop(steps_per_loop)
    return (time.perf_counter() - start) / (num_steps // steps_per_loop * steps_per_loop)


def secs_of_steps(dataset: tf.data.Dataset, step_secs: float, steps_per_loop: int, num_steps: int) -> dict[str, float]:
    """Returns the seconds of a step: with its input in memory, streamed, and stacked."""
    run = compiled_steps(tf.distribute.get_strategy(), SleepingStep(step_secs))
    in_memory, iterator = InMemory(), iter(dataset)
    batches = RecordBatches(dataset, tf.distribute.get_strategy(), seed=0, key=0)

    def stacked(count):
        drawn = [next(iterator) for _ in range(count)]
        drawn += drawn[-1:] * (steps_per_loop - count)
        run({name: tf.stack([batch[name] for batch in drawn]) for name in drawn[0]}, count)

    def streamed(count):
        run(batches, count)
        batches.have_run(count)

    loops = {"computation": lambda count: run(in_memory, count), "streamed": streamed, "stacked": stacked}
    return {name: timed(loop, steps_per_loop, num_steps) for name, loop in loops.items()}


def secs_of_reading(dataset: tf.data.Dataset, num_batches: int) -> float:
    """Returns the seconds in which a batch is read if nobody computes."""
    batches = iter(dataset)
    for _ in range(2 * BATCHES_AHEAD):
        next(batches)
    start = time.perf_counter()
    for _ in range(num_batches):
        next(batches)
    return (time.perf_counter() - start) / num_batches


def records_in(folder: str, length: int, batch_size: int, num_files: int) -> tf.data.Dataset:
    """Returns the training input of random records of a length."""
    input_pipeline.NUM_FILES = num_files
    features = pretraining_features(length, PREDICTIONS[length])
    files = input_pipeline.write_records(folder, features, 64 * batch_size)
    return training_dataset(files, features, batch_size, 0, pretraining_limits(VOCAB_SIZE, 2, length))


def inputs(flags, folder: str):
    """Yields the name of an input, its dataset, and the seconds that a step computes."""
    for step_ms, input_ms in PAIRS:
        yield f"sleeps {input_ms} ms", sleeping_dataset(input_ms / 1e3), step_ms / 1e3
    for length, batch_size in RECORDS:
        dataset = records_in(os.path.join(folder, str(length)), length, batch_size, 4)
        yield f"records of {length}, batch {batch_size}", dataset, secs_of_reading(dataset, flags.num_steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_steps", type=int, default=200, help="steps of each measurement")
    parser.add_argument("--steps_per_loop", type=int, nargs="+", default=STEPS_PER_LOOP)
    parser.add_argument("--output", type=pathlib.Path, help="JSON lines file: rows are added")
    flags = parser.parse_args()

    print("| input | computation, ms | steps a loop | alone, ms | streamed | stacked |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, dataset, step_secs in inputs(flags, folder):
            for steps_per_loop in flags.steps_per_loop:
                before = secs_of_reading(dataset, flags.num_steps // 2)
                secs = secs_of_steps(dataset, step_secs, steps_per_loop, flags.num_steps)
                reading = (before + secs_of_reading(dataset, flags.num_steps // 2)) / 2
                alone = max(secs["computation"], reading)
                ratios = {way: round(secs[way] / alone, 3) for way in ("streamed", "stacked")}
                computation = f"{step_secs * 1e3:.1f} | {steps_per_loop} | {alone * 1e3:.1f}"
                print(f"| {name} | {computation} | {ratios['streamed']:.2f} | {ratios['stacked']:.2f} |", flush=True)
                row = {"input": name, "step_ms": round(step_secs * 1e3, 2), "steps_per_loop": steps_per_loop}
                row |= {f"{way}_ms": round(value * 1e3, 2) for way, value in secs.items()}
                row |= {"reading_ms": round(reading * 1e3, 2), **ratios}
                row |= {"machine": machine(), "load": round(os.getloadavg()[0], 1)}
                if flags.output:
                    with flags.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

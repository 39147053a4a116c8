#!/usr/bin/env python3
"""Compares the input pipeline of pre-training with one that parses record by record, as the
original does.

A further row draws the masks while it reads, of records that have none (--dynamic_masking).

In: record files, or random records by default. Out: a table of records per second, and of the
microseconds of processor time that a record takes, which other work on the machine changes less.
The pipelines take turns, and the best of several rounds counts.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
import tensorflow as tf

from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig
from official_bert.data.records.framing import open_example_files
from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
from official_bert.features import pretraining_features, unmasked_features

VOCAB_SIZE = 30522
NUM_FILES = 4


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", nargs="*", help="record files; random records by default")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_predictions_per_seq", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_records", type=int, default=20000, help="records read in a round")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()

    features = pretraining_features(flags.max_seq_length, flags.max_predictions_per_seq)
    unmasked = unmasked_features(flags.max_seq_length)
    with tempfile.TemporaryDirectory() as folder:
        files = flags.input_file or write_records(folder, features, flags.num_records)
        limits = pretraining_limits(VOCAB_SIZE, 2, flags.max_seq_length)
        without_masks = write_records(os.path.join(folder, "unmasked"), unmasked, flags.num_records)
        pipelines = {
            "one by one, then batch": one_by_one(files, features, flags.batch_size, None),
            "the same, 4 parallel calls": one_by_one(files, features, flags.batch_size, 4),
            "batch, then parse (ours)": training_dataset(
                files, features, flags.batch_size, 0, limits
            ),
            "the same, with dynamic masks": training_dataset(
                without_masks,
                unmasked,
                flags.batch_size,
                0,
                {feature.name: limits[feature.name] for feature in unmasked},
                masks=dynamic_masks(flags.max_predictions_per_seq),
            ),
        }
        print_table(
            pipelines, flags.num_records // flags.batch_size, flags.batch_size, flags.rounds
        )


def dynamic_masks(max_predictions_per_seq: int) -> DynamicMasks:
    """Returns masks with the paper's shares."""
    vocabulary = InstanceVocabulary(101, 102, 103, list(range(VOCAB_SIZE)), [False] * VOCAB_SIZE)
    config = MaskConfig(masked_lm_prob=0.15, max_predictions_per_seq=max_predictions_per_seq)
    return DynamicMasks(vocabulary, config, seed=0)


def write_records(folder: str, features, num_records: int) -> list[str]:
    """Writes records of random ids without padding, and returns the names of the files."""
    os.makedirs(folder, exist_ok=True)
    random = np.random.RandomState(0)
    rows = {
        feature.name: np.ones((num_records, feature.length), feature.dtype) for feature in features
    }
    high = {
        "input_ids": VOCAB_SIZE,
        "masked_lm_ids": VOCAB_SIZE,
        "segment_ids": 2,
        "next_sentence_labels": 2,
    }
    high["masked_lm_positions"] = rows["input_ids"].shape[1]
    for name, below in high.items():
        if name not in rows:
            continue
        rows[name] = random.randint(0, below, rows[name].shape)
    files = [os.path.join(folder, f"{i}.tfrecord") for i in range(NUM_FILES)]
    with open_example_files(files) as out:
        out.write(rows)
    return files


def one_by_one(files, features, batch_size: int, parallel_calls: int | None) -> tf.data.Dataset:
    """Returns the original's pipeline, which reads the same way but parses and casts each record
    separately.
    """
    spec = {
        feature.name: tf.io.FixedLenFeature(
            [feature.length], tf.float32 if feature.dtype == "float32" else tf.int64
        )
        for feature in features
    }

    def parse(serialized):
        parsed = tf.io.parse_single_example(serialized, spec)
        return {feature.name: tf.cast(parsed[feature.name], feature.dtype) for feature in features}

    together = min(4, len(files))
    dataset = tf.data.Dataset.from_tensor_slices(files).repeat().shuffle(len(files))
    dataset = dataset.interleave(
        tf.data.TFRecordDataset,
        cycle_length=together,
        num_parallel_calls=together,
        deterministic=False,
    )
    dataset = dataset.shuffle(100).map(
        parse, num_parallel_calls=parallel_calls, deterministic=False
    )
    return dataset.batch(batch_size, drop_remainder=True).prefetch(2)


def print_table(
    pipelines: dict[str, tf.data.Dataset], num_batches: int, batch_size: int, rounds: int
):
    iterators = {name: iter(dataset) for name, dataset in pipelines.items()}
    best, cpu_secs = dict.fromkeys(pipelines, 0.0), dict.fromkeys(pipelines, float("inf"))
    for _ in range(rounds):
        for name, iterator in iterators.items():
            next(iterator)
            started, cpu_started = time.perf_counter(), time.process_time()
            for _ in range(num_batches):
                next(iterator)
            rate = num_batches * batch_size / (time.perf_counter() - started)
            best[name] = max(best[name], rate)
            cpu_secs[name] = min(cpu_secs[name], time.process_time() - cpu_started)
    slowest = best["one by one, then batch"]
    print(
        "| pipeline | records per second | ratio | processor microseconds per record "
        "|\n|---|---|---|---|"
    )
    for name, rate in best.items():
        micros = cpu_secs[name] / num_batches / batch_size * 1e6
        print(f"| {name} | {rate:,.0f} | {rate / slowest:.1f} | {micros:.1f} |")


if __name__ == "__main__":
    main()

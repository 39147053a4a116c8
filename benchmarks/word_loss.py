#!/usr/bin/env python3
"""Compares the loss of words by blocks of the vocabulary with the loss of their logits, on a CPU.

In: a batch of random ids. Out: a table, and a line of JSON in --output for each size. A row has the
seconds of the processor, of all threads, and of the clock. They are medians over forward and
backward passes of pre-training, which both losses compute in turns in one process.

    python benchmarks/word_loss.py --sizes 2/128 4/256 --dtype=bfloat16 --output=rows.jsonl
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.training_step import LENGTH, PREDICTIONS, VOCAB

BATCH_SIZES = {"2/128": 32, "4/256": 32, "4/512": 16, "12/768": 8}
LOSSES = {"logits": False, "blocks": True}  # whether the loss is computed by blocks


def make_features(batch_size: int) -> dict:
    """Returns a batch without padding."""
    import tensorflow as tf

    def draw_ids(columns: int, limit: int):
        return tf.random.uniform([batch_size, columns], maxval=limit, dtype=tf.int32)

    return {
        "input_ids": draw_ids(LENGTH, VOCAB),
        "input_mask": tf.ones([batch_size, LENGTH], tf.int32),
        "segment_ids": tf.zeros([batch_size, LENGTH], tf.int32),
        "masked_lm_positions": draw_ids(PREDICTIONS, LENGTH),
        "masked_lm_ids": draw_ids(PREDICTIONS, VOCAB),
        "masked_lm_weights": tf.ones([batch_size, PREDICTIONS]),
        "next_sentence_labels": draw_ids(1, 2),
    }


def make_pass(objective, features: dict, uses_blocks: bool) -> Callable[[], float]:
    """Returns a traced function of the forward and backward pass with one of the losses."""
    import tensorflow as tf

    from official_bert.modeling import vocabulary_loss

    variables = [variable.value for variable in objective.pretrainer.trainable_variables]

    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            loss, _ = objective.loss(features, objective.totals(features), tf.constant([1, 2]))
        gradients = tape.gradient(loss, variables)
        # Each gradient is read, so that TensorFlow drops none.
        return loss, [tf.reduce_sum(tf.convert_to_tensor(each)) for each in gradients]

    vocabulary_loss.is_available = lambda: uses_blocks  # It is asked while the function is traced.
    compute()
    return lambda: float(compute()[0])


def measure(size: str, dtype: str, repeats: int) -> dict:
    """Returns the row of a size, layers/width."""
    import keras

    from official_bert import BertConfig, BertPretrainer
    from official_bert.tasks.pretraining.objective import PretrainingObjective

    keras.mixed_precision.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    num_layers, width = map(int, size.split("/"))
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    batch_size = BATCH_SIZES[size]
    objective = PretrainingObjective(BertPretrainer(config), batch_size)
    features = make_features(batch_size)
    passes = {
        name: make_pass(objective, features, uses_blocks) for name, uses_blocks in LOSSES.items()
    }
    clock_secs = {name: [] for name in passes}
    processor_secs = {name: [] for name in passes}
    for _ in range(repeats):
        for name, run in passes.items():
            start, processor_start = time.perf_counter(), time.process_time()
            run()
            clock_secs[name].append(time.perf_counter() - start)
            processor_secs[name].append(time.process_time() - processor_start)
    row = {"size": size, "dtype": dtype, "batch_size": batch_size, "repeats": repeats}
    for name in passes:
        row[f"{name}_processor_secs"] = round(statistics.median(processor_secs[name]), 4)
        row[f"{name}_secs"] = round(statistics.median(clock_secs[name]), 4)
    row["processor_ratio"] = round(row["blocks_processor_secs"] / row["logits_processor_secs"], 3)
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=BATCH_SIZES, default=list(BATCH_SIZES)[:3])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--output", help="the file that the rows are added to")
    flags = parser.parse_args()
    print("| size | logits, s of the processor | blocks | ratio |\n|---|--:|--:|--:|")
    for size in flags.sizes:
        row = measure(size, flags.dtype, flags.repeats)
        print(
            f"| {size} | {row['logits_processor_secs']} | {row['blocks_processor_secs']} "
            f"| {row['processor_ratio']} |",
            flush=True,
        )
        if flags.output:
            with open(flags.output, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares three products for query, key and value with one product by the three kernels side by side.

Out: a table, and a line of JSON in --output for each finished row. Rows that this file already contains are not
measured again.

Each row is the forward pass of these products in 6 layers, with biases and the order by heads that attention needs, in
float32. The one product is cut into three parts before they are ordered, or ordered as a whole. All kinds take turns in
one process, and medians count.

    python benchmarks/joined_products.py
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from training_step import prepare_threads

RESULTS = pathlib.Path(__file__).resolve().parent / "results/joined_products.jsonl"
HEADS = {384: 12, 768: 12}
BATCHES = (1, 128), (1, 384), (32, 128)
LAYERS = 6
KINDS = "three", "cut", "ordered"


def products(hidden: int, batch_size: int, length: int) -> dict:
    """Returns a function of no arguments for each kind."""
    import tensorflow as tf

    heads = HEADS[hidden]
    tokens = tf.random.normal([batch_size * length, hidden])
    kernels = [tf.random.normal([hidden, hidden], stddev=hidden**-0.5) for _ in range(3)]
    biases = [tf.random.normal([hidden]) for _ in range(3)]
    kernel, bias = tf.concat(kernels, 1), tf.concat(biases, 0)

    def by_heads(x):  # [B, heads, S, size]
        return tf.transpose(tf.reshape(x, [batch_size, length, heads, hidden // heads]), [0, 2, 1, 3])

    def three(x):
        return [by_heads(tf.nn.bias_add(x @ a, b)) for a, b in zip(kernels, biases, strict=True)]

    def cut(x):
        return [by_heads(part) for part in tf.split(tf.nn.bias_add(x @ kernel, bias), 3, axis=1)]

    def ordered(x):
        joined = tf.reshape(tf.nn.bias_add(x @ kernel, bias), [batch_size, length, 3, heads, hidden // heads])
        return tf.unstack(tf.transpose(joined, [2, 0, 3, 1, 4]))

    def repeated(kind):
        def layers():
            x = tokens
            for _ in range(LAYERS):
                query, key, value = kind(x)
                x = tf.reshape(query + key + value, tokens.shape)
            return x

        return tf.function(layers)

    return dict(zip(KINDS, map(repeated, (three, cut, ordered)), strict=True))


def measure(hidden: int, batch_size: int, length: int, rounds: int) -> dict:
    """Measures a row."""
    import numpy as np

    kinds, secs = products(hidden, batch_size, length), {kind: [] for kind in KINDS}
    expected = kinds["three"]().numpy()
    for kind in KINDS:
        np.testing.assert_allclose(kinds[kind]().numpy(), expected, atol=1e-2 * np.abs(expected).max())
    for _ in range(rounds):
        for kind in KINDS:
            start = time.perf_counter()
            kinds[kind]().numpy()
            secs[kind].append(time.perf_counter() - start)
    medians = {f"{kind}_ms": round(1e3 * statistics.median(secs[kind]), 3) for kind in KINDS}
    return {"hidden": hidden, "batch_size": batch_size, "length": length} | medians


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    flags = parser.parse_args()
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    prepare_threads([int(cpu) for cpu in flags.cpus.split(",")], want_peer=False)
    for hidden in HEADS:
        for batch_size, length in BATCHES:
            key = {"hidden": hidden, "batch_size": batch_size, "length": length}
            if not any(key.items() <= row.items() for row in rows):
                rows.append(measure(hidden, batch_size, length, flags.rounds))
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(
        "| hidden | batch | length | three, ms | one and cut, ms | one and ordered, ms | three against the faster one |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        joined = min(row["cut_ms"], row["ordered_ms"])
        print(
            f"| {row['hidden']} | {row['batch_size']} | {row['length']} | {row['three_ms']:.1f} | {row['cut_ms']:.1f} "
            f"| {row['ordered_ms']:.1f} | {joined / row['three_ms']:.2f}x |"
        )


if __name__ == "__main__":
    main()

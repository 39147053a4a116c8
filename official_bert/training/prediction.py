"""Computes the outputs of a model for every example of a set, gathered on the host in the order of the set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.features import EncodedSet
from official_bert.io.progress import Progress
from official_bert.training.batches import padded_length
from official_bert.training.distribution import is_tpu, split_over_replicas
from official_bert.training.loop import traced_once


def compiled_outputs(strategy: tf.distribute.Strategy, outputs: Callable[[dict], dict]) -> Callable[[dict], dict]:
    """Returns a function from a batch, split over the replicas, to the gathered outputs of all replicas.

    Args:
        outputs: a function from a batch to a dict of [batch, ...], which runs in replica context.
    """

    def gathered(batch):
        on_replicas = strategy.run(outputs, args=(batch,))
        return {name: strategy.gather(value, axis=0) for name, value in on_replicas.items()}

    compiled, is_first = traced_once(strategy, gathered, num_fixed_axes=0), True

    def run(batch):
        nonlocal is_first
        if is_first:
            logging.info("Compiling the prediction step ...")
            is_first = False
        return compiled(batch)

    return run


def predict(
    run: Callable[[dict], dict],
    strategy: tf.distribute.Strategy,
    encoded: EncodedSet,
    batch_size: int,
    max_length: int,
    pad_to_longest: bool,
) -> dict[str, np.ndarray]:
    """Runs a model over a set, including the incomplete last batch.

    Returns:
        A dict of arrays [n, ...]; an output [batch, length, ...] has the length of the longest batch, filled with 0.
    """

    lengths = encoded.lengths
    # The longest come first, so the first batch determines the length of the output arrays.
    order = np.argsort(-lengths, kind="stable") if pad_to_longest else np.arange(len(lengths))
    found: dict[str, np.ndarray] = {}
    progress = Progress("examples", len(order))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        length = padded_length(int(lengths[rows].max()), max_length) if pad_to_longest else max_length
        # Every batch is split evenly, and on a TPU has one size, so that it compiles once: repeated rows complete the
        # last batch, and their outputs are cut off again.
        wanted = batch_size if is_tpu(strategy) else len(rows)
        missing = wanted - len(rows) + -wanted % strategy.num_replicas_in_sync
        filled = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        batch = {name: tf.convert_to_tensor(values) for name, values in encoded.features(filled, length).items()}
        for name, value in run(split_over_replicas(strategy, batch, axis=0)).items():
            value = np.asarray(value)[: len(rows)]
            if name not in found:
                found[name] = np.zeros((len(order), *value.shape[1:]), value.dtype)
            found[name][(rows, slice(value.shape[1])) if value.ndim > 1 else rows] = value
        progress(start + len(rows))
    return found

"""The loops around the model: updates, several in one call into TensorFlow; an evaluation; the
outputs of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.features import EncodedSet
from official_bert.io.progress import Progress
from official_bert.training.batches import padded_length
from official_bert.training.distribution import is_tpu, split_over_replicas
from official_bert.training.step import Objective, TrainingStep, evaluation_step

Sums = dict[str, float]


class Batches(Protocol):
    """The source of training batches.

    Attributes:
        state: the state for a checkpoint: the position, the run's `seed`, and the `key`.
        key: identifies the data and how it is read; a saved position is valid only for the same
            key.
    """

    state: tf.train.Checkpoint
    key: int

    def next_batch(self) -> dict:
        """Reads the next batch, as per-replica values; called inside a tf.function, which reads
        whenever it runs.
        """

    def have_run(self, num_batches: int):
        """Moves the position in `state` behind so many batches."""


# A model contains nothing for AutoGraph to convert, and the conversion takes a third of the time of
# a trace.
_as_it_is = tf.autograph.experimental.do_not_convert


def compiled_steps(
    strategy: tf.distribute.Strategy, step: TrainingStep, num_batches: int = 1
) -> Callable[[Batches | dict, int], Sums]:
    """Returns a function that makes several updates in one loop inside TensorFlow, and returns the
    sums of all.

    It takes the batches of an update, `num_batches`, when they are due, from a source; or one from
    the stacked per-replica values of a dict, [steps, batch / replicas, ...].
    """

    names, added_by_host = step.sum_names, is_tpu(strategy)

    def packed(sums):
        # In float64 float32 values add up exactly, whatever the number of steps in a call.
        return tf.stack([tf.cast(sums[name], tf.float64) for name in names])

    @_as_it_is
    def zeros():
        return tf.zeros([len(names)], tf.float64)

    def joined(batches):
        if num_batches == 1:
            return batches[0]
        return {name: tf.concat([batch[name] for batch in batches], axis=0) for name in batches[0]}

    @_as_it_is
    def updated(batch, added):
        return added + packed(step.update(batch))

    @_as_it_is
    def updated_with(*batches_and_sums):
        *batches, added = batches_and_sums
        return updated(joined(batches), added)

    @_as_it_is
    def updated_from(stacked, index, added):
        return updated({name: value[index] for name, value in stacked.items()}, added)

    # Each replica adds its own sums up, which are reduced at the end; a TPU, which lacks float64,
    # gives them to the host in every step.
    def begin():
        return zeros() if added_by_host else strategy.run(zeros)

    @_as_it_is
    def one_step(batches, index, added):
        if isinstance(batches, dict):
            return strategy.run(updated_from, args=(batches, index, added))
        parts = [batches.next_batch() for _ in range(num_batches)]
        if added_by_host:
            sums = strategy.run(_as_it_is(lambda *parts: step.update(joined(parts))), args=parts)
            return added + packed(_summed(strategy, sums))
        return strategy.run(updated_with, args=(*parts, added))

    def end(added):
        return (
            added
            if added_by_host
            else strategy.reduce(tf.distribute.ReduceOp.SUM, added, axis=None)
        )

    @tf.function(reduce_retracing=True)
    def loop(batches, num_steps):
        added = begin()
        for index in tf.range(num_steps):
            added = one_step(batches, index, added)
        return end(added)

    def run_steps(batches, num_steps):
        return dict(
            zip(names, np.asarray(loop(batches, tf.constant(num_steps))).tolist(), strict=True)
        )

    return run_steps


def evaluate(
    strategy: tf.distribute.Strategy,
    objective: Objective,
    batches: Iterator[dict],
    num_batches: int,
) -> Sums:
    """Sums the objective's values over `num_batches` batches of per-replica features [batch /
    replicas, ...].
    """

    @tf.function(autograph=False)
    def run(features):
        return _summed(
            strategy, strategy.run(lambda part: evaluation_step(objective, part), args=(features,))
        )

    sums: Sums = {}
    logging.info("Compiling the evaluation step ...")
    progress = Progress("batches evaluated", num_batches)
    for done in range(num_batches):
        sums = {
            name: sums.get(name, 0.0) + float(value) for name, value in run(next(batches)).items()
        }
        progress(done + 1)
    return sums


@_as_it_is
def _summed(strategy, per_replica):
    reduce = strategy.reduce
    return {
        name: reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
        for name, value in per_replica.items()
    }


def compiled_outputs(
    strategy: tf.distribute.Strategy, outputs: Callable[[dict], dict]
) -> Callable[[dict], dict]:
    """Returns a function from a batch, split over the replicas, to the gathered outputs [batch,
    ...] of all.

    It is traced once for batches of any size and length, or twice with several replicas.
    """
    compiled = None

    def gathered(batch):
        on_replicas = strategy.run(outputs, args=(batch,))
        return {name: strategy.gather(value, axis=0) for name, value in on_replicas.items()}

    def run(batch):
        nonlocal compiled
        if compiled is None:
            logging.info("Compiling the prediction step ...")
            signature = None
            # Per-replica values cannot be described by a signature.
            if strategy.num_replicas_in_sync == 1:
                signature = [
                    {
                        name: tf.TensorSpec([None] * one.shape.rank, one.dtype)
                        for name, one in batch.items()
                    }
                ]
            compiled = tf.function(
                gathered, signature, autograph=False, reduce_retracing=signature is None
            )
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
    """Returns the outputs of a model for all examples of a set, [n, ...], in its order.

    An output [batch, length, ...] has the length of the longest batch, filled with 0.
    """
    lengths = encoded.lengths
    # The longest come first, so the first batch determines the length of the output arrays.
    order = np.argsort(-lengths, kind="stable") if pad_to_longest else np.arange(len(lengths))
    outputs: dict[str, np.ndarray] = {}
    progress = Progress("examples", len(order))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        length = (
            padded_length(int(lengths[rows].max()), max_length) if pad_to_longest else max_length
        )
        # Every batch is split evenly, and on a TPU has one size, so that it compiles once: repeated
        # rows complete the last batch, and their outputs are cut off again.
        wanted = batch_size if is_tpu(strategy) else len(rows)
        missing = wanted - len(rows) + -wanted % strategy.num_replicas_in_sync
        filled = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        batch = {
            name: tf.convert_to_tensor(values)
            for name, values in encoded.features(filled, length).items()
        }
        for name, value in run(split_over_replicas(strategy, batch, axis=0)).items():
            value = np.asarray(value)[: len(rows)]
            if name not in outputs:
                outputs[name] = np.zeros((len(order), *value.shape[1:]), value.dtype)
            outputs[name][(rows, slice(value.shape[1])) if value.ndim > 1 else rows] = value
        progress(start + len(rows))
    return outputs

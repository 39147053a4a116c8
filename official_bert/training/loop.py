"""Loops around the model: the updates of a training, an evaluation, and the outputs of a set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

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
        """Reads the next batch, as per-replica values.

        It is called inside a tf.function, which reads whenever it runs.
        """
        ...

    def have_run(self, num_batches: int) -> None:
        """Moves the position in `state` after batches that have run.

        Args:
            num_batches: the number of these batches.
        """


# A model contains nothing for AutoGraph to convert, and the conversion takes a third of the time of
# a trace.
_unconverted = tf.autograph.experimental.do_not_convert


def compiled_steps(
    strategy: tf.distribute.Strategy, step: TrainingStep, num_batches: int = 1
) -> Callable[[Batches | dict, int], Sums]:
    """Returns a function that makes several updates in one loop inside TensorFlow.

    The function takes the source of the batches and the number of updates, and returns the sums of
    all updates by name. It reads the batches of an update when they are due. Instead of a source it
    takes a dict of stacked per-replica values, [steps, batch / replicas, ...].

    Args:
        strategy: the devices.
        step: the update.
        num_batches: the number of batches that make up the batch of one update.
    """

    def read(batches: Batches | dict, index: tf.Tensor) -> list[dict]:
        if isinstance(batches, dict):
            return [strategy.run(_take_row, args=(batches, index))]
        return [batches.next_batch() for _ in range(num_batches)]

    make_loop = _loop_with_host_totals if is_tpu(strategy) else _loop_with_replica_totals
    loop = make_loop(strategy, step, _unconverted(read))

    def run_steps(batches: Batches | dict, num_steps: int) -> Sums:
        totals = np.asarray(loop(batches, tf.constant(num_steps)))
        return dict(zip(step.sum_names, totals.tolist(), strict=True))

    return run_steps


def _loop_with_replica_totals(strategy: tf.distribute.Strategy, step: TrainingStep, read: Callable):
    """Returns a loop in which each replica adds up its own sums; they are reduced at the end."""

    @_unconverted
    def start_totals():
        return tf.zeros([len(step.sum_names)], tf.float64)

    @_unconverted
    def update(totals: tf.Tensor, batches: Any):
        return totals + _pack(step, step.update(_concatenate(batches)))

    @tf.function(reduce_retracing=True)
    def loop(batches: Any, num_steps: tf.Tensor):
        totals = strategy.run(start_totals)
        for index in tf.range(num_steps):
            totals = strategy.run(update, args=(totals, read(batches, index)))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, totals, axis=None)

    return loop


def _loop_with_host_totals(strategy: tf.distribute.Strategy, step: TrainingStep, read: Callable):
    """Returns a loop in which the host adds up the sums of every step.

    A TPU lacks float64.
    """

    @_unconverted
    def update(batches: Any):
        return step.update(_concatenate(batches))

    @tf.function(reduce_retracing=True)
    def loop(batches: Any, num_steps: tf.Tensor):
        totals = tf.zeros([len(step.sum_names)], tf.float64)
        for index in tf.range(num_steps):
            sums = strategy.run(update, args=(read(batches, index),))
            totals += _pack(step, _reduce_sums(strategy, sums))
        return totals

    return loop


@_unconverted
def _pack(step: TrainingStep, sums: dict) -> tf.Tensor:
    """Returns the sums of one step in the order of `step.sum_names`, float64[sums].

    Float32 values add up exactly in float64, whatever the number of steps in a call.
    """
    return tf.stack([tf.cast(sums[name], tf.float64) for name in step.sum_names])


@_unconverted
def _take_row(stacked: dict, index: tf.Tensor) -> dict:
    return {name: value[index] for name, value in stacked.items()}


def _concatenate(batches: Sequence[dict]) -> dict:
    """Returns the examples of several batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    names = batches[0]
    return {name: tf.concat([batch[name] for batch in batches], axis=0) for name in names}


@_unconverted
def _reduce_sums(strategy: tf.distribute.Strategy, sums: dict) -> dict:
    """Returns per-replica values summed over the replicas."""
    return {
        name: strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
        for name, value in sums.items()
    }


def evaluate(
    strategy: tf.distribute.Strategy,
    objective: Objective,
    batches: Iterator[dict],
    num_batches: int,
) -> Sums:
    """Sums the values of an objective over several batches.

    Args:
        strategy: the devices.
        objective: the objective, which sees no dropout.
        batches: batches of per-replica features, [batch / replicas, ...].
        num_batches: the number of batches that are read.
    """

    def sum_on_replica(features: dict):
        return evaluation_step(objective, features)

    @tf.function(autograph=False)
    def sum_batch(features: dict):
        return _reduce_sums(strategy, strategy.run(sum_on_replica, args=(features,)))

    sums: Sums = {}
    logging.info("Compiling the evaluation step ...")
    progress = Progress("batches evaluated", num_batches)
    for num_read in range(1, num_batches + 1):
        for name, value in sum_batch(next(batches)).items():
            sums[name] = sums.get(name, 0.0) + float(value)
        progress(num_read)
    return sums


def compiled_outputs(
    strategy: tf.distribute.Strategy, outputs: Callable[[dict], dict]
) -> Callable[[dict], dict]:
    """Returns a function from a batch to the outputs of all its examples, [batch, ...].

    The function is traced once for batches of any size and length, or twice with several replicas.

    Args:
        strategy: the devices, over which the batch is split.
        outputs: returns the outputs of a replica's part of the batch.
    """
    compiled = None

    def gather_outputs(batch: dict) -> dict:
        on_replicas = strategy.run(outputs, args=(batch,))
        return {name: strategy.gather(value, axis=0) for name, value in on_replicas.items()}

    def run(batch: dict) -> dict:
        nonlocal compiled
        if compiled is None:
            logging.info("Compiling the prediction step ...")
            # Per-replica values cannot be described by a signature.
            has_signature = strategy.num_replicas_in_sync == 1
            compiled = tf.function(
                gather_outputs,
                input_signature=[_any_size(batch)] if has_signature else None,
                autograph=False,
                reduce_retracing=not has_signature,
            )
        return compiled(batch)

    return run


def _any_size(batch: dict) -> dict[str, tf.TensorSpec]:
    """Returns the types and ranks of the tensors of a batch."""
    return {
        name: tf.TensorSpec([None] * value.shape.rank, value.dtype) for name, value in batch.items()
    }


def predict(
    run: Callable[[dict], dict],
    strategy: tf.distribute.Strategy,
    encoded: EncodedSet,
    batch_size: int,
    max_length: int,
    pad_to_longest: bool,
) -> dict[str, np.ndarray]:
    """Returns the outputs of a model for all examples of a set, [n, ...], in the order of the set.

    An output [batch, length, ...] has the length of the longest batch, filled with 0.

    Args:
        run: a function of `compiled_outputs`.
        strategy: the devices.
        encoded: the examples.
        batch_size: the number of examples in a batch.
        max_length: the maximum number of tokens in an example.
        pad_to_longest: whether a batch is as long as its longest example. Otherwise all batches
            have `max_length`.
    """
    lengths = encoded.lengths
    num_examples = len(lengths)
    order = np.arange(num_examples)
    if pad_to_longest:
        # The first batch, with the longest examples, usually determines the length of the output
        # arrays, which then need not be widened.
        order = np.argsort(-lengths, kind="stable")
    outputs: dict[str, np.ndarray] = {}
    progress = Progress("examples", num_examples)
    for start in range(0, num_examples, batch_size):
        rows = order[start : start + batch_size]
        length = max_length
        if pad_to_longest:
            length = padded_length(int(lengths[rows].max()), max_length)
        features = encoded.features(_repeat_last_row(rows, batch_size, strategy), length)
        batch = {name: tf.convert_to_tensor(values) for name, values in features.items()}
        for name, value in run(split_over_replicas(strategy, batch, axis=0)).items():
            value = np.asarray(value)[: len(rows)]
            if name not in outputs:
                outputs[name] = np.zeros((num_examples, *value.shape[1:]), value.dtype)
            outputs[name] = widen(outputs[name], value)
            places = (rows, slice(value.shape[1])) if value.ndim > 1 else rows
            outputs[name][places] = value
        progress(start + len(rows))
    return outputs


def widen(array: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns an array that has room for the rows of another, filled with 0 or empty strings.

    Args:
        array: [n, ...] or [n, length, ...].
        value: the other array, [m, ...] or [m, its length, ...].
    """
    if value.ndim < 2 or value.shape[1] <= array.shape[1]:
        return array
    widths = [(0, 0)] * array.ndim
    widths[1] = (0, value.shape[1] - array.shape[1])
    return np.pad(array, widths, constant_values=b"" if array.dtype == object else 0)


def _repeat_last_row(
    rows: np.ndarray, batch_size: int, strategy: tf.distribute.Strategy
) -> np.ndarray:
    """Completes the rows of a batch by repeating the last one.

    The replicas then share the batch evenly. On a TPU every batch has the same size, because the
    program is compiled for each size.
    """
    size = batch_size if is_tpu(strategy) else len(rows)
    size += -size % strategy.num_replicas_in_sync
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows))])

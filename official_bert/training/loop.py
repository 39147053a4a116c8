"""The loops around a step: several updates in one call into TensorFlow, where such calls end, and an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.io.progress import Progress
from official_bert.training.distribution import is_tpu
from official_bert.training.step import Objective, TrainingStep, evaluation_step

FIRST_LOG_STEPS = 10  # after which a user sees that all is well, however far the next log point is

Sums = dict[str, float]
# Batches of per-replica values by feature: stacked, [steps, batch / replicas, ...], or one by one,
# [1, batch / replicas, ...] each, where each batch has a length of its own.
Drawn = dict | list[dict]


class Stops(NamedTuple):
    """The steps at which a training leaves TensorFlow: no call crosses a progress line, a checkpoint or a hook.

    Attributes:
        first_step: updates that earlier runs made.
        num_train_steps: updates in total.
        steps_per_loop: the maximum number of updates in one call.
        log_every_steps: updates between two progress lines.
        save_every_steps: numbers of updates; a checkpoint is saved at the multiples of each, and at the end.
    """

    first_step: int
    num_train_steps: int
    steps_per_loop: int
    log_every_steps: int
    save_every_steps: tuple[int, ...]

    def next_count(self, step: int) -> int:
        """Returns the number of updates in the next call; the first call, which compiles, makes a single one."""
        first_stops = self.first_step + 1, self.first_step + FIRST_LOG_STEPS
        multiples = ((step // every + 1) * every for every in (self.log_every_steps, *self.save_every_steps))
        stops = self.num_train_steps, *multiples, *(stop for stop in first_stops if stop > step)
        return min(self.steps_per_loop, min(stops) - step)

    def is_due(self, step: int, *intervals: int) -> bool:
        """Whether this step is the last one, or a multiple of an interval."""
        return step == self.num_train_steps or any(step % every == 0 for every in intervals)

    def logs_at(self, step: int) -> bool:
        """Whether a progress line is due: besides its multiples, there is one after the first FIRST_LOG_STEPS."""
        return self.is_due(step, self.log_every_steps) or step == self.first_step + FIRST_LOG_STEPS

    def saves_at(self, step: int) -> bool:
        """Whether a checkpoint is due."""
        return self.is_due(step, *self.save_every_steps)


def compiled_steps(strategy: tf.distribute.Strategy, step: TrainingStep) -> Callable[[Drawn, int], Sums]:
    """Returns a function that makes several updates in one call into TensorFlow.

    Returns:
        A function of the result of `ExampleBatches.draw` and the number of its steps; it returns the step's sums over
        these steps and all replicas.
    """

    # A model contains nothing for AutoGraph to convert, and the conversion takes a third of the time of a trace.
    @tf.autograph.experimental.do_not_convert
    def one_step(batches, index):
        if is_tpu(strategy):
            function, arguments = step.update, (_chosen_on_host(strategy, batches, index),)
        elif strategy.num_replicas_in_sync == 1:
            function, arguments = step.update, (_chosen(batches, index),)
        else:
            function, arguments = (lambda stacked, index: step.update(_chosen(stacked, index)), (batches, index))
        return _summed(strategy, strategy.run(function, args=arguments))

    @tf.function(reduce_retracing=True)
    def loop(batches, num_steps):
        sums = dict.fromkeys(step.sum_names, 0.0)
        for index in tf.range(num_steps):
            more = one_step(batches, index)
            sums = {name: value + more[name] for name, value in sums.items()}
        return sums

    of_any_length = traced_once(strategy, lambda batches: one_step(batches, 0), num_fixed_axes=2)

    def run_steps(batches, num_steps):
        if isinstance(batches, dict):
            return _on_host(loop(batches, tf.constant(num_steps)))
        sums = [of_any_length(batch) for batch in batches]
        return {name: math.fsum(float(each[name]) for each in sums) for name in sums[0]}

    return run_steps


def _chosen(batches: dict, index: tf.Tensor) -> dict:
    return {name: value[index] for name, value in batches.items()}


def _chosen_on_host(strategy: tf.distribute.Strategy, batches: dict, index: tf.Tensor) -> dict:
    """Returns one batch of a stack of per-replica values, which lie on the host.

    Chosen on a TPU, as on other devices, it would cost a copy of the whole stack to the TPU in every step.
    """
    parts = {name: strategy.experimental_local_results(value) for name, value in batches.items()}
    return strategy.experimental_distribute_values_from_function(
        lambda context: {name: part[context.replica_id_in_sync_group][index] for name, part in parts.items()}
    )


def traced_once(
    strategy: tf.distribute.Strategy, function: Callable[[dict], dict], num_fixed_axes: int
) -> Callable[[dict], dict]:
    """Returns a tf.function that is traced once for batches of any length, or twice with several replicas.

    Args:
        function: a function of a batch {name: tensor}; tracing unrolls its loops.
        num_fixed_axes: number of leading axes of the tensors whose sizes never change.
    """
    traced = None

    def run(batch):
        nonlocal traced
        if traced is None:
            signature = None
            if strategy.num_replicas_in_sync == 1:  # per-replica values cannot be described by a signature
                signature = [{name: _spec(tensor, num_fixed_axes) for name, tensor in batch.items()}]
            traced = tf.function(function, signature, autograph=False, reduce_retracing=signature is None)
        return traced(batch)

    return run


def _spec(tensor: tf.Tensor, num_fixed_axes: int) -> tf.TensorSpec:
    fixed = tensor.shape[:num_fixed_axes]
    return tf.TensorSpec([*fixed, *[None] * (tensor.shape.rank - len(fixed))], tensor.dtype)


def evaluate(strategy: tf.distribute.Strategy, objective: Objective, batches: Iterator[dict], num_batches: int) -> Sums:
    """Sums the objective's values over `num_batches` batches of per-replica features [batch / replicas, ...]."""

    @tf.function
    def run(features):
        return _summed(strategy, strategy.run(lambda part: evaluation_step(objective, part), args=(features,)))

    sums: Sums = {}
    logging.info("Compiling the evaluation step ...")
    progress = Progress("batches evaluated", num_batches)
    for done in range(num_batches):
        sums = {name: sums.get(name, 0.0) + value for name, value in _on_host(run(next(batches))).items()}
        progress(done + 1)
    return sums


def _summed(strategy, per_replica):
    reduce = strategy.reduce
    return {name: reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for name, value in per_replica.items()}


def _on_host(sums) -> Sums:
    return {name: float(np.asarray(value)) for name, value in sums.items()}

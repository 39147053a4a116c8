"""The loops around a step for training and for evaluation."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.io import signals
from official_bert.io.errors import Diverged, Terminated
from official_bert.io.progress import Progress
from official_bert.training.distribution import is_tpu
from official_bert.training.precision import UPDATES
from official_bert.training.step import Objective, TrainingStep, evaluation_step

FIRST_REPORT_STEPS = 10  # after which a user sees that all is well, however far the next log point is

Sums = dict[str, float]
# Batches of per-replica values by feature: stacked, [steps, batch / replicas, ...], or one by one,
# [1, batch / replicas, ...] each, where each batch has a length of its own.
Drawn = dict | list[dict]


class Evaluation(Protocol):
    """An evaluation of the model in the middle of training.

    Attributes:
        every_steps: updates between two evaluations.
    """

    every_steps: int

    def __call__(self, step: int) -> bool:
        """Evaluates the model at this step; returns whether training stops here."""


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
            batch = _chosen_on_host(strategy, batches, index)
            return _summed(strategy, strategy.run(lambda batch: step(batch), args=(batch,)))

        def replica_step(batches, index):
            return step({name: value[index] for name, value in batches.items()})

        return _summed(strategy, strategy.run(replica_step, args=(batches, index)))

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


def train(
    *,
    run_steps: Callable,
    draw: Callable[[int], Drawn],
    first_step: int,
    num_train_steps: int,
    steps_per_loop: int,
    log_every_steps: int,
    save_every_steps: int,
    report: Callable[[int, int, Sums], None],
    save: Callable[[int], None],
    evaluation: Evaluation | None = None,
    is_true_of_any: Callable[[bool], bool] = bool,
):
    """Trains until `num_train_steps`; no device loop crosses a log point, a checkpoint or an evaluation.

    Args:
        run_steps: a function from `compiled_steps`; where its sums have `updates`, this many of the steps were updates.
        log_every_steps: `report` is called at the multiples of this number and at the end; besides, after the first
            FIRST_REPORT_STEPS updates. The first call into TensorFlow, which compiles, makes a single update, so that
            this report knows the speed of the others.
        evaluation: called at multiples of its `every_steps` and at the end, each time after `save`; also at
            `first_step`, because an earlier run may have been killed before it evaluated that step.

    Raises:
        Diverged: the loss is not finite. Nothing is saved after that.
        Terminated: SIGTERM or SIGHUP arrived, here or in another process. The step that was reached is saved.
    """

    def is_due(step: int, every_steps: int) -> bool:
        return step % every_steps == 0 or step == num_train_steps

    def stops_at(step: int) -> bool:
        return evaluation is not None and is_due(step, evaluation.every_steps) and evaluation(step)

    intervals = [log_every_steps, save_every_steps] + ([evaluation.every_steps] if evaluation else [])
    first_stops = [first_step + 1, first_step + FIRST_REPORT_STEPS]
    step, unreported, sums = first_step, 0, {}
    if step and stops_at(step):
        return
    while step < num_train_steps:
        multiples = (_next_multiple(step, every_steps) for every_steps in intervals)
        next_stop = min(num_train_steps, *multiples, *(stop for stop in first_stops if stop > step))
        num_steps = min(steps_per_loop, next_stop - step)
        with signals.deferred() as arrived:
            new = run_steps(draw(num_steps), num_steps)
            num_made = round(new.get(UPDATES, num_steps))
            step, unreported = step + num_made, unreported + num_made
            if num_made:
                if not math.isfinite(new["loss"]):
                    raise Diverged(f"the loss is {new['loss']} between steps {step - num_made} and {step}")
                sums = {name: sums.get(name, 0.0) + value for name, value in new.items()}
            is_at_report = is_due(step, log_every_steps) or step == first_stops[-1]
            is_at_save = any(is_due(step, every_steps) for every_steps in intervals[1:])
            ends_here = is_true_of_any(arrived() is not None)
            if unreported and (is_at_report or ends_here):
                report(step, unreported, sums)
                unreported, sums = 0, {}
            if ends_here or (num_made and is_at_save):
                save(step)
            if ends_here:
                is_true_of_any(False)  # waits for the process that saves
                raise Terminated(arrived() or signal.SIGTERM)
        if not num_made:
            continue
        if stops_at(step):
            if unreported:
                report(step, unreported, sums)
            return


def evaluate(
    strategy: tf.distribute.Strategy, objective: Objective, batches: Iterator[dict], num_batches: int
) -> Sums:
    """Sums the objective's values over `num_batches` batches of per-replica features.

    Args:
        batches: per-replica features [batch / replicas, ...].
    """

    @tf.function
    def run(features):
        return _summed(
            strategy, strategy.run(lambda part: evaluation_step(objective, part), args=(features,))
        )

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


def _next_multiple(step: int, of: int) -> int:
    return (step // of + 1) * of

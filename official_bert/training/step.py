"""One update on every replica, and one evaluation batch.

Both run in replica context, inside `strategy.run`. What the model computes comes in as an objective:

    sum_names                                      keys of the sums that `loss` gives
    totals(features) -> {name: float32[]}          sums that the loss divides by, before they are reduced
    loss(features, totals, dropout_seed) -> (float32[], {name: float32[]})
                                                   this replica's share of the loss, and sums for the metrics

The shares of all replicas add up to the loss of one device on the whole batch, so N replicas equal one.
"""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from official_bert.optimization import AdamWeightDecayOptimizer, clip_by_global_norm, dense_gradients
from official_bert.training.rng import step_seed


class Objective(Protocol):
    """What a model is trained for; see the module's docstring."""

    sum_names: tuple[str, ...]

    def totals(self, features: dict) -> dict: ...

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple: ...


class TrainingStep:
    """Forward, backward, reduce, clip, update."""

    def __init__(
        self,
        objective: Objective,
        variables: list[tf.Variable],
        optimizer: AdamWeightDecayOptimizer,
        run_seed: int,
        jit_compile: bool = False,
    ):
        """Prepares a step.

        Args:
            objective: what is minimised.
            variables: those that `optimizer` was built with, in that order.
            optimizer: holds the slots and the step count.
            run_seed: of the run; the dropout masks follow from it and the step.
            jit_compile: compile with XLA: the whole step on one device, forward and backward on several (XLA
                cannot hold the collectives there).
        """
        self.objective, self.variables, self.optimizer = objective, variables, optimizer
        self.run_seed = run_seed
        self._update = self._one_update
        self._differentiate = self._gradients
        if jit_compile and tf.distribute.get_strategy().num_replicas_in_sync == 1:
            self._update = tf.function(self._one_update, jit_compile=True)
        elif jit_compile:
            self._differentiate = tf.function(self._gradients, jit_compile=True)

    def __call__(self, features: dict) -> dict:
        """One update.

        Args:
            features: this replica's part of the batch.

        Returns:
            The objective's sums on this replica.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return self._update(features, replica)

    def _one_update(self, features, replica):
        seed = step_seed(self.run_seed, self.optimizer.global_step, replica)
        totals = all_reduced(self.objective.totals(features))
        gradients, sums = self._differentiate(features, totals, seed)
        gradients = clip_by_global_norm(all_reduced(gradients))
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return sums

    def _gradients(self, features, totals, seed):
        with tf.GradientTape() as tape:
            loss, sums = self.objective.loss(features, totals, seed)
        return dense_gradients(tape.gradient(loss, self.variables)), sums


def evaluation_step(objective: Objective, features: dict) -> dict:
    """The objective's sums of one batch on this replica, without dropout."""
    _, sums = objective.loss(features, all_reduced(objective.totals(features)), None)
    return sums


def all_reduced(values):
    """Sums a structure of tensors over the replicas, all in one call; None stays None."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    present = [value for value in tf.nest.flatten(values) if value is not None]
    reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return tf.nest.map_structure(lambda value: None if value is None else next(reduced), values)

"""Runs one update on every replica, and evaluates one batch.

Both functions run in replica context, inside `strategy.run`. An objective defines what the model computes:

    sum_names                                      the keys of the sums that `loss` returns
    totals(features) -> {name: float32[]}          this replica's part of the sums that the loss is divided by
    loss(features, totals, dropout_seed) -> (float32[], {name: float32[]})
                                                   this replica's part of the loss, and sums for the metrics; `totals`
                                                   are the sums over all replicas

The losses of all replicas add up to the loss of one device on the whole batch, so N replicas equal one.
"""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from official_bert.optimization import AdamWeightDecayOptimizer, clip_by_global_norm, dense_gradients
from official_bert.training.precision import UPDATES, LossScale
from official_bert.training.seeds import part_seed, step_seed

GRADIENT_NORM = "gradient_norm"


class Objective(Protocol):
    """The training objective of a model; the module's docstring describes it."""

    sum_names: tuple[str, ...]

    def totals(self, features: dict) -> dict: ...

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple: ...


class TrainingStep:
    """One training step: forward pass, backward pass, all-reduce, clipping, update.

    Attributes:
        sum_names: the keys of the results of a call.
    """

    def __init__(
        self,
        objective: Objective,
        variables: list[tf.Variable],
        optimizer: AdamWeightDecayOptimizer,
        run_seed: int,
        jit_compile: bool = False,
        num_parts: int = 1,
        clips_per_replica: bool = False,
        loss_scale: LossScale | None = None,
    ):
        """Prepares a step.

        Args:
            jit_compile: whether XLA compiles the step: the whole step on one device, forward and backward pass on
                several devices, where XLA cannot compile the collective operations.
            num_parts: the number of parts of a replica's batch that are computed one after the other; it divides the
                batch.
            clips_per_replica: whether the norm is clipped of each replica's gradient, before their mean, instead of the
                gradient of the whole batch.
            loss_scale: the scaling of the loss, with which an update whose gradients overflow is skipped; None for
                none.
        """
        self.sum_names = (*objective.sum_names, GRADIENT_NORM, *([UPDATES] if loss_scale else []))
        self._loss_scale = loss_scale
        self.objective, self.variables, self.optimizer = objective, variables, optimizer
        self.run_seed, self._num_parts, self._clips_per_replica = run_seed, num_parts, clips_per_replica
        self._update = self._one_update
        self._differentiate = self._gradients
        if jit_compile and tf.distribute.get_strategy().num_replicas_in_sync == 1:
            self._update = tf.function(self._one_update, jit_compile=True)
        elif jit_compile:
            self._differentiate = tf.function(self._gradients, jit_compile=True)

    def __call__(self, features: dict) -> dict:
        """Makes one update.

        Returns:
            The objective's sums on this replica, and its share of `gradient_norm`, the norm of the whole batch's
            gradient before it is clipped. With clips_per_replica it is the mean of the replicas' own norms. With a loss
            scale there is a share of `updates`, too, 1 in all for an update and 0 for a skipped one, of which all sums
            are 0.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return self._update(features, replica)

    def _one_update(self, features, replica):
        seed = step_seed(self.run_seed, self.optimizer.global_step, replica)
        totals = all_reduced(self.objective.totals(features))
        # A value, because the compiled function would take a mirrored variable of the first replica.
        scale = None if self._loss_scale is None else self._loss_scale.value
        gradients, sums = self._differentiate(features, totals, seed, scale)
        if self._clips_per_replica:
            *gradients, norm = all_reduced(_clipped_share(gradients))
        else:
            gradients = all_reduced(gradients)
            norm = tf.linalg.global_norm(gradients)
            gradients = clip_by_global_norm(gradients, norm=norm)
        pairs = zip(gradients, self.variables, strict=True)
        share = 1.0 / tf.distribute.get_replica_context().num_replicas_in_sync
        if self._loss_scale is None:
            self.optimizer.apply_gradients(pairs)
            return sums | {GRADIENT_NORM: norm * share}
        # The norm is that of the reduced gradients, so an overflow on one replica is one on all of them.
        is_made = tf.math.is_finite(norm)
        self.optimizer.apply_gradients(pairs, is_made)
        self._loss_scale.adjust(is_made)
        sums |= {GRADIENT_NORM: norm * share, UPDATES: share}
        return {name: tf.where(is_made, value, 0.0) for name, value in sums.items()}

    def _gradients(self, features, totals, seed, scale):
        """Returns the gradients of this replica's share of the loss, and the objective's sums."""
        gradients, sums = self._scaled_gradients(features, totals, seed, scale)
        if scale is not None:
            gradients = [None if gradient is None else gradient / scale for gradient in gradients]
        return gradients, sums

    def _scaled_gradients(self, features, totals, seed, scale):
        """Returns the gradients of the share of the loss times `scale`, None for 1, and the objective's sums."""
        if self._num_parts == 1:
            return self._gradients_of_part(features, totals, seed, scale)
        parts = {
            name: tf.reshape(value, tf.concat([[self._num_parts, -1], tf.shape(value)[1:]], axis=0))
            for name, value in features.items()
        }

        def of_part(number):
            part = {name: value[number] for name, value in parts.items()}
            return self._gradients_of_part(part, totals, part_seed(seed, number), scale)

        # The first part shows which variables have a gradient; the others run in a loop, which is traced once.
        gradients, sums = of_part(tf.constant(0))
        present = [gradient for gradient in gradients if gradient is not None]

        def add(number, found, sums):
            more, more_sums = of_part(number)
            more = [gradient for gradient in more if gradient is not None]
            found = [one + another for one, another in zip(found, more, strict=True)]
            return number + 1, found, {name: value + more_sums[name] for name, value in sums.items()}

        _, present, sums = tf.while_loop(
            lambda number, *_: number < self._num_parts, add, (tf.constant(1), present, sums)
        )
        found = iter(present)
        return [None if gradient is None else next(found) for gradient in gradients], sums

    def _gradients_of_part(self, features, totals, seed, scale):
        with tf.GradientTape() as tape:
            loss, sums = self.objective.loss(features, totals, seed)
            scaled = loss if scale is None else loss * scale
        return dense_gradients(tape.gradient(scaled, self.variables)), sums


def _clipped_share(gradients: list) -> list:
    """Clips the gradient of this replica's own mean loss, and returns its share of the mean over the replicas.

    The last item is the share of the mean of the replicas' norms.
    """
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    own = [None if gradient is None else gradient * num_replicas for gradient in gradients]
    norm = tf.linalg.global_norm(own)
    clipped = clip_by_global_norm(own, norm=norm)
    return [None if one is None else one / num_replicas for one in [*clipped, norm]]


def evaluation_step(objective: Objective, features: dict) -> dict:
    """Returns the objective's sums of one batch on this replica, without dropout."""
    _, sums = objective.loss(features, all_reduced(objective.totals(features)), None)
    return sums


def all_reduced(values):
    """Sums the tensors of a structure over the replicas in one all-reduce; None stays None."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    present = [value for value in tf.nest.flatten(values) if value is not None]
    reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return tf.nest.map_structure(lambda value: None if value is None else next(reduced), values)

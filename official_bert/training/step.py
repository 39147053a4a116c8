"""Makes one update on every replica, and evaluates one batch, in replica context.

The losses of all replicas add up to the loss of one device on the whole batch, so N replicas equal
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from official_bert.modeling.dropout_masks import part_seed
from official_bert.optimization import (
    AdamWeightDecayOptimizer,
    clip_by_global_norm,
    clip_scale,
    dense_gradients,
)
from official_bert.options.shared import FLOAT32
from official_bert.training.precision import UPDATES, LossScale
from official_bert.training.whole_batch import ComparingObjective, WholeBatch

GRADIENT_NORM, TOKENS = "gradient_norm", "tokens"
# A bucket of gradients is reduced while the backward pass computes those of the next bucket.
# TensorFlow fills the buckets from the last variable, whose gradient is the first that is computed.
# PyTorch has buckets of the same size.
_BUCKET = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=25 * 2**20)


class StepObjective(Protocol):
    """The part of an objective that a step computes.

    Attributes:
        sum_names: the keys of the sums that `loss` returns.
    """

    @property
    def sum_names(self) -> tuple[str, ...]: ...

    def totals(self, features: dict) -> dict:
        """Returns this replica's part of the sums that the loss is divided by.

        Args:
            features: the features of this replica's examples.

        Returns:
            float32[] by name.
        """
        ...

    def loss(self, features: dict, totals: dict, dropout_seed: tf.Tensor | None) -> tuple:
        """Computes this replica's part of the loss.

        Args:
            features: the features of this replica's examples.
            totals: the values of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The loss, float32[], and sums for the metrics, float32[] by name.
        """
        ...


class Objective(StepObjective, Protocol):
    """What a training minimises.

    Attributes:
        tensorboard_only: the metrics for which a progress line has no room.
    """

    @property
    def tensorboard_only(self) -> tuple[str, ...]: ...

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the metrics of a progress line, with the mean `loss`.

        Args:
            sums: the sums of several steps, by name.
            num_steps: the number of these steps.
        """
        ...


@runtime_checkable
class RampObjective(Protocol):
    """The further method of an objective whose batches may grow."""

    def for_batches(self, number: int) -> Objective:
        """Returns the objective of an update with several batches.

        Args:
            number: the number of these batches.
        """
        ...


class TrainingStep:
    """One training step: forward pass, backward pass, all-reduce, clipping, update.

    Attributes:
        sum_names: the keys of the results of `update`.
    """

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        objective: Objective,
        variables: list[tf.Variable],
        optimizer: AdamWeightDecayOptimizer,
        *,
        run_seed: int,
        jit_compile: bool = False,
        num_micro_batches: int = 1,
        clips_per_replica: bool = False,
        loss_scale: LossScale | None = None,
        all_reduce_dtype: str = FLOAT32,
    ):
        """Prepares a step.

        Args:
            objective: what training minimises; it may be a ComparingObjective, too.
            variables: the variables to update, in the order in which the optimizer was built.
            optimizer: the optimizer, which has slots for the variables.
            run_seed: the seed that the dropout masks of all steps follow from.
            jit_compile: whether XLA compiles the step. On several devices it compiles only the
                forward and backward pass, since it cannot compile the collective operations.
            num_micro_batches: the number of parts in which a replica computes its examples.
            clips_per_replica: whether the gradient of each replica is clipped instead of their
                mean.
            loss_scale: the scale of the loss for float16; an update whose gradients overflow is
                skipped. None for no scale.
            all_reduce_dtype: the type in which gradients are summed over the replicas.
        """
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self.objective: StepObjective = objective
        self._whole_batch = None
        if isinstance(objective, ComparingObjective):
            self.objective = whole_batch = WholeBatch(objective)
            # XLA cannot compile the collective operations that compare examples of all replicas.
            if num_micro_batches > 1 or (jit_compile and num_replicas > 1):
                self._whole_batch = whole_batch
        self.sum_names = (*self.objective.sum_names, GRADIENT_NORM, TOKENS)
        if loss_scale:
            self.sum_names += (UPDATES,)
        self.variables = variables
        self.optimizer = optimizer
        self._run_seed = run_seed
        self._loss_scale = loss_scale
        self._clips_per_replica = clips_per_replica
        self._num_micro_batches = num_micro_batches
        # On one device nothing is summed, so nothing is rounded.
        self._all_reduce_dtype = all_reduce_dtype if num_replicas > 1 else FLOAT32
        self._gradients = self._whole_gradients
        if num_micro_batches > 1:
            self._gradients = self._accumulated_gradients
        # A function that XLA compiles replaces the method.
        if jit_compile and num_replicas == 1:
            self.update = tf.function(self.update, jit_compile=True, autograph=False)
        elif jit_compile:
            self._gradients = tf.function(self._gradients, jit_compile=True, autograph=False)

    def update(self, features: dict) -> dict:
        """Makes one update with this replica's part of the batch.

        With a loss scale, all sums of a skipped update are 0 but the tokens.

        Args:
            features: the features of this replica's examples, [batch / replicas, ...].

        Returns:
            This replica's part of the sums of `sum_names`, float32[] by name: those of the
            objective, and
                gradient_norm: the norm of the gradient before clipping; with `clips_per_replica`
                    the mean of the replicas' norms.
                tokens: the number of tokens without padding.
                updates: with a loss scale, 1 in all for an update and 0 for a skipped one.
        """
        context = tf.distribute.get_replica_context()
        replica = context.replica_id_in_sync_group
        seed = step_seed(self._run_seed, self.optimizer.global_step)
        num_examples = tf.shape(features["input_ids"])[0]
        seed = part_seed(seed, replica * num_examples, num_examples)
        totals = all_reduced(self.objective.totals(features))
        if self._whole_batch:
            seeds = self._micro_batch_seeds(seed)
            micro_batches = self._split(features)
            features = self._whole_batch.with_gradients(
                micro_batches,
                seeds,
                features,
                totals,
            )

        # Compute the gradients of this replica's loss.
        # The scale is a value, because the compiled function would take a mirrored variable of the
        # first replica.
        scale = None if self._loss_scale is None else self._loss_scale.value
        gradients, sums = self._gradients(features, totals, seed, scale)
        if scale is not None:
            gradients = _map_present(lambda gradient: gradient / scale, gradients)

        # Sum them over the replicas, and clip.
        gradient_scale = None
        if self._clips_per_replica:
            *gradients, norm = _clipped_share(gradients)
            gradients = self._reduced(gradients)
            norm = all_reduced(norm)
        else:
            gradients = self._reduced(gradients)
            norm = tf.linalg.global_norm(gradients)
            gradient_scale = clip_scale(norm)

        # Update the variables.
        pairs = zip(gradients, self.variables, strict=True)
        share = 1.0 / context.num_replicas_in_sync
        if self._loss_scale is None:
            self.optimizer.apply_gradients(pairs, gradient_scale=gradient_scale)
            return sums | {GRADIENT_NORM: norm * share, TOKENS: _num_tokens(features)}
        # The norm is that of the reduced gradients, so an overflow on one replica is one on all of
        # them.
        is_applied = tf.math.is_finite(norm)
        self.optimizer.apply_gradients(pairs, is_applied, gradient_scale)
        self._loss_scale.adjust(is_applied)
        sums |= {GRADIENT_NORM: norm * share, UPDATES: share}
        sums = {name: tf.where(is_applied, value, 0.0) for name, value in sums.items()}
        return sums | {TOKENS: _num_tokens(features)}

    def _reduced(self, gradients: list) -> list:
        """Returns the gradients, or None, summed over the replicas."""
        sent = _map_present(
            lambda gradient: tf.cast(gradient, self._all_reduce_dtype),
            gradients,
        )
        return _map_present(
            lambda gradient: tf.cast(gradient, tf.float32),
            all_reduced(sent),
        )

    def _whole_gradients(
        self,
        features: dict,
        totals: dict,
        seed: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[list, dict]:
        """Computes the gradients of this replica's part of the loss times `scale`.

        Returns:
            The gradients, dense or None, and the objective's sums.
        """
        with tf.GradientTape() as tape:
            loss, sums = self.objective.loss(features, totals, seed)
            scaled = loss if scale is None else loss * scale
        gradients = tape.gradient(scaled, self.variables)
        return dense_gradients(gradients), sums

    def _split(self, features: dict) -> dict:
        """Returns the features of the micro-batches, [count, b, ...]."""
        micro_batches = {}
        for name, value in features.items():
            example_shape = tf.shape(value)[1:]
            shape = tf.concat([[self._num_micro_batches, -1], example_shape], axis=0)
            micro_batches[name] = tf.reshape(value, shape)
        return micro_batches

    def _micro_batch_seed(self, seed: tf.Tensor, index: tf.Tensor | int) -> tf.Tensor:
        """Returns the dropout seed of a micro-batch, int32[4].

        Args:
            seed: the seed of this replica's part of the batch, int32[4].
            index: the number of the micro-batch, from 0.
        """
        num_examples = seed[3] // self._num_micro_batches
        first_example = seed[2] + index * num_examples
        return part_seed(seed[:2], first_example, num_examples)

    def _micro_batch_seeds(self, seed: tf.Tensor) -> tf.Tensor:
        """Returns the dropout seeds of the micro-batches, int32[count, 4]."""
        indices = range(self._num_micro_batches)
        return tf.stack([self._micro_batch_seed(seed, index) for index in indices])

    def _accumulated_gradients(
        self,
        features: dict,
        totals: dict,
        seed: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[list, dict]:
        """Computes the result of `_whole_gradients` from one micro-batch after the other."""
        count = self._num_micro_batches
        micro_batches = self._split(features)
        has_gradient = []  # a bool for each variable, which is known when the loop is traced

        def add(index: tf.Tensor, gradients: list, sums: dict):
            micro_batch = {name: value[index] for name, value in micro_batches.items()}
            micro_seed = self._micro_batch_seed(seed, index)
            more, more_sums = self._whole_gradients(
                micro_batch,
                totals,
                micro_seed,
                scale,
            )
            has_gradient[:] = [gradient is not None for gradient in more]
            # The additions wait for the sums, which are known by now. Else TensorFlow may merge
            # them with additions of the gradient, into a temporary variable that its loop makes
            # once more than it deletes it.
            with tf.control_dependencies(list(more_sums.values())):
                gradients = [
                    total if gradient is None else total + gradient
                    for total, gradient in zip(gradients, more, strict=True)
                ]
                next_index = index + 1
                sums = {name: value + more_sums[name] for name, value in sums.items()}
                return next_index, gradients, sums

        zeros = [tf.zeros(variable.shape) for variable in self.variables]
        first_index = tf.constant(0)
        zero_sums = {name: tf.constant(0.0) for name in self.objective.sum_names}
        _, gradients, sums = tf.while_loop(
            lambda index, *_: index < count,
            add,
            (first_index, zeros, zero_sums),
            # By default TensorFlow computes up to ten at a time, and holds the memory of ten.
            parallel_iterations=1,
        )
        gradients = [
            gradient if has else None for gradient, has in zip(gradients, has_gradient, strict=True)
        ]
        return gradients, sums


def _num_tokens(features: dict) -> tf.Tensor:
    """Returns the number of tokens, float32[]; without a mask no position is padding."""
    # A float is exact for a batch of fewer than 2^24 tokens on a replica.
    if "input_mask" not in features:
        return tf.cast(tf.size(features["input_ids"]), tf.float32)
    number = tf.constant(0)
    for name, values in features.items():
        if name.endswith("input_mask"):  # the queries of an example may have one of their own
            number += tf.math.count_nonzero(values, dtype=tf.int32)
    return tf.cast(number, tf.float32)


def _clipped_share(gradients: list) -> list:
    """Clips the gradient of the mean loss of this replica's examples.

    Returns:
        The replica's share of the mean over the replicas, and as the last item its share of the
        mean of the replicas' norms.
    """
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    mean_gradients = _map_present(lambda gradient: gradient * num_replicas, gradients)
    norm = tf.linalg.global_norm(mean_gradients)
    clipped = clip_by_global_norm(mean_gradients, norm=norm)
    return _map_present(lambda value: value / num_replicas, [*clipped, norm])


def _map_present(function: Callable, values: list) -> list:
    """Applies a function to the values that are not None, which stays None."""
    return [None if value is None else function(value) for value in values]


def evaluation_step(objective: StepObjective, features: dict) -> dict:
    """Returns the objective's sums of one batch on this replica, without dropout.

    Args:
        objective: the objective of the model.
        features: the features of this replica's examples, [batch / replicas, ...].
    """
    totals = all_reduced(objective.totals(features))
    _, sums = objective.loss(features, totals, None)
    return sums


def all_reduced(values: Any) -> Any:
    """Sums tensors over the replicas.

    Args:
        values: a structure of tensors of one type; None stays None.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    flat_values = tf.nest.flatten(values)
    present = [value for value in flat_values if value is not None]
    reduced = context.all_reduce(
        tf.distribute.ReduceOp.SUM,
        present,
        _BUCKET,
    )
    remaining = iter(reduced)
    flat_reduced = _map_present(lambda _: next(remaining), flat_values)
    return tf.nest.pack_sequence_as(values, flat_reduced)


def step_seed(run_seed: int, step: tf.Tensor) -> tf.Tensor:
    """Returns the dropout seed of one step, int32[2].

    It depends only on the arguments, so a resumed run draws the same masks as an uninterrupted one.

    Args:
        run_seed: the seed of the run.
        step: the number of updates before this one.
    """
    return tf.stack([tf.cast(part, tf.int32) for part in (run_seed, step)])

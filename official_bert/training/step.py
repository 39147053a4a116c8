"""Makes one update on every replica, and evaluates one batch, in replica context.

The losses of all replicas add up to the loss of one device on the whole batch, so N replicas equal
one.
"""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from official_bert.optimization import (
    AdamWeightDecayOptimizer,
    clip_by_global_norm,
    dense_gradients,
)
from official_bert.options.shared import FLOAT32
from official_bert.training.precision import UPDATES, LossScale
from official_bert.training.whole_batch import WholeBatch

GRADIENT_NORM, TOKENS = "gradient_norm", "tokens"
# A bucket of gradients is reduced while the backward pass computes those of the next one:
# TensorFlow fills the buckets from the last variable, whose gradient is the first that is known.
# The size is that of PyTorch's.
_BUCKET = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=25 * 2**20)


class Objective(Protocol):
    """What a training minimises.

    Attributes:
        sum_names: the keys of the sums that `loss` returns.
        tensorboard_only: the metrics for which a progress line has no room.
    """

    sum_names: tuple[str, ...]
    tensorboard_only: tuple[str, ...]

    def totals(self, features: dict) -> dict:
        """Returns this replica's part of the sums that the loss is divided by, float32[] by name."""

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """Returns this replica's part of the loss, float32[], and sums for the metrics, float32[]
        by name.

        `totals` are summed over the replicas. `dropout_seed` is int32[2], or None for no dropout.
        """

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the metrics of a progress line, with the mean `loss`, from the sums of several
        steps.
        """


class TrainingStep:
    """One training step: forward pass, backward pass, all-reduce, clipping, update.

    `sum_names` are the keys of the results of `update`.
    """

    def __init__(
        self,
        objective: Objective,
        variables: list[tf.Variable],
        optimizer: AdamWeightDecayOptimizer,
        run_seed: int,
        jit_compile: bool = False,
        num_micro_batches: int = 1,
        clips_per_replica: bool = False,
        loss_scale: LossScale | None = None,
        all_reduce_dtype: str = FLOAT32,
    ):
        """Prepares a step; with `loss_scale` an update whose gradients overflow is skipped.

        XLA, with `jit_compile`, compiles the step; on several devices only the forward and backward
        pass, since it cannot compile the collective operations. With `clips_per_replica` each
        replica's gradient is clipped, instead of their mean. `all_reduce_dtype` is the type in
        which gradients are summed over the replicas.
        """
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._needs_gradients_of_vectors = False
        if hasattr(objective, "batch_loss"):
            objective = WholeBatch(objective)
            # What XLA compiles has no collective.
            self._needs_gradients_of_vectors = num_micro_batches > 1 or (
                jit_compile and num_replicas > 1
            )
        self.sum_names = (
            *objective.sum_names,
            GRADIENT_NORM,
            TOKENS,
            *([UPDATES] if loss_scale else []),
        )
        self.objective, self.variables, self.optimizer = objective, variables, optimizer
        self._run_seed, self._loss_scale, self._clips_per_replica = (
            run_seed,
            loss_scale,
            clips_per_replica,
        )
        self._num_micro_batches = num_micro_batches
        # One device sums nothing, and rounds nothing.
        self._all_reduce_dtype = all_reduce_dtype if num_replicas > 1 else FLOAT32
        self._gradients = (
            self._whole_gradients if num_micro_batches == 1 else self._accumulated_gradients
        )
        # What XLA compiles replaces the method.
        if jit_compile and num_replicas == 1:
            self.update = tf.function(self.update, jit_compile=True, autograph=False)
        elif jit_compile:
            self._gradients = tf.function(self._gradients, jit_compile=True, autograph=False)

    def update(self, features: dict) -> dict:
        """Makes one update with this replica's part of the batch, and returns the objective's sums
        on this replica.

        Beside them is its share of `gradient_norm`, the norm before clipping, with
        clips_per_replica the mean of the replicas' norms, and the number of its `tokens` without
        padding. With a loss scale there is a share of `updates`, too, 1 in all for an update and 0
        for a skipped one, of which all sums but the tokens are 0.
        """
        context = tf.distribute.get_replica_context()
        seed = step_seed(
            self._run_seed, self.optimizer.global_step, context.replica_id_in_sync_group
        )
        totals = all_reduced(self.objective.totals(features))
        if self._needs_gradients_of_vectors:
            seeds = [micro_batch_seed(seed, index) for index in range(self._num_micro_batches)]
            features = self.objective.with_gradients(
                self._split(features), tf.stack(seeds), features, totals
            )
        # A value, because the compiled function would take a mirrored variable of the first
        # replica.
        scale = None if self._loss_scale is None else self._loss_scale.value
        gradients, sums = self._gradients(features, totals, seed, scale)
        if scale is not None:
            gradients = [None if gradient is None else gradient / scale for gradient in gradients]
        if self._clips_per_replica:
            *gradients, norm = _clipped_share(gradients)
            gradients, norm = self._reduced(gradients), all_reduced(norm)
        else:
            gradients = self._reduced(gradients)
            norm = tf.linalg.global_norm(gradients)
            gradients = clip_by_global_norm(gradients, norm=norm)
        pairs = zip(gradients, self.variables, strict=True)
        share = 1.0 / context.num_replicas_in_sync
        if scale is None:
            self.optimizer.apply_gradients(pairs)
            return sums | {GRADIENT_NORM: norm * share, TOKENS: _num_tokens(features)}
        # The norm is that of the reduced gradients, so an overflow on one replica is one on all of
        # them.
        is_applied = tf.math.is_finite(norm)
        self.optimizer.apply_gradients(pairs, is_applied)
        self._loss_scale.adjust(is_applied)
        sums |= {GRADIENT_NORM: norm * share, UPDATES: share}
        sums = {name: tf.where(is_applied, value, 0.0) for name, value in sums.items()}
        return sums | {TOKENS: _num_tokens(features)}

    def _reduced(self, gradients: list) -> list:
        """Returns the gradients, or None, summed over the replicas."""
        sent = [
            None if gradient is None else tf.cast(gradient, self._all_reduce_dtype)
            for gradient in gradients
        ]
        return [
            None if gradient is None else tf.cast(gradient, tf.float32)
            for gradient in all_reduced(sent)
        ]

    def _whole_gradients(self, features, totals, seed, scale):
        """Returns the gradients of this replica's share of the loss times `scale`, and the
        objective's sums.
        """
        with tf.GradientTape() as tape:
            loss, sums = self.objective.loss(features, totals, seed)
            scaled = loss if scale is None else loss * scale
        return dense_gradients(tape.gradient(scaled, self.variables)), sums

    def _split(self, features: dict) -> dict:
        """Returns the features of the micro-batches, [count, b, ...]."""
        count = self._num_micro_batches
        return {
            name: tf.reshape(value, tf.concat([[count, -1], tf.shape(value)[1:]], axis=0))
            for name, value in features.items()
        }

    def _accumulated_gradients(self, features, totals, seed, scale):
        """Returns what `_whole_gradients` does, computed from one micro-batch after the other."""
        count, micro_batches = self._num_micro_batches, self._split(features)
        has_gradient = []  # of each variable, known when the loop is traced

        def add(index, added, sums):
            micro_batch = {name: value[index] for name, value in micro_batches.items()}
            more, more_sums = self._whole_gradients(
                micro_batch, totals, micro_batch_seed(seed, index), scale
            )
            has_gradient[:] = [gradient is not None for gradient in more]
            # The additions wait for the sums, which are known by now. Else TensorFlow may merge
            # them with additions of the gradient, into a temporary variable that its loop makes
            # once more than it deletes it.
            with tf.control_dependencies(list(more_sums.values())):
                added = [
                    one if another is None else one + another
                    for one, another in zip(added, more, strict=True)
                ]
                return (
                    index + 1,
                    added,
                    {name: value + more_sums[name] for name, value in sums.items()},
                )

        zeros = [tf.zeros(variable.shape) for variable in self.variables]
        start = (
            tf.constant(0),
            zeros,
            {name: tf.constant(0.0) for name in self.objective.sum_names},
        )
        # By default TensorFlow computes up to ten at a time, and holds the memory of ten.
        _, added, sums = tf.while_loop(
            lambda index, *_: index < count, add, start, parallel_iterations=1
        )
        return [one if has else None for one, has in zip(added, has_gradient, strict=True)], sums


def _num_tokens(features: dict):
    """Returns the number of tokens, float32[]; without a mask no position is padding."""
    mask = features.get("input_mask")
    number = (
        tf.size(features["input_ids"])
        if mask is None
        else tf.math.count_nonzero(mask, dtype=tf.int32)
    )
    return tf.cast(number, tf.float32)  # exact, as of any batch below 2^24 tokens on a replica


def _clipped_share(gradients: list) -> list:
    """Clips the gradient of this replica's own mean loss, and returns its share of the mean over
    the replicas.

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
    """Sums the tensors of a structure, of one type, over the replicas; None stays None."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    present = [value for value in tf.nest.flatten(values) if value is not None]
    reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present, _BUCKET))
    return tf.nest.map_structure(lambda value: None if value is None else next(reduced), values)


def step_seed(run_seed, step: tf.Tensor, replica) -> tf.Tensor:
    """Returns the dropout seed of one step on one replica, int32[2].

    It depends only on the arguments, so a resumed run draws the same masks as an uninterrupted one.
    """
    seed = tf.stack([tf.cast(run_seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(replica, tf.int32), alg="philox")


def micro_batch_seed(seed: tf.Tensor, index) -> tf.Tensor:
    """Returns the dropout seed of one micro-batch, int32[2]; the first one has the seed of the
    whole batch.
    """
    folded = tf.random.experimental.stateless_fold_in(seed, tf.cast(index, tf.int32), alg="philox")
    return tf.where(index > 0, folded, seed)

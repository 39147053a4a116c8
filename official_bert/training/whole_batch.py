"""The loss that compares all examples of an update, of every replica and every micro-batch.

Each replica computes the loss of the whole batch. In it the vectors of the replica's own examples
have gradients, and the others are constants. The gradients of all replicas add up to that of one
device.

With micro-batches the vectors are computed twice: first to compute the gradient of the loss by each
of them, then to propagate it through the encoder (Gao et al., 2021, "Scaling Deep Contrastive
Learning Batch Size under Memory Limited Setup"). Memory contains all vectors, and the other values
of one micro-batch.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import tensorflow as tf

# Features that `WholeBatch.with_gradients` adds, [b, ...] and [b].
_GRADIENTS = "vector_gradients"
_LOSSES = "loss_shares"


@runtime_checkable
class ComparingObjective(Protocol):
    """What a training minimises whose loss compares examples.

    It also has the attributes and methods of `step.Objective` that report the progress.

    Attributes:
        sum_names: "loss" alone.
        compared: the keys of the features that the loss reads.
    """

    @property
    def sum_names(self) -> tuple[str, ...]: ...

    @property
    def compared(self) -> tuple[str, ...]: ...

    def vectors(self, features: dict, dropout_seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the vectors of some examples, float32[b, ...].

        Args:
            features: the features of the examples.
            dropout_seed: int32[2]; None for no dropout.
        """
        ...

    def batch_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of a whole batch, float32[].

        Args:
            vectors: the vectors of all examples, float32[batch, ...].
            features: the features with the keys of `compared`.
        """
        ...


class MeanLoss:
    """The members of a `ComparingObjective` that reports nothing but the mean loss."""

    sum_names = ("loss",)
    tensorboard_only = ()

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps.

        Args:
            sums: the sums of the steps, by name.
            num_steps: the number of these steps.
        """
        return {"loss": sums["loss"] / num_steps}


class WholeBatch:
    """The `step.StepObjective` of a `ComparingObjective`."""

    def __init__(self, objective: ComparingObjective):
        """Wraps an objective whose loss compares the examples of a batch."""
        self._objective = objective
        self.sum_names = objective.sum_names

    def totals(self, features: dict) -> dict:
        """Returns the number of this replica's examples.

        Args:
            features: the features of this replica's examples.

        Returns:
            float32[] under the key `examples`.
        """
        return {"examples": _num_examples(features)}

    def loss(self, features: dict, totals: dict, dropout_seed: tf.Tensor | None) -> tuple:
        """Computes a value that has the gradient of the loss.

        Args:
            features: the features of this replica's examples, perhaps with those that
                `with_gradients` adds.
            totals: the value of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The value, float32[], and this replica's share of the loss in a dict.
        """
        vectors = self._objective.vectors(features, dropout_seed)
        if _GRADIENTS in features:
            value = tf.reduce_sum(vectors * features[_GRADIENTS])
            return value, {"loss": tf.reduce_sum(features[_LOSSES])}
        loss = self._whole_loss(vectors, features)
        share = _num_examples(features) / totals["examples"]
        return loss, {"loss": loss * share}

    def with_gradients(
        self, micro_batches: dict, seeds: tf.Tensor, features: dict, totals: dict
    ) -> dict:
        """Adds the gradient of the loss by the vector of each example, and its share of the loss.

        Args:
            micro_batches: the features of this replica's micro-batches, [count, b, ...].
            seeds: the dropout seeds of the micro-batches, int32[count, 4].
            features: the features of this replica's examples, [count * b, ...].
            totals: the value of the method `totals`, summed over the replicas.

        Returns:
            The features with the added ones.
        """

        def micro_batch_vectors(index: tf.Tensor):
            one = {name: value[index] for name, value in micro_batches.items()}
            return self._objective.vectors(one, seeds[index])

        count = seeds.shape[0]
        computed = tf.map_fn(
            micro_batch_vectors,
            tf.range(count),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )
        vectors = _merge_first_axes(computed)
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = self._whole_loss(vectors, features)
        losses = tf.repeat(loss / totals["examples"], tf.shape(vectors)[0])
        return features | {_GRADIENTS: tape.gradient(loss, vectors), _LOSSES: losses}

    def _whole_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of the whole batch, with the gradient by this replica's vectors."""
        compared_features = {
            name: _gather(features[name]) for name in self._objective.compared if name in features
        }
        all_vectors = tf.stop_gradient(_gather(vectors))
        # The difference is 0, with the gradient of the vectors.
        zeros = vectors - tf.stop_gradient(vectors)
        return self._objective.batch_loss(all_vectors + _pad_to_batch(zeros), compared_features)


def _num_examples(features: dict) -> tf.Tensor:
    """Returns the number of these examples, float32[]."""
    return tf.cast(tf.shape(features["input_ids"])[0], tf.float32)


def _merge_first_axes(values: tf.Tensor) -> tf.Tensor:
    """Returns [a * b, ...] for [a, b, ...]."""
    shape = tf.concat([[-1], tf.shape(values)[2:]], axis=0)
    return tf.reshape(values, shape)


def _pad_to_batch(values: tf.Tensor) -> tf.Tensor:
    """Returns the values at the places of this replica's examples, and zeros at the others.

    The result is [replicas * b, ...].
    """
    context = tf.distribute.get_replica_context()
    num_replicas = context.num_replicas_in_sync
    if num_replicas == 1:
        return values
    is_this_replica = tf.one_hot(
        context.replica_id_in_sync_group,
        num_replicas,
        dtype=values.dtype,
    )
    column = tf.reshape(is_this_replica, [num_replicas] + [1] * values.shape.rank)
    return _merge_first_axes(column * values[None])


def _gather(values: tf.Tensor) -> tf.Tensor:
    """Returns the values of the examples of all replicas, [replicas * b, ...].

    Their order is that of the global batch.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, _pad_to_batch(values))

"""The loss that compares all examples of an update: those of every replica and of every
micro-batch.

Each replica computes the loss of the whole batch, of which the vectors of its own examples are live
and the others constants; the gradients of all replicas add up to that of one device. With
micro-batches the vectors are computed twice, first to find the gradient of the loss by each of
them, then to propagate it through the encoder: Gao et al., "Scaling Deep Contrastive Learning Batch
Size under Memory Limited Setup" (2021). Memory holds the vectors, and of all else one micro-batch.
"""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

_GRADIENTS, _LOSSES = "gradients_of_vectors", "shares_of_loss"


class ComparingObjective(Protocol):
    """What a training minimises whose loss compares examples; `progress` and others are those of
    `step.Objective`.

    Attributes:
        sum_names: "loss" alone.
        compared: the keys of the features that the loss reads.
    """

    sum_names: tuple[str, ...]
    compared: tuple[str, ...]

    def vectors(self, features: dict, dropout_seed):
        """Returns the vectors of some examples, float32[b, ...]."""

    def batch_loss(self, vectors, features: dict):
        """Returns the loss of a whole batch, float32[], from its vectors and what the loss reads
        of its features.
        """


class WholeBatch:
    """The `step.Objective` of a `ComparingObjective`."""

    def __init__(self, objective: ComparingObjective):
        self._objective = objective
        self.sum_names = objective.sum_names

    def totals(self, features: dict) -> dict:
        """Returns the number of this replica's examples."""
        return {"examples": tf.cast(tf.shape(features["input_ids"])[0], tf.float32)}

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """Returns what has the gradient of the loss, and this replica's share of the loss."""
        vectors = self._objective.vectors(features, dropout_seed)
        if _GRADIENTS in features:
            return tf.reduce_sum(vectors * features[_GRADIENTS]), {
                "loss": tf.reduce_sum(features[_LOSSES])
            }
        loss = self._whole_loss(vectors, features)
        return loss, {"loss": loss * _share(features, totals)}

    def with_gradients(
        self, micro_batches: dict, seeds: list, features: dict, totals: dict
    ) -> dict:
        """Returns the features with the gradient of the loss by the vector of each example, and its
        share of the loss.

        `micro_batches` are the features [count, b, ...], and `seeds` those of the dropout in each.
        """

        def vectors_of(index):
            one = {name: value[index] for name, value in micro_batches.items()}
            return self._objective.vectors(one, seeds[index])

        count = seeds.shape[0]
        computed = tf.map_fn(
            vectors_of, tf.range(count), fn_output_signature=tf.float32, parallel_iterations=1
        )
        vectors = tf.reshape(computed, tf.concat([[-1], tf.shape(computed)[2:]], axis=0))
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = self._whole_loss(vectors, features)
        losses = tf.repeat(loss / totals["examples"], tf.shape(vectors)[0])
        return features | {_GRADIENTS: tape.gradient(loss, vectors), _LOSSES: losses}

    def _whole_loss(self, vectors, features: dict):
        objective = self._objective
        read = {name: _gathered(features[name]) for name in objective.compared if name in features}
        others = tf.stop_gradient(_gathered(vectors))
        live = vectors - tf.stop_gradient(vectors)  # 0, with the gradient of the vectors
        return objective.batch_loss(others + _in_place(live), read)


def _share(features: dict, totals: dict):
    """Returns the part of the batch that these examples are, float32[]."""
    return tf.cast(tf.shape(features["input_ids"])[0], tf.float32) / totals["examples"]


def _in_place(values):
    """Returns zeros for the examples of all replicas, [replicas * b, ...], with the values at
    their own place.
    """
    context = tf.distribute.get_replica_context()
    num_replicas = context.num_replicas_in_sync
    if num_replicas == 1:
        return values
    # [replicas].
    place = tf.one_hot(context.replica_id_in_sync_group, num_replicas, dtype=values.dtype)
    placed = tf.reshape(place, [num_replicas] + [1] * values.shape.rank) * values[None]
    return tf.reshape(placed, tf.concat([[-1], tf.shape(values)[1:]], axis=0))


def _gathered(values):
    """Returns the values of the examples of all replicas, [replicas * b, ...], in the order of
    the global batch.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, _in_place(values))

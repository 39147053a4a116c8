"""The batches of a pre-training run: drawn on the host, split over the replicas, with a position to resume from.

A plain host iterator can be saved and restored; an iterator of a distributed dataset cannot.
"""

from __future__ import annotations

import tensorflow as tf

from official_bert.training.distribution import split_over_replicas


class TrainingBatches:
    """An endless dataset, read some steps at a time.

    Attributes:
        state: the state for a checkpoint: the position, the run's `seed`, and the `key`.
        key: identifies the dataset; a saved position is valid only for the same key.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        most_steps: int,
        seed: int,
        key: int,
        is_own: bool = False,
    ):
        """Starts at the first batch of the dataset; restoring `state` returns to the saved position.

        Args:
            dataset: batches of {name: [batch, ...]}, all of one shape.
            strategy: the strategy whose replicas share each batch.
            most_steps: the maximum of `draw`'s `num_steps`.
            seed: the seed of the run.
            key: the key of the dataset.
            is_own: whether the dataset has this worker's part of each batch only.
        """
        self.key = key
        self._iterator, self._strategy, self._most_steps = iter(dataset), strategy, most_steps
        self._is_own = is_own
        self.state = tf.train.Checkpoint(
            iterator=self._iterator,
            seed=tf.Variable(seed, dtype=tf.int64),
            key=tf.Variable(key, dtype=tf.int64),
        )

    def draw(self, num_steps: int) -> dict:
        """Draws the next batches and stacks them.

        Returns:
            Per-replica values [most_steps, batch / replicas, ...], of which the first `num_steps` are valid.
        """
        host = [next(self._iterator) for _ in range(num_steps)]
        host += host[-1:] * (self._most_steps - num_steps)  # never read: one shape means one trace
        stacked = {name: tf.stack([batch[name] for batch in host]) for name in host[0]}
        return split_over_replicas(self._strategy, stacked, axis=1, is_own=self._is_own)

"""The batches of a training run: drawn on the host, handed out to the replicas, their position kept for resuming.

A plain host iterator can be saved and restored; an iterator of a distributed dataset cannot.
"""

from __future__ import annotations

import tensorflow as tf

from official_bert.training.distribution import split_over_replicas


class TrainingBatches:
    """An endless dataset, read some steps at a time.

    Attributes:
        state: what a checkpoint keeps: the position, the run's `seed`, and the `key`.
        key: of the dataset; a saved position fits a dataset of the same key only.
    """

    def __init__(
        self, dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, most_steps: int, seed: int, key: int
    ):
        """Starts at the dataset's beginning; restoring `state` goes to where it was saved.

        Args:
            dataset: batches of {name: [batch, ...]}, all of one shape.
            strategy: whose replicas share each batch.
            most_steps: the most that `draw` is asked for.
            seed: of the run.
            key: of the dataset.
        """
        self.key = key
        self._iterator, self._strategy, self._most_steps = iter(dataset), strategy, most_steps
        self.state = tf.train.Checkpoint(
            iterator=self._iterator,
            seed=tf.Variable(seed, dtype=tf.int64),
            key=tf.Variable(key, dtype=tf.int64),
        )

    def draw(self, num_steps: int) -> dict:
        """The next batches, one on the other.

        Returns:
            Per-replica values [most_steps, batch / replicas, ...], of which the first `num_steps` count.
        """
        host = [next(self._iterator) for _ in range(num_steps)]
        host += host[-1:] * (self._most_steps - num_steps)  # never read: one shape means one trace
        stacked = {name: tf.stack([batch[name] for batch in host]) for name in host[0]}
        return split_over_replicas(self._strategy, stacked, axis=1)

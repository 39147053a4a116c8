"""The batches of a training, in an order that the seed determines: of record files, or of a set in memory."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from official_bert.features import EncodedSet
from official_bert.training.distribution import split_over_replicas

LENGTH_MULTIPLE = 8


class RecordBatches:
    """An endless dataset of records, read some steps at a time; `trainer.Batches`. Its state is the dataset's."""

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        most_steps: int,
        seed: int,
        key: int,
        is_own: bool = False,
    ):
        """Starts at the first batch of the dataset, of one shape; `is_own` says that it is of this worker only."""
        self.key = key
        self._iterator, self._strategy, self._most_steps = iter(dataset), strategy, most_steps
        self._is_own = is_own
        self.state = _state(seed, key, iterator=self._iterator)

    def draw(self, num_steps: int) -> dict:
        """Returns the next batches, stacked: [most_steps, batch / replicas, ...], the first `num_steps` valid."""
        host = [next(self._iterator) for _ in range(num_steps)]
        host += host[-1:] * (self._most_steps - num_steps)  # never read: one shape means one trace
        stacked = {name: tf.stack([batch[name] for batch in host]) for name in host[0]}
        return split_over_replicas(self._strategy, stacked, axis=1, is_own=self._is_own)


def _state(seed: int, key: int, **position) -> tf.train.Checkpoint:
    numbers = {name: tf.Variable(number, dtype=tf.int64) for name, number in {"seed": seed, "key": key}.items()}
    return tf.train.Checkpoint(**position, **numbers)


def example_order(num_examples: int, seed: int, buffer_size: int) -> Iterator[int]:
    """Yields indices of examples, without end.

    The next example is drawn from a buffer, of 100 examples in the original. The set is repeated without a break, so
    passes overlap; `buffer_size` 0 shuffles the whole set anew for each pass.
    """
    if not buffer_size:
        for epoch in itertools.count():
            yield from np.random.default_rng([seed, epoch]).permutation(num_examples).tolist()
    draws = np.random.default_rng(seed)
    upcoming = itertools.cycle(range(num_examples))
    held = list(itertools.islice(upcoming, buffer_size))
    while True:
        for slot in draws.integers(buffer_size, size=4096).tolist():
            yield held[slot]
            held[slot] = next(upcoming)


def padded_length(longest: int, max_length: int) -> int:
    """Returns the length to which a batch is padded: the next multiple of 8, at most `max_length`."""
    return min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, max_length)


class ExampleBatches:
    """Batches of an encoded set in memory; `trainer.Batches`.

    The position is the number of examples drawn so far, so a run resumes exactly, and a checkpoint stores no buffer.
    """

    def __init__(
        self,
        encoded: EncodedSet,
        strategy: tf.distribute.Strategy,
        batch_size: int,
        seed: int,
        *,
        buffer_size: int,
        max_length: int,
        most_steps: int,
        pad_to_longest: bool,
    ):
        """Starts at the first example."""
        self._encoded, self._lengths, self._strategy = encoded, encoded.lengths, strategy
        self._batch_size, self._seed, self._buffer_size = batch_size, seed, buffer_size
        self._max_length, self._most_steps, self._pad_to_longest = max_length, most_steps, pad_to_longest
        digest = hashlib.sha256(encoded.lengths.tobytes() + f"{batch_size} {buffer_size}".encode()).hexdigest()
        self.key = int(digest[:15], 16)
        self._position = tf.Variable(0, dtype=tf.int64)
        self.state = _state(seed, self.key, position=self._position)
        self._order, self._drawn = self._fresh_order(), 0

    def _fresh_order(self) -> Iterator[int]:
        return example_order(len(self._lengths), self._seed, self._buffer_size)

    def draw(self, num_steps: int) -> dict | list[dict]:
        """Returns the next batches: stacked as above or, if each is padded to its longest example, as a list."""
        position = int(self._position.numpy())
        if position != self._drawn:  # a checkpoint was restored
            self._order = itertools.islice(self._fresh_order(), position, None)
        count = num_steps * self._batch_size
        rows = np.fromiter(itertools.islice(self._order, count), np.int64, count)
        self._drawn = position + count
        self._position.assign(self._drawn)

        rows = rows.reshape(num_steps, self._batch_size)
        if self._pad_to_longest:
            return [self._stacked(batch[None], int(self._lengths[batch].max())) for batch in rows]
        # The steps beyond `num_steps` are never read; they keep the shape constant, so the loop is traced once.
        unread = np.repeat(rows[-1:], self._most_steps - num_steps, axis=0)
        return self._stacked(np.concatenate([rows, unread]), self._max_length)

    def _stacked(self, rows: np.ndarray, longest: int) -> dict:
        """Returns the batches of int[steps, batch] as per-replica values."""
        features = self._encoded.features(rows.ravel(), padded_length(longest, self._max_length))
        stacked = {
            name: tf.convert_to_tensor(values.reshape(*rows.shape, *values.shape[1:]))
            for name, values in features.items()
        }
        return split_over_replicas(self._strategy, stacked, axis=1)

"""The batches of a training, in an order that the seed determines: of record files, or of a set in
memory.

Threads of tf.data read ahead, and the loop inside TensorFlow takes one batch for each update. So
reading never waits for the end of a loop, only a few batches are in memory, and the position is
always that of the updates made.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.context import async_wait
from tensorflow.python.trackable.base import Trackable

from official_bert.features import EncodedSet, content_digest
from official_bert.io.processes import awaited_at_exit
from official_bert.io.reading import untuned
from official_bert.training.distribution import hosts_of_replicas, split_over_replicas

LENGTH_MULTIPLE = 8
BATCHES_AHEAD = 2


class RecordBatches:
    """An endless dataset of records; `loop.Batches`. Its state is the dataset's."""

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        seed: int,
        key: int,
        is_own: bool = False,
    ):
        """Starts at the first batch of the dataset, of one shape; `is_own` says that it is of
        this worker only.
        """
        self.key = key
        self._iterator, self._strategy, self._is_own = iter(dataset), strategy, is_own
        self.state = _state(seed, key, iterator=self._iterator)

    def next_batch(self) -> dict:
        return split_over_replicas(
            self._strategy, next(self._iterator), axis=0, is_own=self._is_own
        )

    def have_run(self, num_batches: int):
        """Does nothing: the iterator knows its position."""


class HostBatches:
    """Endless datasets of records, one on each host of a TPU slice; `loop.Batches`. Its state is
    that of all.

    This process is connected to a TensorFlow server on every host, and what it does under the
    device of a host runs
    there: records are read, parsed and split on the host whose cores compute them.
    """

    def __init__(
        self,
        readers: Mapping[str, Callable[[], tuple[tf.data.Dataset, int]]],
        strategy: tf.distribute.Strategy,
        seed,
    ):
        """Starts at the first batch; a function for each host's device makes its dataset and the
        key of that.
        """
        self._strategy, self._iterators, keys = strategy, {}, []
        for host, read in readers.items():
            with tf.device(host):
                dataset, key = read()
                self._iterators[host] = iter(dataset)
            keys.append(key)
        async_wait()  # else a batch could be read from an iterator that is not there yet
        self.key = int(hashlib.sha256(repr(keys).encode()).hexdigest()[:15], 16)
        positions = {
            f"iterator_{number}": _OnHost(*pair)
            for number, pair in enumerate(self._iterators.items())
        }
        self.state = _state(seed, self.key, **positions)

    def next_batch(self) -> dict:
        host_of, parts = hosts_of_replicas(self._strategy), {}
        for host, iterator in self._iterators.items():
            with tf.device(host):
                split = {
                    name: tf.split(value, host_of.count(host))
                    for name, value in next(iterator).items()
                }
            for part, replica in enumerate(
                replica for replica, its in enumerate(host_of) if its == host
            ):
                parts[replica] = {name: values[part] for name, values in split.items()}
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def have_run(self, num_batches: int):
        """Does nothing: the iterators know their positions."""


class _OnHost(Trackable):
    """An iterator as a checkpoint saves it: its state is fetched from the host, which works
    asynchronously.
    """

    def __init__(self, host: str, iterator: tf.data.Iterator):
        self._host, self._iterator = host, iterator

    def _serialize_to_tensors(self):
        async_wait()
        with tf.device(self._host):
            tensors = self._iterator._serialize_to_tensors()
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}

    def _restore_from_tensors(self, tensors):
        with tf.device(self._host):
            self._iterator._restore_from_tensors(tensors)
        async_wait()  # else the next batch could be one of before


def _state(seed: int, key: int, **position) -> tf.train.Checkpoint:
    numbers = {
        name: tf.Variable(number, dtype=tf.int64)
        for name, number in {"seed": seed, "key": key}.items()
    }
    return tf.train.Checkpoint(**position, **numbers)


def example_order(num_examples: int, seed: int, buffer_size: int) -> Iterator[int]:
    """Yields indices of examples, without end.

    The next example is drawn from a buffer, of 100 examples in the original. The set is repeated
    without a break, so passes overlap; `buffer_size` 0 shuffles the whole set anew for each pass.
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
    """Batches of an encoded set in memory; `loop.Batches`.

    The position is the number of examples of the batches that have run, so a run resumes exactly,
    and a checkpoint stores no buffer.
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
        pad_to_longest: bool,
    ):
        """Starts at the first example, or at the position that is restored before the first batch;
        for one `fit`.

        The key is that of the examples' content in their order, and of how batches are drawn from
        them.
        """
        self._strategy, self._batch_size = strategy, batch_size
        order = f"{content_digest(encoded)} {batch_size} {buffer_size}"
        self.key = int(hashlib.sha256(order.encode()).hexdigest()[:15], 16)
        self._position = position = tf.Variable(0, dtype=tf.int64)
        self.state = _state(seed, self.key, position=position)

        def features(rows: np.ndarray) -> dict[str, np.ndarray]:
            longest = int(encoded.lengths[rows].max()) if pad_to_longest else max_length
            return encoded.features(rows, padded_length(longest, max_length))

        def read() -> Iterator[dict[str, np.ndarray]]:
            order = itertools.islice(
                example_order(len(encoded.lengths), seed, buffer_size), int(position), None
            )
            while True:
                yield features(
                    np.fromiter(itertools.islice(order, batch_size), np.int64, batch_size)
                )

        def spec(values: np.ndarray) -> tf.TensorSpec:
            sizes = [None] * (values.ndim - 1) if pad_to_longest else values.shape[1:]
            return tf.TensorSpec([batch_size, *sizes], values.dtype)

        batches, specs_of = (
            read(),
            {name: spec(values) for name, values in features(np.zeros(1, np.int64)).items()},
        )

        def next_of_python(_) -> dict[str, tf.Tensor]:
            types = [spec.dtype for spec in specs_of.values()]
            # Nothing is read before the first batch is asked for, so before that the position can
            # be restored.
            values = tf.numpy_function(
                awaited_at_exit(lambda: [*map(next(batches).get, specs_of)]), [], types
            )
            pairs = zip(specs_of.items(), values, strict=True)
            return {name: tf.ensure_shape(value, spec.shape) for (name, spec), value in pairs}

        # Not Dataset.from_generator, which calls Python once more when it is deleted: after the end
        # of Python, in vain.
        dataset = tf.data.Dataset.counter().map(next_of_python).prefetch(BATCHES_AHEAD)
        self._iterator = iter(dataset.with_options(untuned()))

    def next_batch(self) -> dict:
        return split_over_replicas(self._strategy, next(self._iterator), axis=0)

    def have_run(self, num_batches: int):
        """Moves the position to the end of the batches that have run."""
        self._position.assign_add(num_batches * self._batch_size)

"""The batches of a training, of record files or of a set in memory, in the order of a seed.

Threads of tf.data read ahead, and the loop inside TensorFlow reads one batch for each update. So
reading never waits for the end of a loop, only a few batches are in memory, and the position is
always that of the updates made.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.context import async_wait
from tensorflow.python.trackable.base import Trackable

from official_bert.features import EncodedSet, content_digest
from official_bert.io.processes import awaited_at_exit
from official_bert.io.reading import unconverted, untuned
from official_bert.training.distribution import replica_hosts, split_over_replicas

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
        is_local: bool = False,
    ):
        """Starts at the first batch of the dataset.

        Args:
            dataset: batches of one shape.
            strategy: the devices.
            seed: the seed of the run.
            key: identifies the data and how it is read.
            is_local: whether the batches are only those of this worker's replicas.
        """
        self.key = key
        self._iterator = iter(dataset)
        self._strategy = strategy
        self._is_local = is_local
        self.state = _state(seed, key, iterator=self._iterator)

    def next_batch(self) -> dict:
        return split_over_replicas(
            self._strategy, next(self._iterator), axis=0, is_local=self._is_local
        )

    def have_run(self, num_batches: int) -> None:
        """Does nothing, because the iterator has its position.

        Args:
            num_batches: not read.
        """


class HostBatches:
    """Endless datasets of records, one on each host of a TPU slice; `loop.Batches`.

    This process is connected to a TensorFlow server on every host. Its operations under the device
    of a host run on that host. So records are read, parsed and split on the host whose cores
    compute them. The state is that of all datasets.
    """

    def __init__(
        self,
        readers: Mapping[str, Callable[[], tuple[tf.data.Dataset, int]]],
        strategy: tf.distribute.Strategy,
        seed: int,
    ):
        """Starts at the first batch.

        Args:
            readers: for the device of each host, a function that makes its dataset and the key of
                the dataset.
            strategy: the devices.
            seed: the seed of the run.
        """
        self._strategy = strategy
        self._iterators = {}
        keys = []
        for host, read in readers.items():
            with tf.device(host):
                dataset, key = read()
                self._iterators[host] = iter(dataset)
            keys.append(key)
        async_wait()  # else a batch could be read from an iterator that does not exist yet
        self.key = _digest(repr(keys))
        positions = {
            f"iterator_{number}": _OnHost(*pair)
            for number, pair in enumerate(self._iterators.items())
        }
        self.state = _state(seed, self.key, **positions)

    def next_batch(self) -> dict:
        hosts = replica_hosts(self._strategy)
        parts = {}
        for host, iterator in self._iterators.items():
            replicas = [number for number, its_host in enumerate(hosts) if its_host == host]
            with tf.device(host):
                batch = next(iterator)
                split = {name: tf.split(value, len(replicas)) for name, value in batch.items()}
            for part, replica in enumerate(replicas):
                parts[replica] = {name: values[part] for name, values in split.items()}
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def have_run(self, num_batches: int) -> None:
        """Does nothing, because the iterators have their positions.

        Args:
            num_batches: not read.
        """


class _OnHost(Trackable):
    """An iterator as a checkpoint saves it.

    Its state is fetched from the host, which works asynchronously.
    """

    def __init__(self, host: str, iterator: tf.data.Iterator):
        self._host = host
        self._iterator = iterator

    def _serialize_to_tensors(self):
        async_wait()
        with tf.device(self._host):
            tensors = self._iterator._serialize_to_tensors()
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}

    def _restore_from_tensors(self, tensors: dict[str, tf.Tensor]):
        with tf.device(self._host):
            self._iterator._restore_from_tensors(tensors)
        async_wait()  # else the next batch could be one from before


def _state(seed: int, key: int, **position: Trackable) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(
        **position,
        seed=tf.Variable(seed, dtype=tf.int64),
        key=tf.Variable(key, dtype=tf.int64),
    )


def _digest(text: str) -> int:
    """Returns a 60-bit hash of a text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def example_order(num_examples: int, seed: int, buffer_size: int) -> Iterator[int]:
    """Yields indices of examples, without end.

    The next example is drawn from a buffer. The set is repeated without a break, so passes overlap.

    Args:
        num_examples: the number of examples.
        seed: the seed of the order.
        buffer_size: the size of the buffer, 100 in the original; 0 shuffles the whole set for each
            pass.
    """
    if not buffer_size:
        for epoch in itertools.count():
            yield from np.random.default_rng([seed, epoch]).permutation(num_examples).tolist()
    draws = np.random.default_rng(seed)
    upcoming = itertools.cycle(range(num_examples))
    buffer = list(itertools.islice(upcoming, buffer_size))
    while True:
        for slot in draws.integers(buffer_size, size=4096).tolist():
            yield buffer[slot]
            buffer[slot] = next(upcoming)


def take_turns(weights: Sequence[float]) -> Iterator[int]:
    """Yields numbers of sets without end, each as often as its weight says, and evenly spread.

    Args:
        weights: the weight of each set.

    Example:
        ```python
        list(itertools.islice(take_turns([3, 1]), 8))  # [0, 0, 1, 0, 0, 0, 1, 0]
        ```
    """
    credits = [0.0] * len(weights)
    total = sum(weights)
    while True:
        for number, weight in enumerate(weights):
            credits[number] += weight
        number = credits.index(max(credits))
        credits[number] -= total
        yield number


def padded_length(longest: int, max_length: int) -> int:
    """Returns the length to which a batch is padded: the next multiple of 8.

    Args:
        longest: the length of the longest example.
        max_length: the maximum of the result.
    """
    num_multiples = -(-longest // LENGTH_MULTIPLE)
    return min(num_multiples * LENGTH_MULTIPLE, max_length)


class _ExampleReader:
    """Reads the features of batches from an encoded set; `secs` is the time that this took."""

    def __init__(self, encoded: EncodedSet, batch_size: int, max_length: int, pad_to_longest: bool):
        self._encoded = encoded
        self._batch_size = batch_size
        self._max_length = max_length
        self._pad_to_longest = pad_to_longest
        self.secs = 0.0

    def read(self, order: Iterator[int], position: tf.Variable) -> Iterator[dict[str, np.ndarray]]:
        """Yields batches, without end; the position is read when the first one is requested."""
        rest = itertools.islice(order, int(position), None)
        while True:
            start_secs = time.monotonic()
            rows = itertools.islice(rest, self._batch_size)
            features = self._features(np.fromiter(rows, np.int64, self._batch_size))
            self.secs += time.monotonic() - start_secs
            yield features

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the types and shapes of the features that all batches have."""
        one_example = self._features(np.zeros(1, np.int64))
        return {name: self._spec(values) for name, values in one_example.items()}

    def _features(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        longest = self._max_length
        if self._pad_to_longest:
            longest = int(self._encoded.lengths[rows].max())
        return self._encoded.features(rows, padded_length(longest, self._max_length))

    def _spec(self, values: np.ndarray) -> tf.TensorSpec:
        sizes = values.shape[1:]
        if self._pad_to_longest or getattr(self._encoded, "has_several_shapes", False):
            sizes = [None] * len(sizes)
        return tf.TensorSpec([self._batch_size, *sizes], values.dtype)


class ExampleBatches:
    """Batches of an encoded set in memory; `loop.Batches`.

    The position is the number of examples of the batches that have run, so a run resumes exactly,
    and a checkpoint stores no buffer.
    """

    def __init__(  # noqa: PLR0913 - each is named in a call
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
        """Starts at the first example, or at the position that is restored before the first batch.

        An object is for one `fit`. Its key identifies the content of the examples in their order,
        and how batches are drawn from them.

        Args:
            encoded: the examples.
            strategy: the devices.
            batch_size: the number of examples in a batch.
            seed: the seed of the order.
            buffer_size: the buffer of `example_order`.
            max_length: the maximum number of tokens in an example.
            pad_to_longest: whether a batch is as long as its longest example. Otherwise all batches
                have `max_length`.
        """
        self._strategy = strategy
        self._batch_size = batch_size
        self._position = tf.Variable(0, dtype=tf.int64)
        self.key = _digest(f"{content_digest(encoded)} {batch_size} {buffer_size}")
        self.state = _state(seed, self.key, position=self._position)

        reader = self._reader = _ExampleReader(encoded, batch_size, max_length, pad_to_longest)
        specs = reader.specs()
        types = [spec.dtype for spec in specs.values()]
        choose_order = getattr(encoded, "example_order", None)
        if choose_order is None:
            order = example_order(len(encoded.lengths), seed, buffer_size)
        else:
            order = choose_order(seed, batch_size, buffer_size)
        batches = reader.read(order, self._position)

        def read_values() -> list[np.ndarray]:
            batch = next(batches)
            return [batch[name] for name in specs]

        def read_batch(_: Any) -> dict[str, tf.Tensor]:
            # Nothing is read before the first batch is requested, so the position can be restored
            # before that.
            values = tf.numpy_function(awaited_at_exit(read_values), [], types)
            pairs = zip(specs.items(), values, strict=True)
            return {name: tf.ensure_shape(value, spec.shape) for (name, spec), value in pairs}

        # Dataset.from_generator would call Python when it is deleted, which fails at interpreter
        # shutdown.
        dataset = tf.data.Dataset.counter().map(unconverted(read_batch)).prefetch(BATCHES_AHEAD)
        self._iterator = iter(dataset.with_options(untuned()))

    @property
    def read_secs(self) -> float:
        """The time that a thread took to make batches, in seconds."""
        return self._reader.secs

    def next_batch(self) -> dict:
        return split_over_replicas(self._strategy, next(self._iterator), axis=0)

    def have_run(self, num_batches: int) -> None:
        """Moves the position to the end of the batches that have run.

        Args:
            num_batches: the number of these batches.
        """
        self._position.assign_add(num_batches * self._batch_size)

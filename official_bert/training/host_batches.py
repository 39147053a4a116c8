"""The batches of a TPU slice of several hosts, each of which reads record files of its own.

One process drives such a slice. It is connected to a TensorFlow server on every host, and what it does under the device
of a host runs there: records are read, parsed and cut on the host whose cores compute them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.python.eager import context as eager
from tensorflow.python.trackable.base import Trackable

from official_bert.training import distribution
from official_bert.training.batches import _state


class HostBatches:
    """Endless datasets of records, one on each host; `trainer.Batches`. Its state is that of all of them."""

    def __init__(
        self,
        make_dataset: Callable[[int], tuple[tf.data.Dataset, int]],
        strategy: tf.distribute.Strategy,
        hosts: Sequence[str],
        seed: int,
    ):
        """Starts at the first batch; `make_dataset` returns the dataset of the i-th host, and the key of it."""
        self._strategy, self._iterators, keys = strategy, {}, []
        for index, host in enumerate(hosts):
            with tf.device(host):
                dataset, key = make_dataset(index)
                self._iterators[host] = iter(dataset)
            keys.append(key)
        self.key = int(hashlib.sha256(repr(keys).encode()).hexdigest()[:15], 16)
        positions = {f"iterator_{n}": _OnHost(*pair) for n, pair in enumerate(self._iterators.items())}
        self.state = _state(seed, self.key, **positions)

    def next_batch(self) -> dict:
        """Reads the next batch of each host, as per-replica values [batch / replicas, ...] on the replica's host."""
        batches = {}
        for host, iterator in self._iterators.items():
            with tf.device(host):
                batches[host] = next(iterator)
        host_of = distribution.hosts_of_replicas(self._strategy)

        def part(context):
            replica = context.replica_id_in_sync_group
            host = host_of[replica]
            number, count = host_of[:replica].count(host), host_of.count(host)
            with tf.device(host):
                return {name: tf.split(value, count)[number] for name, value in batches[host].items()}

        return self._strategy.experimental_distribute_values_from_function(part)

    def draw(self, num_steps: int) -> dict:
        """Returns the next batches, stacked: [num_steps, batch / replicas, ...]."""
        batches = [self.next_batch() for _ in range(num_steps)]
        of_replicas = [{name: self._strategy.experimental_local_results(v) for name, v in b.items()} for b in batches]

        def stacked(context):
            replica = context.replica_id_in_sync_group
            return {name: tf.stack([batch[name][replica] for batch in of_replicas]) for name in of_replicas[0]}

        return self._strategy.experimental_distribute_values_from_function(stacked)


class _OnHost(Trackable):
    """An iterator as a checkpoint saves it, whose state this process fetches from the host, and sends back there.

    Hosts work asynchronously, so a read and a restore wait for each other.
    """

    def __init__(self, host: str, iterator: tf.data.Iterator):
        self._host, self._iterator = host, iterator

    def _serialize_to_tensors(self):
        eager.async_wait()
        with tf.device(self._host):
            tensors = self._iterator._serialize_to_tensors()
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}

    def _restore_from_tensors(self, tensors):
        with tf.device(self._host):
            self._iterator._restore_from_tensors(tensors)
        eager.async_wait()

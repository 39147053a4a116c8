"""The worker processes of --distribution_strategy=multi_worker_mirrored.

All workers run the same script with the same flags and compute all results. Only the files of the
chief are kept.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.io.errors import InputError, WorkerLost
from official_bert.io.folder_lock import locked
from official_bert.options.training import TrainingOptions

_ROLES = ("chief", "worker")  # in the order in which TensorFlow numbers the workers
# What TensorFlow raises in a collective operation when another worker is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


_EXAMPLE = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


class Cluster(NamedTuple):
    """The workers of a cluster.

    Attributes:
        hosts: the addresses host:port of the workers by role.
        role: the role of this process.
        index: the number of this process within its role.
    """

    hosts: dict[str, list[str]]
    role: str
    index: int


def read_cluster() -> Cluster:
    """Reads the cluster from the environment variable TF_CONFIG.

    Raises:
        InputError: the variable is not set or does not describe a cluster.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise InputError(
            "--distribution_strategy=multi_worker_mirrored: the workers are not known; set "
            f"TF_CONFIG to {_EXAMPLE}, or start the workers of one machine with official-bert "
            "launch"
        )
    try:
        config = json.loads(text)
        hosts, task = config["cluster"], config["task"]
        role, index = task["type"], int(task["index"])
        hosts = {name: list(hosts[name]) for name in _ROLES if name in hosts}
        is_there = 0 <= index < len(hosts[role])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"TF_CONFIG={text}: does not describe a cluster ({type(error).__name__}: {error}); "
            f"write {_EXAMPLE}"
        ) from error
    addresses = list(itertools.chain.from_iterable(hosts.values()))
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not (host and port.isdecimal()):
            raise InputError(
                f"TF_CONFIG={text}: {address!r} is no address; write host:port for each worker"
            )
        if addresses.count(address) > 1:
            raise InputError(
                f"TF_CONFIG={text}: {address} is there twice; give each worker an address of its "
                "own"
            )
    if not is_there:
        raise InputError(f"TF_CONFIG={text}: has no {role} {index}; count them from 0")
    return Cluster(hosts, role, index)


class Workers:
    """The processes that train together under a strategy, and their exchange of numbers.

    All of them call a method that exchanges something at the same point of the run. A single
    process is the chief, and agrees with itself.

    Attributes:
        count: the number of the processes.
        index: the number of this process among them; that of the chief is 0.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        """Reads from the strategy which processes there are.

        Args:
            strategy: the devices.
        """
        self._strategy = strategy
        self.count = 1
        self.index = 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            hosts = resolver.cluster_spec().as_dict()
            self.count = max(1, sum(len(hosts.get(role, ())) for role in _ROLES))
            if self.count > 1:
                roles_before = _ROLES[: _ROLES.index(resolver.task_type)]
                num_before = sum(len(hosts.get(role, ())) for role in roles_before)
                self.index = num_before + resolver.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results of the run."""
        return self.index == 0

    def gather(self, number: int) -> np.ndarray:
        """Returns the numbers of all workers, int64[count].

        Args:
            number: the number of this worker.
        """
        is_this_worker = np.arange(self.count) == self.index
        return self._sum(is_this_worker * np.int64(number))

    def broadcast_from_chief(self, number: int) -> int:
        """Returns the chief's number.

        Args:
            number: the number of this worker.
        """
        return int(self.gather(number)[0])

    def any_worker(self, condition: bool) -> bool:
        """Returns whether a condition holds on some worker.

        Args:
            condition: whether it holds on this one.
        """
        return bool(self.gather(int(condition)).any())

    def wait(self) -> None:
        """Returns when all workers have called the method."""
        self.gather(0)

    def check_equal(self, values: Mapping[str, object]) -> None:
        """Checks that all workers have the same values.

        Args:
            values: the values by the names of messages, such as "--learning_rate".

        Raises:
            InputError: some differ. Each worker raises it.
        """
        if self.count == 1:
            return
        # Without the same names, the values cannot be compared one by one.
        if len(set(self.gather(_digest(list(values))))) > 1:
            raise InputError(
                "the workers run different scripts or versions; start all of them with the same "
                "command"
            )
        numbers = np.array([_digest(value) for value in values.values()])
        chief_numbers = self._sum(numbers * self.is_chief)
        num_different = self._sum(np.not_equal(numbers, chief_numbers).astype(np.int64))
        if num_different.any():
            names = np.array(list(values))[num_different > 0]
            descriptions = [
                f"{name}={values[name]} here" if name.startswith("--") else name for name in names
            ]
            raise InputError(
                f"the workers differ in {', '.join(descriptions)}; start all of them with the same "
                "flags on the same files"
            )

    @contextlib.contextmanager
    def explaining_losses(self) -> Iterator[None]:
        """Raises WorkerLost if another worker has ended: a context around all common work."""
        try:
            yield
        except _LOST as error:
            if self.count == 1:
                raise
            raise WorkerLost(
                f"worker {self.index} of {self.count} ends, since {self._names_in(error)} has "
                "ended or cannot be reached; see the log of that worker, and start all workers "
                "again with the same command, which resumes from the last checkpoint"
            ) from error

    def _names_in(self, error: tf.errors.OpError) -> str:
        """Returns the worker that a failed collective operation names besides this one."""
        resolver = self._strategy.cluster_resolver
        tasks = set(re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", error.message))
        others = tasks - {(resolver.task_type, str(resolver.task_id))}
        return " or ".join(f"{role} {index}" for role, index in sorted(others)) or "another worker"

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the sums of all workers' numbers, int64[n]."""
        if self.count == 1:
            return numbers
        total = _compiled_sum(self._strategy, self.count)
        return np.asarray(total(tf.constant(numbers, tf.int64)))


def _digest(value: object) -> int:
    """Returns a 60-bit hash of repr(value)."""
    return int(hashlib.sha256(repr(value).encode()).hexdigest()[:15], 16)


@functools.cache
def _compiled_sum(strategy: tf.distribute.Strategy, num_workers: int):
    """Returns a function of int64[n] that sums the numbers of all workers."""

    def on_replica(number: tf.Tensor):
        context = tf.distribute.get_replica_context()
        # The replicas of a worker have the same number, of which one counts.
        per_worker = context.num_replicas_in_sync // num_workers
        is_first = context.replica_id_in_sync_group % per_worker == 0
        number = tf.where(is_first, number, tf.zeros_like(number))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, [number])[0]

    @tf.function(autograph=False)
    def total(number: tf.Tensor):
        return strategy.experimental_local_results(strategy.run(on_replica, args=(number,)))[0]

    return total


@contextlib.contextmanager
def output_folder(
    typed_options: TrainingOptions, workers: Workers, contents: Mapping[str, object]
) -> Iterator[str]:
    """A context that yields the folder that this worker writes to.

    For the chief it is --output_dir, locked, and for others a temporary one. Before that, the
    workers compare their flags and files.

    Args:
        typed_options: the flags as the user typed them.
        workers: the processes that train together.
        contents: the contents of files by the names of the flags that name them.
    """
    with workers.explaining_losses():
        flags = {f"--{name}": value for name, value in dataclasses.asdict(typed_options).items()}
        files = {f"the content of --{name}": value for name, value in contents.items()}
        workers.check_equal(flags | files)
        if workers.is_chief:
            with locked(typed_options.output_dir):
                yield typed_options.output_dir
                workers.wait()
        else:
            with tempfile.TemporaryDirectory() as folder, _quiet():
                yield folder
                workers.wait()  # the chief may still write; its peers do not leave it


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context in which this worker logs warnings only, unless --verbosity chooses details."""
    before = logging.get_verbosity()
    logging.info("The chief reports the progress and the results; this worker logs warnings only")
    if before == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)

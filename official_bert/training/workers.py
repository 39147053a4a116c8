"""The worker processes of --distribution_strategy=multi_worker_mirrored: who they are, and what
they agree on.

All workers run the same script with the same flags and compute all results, but only the chief
keeps what it writes. The functions also take the strategies of a single process, which is the chief
and has nobody to agree with.
"""

import contextlib
import dataclasses
import functools
import hashlib
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
    """The addresses host:port of the workers by role, and the role of this process and its
    number within the role.
    """

    hosts: dict[str, list[str]]
    role: str
    index: int


def cluster() -> Cluster:
    """Reads the cluster from the environment variable TF_CONFIG."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise InputError(
            "--distribution_strategy=multi_worker_mirrored: the workers are not known; set "
            f"TF_CONFIG to {_EXAMPLE}, or start the workers of one machine with launch.py"
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
    addresses = [address for of_role in hosts.values() for address in of_role]
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


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of the processes that train together."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    hosts = strategy.cluster_resolver.cluster_spec().as_dict()
    return max(1, sum(len(hosts.get(role, ())) for role in _ROLES))


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of this process among the workers; that of the chief is 0."""
    if num_workers(strategy) == 1:
        return 0
    resolver = strategy.cluster_resolver
    before = _ROLES[: _ROLES.index(resolver.task_type)]
    hosts = resolver.cluster_spec().as_dict()
    return sum(len(hosts.get(role, ())) for role in before) + resolver.task_id


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether this process writes the results of the run."""
    return worker_index(strategy) == 0


def from_chief(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the chief's number; all workers call the function at the same point."""
    return int(from_all(strategy, number)[0])


def from_all(strategy: tf.distribute.Strategy, number: int) -> np.ndarray:
    """Returns the number of each worker, int64[workers]; all workers call the function at the
    same point.
    """
    own = np.arange(num_workers(strategy)) == worker_index(strategy)
    return _sum_over_workers(strategy, own * np.int64(number))


def is_true_of_any(strategy: tf.distribute.Strategy, condition: bool) -> bool:
    """Tells whether the condition holds on some worker; all workers call the function at the
    same point.
    """
    return bool(from_all(strategy, int(condition)).any())


def wait_for_all(strategy: tf.distribute.Strategy):
    """Returns when all workers have called the function."""
    from_all(strategy, 0)


def check_equal(strategy: tf.distribute.Strategy, values: Mapping[str, object]):
    """Refuses to go on if the workers have different values, by the names of messages, such as
    "--learning_rate".

    All workers call the function at the same point, and each of them raises the InputError.
    """
    if num_workers(strategy) == 1:
        return
    # So the values cannot be compared one by one.
    if len(set(from_all(strategy, _digest(list(values))))) > 1:
        raise InputError(
            "the workers run different scripts or versions; start all of them with the same command"
        )
    numbers = np.array([_digest(value) for value in values.values()])
    of_chief = _sum_over_workers(strategy, numbers * is_chief(strategy))
    differs = _sum_over_workers(strategy, np.not_equal(numbers, of_chief).astype(np.int64))
    if differs.any():
        names = np.array([*values])[differs > 0]
        named = ", ".join(
            f"{name}={values[name]} here" if name.startswith("--") else name for name in names
        )
        raise InputError(
            f"the workers differ in {named}; start all of them with the same flags on the same "
            "files"
        )


def _digest(value: object) -> int:
    """Returns a hash of 60 bits of what a value looks like."""
    return int(hashlib.sha256(repr(value).encode()).hexdigest()[:15], 16)


def _sum_over_workers(strategy: tf.distribute.Strategy, numbers: np.ndarray) -> np.ndarray:
    """Returns the sums of all workers' numbers, int64[n] as these are."""
    if num_workers(strategy) == 1:
        return numbers
    return np.asarray(_compiled_sum(strategy)(tf.constant(numbers, tf.int64)))


@functools.cache
def _compiled_sum(strategy: tf.distribute.Strategy):
    """Returns a function of int64[n] that sums the numbers of all workers."""

    def on_replica(number):
        context = tf.distribute.get_replica_context()
        # The replicas of a worker have the same number, of which one counts.
        per_worker = context.num_replicas_in_sync // num_workers(strategy)
        is_first = context.replica_id_in_sync_group % per_worker == 0
        own = tf.where(is_first, number, tf.zeros_like(number))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, [own])[0]

    @tf.function(autograph=False)
    def total(number):
        return strategy.experimental_local_results(strategy.run(on_replica, args=(number,)))[0]

    return total


@contextlib.contextmanager
def explaining_lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Raises WorkerLost if another worker has ended: a context around all that workers do together."""
    try:
        yield
    except _LOST as error:
        if num_workers(strategy) == 1:
            raise
        raise WorkerLost(
            f"worker {worker_index(strategy)} of {num_workers(strategy)} ends, since "
            f"{_named(error, strategy)} has ended or cannot be reached; see the log of that "
            "worker, and start all workers again with the same command, which goes on from the "
            "last checkpoint"
        ) from error


def _named(error: tf.errors.OpError, strategy: tf.distribute.Strategy) -> str:
    """Returns the worker that a failed collective operation names besides this one."""
    resolver = strategy.cluster_resolver
    tasks = set(re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", error.message))
    others = tasks - {(resolver.task_type, str(resolver.task_id))}
    return " or ".join(f"{role} {index}" for role, index in sorted(others)) or "another worker"


@contextlib.contextmanager
def output_folder(
    given: TrainingOptions, strategy: tf.distribute.Strategy, contents: Mapping[str, object]
) -> Iterator[str]:
    """Yields the folder that this worker writes to: of the chief --output_dir, locked, else a
    temporary one.

    Before that the workers compare the flags that they were given, and the `contents` of files by
    the names of flags.
    """
    with explaining_lost_workers(strategy):
        flags = {f"--{name}": value for name, value in dataclasses.asdict(given).items()}
        check_equal(
            strategy,
            flags | {f"the content of --{name}": value for name, value in contents.items()},
        )
        if is_chief(strategy):
            with locked(given.output_dir):
                yield given.output_dir
                wait_for_all(strategy)
        else:
            with tempfile.TemporaryDirectory() as folder, _quiet():
                yield folder
                wait_for_all(strategy)  # the chief may still write; its peers do not leave it


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves the progress and the results of a run to the log of the chief, unless --verbosity
    asks for details.
    """
    before = logging.get_verbosity()
    logging.info("The chief reports the progress and the results; this worker logs warnings only")
    if before == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)

"""Makes the parts as tasks of a Ray cluster; Ray makes those of a lost machine elsewhere."""

import logging as std_logging
import os
import signal
import time
from collections.abc import Sequence

import ray  # pyright: ignore[reportMissingImports]
import ray.exceptions  # pyright: ignore[reportMissingImports]
from absl import logging

from official_bert.extensions.distributed_data.engines import make_part
from official_bert.extensions.distributed_data.options import EngineFlags
from official_bert.io import processes
from official_bert.io.errors import InputError, brief
from official_bert.io.progress import Progress
from official_bert.options.data_tools import PretrainingDataOptions

_MAX_RETRIES = 3
_SECS_BETWEEN_LOOKS = 0.2


def make_parts(tasks: Sequence[PretrainingDataOptions], flags: EngineFlags) -> None:
    """Makes all parts.

    The cluster is that of the environment variable RAY_ADDRESS. Without it, Ray uses the cluster
    that runs on this machine, or starts one of this machine alone.

    Args:
        tasks: the flags of each part.
        flags: the flags of the engine.

    Raises:
        InputError: no cluster answers, or a part failed.
    """
    is_new = not ray.is_initialized()
    if is_new:
        _join_cluster()
    try:
        _make_parts(tasks)
    finally:
        # This also ends the tasks that still run.
        if is_new:
            ray.shutdown()


def _join_cluster():
    handlers = {number: signal.getsignal(number) for number in processes.ENDING_SIGNALS}
    try:
        ray.init(include_dashboard=False, logging_level=std_logging.WARNING, log_to_driver=False)
    except ConnectionError as error:
        raise InputError(
            f"RAY_ADDRESS={os.environ.get('RAY_ADDRESS', '')}: no Ray cluster answers there "
            f"({brief(error)}); start one, or unset the variable to use this machine"
        ) from error
    # Ray's handlers would end this process without a sentence.
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _make_parts(tasks: Sequence[PretrainingDataOptions]):
    num_cpus = tasks[0].num_workers
    _warn_if_too_large(num_cpus)
    start = ray.remote(num_cpus=num_cpus, max_retries=_MAX_RETRIES)(_make_part).remote
    pending = {start(options): options.part for options in tasks}
    progress = Progress("parts", len(tasks))
    progress(0)
    while pending:
        # Ray cannot end in order while it waits, so the time passes here.
        time.sleep(_SECS_BETWEEN_LOOKS)
        finished, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0)
        for task in finished:
            _check_result(task, pending.pop(task))
        progress(len(tasks) - len(pending))


def _make_part(options: PretrainingDataOptions) -> str | None:
    """Makes a part in a worker of Ray; returns the sentence of an error, which a new attempt would
    meet again.
    """
    try:
        make_part(options)
    except InputError as error:
        return str(error)
    return None


def _check_result(task: ray.ObjectRef, part: str | None):
    try:
        sentence = ray.get(task)
    except ray.exceptions.RayError as error:
        raise InputError(
            f"part {part} failed {_MAX_RETRIES + 1} times ({brief(error)}); the same command keeps "
            "the parts that are complete"
        ) from error
    if sentence is not None:
        raise InputError(f"part {part}: {sentence}")


def _warn_if_too_large(num_cpus: int):
    most = max(
        (node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0
    )
    if most < num_cpus:
        logging.warning(
            "waiting for a machine with %d processors, since --num_workers=%d; the largest of the "
            "cluster has %d",
            num_cpus,
            num_cpus,
            most,
        )

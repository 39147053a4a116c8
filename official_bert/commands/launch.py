"""Starts the workers of one machine and starts them again after a failure: the runner of
official-bert launch.

In: a command, the number of workers. Out: the log lines of the workers, each behind the worker's
name, and the end of all workers when one of them fails; TF_CONFIG tells the workers of each other.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO

from absl import logging

from official_bert.io import processes
from official_bert.io.errors import InputError
from official_bert.options.running import LaunchOptions

_STRATEGY = "distribution_strategy"
_PATIENCE_SECS = 90.0  # in which the peers of a failed worker find out and end by themselves
_GRACE_SECS = processes.GRACE_SECS
_PROGRAM = "official-bert"  # and what runs its commands where it is not on the path
_MAIN = "from official_bert.cli.commands import main; main()"


def run(options: LaunchOptions):
    """Runs the command as several workers; ends with the status of the first that failed if no
    restart helps.
    """
    command = _command(options)
    for attempt in range(options.max_restarts + 1):
        if attempt:
            logging.warning(
                "Starting all workers again (restart %d of %d)", attempt, options.max_restarts
            )
        statuses = _run_workers(command, options)
        if not any(statuses):
            return
        ends = ", ".join(
            f"worker {index} with {_described(status)}" for index, status in enumerate(statuses)
        )
        logging.warning("The workers ended: %s", ends)
        if all(status == 1 for status in statuses):
            logging.error(
                "Every worker refused its input or its flags, which another start would not change"
            )
            break
    sys.exit(next(128 - status if status < 0 else status for status in statuses if status))


def _command(options: LaunchOptions) -> list[str]:
    if not options.command:
        raise InputError(
            "no command: write it behind --, as in official-bert launch --num_workers=2 -- "
            "run_pretraining.py --flag=value"
        )
    script, *words = options.command
    if script.endswith(".py"):
        if not os.path.exists(script):
            raise InputError(
                f"{script}: no such file; name a training script, such as run_pretraining.py"
            )
        command = [sys.executable, "-u", script, *words]
    elif script == _PROGRAM or not shutil.which(script):
        command = [
            sys.executable,
            "-u",
            "-c",
            _MAIN,
            *([] if script == _PROGRAM else [script]),
            *words,
        ]
    else:
        command = [script, *words]
    if not any(word.lstrip("-").partition("=")[0] == _STRATEGY for word in words):
        command.append(f"--{_STRATEGY}=multi_worker_mirrored")
    return command


def _run_workers(command: list[str], options: LaunchOptions) -> list[int]:
    """Runs all workers until all have ended, and returns their statuses; negative ones are signals.

    When one has failed, the others end, by themselves or by SIGTERM. When this process is ended,
    they are, too.
    """
    count = options.num_workers
    hosts = [f"localhost:{port}" for port in _free_ports(count)]
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cpus, gpus = _shares(cpus, count), _shares(_gpus(), count)
    printers: list[threading.Thread] = []
    try:
        with processes.Processes(_GRACE_SECS) as workers:
            for index in range(count):
                worker = workers.start(
                    command,
                    cpus[index],
                    env=_environment(index, hosts, gpus[index]),
                    stdout=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
                printer = threading.Thread(
                    target=_print, args=(f"[worker {index}]", worker.stdout), daemon=True
                )
                printer.start()
                printers.append(printer)
            _wait(workers)
    finally:
        for printer in printers:
            printer.join(timeout=5.0)  # a grandchild may hold the pipe open
    return workers.statuses()


def _environment(index: int, hosts: list[str], gpus: list[str]) -> dict[str, str]:
    config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    environment = os.environ | {"TF_CONFIG": json.dumps(config)}
    return environment | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else environment


def _wait(workers: processes.Processes):
    """Waits for the end of all workers; after a failure not longer than they need to notice it."""
    failed_secs = None
    while None in (statuses := workers.statuses()):
        if failed_secs is None and any(statuses):
            failed_secs = time.monotonic()
        if failed_secs and time.monotonic() - failed_secs > _PATIENCE_SECS:
            logging.warning("The other workers did not notice the failure; they are ended")
            return
        time.sleep(0.1)


def _print(name: str, lines: IO[str]):
    for line in lines:
        # One call, so that lines of two workers do not mix.
        sys.stdout.write(f"{name} {line.rstrip()}\n")
        sys.stdout.flush()


def _free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def _gpus() -> list[str]:
    """Returns the names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name not in ("", "-1")]
    return [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def _shares(things: list, count: int) -> list[list]:
    """Splits a list into equal shares; empty ones if there are fewer things than shares."""
    size = len(things) // count
    return [things[index * size : (index + 1) * size] for index in range(count)]


def _described(status: int) -> str:
    return (
        f"signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"status {status}"
    )

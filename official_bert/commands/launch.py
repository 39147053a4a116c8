"""Starts the workers of one machine and starts them again after a failure: the runner of
official-bert launch.

In: a command, and the number of workers. Out: the log lines of the workers, each behind the name of
the worker. When one worker fails, all of them end. TF_CONFIG tells the workers about each other.
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

from official_bert.io import operating_system, processes
from official_bert.io.errors import InputError
from official_bert.options.running import LaunchOptions

_STRATEGY = "distribution_strategy"
# The time in which the peers of a failed worker notice the failure and end by themselves.
PATIENCE_SECS = 90.0
GRACE_SECS = processes.GRACE_SECS
_PROGRAM = "official-bert"
# The code that runs its commands, for where the program is not on the path.
_MAIN = "from official_bert.cli.commands import main; main()"


def run(options: LaunchOptions) -> None:
    """Runs a command as several workers.

    If no restart helps, this process ends with the status of the first worker that failed.

    Args:
        options: the flags of the command.

    Raises:
        InputError: there is no command, or its script does not exist.
    """
    command = make_command(options)
    for attempt in range(options.max_restarts + 1):
        if attempt:
            logging.warning(
                "Starting all workers again (restart %d of %d)", attempt, options.max_restarts
            )
        statuses = run_workers(command, options)
        if not any(statuses):
            return
        descriptions = ", ".join(
            f"worker {index} with {_describe(status)}" for index, status in enumerate(statuses)
        )
        logging.warning("The workers ended: %s", descriptions)
        if all(status == 1 for status in statuses):
            logging.error(
                "Every worker refused its input or its flags, which another start would not change"
            )
            break
    failed_status = next(status for status in statuses if status)
    sys.exit(128 - failed_status if failed_status < 0 else failed_status)


def make_command(options: LaunchOptions) -> list[str]:
    """Returns the command line of each worker: the interpreter, the script and its arguments.

    Args:
        options: the flags of the command, and the words behind --.

    Raises:
        InputError: there is no command, or its script does not exist.
    """
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
    elif script == _PROGRAM:
        command = [sys.executable, "-u", "-c", _MAIN, *words]
    elif not shutil.which(script):
        command = [sys.executable, "-u", "-c", _MAIN, script, *words]
    else:
        command = [script, *words]
    flag_names = [word.lstrip("-").partition("=")[0] for word in words]
    if _STRATEGY not in flag_names:
        command.append(f"--{_STRATEGY}=multi_worker_mirrored")
    return command


def run_workers(command: list[str], options: LaunchOptions) -> list[int]:
    """Runs all workers until all have ended.

    When one has failed, the others end, by themselves or by SIGTERM. When this process is ended, so
    are the workers.

    Args:
        command: the command line of each worker, as `make_command` returns it.
        options: the flags of the command; only `num_workers` is read.

    Returns:
        The statuses of the workers; negative ones are signals.
    """
    count = options.num_workers
    hosts = [f"localhost:{port}" for port in _find_free_ports(count)]
    all_cpus = operating_system.list_cpus()
    cpus = _split_evenly(all_cpus, count)
    gpus = _split_evenly(_list_gpus(), count)
    printers: list[threading.Thread] = []
    try:
        with processes.Processes(GRACE_SECS) as workers:
            for index in range(count):
                worker = workers.start(
                    command,
                    cpus[index],
                    env=_make_environment(index, hosts, gpus[index]),
                    stdout=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
                printer = threading.Thread(
                    target=_print_lines,
                    args=(f"[worker {index}]", worker.stdout),
                    daemon=True,
                )
                printer.start()
                printers.append(printer)
            _wait(workers)
    finally:
        for printer in printers:
            printer.join(timeout=5.0)  # a grandchild may hold the pipe open
    return [status for status in workers.statuses() if status is not None]


def _make_environment(index: int, hosts: list[str], gpus: list[str]) -> dict[str, str]:
    config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    environment = os.environ | {"TF_CONFIG": json.dumps(config)}
    return environment | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else environment


def _wait(workers: processes.Processes):
    """Waits for the end of all workers; after a failure only for a while."""
    failed_secs = None
    while None in (statuses := workers.statuses()):
        if failed_secs is None and any(statuses):
            failed_secs = time.monotonic()
        if failed_secs and time.monotonic() - failed_secs > PATIENCE_SECS:
            logging.warning("The other workers did not notice the failure; they are ended")
            return
        time.sleep(0.1)


def _print_lines(name: str, lines: IO[str]):
    for line in lines:
        # One call, so that lines of two workers do not mix.
        sys.stdout.write(f"{name} {line.rstrip()}\n")
        sys.stdout.flush()


def _find_free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free_socket in sockets:
            free_socket.bind(("localhost", 0))
        return [free_socket.getsockname()[1] for free_socket in sockets]


def _list_gpus() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name not in ("", "-1")]
    return [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def _split_evenly(devices: list, count: int) -> list[list]:
    """Splits a list into equal parts; empty ones if it has fewer devices than parts."""
    size = len(devices) // count
    return [devices[index * size : (index + 1) * size] for index in range(count)]


def _describe(status: int) -> str:
    return (
        f"signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"status {status}"
    )

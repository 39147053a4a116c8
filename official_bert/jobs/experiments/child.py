"""A step's process: it writes to a log, keeps to its share of the CPUs, and is found again if its starter is killed.

In: a command. Out: its exit status. The process holds the lock of a file with its number, so that a later starter that
finds the lock held ends the process which a killed starter left, and takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterable

from absl import logging

from official_bert.io import files, signals, writing
from official_bert.io.errors import InputError

LOG_FILE, RUNNING_FILE = "log.txt", ".running"
_GRACE_SECS = 60.0  # from SIGTERM to SIGKILL, for the last checkpoint
_POLL_SECS = 0.1


class Child:
    """A command that is started once.

    Args:
        command: the words.
        folder: for its log and its lock.
        cpus: the numbers of the CPUs that it may use; none for all.
    """

    def __init__(self, command: list[str], folder: str, cpus: Iterable[int]):
        self._command, self._folder, self._cpus = command, folder, cpus
        self._process: subprocess.Popen | None = None
        self.log_file = os.path.join(folder, LOG_FILE)

    def start(self):
        """Starts it; whatever ends this call, `end_all` finds the process if there is one.

        Raises:
            InputError: the folder cannot be written, or a process that a killed starter left does not end.
        """
        files.make_folder(self._folder)
        path = os.path.join(self._folder, RUNNING_FILE)
        with writing.saying_why(self._folder), open(self.log_file, "ab") as log, open(path, "a+b") as running:
            _take_lock(running, self._folder)
            with signals.held_back():
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches this process alone, which ends its children
                    pass_fds=(running.fileno(),),  # the lock lasts as long as the child
                )
                self._start = time.monotonic()
                running.truncate(0)
                running.write(str(self._process.pid).encode())
        if self._cpus and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self._process.pid, self._cpus)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self.status is None

    @property
    def status(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        return self._process.poll()

    @property
    def secs(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._start

    def send(self, number: int):
        """Sends a signal to the process and to those that it has started."""
        _send(self._process.pid, number)

    def wait(self, secs: float | None = None):
        self._process.wait(secs)


def end_all(children: Iterable[Child]):
    """Ends those that run: SIGTERM, time for a checkpoint, SIGKILL; a second Ctrl-C takes no time."""
    running = [child for child in children if child.is_running]
    try:
        for child in running:
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECS
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, deadline - time.monotonic()))
    finally:
        for child in running:
            if child.is_running:
                child.send(signal.SIGKILL)
                child.wait()


def own_cpus() -> list[int]:
    """Returns the numbers of the CPUs that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def shares(cpus: list[int], count: int) -> list[list[int]]:
    """Divides CPUs as evenly as possible; shares are empty, which means all CPUs, if there are too few."""
    if len(cpus) < count:
        return [[] for _ in range(count)]
    return [cpus[len(cpus) * index // count : len(cpus) * (index + 1) // count] for index in range(count)]


def last_lines(path: str, count: int = 15) -> str:
    """Returns the end of a log."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 20_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-count:])


def _take_lock(running, folder: str):
    """Locks a file; the process that a killed starter left with the lock is ended first.

    Raises:
        InputError: it does not end.
    """
    started, number = time.monotonic(), None
    while True:
        try:
            fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        if number is None:
            running.seek(0)
            text = running.read().decode()
            number = int(text) if text.isdecimal() else 0
            logging.info(
                "%s: process %s, which a killed run left, is ended", folder, number or "of unknown number"
            )
            _send(number, signal.SIGTERM)
        elif time.monotonic() - started > 2 * _GRACE_SECS:
            raise InputError(
                f"{folder}: a process that a killed run left works in it and does not end; end it"
            )
        elif time.monotonic() - started > _GRACE_SECS:
            _send(number, signal.SIGKILL)
        time.sleep(_POLL_SECS)


def _send(leader: int, number: int):
    """Sends a signal to the group of a process that leads one; the lock says that it is still there."""
    if leader:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, number)

"""Child processes: each leads a tree of its own, and all trees end with the block that started them.

In: commands. Out: their exit statuses. Ctrl-C reaches this process alone, which ends the others in order.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable

from official_bert.io import signals

GRACE_SECS = 60.0  # from SIGTERM to SIGKILL, for the last checkpoint


class Processes:
    """The processes that a block starts, as a context manager.

    Args:
        grace_secs: from SIGTERM to SIGKILL for those that still run when the block ends.
    """

    def __init__(self, grace_secs: float = GRACE_SECS):
        self._grace_secs = grace_secs
        self._started: list[subprocess.Popen] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self, command: list[str], cpus: Collection[int] = (), **settings) -> subprocess.Popen:
        """Starts a command whose errors go to its output.

        Args:
            command: the words.
            cpus: the numbers of the CPUs that it may use; none for all.
            settings: further arguments of subprocess.Popen.
        """
        with signals.held_back():  # none arrives between the start and the note of it
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True, **settings
            )
            self._started.append(process)
        if cpus:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, cpus)
        return process

    def statuses(self) -> list[int | None]:
        """Returns the exit statuses: the negative number of a signal, and None of a process that runs."""
        return [process.poll() for process in self._started]

    def end(self):
        """Ends those that run: SIGTERM, time for a checkpoint, SIGKILL; a second Ctrl-C takes no time."""
        running = [process for process in self._started if process.poll() is None]
        try:
            _send(signal.SIGTERM, running, os.kill)  # each ends its own children, after its last checkpoint
            deadline = time.monotonic() + self._grace_secs
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        finally:
            _send(signal.SIGKILL, running, os.killpg)
            for process in running:
                process.wait()


def _send(number: int, processes: Iterable[subprocess.Popen], send: Callable[[int, int], None]):
    """Sends a signal to processes, by os.kill, or to all that they have started as well, by os.killpg."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            send(process.pid, number)

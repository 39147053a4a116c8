"""How this process ends, how it starts and ends others, and how it waits for what they have to do
first.

SIGTERM and SIGHUP become an exception, which unwinds the stack like Ctrl-C, so that unfinished
files are deleted. Each child process leads a tree of its own, so that Ctrl-C reaches this process
alone, which ends the others in order.
"""

import atexit
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from official_bert.io.errors import Terminated

T = TypeVar("T")

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
GRACE_SECS = 60.0  # from SIGTERM to SIGKILL, for the last checkpoint
_FIRST_MESSAGE_SECS, _NEXT_MESSAGE_SECS = 2.0, 30.0

_IDLE_SECS, _MAX_IDLE_WAIT_SECS = 0.1, 60.0

_deferred: list[int] | None = None  # the signals that arrived within `deferred`; None outside of it


def end_in_order() -> None:
    """Makes both signals raise `Terminated` in the main thread, unless they are ignored, as
    under nohup.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)


def take_back() -> None:
    """Installs the handlers again that another library has replaced below Python, which does not
    notice.

    TensorFlow takes SIGTERM for itself when workers connect.
    """
    for number in ENDING_SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], int | None]]:
    """Keeps back the first signal in the context, so that the work in it is finished; a second one
    ends it at once.

    Yields a function that returns the number of the signal that was kept back, or None. Whoever
    receives a number ends the work and raises `Terminated`; else the end of the context does.
    """
    global _deferred
    arrived = _deferred = []
    try:
        yield lambda: arrived[0] if arrived else None
    finally:
        _deferred = None
    if arrived:
        raise Terminated(arrived[0])


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keeps back Ctrl-C and the ending signals in the context, for a few lines that must all happen
    or none.

    The first signal is handled at the end of the context as if it had arrived there. Outside of the
    main thread, where no handler runs, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_held, arrived = True, []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING_SIGNALS)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}

    def keep(number, frame):
        if is_held:
            arrived.append(number)
        # A signal in the loops below, whose exception leaves some handlers as they are: none is
        # lost.
        else:
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, keep)
        yield
    finally:
        is_held = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def _terminate(number, _):
    if _deferred is not None and not _deferred:
        _deferred.append(number)
        return
    for ending in ENDING_SIGNALS:  # a second one would interrupt the deletion of unfinished files
        signal.signal(ending, signal.SIG_IGN)
    raise Terminated(number)


class Processes:
    """The processes that a block starts; those that run at its end have `grace_secs` from
    SIGTERM to SIGKILL.
    """

    def __init__(self, grace_secs: float = GRACE_SECS):
        self._grace_secs = grace_secs
        self._started: list[subprocess.Popen] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self, command: list[str], cpus: Collection[int] = (), **settings) -> subprocess.Popen:
        """Starts a command, whose errors go to its output, on some CPUs or all; `settings` are
        those of Popen.
        """
        with held_back():  # none arrives between the start and the note of it
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **settings,
            )
            self._started.append(process)
        if cpus:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, cpus)
        return process

    def statuses(self) -> list[int | None]:
        """Returns the exit statuses: the negative number of a signal, and None of a process that
        runs.
        """
        return [process.poll() for process in self._started]

    def end(self) -> None:
        """Ends those that run: SIGTERM, time for a checkpoint, SIGKILL; a second Ctrl-C takes no
        time.
        """
        running = [process for process in self._started if process.poll() is None]
        try:
            # Each ends its own children, after its last checkpoint.
            _send(signal.SIGTERM, running, os.kill)
            deadline = time.monotonic() + self._grace_secs
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        finally:
            _send(signal.SIGKILL, running, os.killpg)
            for process in running:
                process.wait()


def _send(number: int, processes: Iterable[subprocess.Popen], send: Callable[[int, int], None]):
    """Sends a signal to processes, by os.kill, or to all that they have started as well, by
    os.killpg.
    """
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            send(process.pid, number)


class ThreadCalls:
    """The calls of Python functions by threads of another library, for whose end the exit of Python
    waits.

    When Python exits, the threads of TensorFlow that want to call it are gone, and the deletion of
    a dataset, which waits for its threads, would never end. A dataset that nobody reads stops
    calling once its buffers are full, so at exit this process waits until no call runs and none has
    begun for a moment.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._num_running = 0
        self._last_end_secs = 0.0

    def counted(self, function: Callable[..., T]) -> Callable[..., T]:
        """Returns a function that does the same and counts its calls."""

        def call(*arguments) -> T:
            with self._lock:
                self._num_running += 1
            try:
                return function(*arguments)
            finally:
                with self._lock:
                    self._num_running -= 1
                    self._last_end_secs = time.monotonic()

        return call

    def wait_until_idle(self) -> None:
        """Waits for the running calls and those that follow them at once, and a minute at most."""
        deadline = time.monotonic() + _MAX_IDLE_WAIT_SECS
        while not self._is_idle() and time.monotonic() < deadline:
            time.sleep(_IDLE_SECS / 10)

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._num_running and time.monotonic() - self._last_end_secs > _IDLE_SECS


_thread_calls = ThreadCalls()
atexit.register(_thread_calls.wait_until_idle)
awaited_at_exit = _thread_calls.counted


def wait_for_result(call: Callable[[], T], waiting_for: str, limit_secs: float) -> T:
    """Returns the result of a call that may block in the operating system or in TensorFlow.

    The call runs in a thread of its own. One that is blocked cannot be ended: after the time limit,
    a TimeoutError, it stays, and does not keep the process from exiting. Messages say from two
    seconds on what the process waits for.
    """
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    start_secs = time.monotonic()
    pause_secs = _FIRST_MESSAGE_SECS
    while True:
        left_secs = limit_secs - (time.monotonic() - start_secs)
        done, _ = concurrent.futures.wait([future], min(pause_secs, max(left_secs, 0)))
        if done:
            return future.result()
        if left_secs <= pause_secs:
            raise TimeoutError(f"no answer within {limit_secs:g} s")
        # Late: it loads absl.flags, which light uses of the package do without.
        from absl import logging

        logging.info("waiting for %s, for %.0f s more at most", waiting_for, left_secs - pause_secs)
        pause_secs = _NEXT_MESSAGE_SECS

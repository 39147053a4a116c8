"""How this process handles signals, starts and ends other processes, and waits for threads.

SIGTERM and SIGHUP become an exception, which unwinds the stack like Ctrl-C, so that unfinished
files are deleted. Work that must not be lost defers all three. Each child process leads a process
group, so that Ctrl-C reaches this process alone, which then ends its children in order.
"""

import atexit
import concurrent.futures
import contextlib
import itertools
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator
from types import FrameType
from typing import Any, NoReturn, TypeVar

from official_bert.io import operating_system
from official_bert.io.errors import Terminated, warn
from official_bert.io.operating_system import ENDING_SIGNALS

T = TypeVar("T")

GRACE_SECS = 60.0  # from SIGTERM to SIGKILL, for the last checkpoint
INTERRUPTED = (
    "Ctrl-C: this step is saved, and then the training ends; press Ctrl-C again to end without "
    "saving"
)
# When `wait_for_result` logs its first message, and the time between two messages.
FIRST_MESSAGE_SECS = 2.0
NEXT_MESSAGE_SECS = 30.0
# How long no call runs until `ThreadCalls` is idle, and how long it waits for that at most.
_IDLE_SECS = 0.1
MAX_IDLE_WAIT_SECS = 60.0

_COMMIT_LETTERS = 10
_POLL_SECS = 0.05  # between two looks at the commands of a pool

# The signals that arrived within `deferred`; None outside of it.
_deferred: list[int] | None = None


def end_in_order() -> None:
    """Makes SIGTERM and SIGHUP raise `Terminated` in the main thread.

    A signal that is ignored, as under nohup, stays ignored.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)


def take_back() -> None:
    """Installs Python's handlers again after another library has replaced them without Python's
    knowledge.

    TensorFlow installs a handler of SIGTERM when workers connect.
    """
    for number in ENDING_SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], int | None]]:
    """Defers the first signal in the context, so that the work in it can finish.

    Ctrl-C is one of the signals; a message says that it has arrived. A second signal raises its
    exception at once.

    Yields:
        A function that returns the number of the deferred signal, or None. A caller that receives a
        number ends the work and calls `end_by`; otherwise the end of the context does so.
    """
    global _deferred
    arrived = _deferred = []
    try:
        with _interrupts_deferred():
            yield lambda: arrived[0] if arrived else None
    finally:
        _deferred = None
    if arrived:
        end_by(arrived[0])


def end_by(number: int) -> NoReturn:
    """Raises the exception of a signal that was deferred.

    Args:
        number: the number of the signal.

    Raises:
        KeyboardInterrupt: the signal is that of Ctrl-C.
        Terminated: it is another one.
    """
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(number)


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defers the first Ctrl-C in the context, unless Ctrl-C is ignored.

    Outside of the main thread, where no handler runs, the context does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    is_in_main_thread = threading.current_thread() is threading.main_thread()
    if not is_in_main_thread or not callable(before):
        yield
        return

    def defer(number: int, frame: FrameType | None):
        if _deferred is None or _deferred:
            before(number, frame)
            return
        _deferred.append(number)
        # The main thread may hold a lock of the log.
        threading.Thread(target=warn, args=(INTERRUPTED,)).start()

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Holds back Ctrl-C and the ending signals in the context, for a few lines that must run as a
    unit.

    The first signal is handled at the end of the context as if it had arrived there. Outside of the
    main thread, where no handler runs, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_held = True
    arrived = []
    handlers = {}
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler

    def hold(number: int, frame: FrameType | None):
        if is_held:
            arrived.append(number)
        # A signal that arrives in the loops below is not lost: its handler runs, even if an
        # exception has left this function installed.
        else:
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        is_held = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def _terminate(number: int, _: FrameType | None):
    if _deferred is not None and not _deferred:
        _deferred.append(number)
        return
    # A second signal would interrupt the deletion of unfinished files.
    for ending_signal in ENDING_SIGNALS:
        signal.signal(ending_signal, signal.SIG_IGN)
    raise Terminated(number)


class Processes:
    """The processes that a block of code starts, as a context manager.

    Processes that still run at the end of the block are ended.
    """

    def __init__(self, grace_secs: float = GRACE_SECS):
        """Starts no process yet.

        Args:
            grace_secs: the time from SIGTERM to SIGKILL at the end.
        """
        self._grace_secs = grace_secs
        self._started: list[subprocess.Popen] = []

    def __enter__(self):
        return self

    def __exit__(self, *_: Any):
        self.end()

    def start(
        self, command: list[str], cpus: Collection[int] = (), **settings: Any
    ) -> subprocess.Popen:
        """Starts a command, whose standard error goes to its standard output.

        Args:
            command: the program and its arguments.
            cpus: the numbers of the CPUs on which it runs; by default all.
            **settings: further arguments of subprocess.Popen.
        """
        # A signal between the next two statements would leave a process that nobody ends.
        with held_back(), operating_system.limited_to_cpus(cpus):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                **operating_system.group_settings(),
                **settings,
            )
            self._started.append(process)
        return process

    def statuses(self) -> list[int | None]:
        """Returns the exit status of each process, in the order of their start.

        It is None for a process that runs, and the negative number of the signal that ended one.
        """
        return [process.poll() for process in self._started]

    def end(self) -> None:
        """Ends the running processes: SIGTERM, time for a last checkpoint, SIGKILL.

        A second Ctrl-C skips that time.
        """
        running = [process for process in self._started if process.poll() is None]
        try:
            # Each process ends its children after its last checkpoint.
            for process in running:
                operating_system.ask_to_end(process)
            deadline = time.monotonic() + self._grace_secs
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        finally:
            for process in running:
                operating_system.kill_group(process)
            for process in running:
                process.wait()


class CommandPool:
    """Runs commands, several at a time, each on its own share of the CPUs; a context manager.

    Commands that still run at the end of the block are ended.
    """

    def __init__(self, num_parallel: int):
        """Starts no command yet.

        Args:
            num_parallel: the number of commands that can run at the same time.
        """
        self._free_shares = share_cpus(num_parallel)
        self._children = Processes()
        self._running: dict[Any, tuple[subprocess.Popen, list[int]]] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_: Any):
        self._children.end()

    @property
    def running(self) -> list:
        """The keys of the commands that run."""
        return list(self._running)

    @property
    def num_free(self) -> int:
        """The number of commands that can be started now."""
        return len(self._free_shares)

    def start(self, key: Hashable, command: list[str], **settings: Any) -> None:
        """Starts a command, as `Processes.start` does.

        Args:
            key: what `wait` returns at the end of the command.
            command: the program and its arguments.
            **settings: further arguments of subprocess.Popen.
        """
        cpus = self._free_shares.pop(0)
        self._running[key] = (self._children.start(command, cpus, **settings), cpus)

    def wait(self) -> tuple[Any, int]:
        """Waits until a command ends; returns its key and its status."""
        while True:
            for key, (process, cpus) in self._running.items():
                status = process.poll()
                if status is not None:
                    del self._running[key]
                    self._free_shares.append(cpus)
                    return key, status
            time.sleep(_POLL_SECS)


def read_commit(folder: str) -> str | None:
    """Returns the first letters of the commit of a Git checkout; None without Git or a checkout.

    Args:
        folder: a folder of the checkout.
    """
    if shutil.which("git") is None:
        return None
    process = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout.strip()[:_COMMIT_LETTERS] if process.returncode == 0 else None


def share_cpus(num_shares: int) -> list[list[int]]:
    """Returns the CPUs of each of several processes; empty lists, for all CPUs, if there are fewer.

    Args:
        num_shares: the number of processes.
    """
    cpus = operating_system.list_cpus()
    if num_shares == 1 or num_shares > len(cpus):
        return [[] for _ in range(num_shares)]
    bounds = [round(number * len(cpus) / num_shares) for number in range(num_shares + 1)]
    return [cpus[start:end] for start, end in itertools.pairwise(bounds)]


class ThreadCalls:
    """Counts the calls of Python functions by another library's threads, so that Python exits after
    the last call.

    TensorFlow's threads can't call Python after its exit, and the deletion of a dataset, which
    waits for its threads, would never end. A dataset that nobody reads stops calling once its
    buffers are full. At exit, this process therefore waits until no call has run for a moment.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._num_running = 0
        self._last_end_secs = 0.0

    def counted(self, function: Callable[..., T]) -> Callable[..., T]:
        """Returns a function that does the same as another, and counts its calls.

        Args:
            function: the other function, which is called with positional arguments only.
        """

        def call(*arguments: Any) -> T:
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
        """Waits for the running calls and those that follow them at once, for a minute at most."""
        deadline = time.monotonic() + MAX_IDLE_WAIT_SECS
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

    The call runs in a new thread. A blocked call can't be ended: its thread stays after the time
    limit, and does not keep the process from exiting.

    Args:
        call: the function to call.
        waiting_for: what the process waits for. Messages tell it, the first one after two seconds.
        limit_secs: the time limit.

    Raises:
        TimeoutError: the call has not returned within the time limit.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    start_secs = time.monotonic()
    pause_secs = FIRST_MESSAGE_SECS
    while True:
        left_secs = limit_secs - (time.monotonic() - start_secs)
        timeout_secs = min(pause_secs, max(left_secs, 0))
        done, _ = concurrent.futures.wait([future], timeout_secs)
        if done:
            return future.result()
        if left_secs <= pause_secs:
            raise TimeoutError(f"no answer within {limit_secs:g} s")
        # absl.logging loads absl.flags, so it is imported only when it is needed.
        from absl import logging

        logging.info("waiting for %s, for %.0f s more at most", waiting_for, left_secs - pause_secs)
        pause_secs = NEXT_MESSAGE_SECS

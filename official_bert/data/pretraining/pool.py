"""Worker processes that make data, load no TensorFlow and end with the block, or the process, that
started them.

Each worker has a thread of the parent and a pipe of its own, which ends when the worker is killed.
(With the shared queues of `concurrent.futures.ProcessPoolExecutor`, one that is killed while it
writes leaves the parent waiting.)
"""

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from official_bert.io import operating_system
from official_bert.io.errors import InputError

# A forked child would inherit the locks of other threads.
_PROCESSES = multiprocessing.get_context("spawn")


class WorkerProcesses:
    def __init__(self, num_workers: int, function: Callable):
        self._num_workers, self._function = num_workers, function
        self._threads = ThreadPoolExecutor(num_workers, initializer=_block_signals)
        self._thread_data = threading.local()  # `connection` leads to the thread's worker.
        self._workers: list[BaseProcess] = []
        self._has_ended = False
        self._lock = threading.Lock()
        if operating_system.BLOCKS_SIGNALS:
            resource_tracker.ensure_running()  # when it starts, it unblocks Ctrl-C

    def submit(self, *arguments: Any) -> Future:
        """Gives a call to the workers, which start here on demand. The arguments and the result
        are pickled.
        """
        return self._threads.submit(self._call, arguments)

    def wait(self) -> None:
        """Waits until all calls are answered. None can be submitted any more."""
        self._threads.shutdown()

    def end(self) -> None:
        """Ends the workers at once. Calls that are not answered yet fail."""
        with self._lock:
            self._has_ended = True
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.join()

    def _call(self, arguments: tuple):
        """Has the worker of this thread call the function. Returns its result or raises its
        error.
        """
        try:
            if not hasattr(self._thread_data, "connection"):
                self._thread_data.connection = self._started_worker()
            self._thread_data.connection.send(arguments)
            result, error = self._thread_data.connection.recv()
        except (EOFError, OSError):  # OSError, too, where it was killed in the middle of an answer
            raise InputError(
                f"--num_workers={self._num_workers}: a worker process was killed, maybe for want "
                "of memory; give fewer"
            ) from None
        if error is not None:
            raise error
        return result

    def _started_worker(self) -> Connection:
        connection, other_end = multiprocessing.Pipe()
        worker = _PROCESSES.Process(target=_work, args=(other_end, self._function), daemon=True)
        with self._lock, other_end:  # closed here, so that the connection ends with the worker
            if self._has_ended:
                raise EOFError
            worker.start()
            self._workers.append(worker)
        return connection


@contextlib.contextmanager
def worker_processes(
    num_workers: int, function: Callable, *shared: Any
) -> Iterator[WorkerProcesses]:
    """Starts processes on demand, as a context manager; a block that fails ends them at once.

    Args:
        num_workers: the largest number of processes.
        function: the function that all calls run. The processes receive it pickled.
        shared: the first arguments of the function in all calls. Each process gets them once.

    Yields:
        The processes, whose method `submit` accepts the further arguments of a call. The context
        waits for all calls at its end.

    Raises:
        InputError: a worker was killed. The result of its call raises it.
    """
    workers = WorkerProcesses(num_workers, functools.partial(function, *shared))
    try:
        yield workers
        workers.wait()
    finally:
        workers.end()


def _block_signals():
    """Keeps the signals that end a job from this thread and from the processes that it starts; the
    parent's main thread answers them.

    A cluster manager sends SIGTERM to all processes of a job. The start of a worker would wait
    forever for one that ends before it has read what it was sent.
    """
    operating_system.block_signals((signal.SIGINT, *operating_system.ENDING_SIGNALS))


def _work(connection: Connection, function: Callable):
    """Answers calls until this process is killed or the parent has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(_answer(function, connection.recv()))


def _answer(function: Callable, arguments: tuple) -> tuple:
    """Returns the result of a call and None, or None and its error."""
    try:
        return function(*arguments), None
    except Exception as error:
        # Where it happened; a pickled error has no traceback.
        error.add_note(traceback.format_exc())
        return None, error


def _end_with_parent():
    """Ends this process when its parent has ended, also by a kill that leaves a call unanswered."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # This function runs in child processes alone.
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)

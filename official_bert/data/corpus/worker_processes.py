"""Worker processes that make data, load no TensorFlow and end with the process that started them.

In: a function that prepares a worker. Out: an executor. Ctrl-C is answered by the parent alone, and no worker outlives
the block that uses it.
"""

import concurrent.futures.process
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing import resource_tracker

from official_bert.errors import InputError


class WorkerProcesses:
    """Processes that call functions. `worker_processes` creates it."""

    def __init__(self, pool: concurrent.futures.Executor):
        self._pool = pool

    def submit(self, function: Callable, *arguments) -> Future:
        """Gives a call to the workers, which start here on demand.

        A worker inherits the blocked Ctrl-C, so it cannot answer it with a traceback before it ignores it.
        """
        resource_tracker.ensure_running()  # when it starts, it unblocks the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def worker_processes(num_workers: int, prepare: Callable, *arguments) -> Iterator[WorkerProcesses]:
    """Starts processes on demand, as a context manager; a block that fails ends them at once.

    Args:
        num_workers: the largest number of processes.
        prepare: called with `arguments` in every process before anything else; all of them are pickled.

    Raises:
        InputError: a worker was killed.
    """
    others = set(multiprocessing.active_children())
    with concurrent.futures.ProcessPoolExecutor(
        num_workers,
        multiprocessing.get_context("spawn"),  # a forked child would inherit the threads' locks
        initializer=_prepared,
        initargs=(prepare, arguments),
    ) as pool:
        try:
            yield WorkerProcesses(pool)
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            own = set(multiprocessing.active_children()) - others
            for worker in own:
                worker.kill()
            for worker in own:
                worker.join()
            if isinstance(error, concurrent.futures.process.BrokenProcessPool):
                raise InputError(
                    f"--num_workers={num_workers}: a worker process was killed, maybe for want of memory; give fewer"
                ) from None
            raise


def _prepared(prepare: Callable, arguments: tuple):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to every process; the parent answers it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare(*arguments)


def _end_with_parent():
    """Ends this process when its parent has ended, also by a kill: no end of file would reach its queue."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)

import multiprocessing
import os
import signal
import time

import pytest

from official_bert.data.corpus.worker_processes import worker_processes
from official_bert.errors import InputError


def _prepare(value):
    global _prepared
    _prepared = value


def _sum(value):
    return os.getpid(), _prepared + value


def _sleep():
    time.sleep(600)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_calls_run_in_prepared_processes_that_end():
    with worker_processes(2, _prepare, 40) as workers:
        results = [future.result() for future in [workers.submit(_sum, value) for value in (1, 2)]]
    assert [value for _, value in results] == [41, 42]
    assert os.getpid() not in [process for process, _ in results]
    assert not any(_is_running(process) for process, _ in results)


def test_a_failure_ends_the_workers_at_once():
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError), worker_processes(1, _prepare, 1) as workers:
        workers.submit(_sleep).result(timeout=2)
    assert time.monotonic() - start_secs < 60
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_said():
    refused = pytest.raises(InputError, match="--num_workers=2: a worker process was killed")
    with refused, worker_processes(2, _prepare, 1) as workers:
        workers.submit(_die).result()

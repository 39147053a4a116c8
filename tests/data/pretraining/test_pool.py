import multiprocessing
import os
import signal
import time

import pytest

from official_bert.data.pretraining.pool import worker_processes
from official_bert.io.errors import InputError
from tests.shared import has_ended


def _call(shared, function, *arguments):
    return function(shared, *arguments)


def _sum(shared, value):
    return os.getpid(), shared + value


def _sleep(*_):
    time.sleep(600)


def _endless(*_):
    """Returns more than a pipe holds, so that its worker is killed while it writes."""
    time.sleep(1)
    return bytes(200_000_000)


def _fail(_):
    raise InputError("no such thing")


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_calls_run_in_processes_that_end():
    with worker_processes(2, _call, 40) as workers:
        results = [future.result(timeout=60) for future in [workers.submit(_sum, value) for value in (1, 2)]]
    assert [value for _, value in results] == [41, 42]
    assert os.getpid() not in [process for process, _ in results]
    assert all(has_ended(process, within_secs=10) for process, _ in results)


@pytest.mark.parametrize("call", [_endless, _sleep])
def test_workers_that_write_or_have_much_to_read_end_at_once(call):
    """The kill comes in the middle of results, and of arguments that nobody reads."""
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError), worker_processes(2, _call, 1) as workers:
        [workers.submit(call, bytes(1_000_000)) for _ in range(8)][-1].result(timeout=1.5)
    assert time.monotonic() - start_secs < 60
    assert not multiprocessing.active_children()


def test_an_error_of_a_call_is_raised_here_and_says_where_it_was():
    with worker_processes(1, _call, 1) as workers:
        with pytest.raises(InputError, match="no such thing") as raised:
            workers.submit(_fail).result(timeout=60)
        assert "in _fail" in raised.value.__notes__[0]
        assert workers.submit(_sum, 1).result(timeout=60)[1] == 2, "the worker goes on"


def test_a_killed_worker_is_said():
    refused = pytest.raises(InputError, match="--num_workers=2: a worker process was killed")
    with refused, worker_processes(2, _call, 1) as workers:
        workers.submit(_die).result(timeout=60)

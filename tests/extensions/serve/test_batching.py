"""The choice of the rows of a batch, and the queue with its threads."""

import asyncio
import contextlib
import threading

import pytest

from official_bert import InputError
from official_bert.extensions.serve.batching import (
    BatchLimits,
    BatchQueue,
    QueueFullError,
    Row,
    choose_batch,
)

TIMEOUT_SECS = 30


class Counts:
    """An observer that records the batches."""

    def __init__(self):
        self.batches = []
        self.queue_rows = []

    def observe_batch(self, num_rows, num_tokens, num_padded_tokens):
        self.batches.append((num_rows, num_tokens, num_padded_tokens))

    def set_queue_rows(self, num_rows):
        self.queue_rows.append(num_rows)


class Computation:
    """Doubles numbers, and waits until it may begin."""

    def __init__(self):
        self.may_begin = threading.Event()
        self.has_begun = threading.Event()
        self.calls = []

    def __call__(self, key, payloads):
        self.has_begun.set()
        assert self.may_begin.wait(TIMEOUT_SECS)
        self.calls.append((key, payloads))
        if "fault" in payloads:
            raise InputError("a row is faulty")
        if "defect" in payloads:
            raise KeyError("defect")
        return [2 * payload for payload in payloads]


@contextlib.contextmanager
def queue_of(compute, max_batch_tokens=64, max_wait_secs=0.0, max_queue_rows=100, num_workers=1):
    counts = Counts()
    limits = BatchLimits(max_batch_tokens, max_wait_secs, max_queue_rows)
    queue = BatchQueue(compute, limits, num_workers, counts)
    try:
        yield queue, counts
    finally:
        compute.may_begin.set()
        queue.close(TIMEOUT_SECS)


def run(test):
    """Runs a coroutine with a bound."""
    return asyncio.run(asyncio.wait_for(test, TIMEOUT_SECS))


@pytest.mark.parametrize(
    ("lengths", "counts", "max_tokens", "chosen"),
    [
        ([5], [1], 64, [0]),
        # A row that is longer than a batch is a batch of its own.
        ([500, 5], [1, 1], 64, [0]),
        # Similar lengths come first; equal ones in the order of their arrival.
        ([8, 100, 9, 8], [1, 1, 1, 1], 64, [0, 3, 2]),
        # 4 * 16 tokens fit, 5 * 16 do not.
        ([16] * 6, [1] * 6, 64, [0, 1, 2, 3]),
        # A row may count as several.
        ([16, 16, 16], [1, 3, 1], 64, [0, 1]),
        # Padding is no matter as long as the batch is small.
        ([2, 20], [1, 1], 64, [0, 1]),
        # 2 * 60 tokens of which 50 are padding are slower than two batches.
        ([60, 10], [1, 1], 1000, [0]),
        ([60, 50], [1, 1], 1000, [0, 1]),
    ],
)
def test_a_batch_has_the_oldest_row_and_rows_of_similar_length(lengths, counts, max_tokens, chosen):
    assert choose_batch(lengths, counts, max_tokens) == chosen


def test_the_padding_counts_for_the_limit_of_a_batch():
    # Three rows have 28 tokens, and 30 with the padding.
    lengths = [10, 9, 9]
    assert choose_batch(lengths, [1, 1, 1], max_tokens=29) == [0, 1]
    assert choose_batch(lengths, [1, 1, 1], max_tokens=30) == [0, 1, 2]


def test_rows_of_several_jobs_share_a_batch_and_come_back_in_order():
    compute = Computation()

    async def test(queue, counts):
        first = queue.submit(("a",), [Row(0, 1)])
        await asyncio.to_thread(compute.has_begun.wait, TIMEOUT_SECS)
        # These wait for the first batch, and share the next ones by their kinds.
        jobs = [
            queue.submit(("a",), [Row(1, 4), Row(2, 4)]),
            queue.submit(("b",), [Row(3, 4)]),
            queue.submit(("a",), [Row(4, 5)]),
        ]
        compute.may_begin.set()
        return [await job.future for job in [first, *jobs]]

    with queue_of(compute) as (queue, counts):
        assert run(test(queue, counts)) == [[0], [2, 4], [6], [8]]
    assert compute.calls == [(("a",), [0]), (("a",), [1, 2, 4]), (("b",), [3])]
    assert counts.batches == [(1, 1, 1), (3, 13, 15), (1, 4, 4)]
    assert counts.queue_rows[-1] == 0


def test_a_row_waits_for_others_to_fill_its_batch():
    compute = Computation()
    compute.may_begin.set()

    async def test(queue):
        jobs = [queue.submit(("a",), [Row(number, 16)]) for number in range(4)]
        return [await job.future for job in jobs]

    # Without the fourth row the batch would wait for longer than the test.
    with queue_of(compute, max_wait_secs=2 * TIMEOUT_SECS) as (queue, _):
        assert run(test(queue)) == [[0], [2], [4], [6]]
    assert [payloads for _, payloads in compute.calls] == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ("fault", InputError),
        ("defect", KeyError),
    ],
)
def test_a_faulty_row_fails_alone(payload, error):
    compute = Computation()

    async def test(queue):
        first = queue.submit(("a",), [Row(0, 1)])
        await asyncio.to_thread(compute.has_begun.wait, TIMEOUT_SECS)
        faulty = queue.submit(("a",), [Row(1, 1), Row(payload, 1)])
        last = queue.submit(("a",), [Row(2, 1)])
        compute.may_begin.set()
        with pytest.raises(error):
            await faulty.future
        return [await first.future, await last.future]

    with queue_of(compute) as (queue, _):
        assert run(test(queue)) == [[0], [4]]


def test_a_full_queue_refuses_a_job_and_accepts_it_later():
    compute = Computation()

    async def test(queue):
        first = queue.submit(("a",), [Row(0, 1)])
        await asyncio.to_thread(compute.has_begun.wait, TIMEOUT_SECS)
        second = queue.submit(("a",), [Row(1, 1), Row(2, 1)])
        with pytest.raises(QueueFullError) as refusal:
            queue.submit(("a",), [Row(3, 1)])
        assert refusal.value.retry_secs >= 1
        queue.cancel(second)
        assert second.future.cancelled()
        third = queue.submit(("a",), [Row(4, 1)])
        compute.may_begin.set()
        return [await first.future, await third.future]

    with queue_of(compute, max_queue_rows=2) as (queue, _):
        assert run(test(queue)) == [[0], [8]]
    # The rows of the job that was cancelled were not computed.
    assert [payloads for _, payloads in compute.calls] == [[0], [4]]


def test_the_rows_of_a_large_job_take_turns_with_later_jobs():
    """Each row is a batch of its own. A row takes as long as the first one."""
    compute = Computation()

    async def test(queue):
        first = queue.submit(("a",), [Row(0, 60)])
        await asyncio.sleep(0.5)
        compute.may_begin.set()
        await first.future
        compute.may_begin.clear()
        compute.has_begun.clear()
        large = queue.submit(("a",), [Row(number, 60) for number in range(1, 5)])
        await asyncio.to_thread(compute.has_begun.wait, TIMEOUT_SECS)
        small = queue.submit(("a",), [Row(9, 60)])
        compute.may_begin.set()
        return [await large.future, await small.future]

    with queue_of(compute) as (queue, _):
        assert run(test(queue)) == [[2, 4, 6, 8], [18]]
    assert [payloads for _, payloads in compute.calls] == [[0], [1], [9], [2], [3], [4]]


def test_a_closed_queue_computes_what_waits():
    compute = Computation()

    async def test(queue):
        jobs = [queue.submit(("a",), [Row(number, 60)]) for number in range(5)]
        compute.may_begin.set()
        await asyncio.to_thread(queue.close, TIMEOUT_SECS)
        return [await job.future for job in jobs]

    with queue_of(compute, max_wait_secs=0.2, num_workers=2) as (queue, _):
        assert run(test(queue)) == [[0], [2], [4], [6], [8]]

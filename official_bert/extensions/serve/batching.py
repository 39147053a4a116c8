"""Collects the rows of several requests into batches, which threads compute.

In: jobs, the rows of a request with their lengths in tokens. Out: a future for each job. A batch
has rows of one kind and of similar length, and a limited number of tokens, padding included.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from absl import logging

from official_bert.io.errors import InputError

# Padding is free while a batch has fewer tokens: such a batch is as fast as one of a single row.
_FREE_TOKENS = 64
# The largest share of a batch that is padding. A batch with less is faster than two batches.
_MAX_PADDING = 0.25
_MAX_RETRY_SECS = 60
_RATE_DECAY = 0.9  # the weight of earlier batches in the mean speed


class BatchLimits(NamedTuple):
    """The limits of a queue.

    Attributes:
        max_batch_tokens: the largest number of tokens in a batch, padding included.
        max_wait_secs: the time for which a row waits for others to fill its batch.
        max_queue_rows: the largest number of waiting rows.
    """

    max_batch_tokens: int
    max_wait_secs: float
    max_queue_rows: int


class QueueFullError(Exception):
    """The queue has no room for a job.

    Attributes:
        retry_secs: the number of seconds after which it probably has.
    """

    def __init__(self, retry_secs: int):
        super().__init__(f"full for {retry_secs} seconds")
        self.retry_secs = retry_secs


class QueueObserver(Protocol):
    """Counts what happens in a queue."""

    def observe_batch(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        """Counts a batch.

        Args:
            num_rows: its number of rows.
            num_tokens: its number of tokens without padding.
            num_padded_tokens: its number of tokens with padding.
        """

    def set_queue_rows(self, num_rows: int) -> None:
        """Records the number of waiting rows.

        Args:
            num_rows: the number.
        """


class Row(NamedTuple):
    """A row of a job.

    Attributes:
        payload: the argument of the computation.
        length: its length in tokens.
        count: the number of rows that it counts as, such as the windows of a long text.
    """

    payload: Any
    length: int
    count: int = 1


class Job:
    """The rows of a request.

    Attributes:
        key: the kind of the rows. Rows of different kinds are in different batches.
        future: gets the list of results, or an exception.
    """

    def __init__(self, key: Hashable, num_rows: int, loop: asyncio.AbstractEventLoop):
        self.key = key
        self.loop = loop
        self.future: asyncio.Future[list] = loop.create_future()
        self._results: list = [None] * num_rows
        self._num_missing = num_rows

    def set_result(self, index: int, result: Any) -> None:
        """Records the result of a row. It is called in the thread of the loop.

        Args:
            index: the index of the row in the job.
            result: the result, or the exception of the computation.
        """
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
            return
        self._results[index] = result
        self._num_missing -= 1
        if not self._num_missing:
            self.future.set_result(self._results)


class _WaitingRow(NamedTuple):
    job: Job
    index: int
    row: Row
    deadline: float  # when its batch is computed, full or not
    turn: float  # rows with an earlier turn are computed first


class _Batch(NamedTuple):
    rows: list[_WaitingRow]
    is_full: bool


def choose_batch(lengths: Sequence[int], counts: Sequence[int], max_tokens: int) -> list[int]:
    """Chooses the rows of the next batch.

    The oldest row is in it, so that no row waits for ever. The others have similar lengths, so that
    there is little padding.

    Args:
        lengths: the lengths of the waiting rows in tokens, the oldest row first.
        counts: the number of rows that each counts as.
        max_tokens: the largest number of tokens in the batch, padding included.

    Returns:
        The indices of the rows in the batch. The first one is 0.

    Example:
        ```python
        choose_batch([8, 100, 9, 8], [1, 1, 1, 1], max_tokens=64)  # [0, 3, 2]
        ```
    """
    oldest_length = lengths[0]
    others = sorted(range(1, len(lengths)), key=lambda row: abs(lengths[row] - oldest_length))
    chosen = [0]
    longest = oldest_length
    num_rows = counts[0]
    num_tokens = oldest_length * num_rows
    for row in others:
        longest = max(longest, lengths[row])
        num_rows += counts[row]
        num_tokens += lengths[row] * counts[row]
        num_padded_tokens = longest * num_rows
        padding = num_padded_tokens - num_tokens
        is_wasteful = padding > _MAX_PADDING * num_padded_tokens
        if num_padded_tokens > max_tokens:
            break
        if is_wasteful and num_padded_tokens > _FREE_TOKENS:
            break
        chosen.append(row)
    return chosen


class BatchQueue:
    """A bounded queue of rows, and the threads that compute them in batches."""

    def __init__(
        self,
        run: Callable[[Hashable, list], Sequence],
        limits: BatchLimits,
        num_workers: int,
        observer: QueueObserver,
    ):
        """Starts the threads.

        Args:
            run: computes a batch: the key and the payloads -> the result of each payload.
            limits: the limits of the queue.
            num_workers: the number of threads.
            observer: counts the batches.
        """
        self._run = run
        self._limits = limits
        self._observer = observer
        self._waiting: list[_WaitingRow] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._rows_per_sec = 0.0
        self._threads = []
        for _ in range(num_workers):
            thread = threading.Thread(target=self._work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, key: Hashable, rows: Sequence[Row]) -> Job:
        """Adds a job. It is called in the thread of a running loop.

        Args:
            key: the kind of the rows.
            rows: the rows, at least one.

        Raises:
            QueueFullError: the queue has no room.
        """
        job = Job(key, len(rows), asyncio.get_running_loop())
        with self._changed:
            if len(self._waiting) + len(rows) > self._limits.max_queue_rows:
                raise QueueFullError(self._estimate_retry_secs())
            now = time.monotonic()
            deadline = now + self._limits.max_wait_secs
            # The rows of a large job take turns with those of the jobs that come after it.
            secs_per_row = 1 / self._rows_per_sec if self._rows_per_sec else 0.0
            for index, row in enumerate(rows):
                turn = now + index * secs_per_row
                waiting = _WaitingRow(job, index, row, deadline, turn)
                bisect.insort(self._waiting, waiting, key=_get_turn)
            self._observer.set_queue_rows(len(self._waiting))
            self._changed.notify_all()
        return job

    def cancel(self, job: Job) -> None:
        """Removes the rows of a job that wait, because nobody reads its results.

        Args:
            job: the job.
        """
        with self._changed:
            self._waiting = [waiting for waiting in self._waiting if waiting.job is not job]
            self._observer.set_queue_rows(len(self._waiting))
        job.future.cancel()

    def close(self, timeout_secs: float) -> None:
        """Ends the threads after the rows that wait.

        Args:
            timeout_secs: the number of seconds to wait for the threads.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_secs
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _estimate_retry_secs(self) -> int:
        if not self._rows_per_sec:
            return 1
        num_secs = math.ceil(len(self._waiting) / self._rows_per_sec)
        return min(max(num_secs, 1), _MAX_RETRY_SECS)

    def _work(self):
        """Computes batches until the queue is closed and empty: a thread's life."""
        while rows := self._take_batch():
            start = time.monotonic()
            results = self._compute(rows)
            rate = len(rows) / max(time.monotonic() - start, 1e-6)
            before = self._rows_per_sec or rate
            self._rows_per_sec = _RATE_DECAY * before + (1 - _RATE_DECAY) * rate
            self._deliver(rows, results)

    def _take_batch(self) -> list[_WaitingRow]:
        """Waits for a batch, and removes it from the queue. It is empty at the end."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._is_closed:
                        return []
                    self._changed.wait()
                    continue
                batch = self._choose()
                num_secs = batch.rows[0].deadline - time.monotonic()
                if batch.is_full or num_secs <= 0 or self._is_closed:
                    break
                self._changed.wait(num_secs)
            chosen = set(map(id, batch.rows))
            self._waiting = [waiting for waiting in self._waiting if id(waiting) not in chosen]
            self._observer.set_queue_rows(len(self._waiting))
            self._observe(batch.rows)
            return batch.rows

    def _choose(self) -> _Batch:
        """Returns the next batch, and whether waiting would not change it."""
        key = self._waiting[0].job.key
        candidates = [waiting for waiting in self._waiting if waiting.job.key == key]
        lengths = [candidate.row.length for candidate in candidates]
        counts = [candidate.row.count for candidate in candidates]
        max_tokens = self._limits.max_batch_tokens
        chosen = choose_batch(lengths, counts, max_tokens)
        rows = [candidates[index] for index in chosen]
        # There is no room for another row of the oldest row's length.
        num_rows = sum(counts[index] for index in chosen)
        longest = max(lengths[index] for index in chosen)
        return _Batch(rows, longest * (num_rows + 1) > max_tokens)

    def _observe(self, rows: Sequence[_WaitingRow]):
        num_rows = sum(waiting.row.count for waiting in rows)
        num_tokens = sum(waiting.row.length * waiting.row.count for waiting in rows)
        longest = max(waiting.row.length for waiting in rows)
        self._observer.observe_batch(num_rows, num_tokens, longest * num_rows)

    def _compute(self, rows: Sequence[_WaitingRow]) -> Sequence:
        """Returns the result of each row, or the exception of its computation."""
        key = rows[0].job.key
        payloads = [waiting.row.payload for waiting in rows]
        try:
            return self._run(key, payloads)
        except Exception as error:
            if len(rows) > 1:  # the others have nothing to do with the row that fails
                return [self._compute([waiting])[0] for waiting in rows]
            if not isinstance(error, InputError):
                logging.exception("A batch has failed")
            return [error]

    def _deliver(self, rows: Sequence[_WaitingRow], results: Sequence):
        """Hands results to their loops, in one call for each loop."""
        loop_outcomes = collections.defaultdict(list)
        for waiting, result in zip(rows, results, strict=True):
            loop_outcomes[waiting.job.loop].append((waiting, result))
        for loop, outcomes in loop_outcomes.items():
            try:
                loop.call_soon_threadsafe(_set_results, outcomes)
            except RuntimeError:  # the loop is closed, and with it all connections
                logging.warning("%d results come after the end of the server", len(outcomes))


def _get_turn(waiting: _WaitingRow) -> float:
    return waiting.turn


def _set_results(outcomes: Sequence[tuple[_WaitingRow, Any]]):
    for waiting, result in outcomes:
        waiting.job.set_result(waiting.index, result)

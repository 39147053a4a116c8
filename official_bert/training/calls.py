"""The calls into TensorFlow that make up a training.

A call makes several updates, because each return to Python costs time. It ends before a progress
line, a checkpoint or a hook is due, and after about a second, so that a signal is noticed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from official_bert.training.loop import Batches, Sums
from official_bert.training.reporting import TrainingReport
from official_bert.training.time_limit import TimeLimit
from official_bert.training.workers import Workers

MAX_LOG_STEPS = 100  # the number of updates between two progress lines of a long training
FIRST_LOG_STEPS = 10  # the step of the first progress line
CALL_SECS = 1.0  # the time of a call, after which a signal is noticed


class Stops(NamedTuple):
    """The steps at which a training leaves TensorFlow.

    No call crosses a progress line, a checkpoint or a hook.

    Attributes:
        first_step: the number of updates before the training.
        num_train_steps: the step at which the training ends.
        steps_per_loop: the maximum number of updates in a call.
        log_every_steps: the number of updates between two progress lines.
        save_every_steps: a checkpoint is saved at the multiples of each of these numbers, and at
            the end.
        single_steps: further steps at which a call ends.
    """

    first_step: int
    num_train_steps: int
    steps_per_loop: int
    log_every_steps: int
    save_every_steps: tuple[int, ...]
    single_steps: tuple[int, ...] = ()

    def next_count(self, step: int) -> int:
        """Returns the number of updates in the next call.

        The first call, which compiles, makes a single one.

        Args:
            step: the number of updates before the call.
        """
        intervals = (self.log_every_steps, *self.save_every_steps)
        next_multiples = [(step // interval + 1) * interval for interval in intervals]
        single_stops = (self.first_step + 1, self.first_step + FIRST_LOG_STEPS, *self.single_steps)
        next_single_stops = [stop for stop in single_stops if stop > step]
        next_stop = min(self.num_train_steps, *next_multiples, *next_single_stops)
        return min(self.steps_per_loop, next_stop - step)

    def is_due(self, step: int, *intervals: int) -> bool:
        """Returns whether a step is the last one, or a multiple of an interval.

        Args:
            step: the number of updates so far.
            *intervals: numbers of updates.
        """
        return step == self.num_train_steps or any(step % every == 0 for every in intervals)

    def logs_at(self, step: int) -> bool:
        """Returns whether a progress line is due.

        Besides the multiples of `log_every_steps`, there is one after the first FIRST_LOG_STEPS.

        Args:
            step: the number of updates so far.
        """
        return self.is_due(step, self.log_every_steps) or step == self.first_step + FIRST_LOG_STEPS

    def saves_at(self, step: int) -> bool:
        """Returns whether a checkpoint is due.

        Args:
            step: the number of updates so far.
        """
        return self.is_due(step, *self.save_every_steps)


class Ramp(NamedTuple):
    """Batches that grow: from the update `starts[i]` on, `multiples[i]` times the first size."""

    starts: tuple[int, ...] = ()
    multiples: tuple[int, ...] = ()

    def multiple_at(self, position: float) -> int:
        """Returns the multiple of the batch size at a position of the training.

        Args:
            position: the position in updates.
        """
        multiple = 1
        for start, larger in zip(self.starts, self.multiples, strict=True):
            if start <= position:
                multiple = larger
        return multiple


class Call(NamedTuple):
    """What a call did.

    Attributes:
        step: the number of updates that the weights have had after it.
        is_progress: whether it made an update, or was the last one that the time allows. A call
            makes none if float16 overflows.
        is_interrupted: whether a signal arrived during it, here or in another process.
    """

    step: int
    is_progress: bool
    is_interrupted: bool


@dataclasses.dataclass(kw_only=True)
class Calls:
    """The calls of one training.

    Attributes:
        compile_steps: a function from a multiple of the batch size to one that makes several
            updates with batches of that size.
        batches: the source of the batches.
        report: what the figures of the updates are added to.
        stops: the steps before which a call ends. The time limit moves the last one.
        ramp: the sizes of the batches.
        limit: the limit of the time, if there is one.
        workers: the processes that train together.
        ends_by_time: whether a call ends after CALL_SECS. The loops of a TPU do not.
    """

    compile_steps: Callable[[int], Callable[[Batches, int], Sums]]
    batches: Batches
    report: TrainingReport
    stops: Stops
    ramp: Ramp
    limit: TimeLimit | None
    workers: Workers
    ends_by_time: bool

    def __post_init__(self):
        self._multiple = 0  # of the batch size that is compiled; 0 before the first call
        self._max_steps = 1

    def run(self, step: int, has_signal: Callable[[], object]) -> Call:
        """Makes the updates of the next call, compiled with the batch size that is due.

        Args:
            step: the number of updates before the call.
            has_signal: returns whether a signal has arrived, which the caller holds back.
        """
        multiple = self.ramp.multiple_at(self._position(step))
        if multiple != self._multiple:
            self._multiple = multiple
            self._max_steps = 1
            self._run_steps = self.compile_steps(multiple)

        start_secs = time.monotonic()
        num_steps = min(self.stops.next_count(step), self._max_steps)
        sums = self._run_steps(self.batches, num_steps)
        self.batches.have_run(num_steps * multiple)
        num_updates = self.report.add(num_steps, sums)
        step += num_updates

        is_out_of_time = self._is_out_of_time()
        if is_out_of_time:
            self.stops = self.stops._replace(num_train_steps=step)
            self.report.num_train_steps = step
        step_secs = (time.monotonic() - start_secs) / num_steps
        self._max_steps = self.agree_on_max_steps(step_secs, has_signal() is not None)
        return Call(
            step=step,
            is_progress=num_updates > 0 or is_out_of_time,
            is_interrupted=self._max_steps == 0,
        )

    def _position(self, step: int) -> float:
        """Returns the position of the training, in updates.

        It is the number of updates, or the used share of the time if that is later.
        """
        if self.limit is None:
            return step
        return max(step, float(self.limit.position.numpy()))

    def _is_out_of_time(self) -> bool:
        if self.limit is None:
            return False
        self.limit.update(self.workers)
        return not self.limit.secs_left

    def agree_on_max_steps(self, step_secs: float, is_interrupted: bool) -> int:
        """Returns how many updates the next call of all workers may make; 0 if one of them ends.

        Args:
            step_secs: the mean time of a step of the last call in this process, in seconds.
            is_interrupted: whether this process ends, because a signal has arrived.
        """
        max_steps = self.stops.steps_per_loop
        if self.ends_by_time:
            max_steps = int(CALL_SECS / step_secs)
        max_steps = 0 if is_interrupted else max(1, max_steps)
        return int(self.workers.gather(max_steps).min())

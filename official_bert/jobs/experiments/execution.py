"""Runs the steps of a plan, several at a time, each once in its life.

In: the steps, the places. Out: result.json of each step that was finished, and the steps that failed. Whatever is there
already is not run again; what a kill interrupted is run again in the same folder, where training scripts find their
checkpoints.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable

from absl import logging

from official_bert.io import files, writing
from official_bert.jobs.experiments import results
from official_bert.jobs.experiments.child import Child, end_all, last_lines, own_cpus, shares
from official_bert.jobs.experiments.steps import Layout, Step, config_text

_POLL_SECS = 0.1
_TRAINING = "fine-tuning"  # the kind of steps whose models only other steps of the plan need


@dataclasses.dataclass(frozen=True)
class Failure:
    """A step that ended with another status than 0.

    Attributes:
        step: the step.
        folder: of the step.
        status: the exit status, or the negative number of a signal.
        log_end: the last lines of the log.
    """

    step: Step
    folder: str
    status: int
    log_end: str


def pending_steps(steps: Iterable[Step], layout: Layout) -> list[Step]:
    """Returns the steps that must run, in order: those without results, and those whose deleted files they need.

    Args:
        steps: all steps, each after those that it needs.
        layout: the places.
    """
    needed: set[Step] = set()
    pending = []
    for step in reversed(list(steps)):
        result = results.read_result(layout, step)
        if result is None or (step in needed and result["is_stripped"]):
            pending.append(step)
            needed.update(place.step for place in step.inputs())
    return pending[::-1]


def execute(steps: list[Step], layout: Layout, num_parallel: int) -> list[Failure]:
    """Runs all pending steps. Steps that need a failed one do not run; the others go on.

    Args:
        steps: all steps of a plan, each after those that it needs.
        layout: the places.
        num_parallel: the number of steps that run at the same time, which share the CPUs evenly.

    Returns:
        The steps that failed.
    """
    return _Execution(steps, layout, num_parallel).run()


class _Execution:
    def __init__(self, steps: list[Step], layout: Layout, num_parallel: int):
        self._steps, self._layout = steps, layout
        self._waiting = pending_steps(steps, layout)
        self._count, self._num_begun = len(self._waiting), 0
        self._free = shares(own_cpus(), num_parallel)
        self._running: dict[Step, tuple[Child, list[int], bool]] = {}
        self._failures: list[Failure] = []

    def run(self) -> list[Failure]:
        logging.info("%d of %d steps are finished already", len(self._steps) - self._count, len(self._steps))
        self._strip()
        try:
            while self._running or self._start_ready():
                time.sleep(_POLL_SECS)
                self._collect()
                self._start_ready()
        finally:
            end_all(child for child, _, _ in self._running.values())
        if self._waiting:
            logging.error("%d steps did not run, since they need one that failed", len(self._waiting))
        return self._failures

    def _start_ready(self) -> bool:
        """Starts as many steps as may run; returns whether there was one."""
        unfinished = {*self._waiting, *self._running, *(failure.step for failure in self._failures)}
        ready = [
            step for step in self._waiting if not any(place.step in unfinished for place in step.inputs())
        ]
        started = ready[: len(self._free)]
        for step in started:
            self._waiting.remove(step)
            self._start(step, self._free.pop(0))
        return bool(started)

    def _start(self, step: Step, cpus: list[int]):
        layout, folder = self._layout, self._layout.folder(step)
        if results.read_result(layout, step) is not None:  # whose files were deleted, and are needed
            results.forget_result(layout, step)
        is_resumed = files.exists(layout.output(step))
        files.make_folder(layout.output(step))
        if step.config:
            with writing.replacing(layout.config_file(step)) as file:
                file.write(config_text(step))
        command = [sys.executable, *layout.command(step)]
        self._num_begun += 1
        logging.info(
            "[%d/%d] %s %s begins in %s", self._num_begun, self._count, step.kind, step.label, folder
        )
        child = Child(command, folder, cpus)
        self._running[step] = child, cpus, is_resumed
        child.start()

    def _collect(self):
        """Takes note of the steps that have ended."""
        for step, (child, cpus, is_resumed) in list(self._running.items()):
            status = child.status
            if status is None:
                continue
            del self._running[step]
            self._free.append(cpus)
            if status == 0:
                results.write_result(self._layout, step, child.secs, is_resumed)
                logging.info("%s %s is finished after %.0f s", step.kind, step.label, child.secs)
                self._strip()
            else:
                folder = self._layout.folder(step)
                self._failures.append(Failure(step, folder, status, last_lines(child.log_file)))
                logging.error("%s %s failed with status %d", step.kind, step.label, status)

    def _strip(self):
        """Deletes the checkpoints of fine-tunings that no step needs any more."""
        unfinished = {*self._waiting, *self._running, *(failure.step for failure in self._failures)}
        kept = {place.step for step in unfinished for place in step.inputs()}
        for step in self._steps:
            if step.kind == _TRAINING and step not in unfinished and step not in kept:
                results.strip(self._layout, step)


def sentence_of(failures: list[Failure]) -> str:
    """Returns what a user is told of the failures: the end of each log, and the folders."""
    parts = [
        f"{failure.step.kind} {failure.step.label} ended with status {failure.status}; the end of "
        f"{os.path.join(failure.folder, 'log.txt')}:\n{failure.log_end}"
        for failure in failures
    ]
    return "\n\n".join(parts)

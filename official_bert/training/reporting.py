"""Reports of a run: progress lines, TensorBoard scalars and eval_results.txt.

In: the metrics of any task as {name: number}. Out: log lines, and files in `output_dir`.
"""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import writing
from official_bert.errors import brief
from official_bert.progress import clock_time, updated_line
from official_bert.training.memory import peak_memory
from official_bert.training.precision import UPDATES
from official_bert.training.throughput import WorkCounter
from official_bert.training.train_log import TrainLog

_THRESHOLD_SUFFIXES = ("_thresh", "_threshold")


class _Interval(NamedTuple):
    """A part of a training: how long it took, and what was done in it."""

    secs: float
    steps: int
    tokens: int
    flops: int


class ProgressReporter:
    """Writes one log line, one set of TensorBoard scalars and one line of train_log.jsonl for each report.

        step 200/1000  loss 6.51  mlm_accuracy 0.08  ...  120.3 examples/s  15398 tokens/s  MFU 41.2%  00:12:33 left

    The speed and the time left are computed from the interval since the last report, pauses for checkpoints included.
    The first call into TensorFlow, which compiles, does not count if `watching` wraps it; a report after that call
    alone contains neither speed nor time left.
    """

    def __init__(
        self,
        output_dir: str,
        num_train_steps: int,
        batch_size: int,
        first_step: int,
        work: WorkCounter | None = None,
        peak_flops: float | None = None,
    ):
        """Starts the clock.

        Args:
            output_dir: the folder of TensorBoard's event files and of train_log.jsonl.
            num_train_steps: the total number of updates.
            batch_size: the number of examples of an update.
            first_step: the number of updates that earlier runs made.
            work: counts tokens and operations of the calls that `watching` wraps; None for no such figures.
            peak_flops: the operations a second of all replicas together, for the MFU; None for none.
        """
        self._num_train_steps, self._batch_size = num_train_steps, batch_size
        self._work, self._peak_flops = work, peak_flops
        self._measured = _Interval(0.0, 0, 0, 0)  # all intervals that were reported
        self._writer, self._log = _event_writer(output_dir), TrainLog(output_dir, first_step)
        self._step, self._step_is_compiled = first_step, False
        self._start_interval(first_step)

    def watching(self, run_steps: Callable) -> Callable:
        """Wraps `run_steps(batches, num_steps)`.

        The log announces its first call, which compiles, and the clock starts anew after it. On a terminal the step is
        shown after every call.
        """

        def watched(batches, num_steps):
            if not self._step_is_compiled:
                logging.info("Compiling the training step ...")
            results = run_steps(batches, num_steps)
            if self._work:
                self._work.add(batches, num_steps)
            self._step += round(results.get(UPDATES, num_steps))
            if not self._step_is_compiled:
                self._step_is_compiled = True
                self._start_interval(self._step)
            updated_line.show(f"step {self._step}/{self._num_train_steps}")
            return results

        return watched

    def report(self, step: int, metrics: Mapping[str, float], unshown: Collection[str] = ()):
        """Logs a line and writes the scalars.

        Args:
            step: the number of updates made so far.
            metrics: the metrics of the steps since the last report, in the order of the line.
            unshown: those that the line has no room for.
        """
        fields = [f"step {step}/{self._num_train_steps}"]
        fields += [f"{name} {value:.4g}" for name, value in metrics.items() if name not in unshown]
        scalars = dict(metrics)
        now = self._mark(step)
        past = _Interval(*(end - start for end, start in zip(now, self._since, strict=True)))
        if past.steps:
            self._measured = _Interval(*map(sum, zip(self._measured, past, strict=True)))
            scalars |= self._speeds(past)
            fields.append(f"{scalars['examples_per_second']:.1f} examples/s")
            if self._work:
                fields.append(f"{scalars['tokens_per_second']:.0f} tokens/s")
            if "mfu" in scalars:
                fields.append(f"MFU {scalars['mfu']:.1%}")
            left_secs = (self._num_train_steps - step) * past.secs / past.steps
            fields.append(f"{clock_time(left_secs)} left")
        if self._work:
            scalars |= peak_memory()
        logging.info("  ".join(fields))
        _write_scalars(self._writer, scalars, step)
        self._log.append(step, scalars)
        self._start_interval(step)

    def speeds(self) -> dict[str, float]:
        """Returns the mean speeds of all intervals that were reported, under the names of the scalars."""
        return self._speeds(self._measured) if self._measured.steps else {}

    def _speeds(self, past: _Interval) -> dict[str, float]:
        speeds = {"examples_per_second": past.steps * self._batch_size / past.secs}
        if self._work:
            speeds["tokens_per_second"] = past.tokens / past.secs
            if self._peak_flops:
                speeds["mfu"] = past.flops / past.secs / self._peak_flops
        return speeds

    def _mark(self, step: int) -> _Interval:
        """Returns the interval from the beginning of time and of the counts to now."""
        work = self._work
        return _Interval(time.monotonic(), step, work.tokens if work else 0, work.flops if work else 0)

    def _start_interval(self, step: int):
        self._since = self._mark(step)


def write_eval_results(
    output_dir: str,
    results: Mapping[str, float],
    step: int,
    suffix: str = "",
    further: Mapping[str, float] = MappingProxyType({}),
):
    """Writes eval_results.txt as the original does, logs it, and writes TensorBoard scalars under eval/.

    A scalar that training writes, too, such as `loss`, has the same tag, so that TensorBoard shows both in one chart.

    Args:
        output_dir: the output folder of the run.
        results: the metrics by name; `global_step` is added.
        step: the number of updates made so far.
        suffix: a suffix of the names for a second set: "_mm" gives eval_results_mm.txt and eval_mm/.
        further: metrics that the original's file does not have; they are in the log and in TensorBoard only.
    """

    def texts_of(metrics):
        return {name: _format_number(name, value) for name, value in sorted(metrics.items())}

    texts = texts_of({**results, "global_step": step})
    log_table("Eval results", texts_of({**results, **further, "global_step": step}))
    path = os.path.join(output_dir, f"eval_results{suffix}.txt")
    with writing.replacing(path) as file:
        file.writelines(f"{name} = {text}\n" for name, text in texts.items())
    logging.info("Wrote %s", path)
    write_scalars(os.path.join(output_dir, f"eval{suffix}"), {**results, **further}, step)


def log_table(title: str, texts: Mapping[str, str]):
    """Logs numbers by name, one below the other."""
    logging.info("***** %s *****", title)
    width = max(map(len, texts))
    for name, text in texts.items():
        logging.info("  %s = %s", name.ljust(width), text)


def write_scalars(folder: str, scalars: Mapping[str, float], step: int):
    """Writes the TensorBoard scalars of a step to a folder."""
    _write_scalars(_event_writer(folder), scalars, step)


def _event_writer(folder: str):
    """Returns a writer of TensorBoard's event files; on a full disk one that writes nothing."""
    try:
        return tf.summary.create_file_writer(folder)
    except tf.errors.OpError as error:
        logging.warning("%s: TensorBoard gets no scalars (%s); make room on the disk", folder, brief(error))
        return tf.summary.create_noop_writer()


def _write_scalars(writer, scalars: Mapping[str, float], step: int):
    """Writes scalars; a full disk costs the plot and not the run."""
    try:
        with writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        writer.flush()
    except tf.errors.OpError as error:
        logging.warning(
            "TensorBoard's scalars of step %d are lost (%s); make room on the disk", step, brief(error)
        )


def _format_number(name: str, value) -> str:
    """Writes a number of eval_results.txt: as float32, the original's metric type, but integers and thresholds exactly.

    Users pass a threshold back to a script, which compares it with scores. The threshold is itself one of these
    scores, so a rounded one could change the result of that comparison.
    """
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return repr(float(value)) if name.endswith(_THRESHOLD_SUFFIXES) else str(np.float32(value))

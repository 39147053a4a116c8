"""What a training tells of itself: progress lines, TensorBoard, the log of figures, and the summary at its end.

In: the sums of the steps since the last report. Out: the files of reporting.py, train_log.py and summary.py.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.io import writing
from official_bert.io.errors import InputError, brief
from official_bert.io.progress import clock_time, updated_line
from official_bert.modeling.flops import training_flops
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.training import TrainingOptions
from official_bert.training import loop, precision, run_log, throughput
from official_bert.training.memory import peak_memory
from official_bert.training.precision import UPDATES
from official_bert.training.run_log import TrainLog
from official_bert.training.step import GRADIENT_NORM
from official_bert.training.throughput import WorkCounter

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
        """Logs a line and writes the scalars."""
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
        results: the metrics by name; `global_step` is added.
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


FILE = "run_summaries.jsonl"
FINISHED, STOPPED_EARLY = "finished", "stopped early"


def write_summary(output_dir: str, figures: Mapping[str, float | str | None]):
    """Logs the table and appends the line; a full disk costs the line and not the run.

    Args:
        figures: of this process: `ended` (FINISHED, STOPPED_EARLY or the name of what stopped it), `last_step`,
            `updates`, `wall_secs`, and others by name; None for an unknown one, which is left out.
    """
    path = os.path.join(output_dir, FILE)
    earlier_secs = sum(row.get("wall_secs", 0.0) for row in run_log.rows(path))
    starts = run_log.trainings(output_dir)
    known = {name: value for name, value in figures.items() if value is not None}
    known |= {"restarts": max(0, len(starts) - 1), "total_wall_secs": earlier_secs + known["wall_secs"]}
    log_table("Training summary", {name: _text(name, value) for name, value in known.items()})
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in known.items()
    }
    try:
        writing.append_line(path, json.dumps(finite))
    except (InputError, OSError) as error:
        logging.warning("%s: the summary is only in the log (%s)", path, error)


def _text(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_secs"):
        return clock_time(value)
    if name == "mfu":
        return f"{value:.1%}"
    return str(value) if isinstance(value, int) else f"{value:.5g}"


class TrainingReports:
    """The reports of one process of a training."""

    def __init__(
        self,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        config: BertConfig,
        optimizer: AdamWeightDecayOptimizer,
        loss_scale: precision.LossScale | None,
        num_train_steps: int,
        num_frozen_layers: int,
        peak_flops: float | None,
    ):
        """Starts the clock.

        Args:
            loss_scale: that of float16, or None.
            peak_flops: the operations a second that all replicas can make; None if unknown.
        """
        self._output_dir, self._num_train_steps, self._peak_flops = (
            options.output_dir,
            num_train_steps,
            peak_flops,
        )
        self._optimizer, self._loss_scale = optimizer, loss_scale
        self._losses: list[tuple[int, float]] = []  # of each progress line: its updates and their mean loss
        self._first_step, self._start_secs = self._step, time.monotonic()
        work = throughput.WorkCounter(
            strategy, lambda *shape: training_flops(config, *shape, num_frozen_layers)
        )
        self._reporter = ProgressReporter(
            options.output_dir, num_train_steps, options.train_batch_size, self._first_step, work, peak_flops
        )

    @property
    def _step(self) -> int:
        return int(self._optimizer.global_step.numpy())

    def watching(self, run_steps: Callable) -> Callable:
        """Wraps `run_steps(batches, num_steps)`, to count its work and the skipped updates."""
        if self._loss_scale:
            run_steps = self._loss_scale.watching(run_steps)
        return self._reporter.watching(run_steps)

    def report(
        self, step: int, num_steps: int, sums: loop.Sums, metrics: dict[str, float], unshown: Collection[str]
    ):
        """Reports the steps since the last report."""
        self._losses.append((num_steps, metrics["loss"]))
        found = metrics | {
            "learning_rate": float(self._optimizer.current_rate()),
            GRADIENT_NORM: sums[GRADIENT_NORM] / num_steps,
        }
        if self._loss_scale:
            found |= self._loss_scale.metrics()
        self._reporter.report(step, found, {*unshown, GRADIENT_NORM, *precision.UNSHOWN})

    def final_loss(self) -> tuple[float, int] | None:
        """Returns the mean training loss of the last tenth of all updates or, of a shorter run, of what it made.

        It is counted in whole progress lines; the second value is the number of their updates. None if the run made no
        update.
        """
        steps, total = 0, 0.0
        for num_steps, loss in reversed(self._losses):
            if 10 * steps >= self._num_train_steps:
                break
            steps, total = steps + num_steps, total + num_steps * loss
        return (total / steps, steps) if steps else None

    def summarise(self, last_checkpoint: str | None, error: BaseException | None = None):
        """Writes the summary."""
        final = self.final_loss()
        ended = FINISHED if self._step >= self._num_train_steps else STOPPED_EARLY
        figures = {
            "ended": type(error).__name__ if error else ended,
            "updates": self._step - self._first_step,
            "last_step": self._step,
            "wall_secs": time.monotonic() - self._start_secs,
            **self._reporter.speeds(),
            "peak_flops": self._peak_flops,
            **peak_memory(),
            "skipped_updates": self._loss_scale.num_skipped if self._loss_scale else 0,
            "final_loss": final and final[0],
            "last_checkpoint": last_checkpoint,
        }
        write_summary(self._output_dir, figures)

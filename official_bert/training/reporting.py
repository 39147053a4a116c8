"""Reports a training and its evaluations.

The reports are in the log, in TensorBoard's event files, in run.jsonl and in eval_results.txt.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.io import files, writing
from official_bert.io.errors import Diverged, brief
from official_bert.io.progress import Progress, clock_time, is_logged, is_on_terminal
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.training import TrainingOptions
from official_bert.training import precision, run_log
from official_bert.training.loop import Sums
from official_bert.training.memory import peak_memory
from official_bert.training.precision import UPDATES, LossScale
from official_bert.training.run_log import (
    COMPILE_SECS,
    EVALUATION_SECS,
    READ_SECS,
    SAVE_SECS,
    UPDATE_SECS,
)
from official_bert.training.step import GRADIENT_NORM, TOKENS, Objective
from official_bert.training.time_limit import TimeLimit

LEARNING_RATE = "learning_rate"
MFU = "mfu"  # the share of the devices' peak that the matrix products use
FINISHED, STOPPED_EARLY = "finished", "stopped early"
_LARGEST = float(np.finfo(np.float32).max)  # the perplexity of a loss above 88 is larger
# Of more metrics than these, a terminal shows the main ones. The table of the labels follows them.
_MANY_METRICS = 10
_SHOWN_METRICS = ("eval_accuracy", "eval_macro_f1", "eval_loss", "global_step")
_THRESHOLD_SUFFIXES = ("_thresh", "_threshold")
_label_score = re.compile("(eval_(?:precision|recall|f1))_(.+)").fullmatch


class _Interval(NamedTuple):
    """A part of a training: how long it took, and what was done in it.

    Padding does not count as a token.
    """

    secs: float
    steps: int
    examples: int
    tokens: int

    def plus(self, other: _Interval) -> _Interval:
        return _Interval(
            secs=self.secs + other.secs,
            steps=self.steps + other.steps,
            examples=self.examples + other.examples,
            tokens=self.tokens + other.tokens,
        )

    def minus(self, other: _Interval) -> _Interval:
        return _Interval(
            secs=self.secs - other.secs,
            steps=self.steps - other.steps,
            examples=self.examples - other.examples,
            tokens=self.tokens - other.tokens,
        )


class TrainingReport:
    """Counts the steps of a training and reports them.

    A report is a log line, TensorBoard scalars and a line of run_log.py.

        step 200/1000  loss 6.51  ...  120.3 examples/s  15398 tokens/s  00:12:33 left

    The speed and the time left are computed from the interval since the last report, pauses for
    checkpoints included. The first call into TensorFlow, which compiles, does not count. A report
    after that call alone contains neither.

    Attributes:
        metrics: the metrics of the last report.
        evaluation: the main metric of the last evaluation during the training, by its name.
        num_train_steps: the number of updates of the training, which may change.
        utilization: the share of the devices' peak that one example a second uses; None if it is
            unknown.
        read_secs: returns the seconds that threads took to make the batches; None if unknown.
    """

    utilization: float | None = None
    read_secs: Callable[[], float | None] = staticmethod(lambda: None)

    def __init__(
        self,
        options: TrainingOptions,
        num_train_steps: int,
        objective: Objective,
        optimizer: AdamWeightDecayOptimizer,
        loss_scale: LossScale | None = None,
        limit: TimeLimit | None = None,
    ):
        """Starts the clock.

        Args:
            options: the flags of the training.
            num_train_steps: the number of updates, with those of earlier runs.
            objective: the objective of the training.
            optimizer: the optimizer, which knows the step and the learning rate.
            loss_scale: the scale of the loss in float16; None for none.
            limit: the limit of the time; None for none.
        """
        self._output_dir = options.output_dir
        self._batch_size = options.train_batch_size
        self._optimizer = optimizer
        self._loss_scale = loss_scale
        self._limit = limit
        self.num_train_steps = num_train_steps
        self._objective = objective
        self._num_batches = 1
        self._writer = _event_writer(options.output_dir)
        self.metrics: dict[str, float] = {}
        self.evaluation: dict[str, float] = {}
        # The updates of each report, and their mean loss.
        self._losses: list[tuple[int, float]] = []
        # The sums and the updates since the last report.
        self._sums: Sums = {}
        self._num_steps = 0
        # The examples and the tokens since the start.
        self._examples = 0
        self._tokens = 0
        # The sum of all intervals that were reported.
        self._measured = _Interval(secs=0.0, steps=0, examples=0, tokens=0)
        self._step = int(optimizer.global_step.numpy())
        self._first_step = self._step
        self._start_secs = time.monotonic()
        self._compile_start_secs = self._start_secs
        self._part_secs = {
            COMPILE_SECS: 0.0,
            UPDATE_SECS: 0.0,
            SAVE_SECS: 0.0,
            EVALUATION_SECS: 0.0,
        }
        self._is_compiled = False
        self._since = self._now()
        self._speed_text = ""
        # With a limit of the time, the number of steps is unknown.
        num_known_steps = None if limit else num_train_steps
        self._progress = Progress("steps", num_known_steps, shows_speed=False, is_main=True)

    def begin(self, objective: Objective, num_batches: int) -> None:
        """Reports the steps that have no line yet, and begins a part of the training.

        Args:
            objective: the objective of the next updates.
            num_batches: the number of batches of each of these updates.
        """
        self.write()
        self._objective = objective
        self._num_batches = num_batches
        self._is_compiled = False
        self._compile_start_secs = time.monotonic()
        self._progress(self._step, "compiling")

    def add(self, num_steps: int, sums: Sums) -> int:
        """Counts a call into TensorFlow.

        Args:
            num_steps: the number of steps in the call.
            sums: the sums of these steps by name.

        Returns:
            The number of steps that were updates. In float16, a step may be skipped.

        Raises:
            Diverged: the loss is not finite, or the loss scale is below what float16 needs.
        """
        num_updates = round(sums.get(UPDATES, num_steps))
        if self._loss_scale:
            self._loss_scale.count_skipped(num_steps - num_updates)
        self._tokens += round(sums[TOKENS])
        self._examples += num_updates * self._num_batches * self._batch_size
        self._step += num_updates
        self._num_steps += num_updates
        if num_updates:
            if not np.isfinite(sums["loss"]):
                before = self._step - num_updates
                raise Diverged(
                    f"the loss is {sums['loss']} between steps {before} and {self._step}"
                )
            self._sums = {name: self._sums.get(name, 0.0) + value for name, value in sums.items()}
        if not self._is_compiled:
            self._is_compiled = True
            compile_secs = time.monotonic() - self._compile_start_secs
            self._part_secs[COMPILE_SECS] += compile_secs
            self._part_secs[UPDATE_SECS] -= compile_secs  # It is a part of the first call.
            self._since = self._now()
            self._progress.restart_clock(self._step)
        return num_updates

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Adds the time of a context to that of a part of the training.

        Args:
            part: UPDATE_SECS, SAVE_SECS or EVALUATION_SECS.
        """
        start_secs = time.monotonic()
        yield
        self._part_secs[part] += time.monotonic() - start_secs

    def show_progress(self) -> None:
        """Shows the step, the loss and the other metrics since the last report, and the speed."""
        metrics = {name: value for name, value in self.metrics.items() if name != LEARNING_RATE}
        if self._num_steps:
            metrics = self._objective.progress(self._sums, self._num_steps)
        texts = [*self._metric_texts(metrics), *map(_metric_text, self.evaluation.items())]
        past = self._now().minus(self._since)
        if past.steps:
            self._speed_text = f"{past.examples / past.secs:.1f} examples/s"
        texts.append(self._speed_text)
        if self._limit:
            texts.append(f"{clock_time(self._limit.secs_left)} left")
        else:
            self._progress.total = self.num_train_steps
        self._progress(self._step, ", ".join(filter(None, texts)))

    def write(self) -> None:
        """Reports the steps since the last report, if there are any."""
        if not self._num_steps:
            return
        metrics = self._compute_metrics()
        self._losses.append((self._num_steps, metrics["loss"]))
        self._warn_if_diverging(metrics)
        self.metrics = metrics
        past = self._now().minus(self._since)
        speeds = self._speeds(past)
        if speeds:
            self._measured = self._measured.plus(past)
        logging.info("  ".join(self._fields(metrics, speeds, past)))
        if is_logged():
            self._progress.skip_line(self._step)
        scalars = metrics | speeds | peak_memory()
        _write_scalars(self._writer, scalars, self._step)
        run_log.write_if_possible(self._output_dir, run_log.TRAIN, {"step": self._step} | scalars)
        self._sums = {}
        self._num_steps = 0
        self._since = self._now()

    def _compute_metrics(self) -> dict[str, float]:
        progress = self._objective.progress(self._sums, self._num_steps)
        metrics = {name: float(value) for name, value in progress.items()}
        metrics[LEARNING_RATE] = float(self._optimizer.current_rate())
        metrics[GRADIENT_NORM] = self._sums[GRADIENT_NORM] / self._num_steps
        if self._loss_scale:
            metrics |= self._loss_scale.metrics()
        return metrics

    def _warn_if_diverging(self, metrics: dict[str, float]):
        """Warns in the first report with a number beyond float32."""
        largest_before = max(self.metrics.values(), default=0.0)
        if max(metrics.values()) > _LARGEST and largest_before <= _LARGEST:
            logging.warning(
                "The training diverges: the loss is %.4g at step %d; stop it, and lower "
                "--learning_rate or lengthen its warm-up",
                metrics["loss"],
                self._step,
            )

    def _metric_texts(self, metrics: Sums) -> list[str]:
        """Returns the names and the values of metrics, without those for which a line has no
        room.
        """
        hidden = {*self._objective.tensorboard_only, GRADIENT_NORM, *precision.TENSORBOARD_ONLY}
        return [_metric_text(item) for item in metrics.items() if item[0] not in hidden]

    def _fields(self, metrics: Sums, speeds: Sums, past: _Interval) -> Iterator[str]:
        """Yields the parts of a progress line."""
        yield f"step {self._step}/{self.num_train_steps}"
        yield from self._metric_texts(metrics)
        if speeds:
            yield f"{speeds['examples_per_second']:.1f} examples/s"
            yield f"{speeds['tokens_per_second']:.0f} tokens/s"
            if MFU in speeds:
                yield f"mfu {speeds[MFU]:.3g}"
            left_secs = (self.num_train_steps - self._step) * past.secs / past.steps
            if self._limit:
                left_secs = min(left_secs, self._limit.secs_left)
            yield f"{clock_time(left_secs)} left"

    def final_loss(self) -> tuple[float, int] | None:
        """Returns the mean loss of the last tenth of all updates, and their number.

        The updates are those of whole progress lines. Without any update the result is None.
        """
        steps = 0
        total = 0.0
        for num_steps, loss in reversed(self._losses):
            if 10 * steps >= self.num_train_steps:
                break
            steps += num_steps
            total += num_steps * loss
        return (total / steps, steps) if steps else None

    def write_summary(
        self, last_checkpoint: str | None, error: BaseException | None = None
    ) -> None:
        """Logs the figures of the whole training and writes them to run_log.py.

        Args:
            last_checkpoint: the prefix of the newest checkpoint, if there is one.
            error: the error that ended the training early; None for none.
        """
        step = int(self._optimizer.global_step.numpy())
        final = self.final_loss()
        ended = FINISHED if step >= self.num_train_steps else STOPPED_EARLY
        wall_secs = time.monotonic() - self._start_secs
        earlier_secs = sum(
            line.get("wall_secs", 0.0) for line in run_log.read(self._output_dir, run_log.END)
        )
        figures = {
            "ended": type(error).__name__ if error else ended,
            "updates": step - self._first_step,
            "last_step": step,
            "wall_secs": wall_secs,
            **self._part_secs,
            READ_SECS: self.read_secs(),
            **self._speeds(self._measured),
            **peak_memory(),
            "skipped_updates": self._loss_scale.num_skipped if self._loss_scale else 0,
            "final_loss": final and final[0],
            "last_checkpoint": last_checkpoint,
            "restarts": max(0, len(run_log.trainings(self._output_dir)) - 1),
            "total_wall_secs": earlier_secs + wall_secs,
        }
        figures = {name: value for name, value in figures.items() if value is not None}
        texts = {name: _summary_text(name, value) for name, value in figures.items()}
        log_table("Training summary", texts)
        if last_checkpoint and error is None:
            logging.info(
                "The optimizer makes a checkpoint three times as large. This command writes a "
                "folder without it: official-bert convert_checkpoint --model=%s "
                "--output_format=tf1_weights --output_dir=FOLDER",
                os.path.dirname(last_checkpoint),
            )
        run_log.write_if_possible(self._output_dir, run_log.END, figures)

    def _speeds(self, past: _Interval) -> dict[str, float]:
        """Returns the speeds of an interval by the names of their scalars.

        Without an update there are none.
        """
        if not past.steps:
            return {}
        speeds = {
            "examples_per_second": past.examples / past.secs,
            "tokens_per_second": past.tokens / past.secs,
        }
        if self.utilization is not None:
            speeds[MFU] = self.utilization * speeds["examples_per_second"]
        return speeds

    def _now(self) -> _Interval:
        """Returns the interval from the start of the clock to now."""
        return _Interval(
            secs=time.monotonic(),
            steps=self._step,
            examples=self._examples,
            tokens=self._tokens,
        )


def _metric_text(item: tuple[str, float]) -> str:
    name, value = item
    return f"{name} {value:.4g}"


def _summary_text(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_secs"):
        return clock_time(value)
    return str(value) if isinstance(value, int) else f"{value:.5g}"


def write_eval_results(
    output_dir: str,
    results: Mapping[str, float],
    step: int,
    suffix: str = "",
    further: Mapping[str, float] = MappingProxyType({}),
    main_metric: str = "",
) -> None:
    """Writes eval_results.txt as the original does, logs it, and writes TensorBoard scalars.

    run.jsonl gets a line, too. A terminal shows only the main ones of many metrics.

    Args:
        output_dir: the folder of the file, and of the folder eval of the scalars.
        results: the metrics by name.
        step: the number of updates that the model has had.
        suffix: the suffix of a second set. "_mm" gives eval_results_mm.txt and eval_mm/.
        further: metrics that the original's file does not have. They are in the log, in
            TensorBoard and in run.jsonl only.
        main_metric: the metric of the task.
    """
    metrics = {**results, **further, "global_step": step}
    texts = {name: _format_number(name, value) for name, value in sorted(metrics.items())}
    log_table("Eval results", select_shown(texts, main_metric))
    path = os.path.join(output_dir, f"eval_results{suffix}.txt")
    with writing.replacing(path) as file:
        file.writelines(f"{name} = {text}\n" for name, text in texts.items() if name not in further)
    logging.info("Wrote %s", path)
    set_name = f"eval{suffix}"
    write_scalars(os.path.join(output_dir, set_name), {**results, **further}, step)
    line = {"step": step, "set": set_name}
    for name, value in {**results, **further}.items():
        line[name] = float(value)
    run_log.write_if_possible(output_dir, run_log.EVALUATION, line)


def select_shown(texts: Mapping[str, str], main_metric: str) -> Mapping[str, str]:
    """Returns the main ones of many metrics on a terminal, and elsewhere all of them.

    Args:
        texts: the metrics as texts, by name.
        main_metric: the metric of the task.
    """
    if not is_on_terminal() or len(texts) <= _MANY_METRICS:
        return texts
    shown = {*_SHOWN_METRICS, main_metric}
    return {name: text for name, text in texts.items() if name in shown}


def log_table(title: str, texts: Mapping[str, str]) -> None:
    """Logs numbers by name, one below the other.

    Args:
        title: the heading.
        texts: the numbers as texts, by name.
    """
    logging.info("***** %s *****", title)
    width = max(map(len, texts))
    for name, text in texts.items():
        logging.info("  %s = %s", name.ljust(width), text)


_last_writer = {}  # the writer of the folder that was written to last, by the folder


def write_scalars(folder: str, scalars: Mapping[str, float], step: int) -> None:
    """Writes the TensorBoard scalars of a step to a folder.

    Those of all evaluations of a run are in one file.

    Args:
        folder: the folder.
        scalars: the values by name.
        step: the number of updates that the model has had.
    """
    if folder not in _last_writer or not files.matching("events.out.tfevents.*", folder):
        _last_writer.clear()
        _last_writer[folder] = _event_writer(folder)
    _write_scalars(_last_writer[folder], scalars, step)


def _event_writer(folder: str):
    """Returns a writer of TensorBoard's event files, or on a full disk one that writes nothing."""
    try:
        return tf.summary.create_file_writer(folder)
    except tf.errors.OpError as error:
        logging.warning(
            "%s: TensorBoard gets no scalars (%s); make room on the disk", folder, brief(error)
        )
        return tf.summary.create_noop_writer()


def _write_scalars(writer: tf.summary.SummaryWriter, scalars: Mapping[str, float], step: int):
    """Writes scalars; a full disk costs the plot and not the run."""
    try:
        with writer.as_default(step=step), np.errstate(over="ignore"):
            for name, value in scalars.items():  # a value beyond float32 becomes inf
                tf.summary.scalar(_make_tag(name), np.float32(value))
        writer.flush()
    except tf.errors.OpError as error:
        logging.warning(
            "TensorBoard's scalars of step %d are lost (%s); make room on the disk",
            step,
            brief(error),
        )


def _make_tag(name: str) -> str:
    """Returns the tag of a metric; TensorBoard shows the scores of all labels as one group."""
    match = _label_score(name)
    return "/".join(match.groups()) if match else name


def _format_number(name: str, value: Any) -> str:
    """Returns a number as a text of eval_results.txt.

    It is a float32, the type of the original's metrics. Integers and thresholds are exact: a script
    compares scores with a threshold, so a rounded one could change the result.
    """
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return repr(float(value)) if name.endswith(_THRESHOLD_SUFFIXES) else str(np.float32(value))

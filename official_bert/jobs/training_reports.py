"""What a training tells of itself: progress lines, TensorBoard, the log of figures, and the summary at its end.

In: the sums of the steps since the last report. Out: the files of reporting.py, train_log.py and summary.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.modeling.flops import training_flops
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.training import TrainingOptions
from official_bert.training import loop, precision, reporting, summary, throughput
from official_bert.training.memory import peak_memory
from official_bert.training.step import GRADIENT_NORM


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
            options: the options of the script.
            strategy: the strategy whose replicas share each batch.
            config: the configuration of the model.
            optimizer: the optimizer, which knows the step and the learning rate.
            loss_scale: that of float16, or None.
            num_train_steps: updates in total, including earlier runs.
            num_frozen_layers: the number of layers without gradients.
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
        self._reporter = reporting.ProgressReporter(
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
        """Reports the steps since the last report.

        Args:
            step: the number of updates made so far.
            num_steps: the number of those since the last report.
            sums: their sums.
            metrics: what the objective makes of the sums, with the mean `loss`.
            unshown: metrics that the line has no room for.
        """
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
        """Writes the summary.

        Args:
            last_checkpoint: the newest checkpoint of the run.
            error: what ended the training before its time.
        """
        final = self.final_loss()
        ended = summary.FINISHED if self._step >= self._num_train_steps else summary.STOPPED_EARLY
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
        summary.write_summary(self._output_dir, figures)

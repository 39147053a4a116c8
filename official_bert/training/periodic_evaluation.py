"""Evaluations during training: their history, the best checkpoint, and early stopping."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping

from absl import logging

from official_bert.checkpoints import CheckpointManager
from official_bert.io.errors import InputError
from official_bert.training import reporting, run_log


@dataclasses.dataclass(kw_only=True, eq=False)
class PeriodicEvaluation:
    """Evaluates every few updates, and keeps the best weights; a `trainer.Hook`.

    It continues the history of the run. An InputError says that the history and the best checkpoint
    do not fit each other.

    Attributes:
        output_dir: the folder that this worker writes to.
        run_dir: the folder of the run, which has its history.
        every_steps: the number of updates between two evaluations.
        main_metric: the metric that chooses the best weights; nan is the worst.
        measure: evaluates the model and returns its metrics.
        best: the checkpoints of the best weights.
        first_step: the number of updates that the model has had.
        patience: the number of evaluations without a higher `main_metric` after which the training
            stops; None for no early stop.
        finish_saving: returns when the checkpoint of the step is complete. No result is kept before
            that.
    """

    output_dir: str
    run_dir: str
    every_steps: int
    main_metric: str
    measure: Callable[[], Mapping[str, float]]
    best: CheckpointManager
    first_step: int
    patience: int | None = None
    finish_saving: Callable[[], object] = lambda: None

    def __post_init__(self):
        # The values of the main metric by step; None stands for nan.
        self._values: dict[int, float | None] = {}
        # The main metric of the last evaluation of this process, for the bar.
        self.latest: dict[str, float] = {}
        for line in run_log.periodic_evaluations(self.run_dir):
            is_metric = isinstance(line.get(self.main_metric, ""), float | int | None)
            if line["step"] <= self.first_step and is_metric:
                self._values[line["step"]] = line[self.main_metric]
        self._check_best(os.path.join(self.run_dir, run_log.FILE))

    def _check_best(self, log: str):
        best = self.best
        if self._values and not best.latest:
            raise InputError(
                f"{best.output_dir}: the best checkpoint of the evaluations in {log} is gone; put "
                "it back, or give another --output_dir"
            )
        # A kill between the two leaves the best checkpoint of the last step without its line.
        step = best.latest_step() if best.latest else None
        if step is not None and step < self.first_step and step not in self._values:
            raise InputError(
                f"{log}: lacks the evaluation of step {step}, to which the best checkpoint in "
                f"{best.output_dir} belongs, so the best of the other steps would replace it; put "
                "the line back, or give another --output_dir"
            )

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Evaluates the model, unless an earlier run did so at this step.

        Args:
            step: the number of updates so far.
            metrics: the metrics of the last progress line, which are ignored.

        Returns:
            Whether the training stops here.
        """
        if step not in self._values:
            self._evaluate(step)
        best_step = self._best_step()
        since_best = sum(evaluated > best_step for evaluated in self._values)
        if self.patience is None or since_best < self.patience:
            return False
        logging.info(
            "Training stops early at step %d: no better %s than %.4g of step %d in %d evaluations",
            step,
            self.main_metric,
            self._value(best_step),
            best_step,
            since_best,
        )
        return True

    def _evaluate(self, step: int):
        metrics = {name: float(value) for name, value in self.measure().items()}
        # A run that is killed before resumes from an earlier step, and evaluates this one again.
        self.finish_saving()
        texts = {name: f"{value:.4g}" for name, value in sorted(metrics.items())}
        shown_texts = reporting.select_shown(texts, self.main_metric)
        reporting.log_table(f"Eval results at step {step}", shown_texts)
        if math.isnan(metrics[self.main_metric]):
            logging.warning("%s is not a number: it counts as the worst", self.main_metric)
        reporting.write_scalars(os.path.join(self.output_dir, "eval"), metrics, step)
        value = metrics[self.main_metric]
        self.latest = {self.main_metric: value}
        self._values[step] = value if math.isfinite(value) else None
        if self._best_step() == step:
            # Before the history: a kill in between only causes a second evaluation.
            self.best.save(step)
        run_log.write(self.output_dir, run_log.EVALUATION, {"step": step} | metrics)

    def _best_step(self) -> int:
        """Returns the step of the best evaluation, the first of equal ones."""
        return max(self._values, key=self._value)

    def _value(self, step: int) -> float:
        value = self._values[step]
        return -math.inf if value is None else value

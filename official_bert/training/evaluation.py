"""Evaluations during training: their history, the best checkpoint, and early stopping.

In: a function that evaluates the model. Out, in output_dir: eval_history.jsonl, and `best` with the best checkpoint.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping

from absl import logging

from official_bert.checkpoints import CheckpointManager
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.training import reporting

HISTORY_FILE = "eval_history.jsonl"


class PeriodicEvaluation:
    """Evaluates every few updates; a `loop.Evaluation`.

    Attributes:
        every_steps: updates between two evaluations.
    """

    def __init__(
        self,
        output_dir: str,
        run_dir: str,
        every_steps: int,
        patience: int | None,
        main_metric: str,
        measure: Callable[[], Mapping[str, float]],
        best: CheckpointManager,
        first_step: int,
    ):
        """Continues the history of the run.

        Args:
            patience: number of evaluations without improvement after which training stops; None for no early stopping.
            main_metric: key of the metric by which evaluations are compared, higher is better; nan is the worst.
            first_step: updates that the model has had; later entries of the history belong to weights that are lost.

        Raises:
            InputError: the run has a history, but its best weights are gone, or a line of the history is damaged.
        """
        self.every_steps, self._patience, self._main_metric = every_steps, patience, main_metric
        self._measure, self._best, self._output_dir = measure, best, output_dir
        self._history: dict[int, dict[str, float | None]] = {}
        path = os.path.join(run_dir, HISTORY_FILE)
        if files.exists(path):
            rows = (self._row(path, number, line) for number, line in enumerate(reading.read_lines(path), 1))
            self._history = {step: row for step, row in rows if step <= first_step}
        if self._history and not best.latest:
            raise InputError(
                f"{best.output_dir}: the best checkpoint of {path} is gone; put it back, or give another "
                "--output_dir"
            )

    def __call__(self, step: int) -> bool:
        """Evaluates the model, unless an earlier run did so at this step; returns whether training stops here."""
        if step not in self._history:
            self._evaluate(step)
        best_step = self._best_step()
        since_best = sum(evaluated > best_step for evaluated in self._history)
        if self._patience is None or since_best < self._patience:
            return False
        logging.info(
            "Training stops early at step %d: no better %s than %.4g of step %d in %d evaluations",
            step, self._main_metric, self._value(best_step), best_step, since_best,
        )  # fmt: skip
        return True

    def _evaluate(self, step: int):
        metrics = {name: float(value) for name, value in self._measure().items()}
        texts = {name: f"{value:.4g}" for name, value in sorted(metrics.items())}
        reporting.log_table(f"Eval results at step {step}", texts)
        if math.isnan(metrics[self._main_metric]):
            logging.warning("%s is not a number: it counts as the worst", self._main_metric)
        reporting.write_scalars(os.path.join(self._output_dir, "eval"), metrics, step)
        # JSON has no nan.
        self._history[step] = {
            name: value if math.isfinite(value) else None for name, value in metrics.items()
        }
        if self._best_step() == step:
            self._best.save(step)  # before the history: a kill in between only causes a second evaluation
        with writing.replacing(os.path.join(self._output_dir, HISTORY_FILE)) as file:
            file.writelines(json.dumps({"step": at} | row) + "\n" for at, row in self._history.items())

    def _row(self, path: str, number: int, line: str) -> tuple[int, dict[str, float | None]]:
        """Returns the step and the metrics of a line of the history."""
        where = f"{path}: line {number}"
        try:
            row = reading.parse_json(line, has_lines=False)
        except InputError as error:
            raise InputError(f"{where}: {error}; remove the line") from error
        step = field(row, "step", int, where)
        metrics = {name: value for name, value in row.items() if name != "step"}
        for name in {self._main_metric, *metrics}:
            if row.get(name, "") is not None:  # null stands for nan
                field(row, name, float, where)
        return step, metrics

    def _best_step(self) -> int:
        """Returns the step of the best evaluation, the first of equal ones."""
        return max(self._history, key=self._value)

    def _value(self, step: int) -> float:
        value = self._history[step][self._main_metric]
        return -math.inf if value is None else value

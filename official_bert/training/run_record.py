"""Reads what the folder of a training script records about its run."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from official_bert import catalog
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.options.fields import format_flag, without_flag
from official_bert.options.former_flags import upgrade_flags
from official_bert.training import run_log

SET = "data"  # the type of the lines about evaluated sets in run.jsonl
TRAINING_SET = "training_set"  # the field of a start with the same about the training set
PREDICTIONS_FILE = "eval_predictions{}.jsonl"
_RESULTS = "eval_results"
_DATA_FLAGS = (
    "data_dir",
    "train_file",
    "dev_file",
    "test_file",
    "predict_file",
    "input_file",
    "eval_input_file",
)
# Flags that say what a run does and where, and not how it trains.
_RUN_FLAGS = {"output_dir", "do_train", "do_eval", "do_predict", "report"}
# Flags that a call of Classifier.train implies, and those of which the argument has another name.
_IMPLIED_FLAGS = {
    "task_name",
    "output_dir",
    "do_train",
    "do_eval",
    "text_a_column",
    "text_b_column",
    "label_column",
    "label_type",
}
_ARGUMENTS = {"dev_fraction": "dev"}
# Without a recorded main metric, the first of these is shown.
_MAIN_METRICS = ("eval_accuracy", "eval_f1", "f1", "eval_spearman", "masked_lm_accuracy", "loss")

Line = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as its folder records it.

    Attributes:
        folder: the folder.
        name: the last part of its path.
    """

    folder: str

    @classmethod
    def read(cls, folder: str) -> RunRecord:
        """Returns the run of a folder.

        Args:
            folder: the --output_dir of a training script.

        Raises:
            InputError: the folder has no record of a run.
        """
        run = cls(folder)
        if not run.starts:
            raise InputError(
                f"{os.path.join(folder, run_log.FILE)}: has no record of a run; name the "
                "--output_dir of a training script"
            )
        return run

    @property
    def name(self) -> str:
        return os.path.basename(os.path.realpath(self.folder))

    @functools.cached_property
    def starts(self) -> Sequence[Line]:
        lines = run_log.read(self.folder, run_log.START)
        return [
            {**line, "flags": upgrade_flags(line["flags"])}
            for line in lines
            if isinstance(line.get("flags"), dict) and isinstance(line.get("script"), str)
        ]

    @functools.cached_property
    def start(self) -> Line:
        """The start of the last training or, without a training, the last start."""
        trainings = [line for line in self.starts if line.get("num_updates")]
        return (trainings or self.starts)[-1]

    @property
    def flags(self) -> Mapping[str, Any]:
        return self.start["flags"]

    @property
    def script(self) -> str:
        return self.start["script"]

    @functools.cached_property
    def train_lines(self) -> Sequence[Line]:
        return run_log.read(self.folder, run_log.TRAIN)

    @functools.cached_property
    def evaluations(self) -> Sequence[Line]:
        """The evaluations during training, in the order of their steps."""
        lines = run_log.periodic_evaluations(self.folder)
        return list({line["step"]: line for line in lines}.values())

    @functools.cached_property
    def end(self) -> Line | None:
        """The summary of the last training; None if it has not ended."""
        lines = run_log.read(self.folder, run_log.END)
        num_trainings = len([line for line in self.starts if line.get("num_updates")])
        return lines[-1] if lines and len(lines) >= num_trainings else None

    @functools.cached_property
    def results(self) -> dict[str, dict[str, float]]:
        """The last results of each evaluated set by its name, such as eval or eval_mm."""
        results = {}
        for path in files.matching(f"{_RESULTS}*.txt", self.folder):
            suffix = os.path.basename(path).removeprefix(_RESULTS).removesuffix(".txt")
            try:
                metrics = reading.read_metrics(path)
            except (ValueError, OSError):  # an edited file
                continue
            metrics.pop("global_step", None)
            results[f"eval{suffix}"] = metrics
        return results

    @functools.cached_property
    def sets(self) -> dict[str, Line]:
        """The last line about each evaluated set by its name."""
        return {line["set"]: line for line in run_log.read(self.folder, SET) if "set" in line}

    def predictions(self, set_name: str) -> list[dict[str, Any]]:
        """Returns the predictions for an evaluated set. Corrupt lines are left out.

        Args:
            set_name: the name of the set, such as eval_mm.
        """
        path = os.path.join(self.folder, PREDICTIONS_FILE.format(set_name.removeprefix("eval")))
        if not files.exists(path):
            return []
        records = []
        for line in reading.read_lines(path):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                records.append(record)
        return records

    @functools.cached_property
    def task(self) -> TaskRecord | None:
        return self._model.task() if self._model.task_file else None

    @functools.cached_property
    def labels(self) -> Sequence[str]:
        """The labels of the model, in the order of its outputs; empty without labels."""
        return self._model.labels() or ()

    @functools.cached_property
    def _model(self) -> ModelFolder:
        return ModelFolder(self.folder)

    @property
    def family(self) -> str:
        """The family of the task; "" if the folder has no model."""
        return self.task.family if self.task else ""

    @property
    def title(self) -> str:
        """What the model is for, in a few words."""
        name = self.task.task_name if self.task else self.script
        return str(self.flags.get("task_name") or name)

    @functools.cached_property
    def main_metric(self) -> str:
        """The metric that compares runs; "" if nothing was evaluated."""
        lines = [*self.sets.values(), self.start]
        recorded = [line["main_metric"] for line in lines if line.get("main_metric")]
        metrics = {name for results in self.results.values() for name in results}
        metrics.update(name for line in self.evaluations for name in line)
        candidates = [*recorded, *_MAIN_METRICS]
        return next((name for name in candidates if name in metrics), "")

    @property
    def headline(self) -> float | None:
        """The value of the main metric on the first evaluated set; None without it."""
        for results in self.results.values():
            if self.main_metric in results:
                return results[self.main_metric]
        best = self.best_evaluation
        return best[self.main_metric] if best else None

    @functools.cached_property
    def best_evaluation(self) -> Line | None:
        """The evaluation during training with the best main metric, the first of equal ones."""
        lines = [line for line in self.evaluations if is_number(line.get(self.main_metric))]
        if not lines:
            return None
        sign = -1 if self.main_metric.endswith("loss") else 1
        return max(lines, key=lambda line: sign * line[self.main_metric])

    @functools.cached_property
    def changed_flags(self) -> dict[str, Any]:
        """The flags that the user typed; of an earlier version those that are not defaults."""
        typed_flags = self.start.get(run_log.TYPED_FLAGS)
        if isinstance(typed_flags, dict):
            return typed_flags
        try:
            options_class = catalog.options_class(self.script)
        except (KeyError, ImportError):  # the script of an extension that is deleted
            return dict(self.flags)
        fields = dataclasses.fields(options_class)
        defaults = {field.name: without_flag(field) for field in fields}
        return {
            name: value
            for name, value in self.flags.items()
            if value not in (defaults.get(name, value), None)
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The changed flags that tell how the model is trained, without the seed."""
        ignored = {*_RUN_FLAGS, "random_seed"}
        return {name: value for name, value in self.changed_flags.items() if name not in ignored}

    @property
    def data(self) -> dict[str, Any]:
        """The flags that name the data."""
        return {name: self.flags[name] for name in _DATA_FLAGS if self.flags.get(name)}

    @property
    def base_model(self) -> str | None:
        """The checkpoint that the first training started from; None for random weights."""
        checkpoint = self.starts[0]["flags"].get("init_checkpoint")
        return str(checkpoint) if checkpoint else None

    @property
    def command(self) -> str:
        """The command that repeats the run, for a shell; for Classifier.train the call."""
        flags = {**self.changed_flags, "random_seed": self.start.get("seed")}
        if run_log.ROWS_DIGEST in self.start:
            return _format_call(flags)
        words = [f"official-bert {self.script}"]
        for name, value in flags.items():
            if value is not None:
                words.append(shlex.quote(format_flag(name, value)))
        return " \\\n  ".join(words)


def _format_call(flags: Mapping[str, Any]) -> str:
    """Returns the call of Classifier.train with some flags."""
    arguments = [repr(flags.get("output_dir")), "texts", "labels"]
    if flags.get("do_eval") and "dev_fraction" not in flags:
        arguments.append("dev=(dev_texts, dev_labels)")
    for name, value in flags.items():
        if name not in _IMPLIED_FLAGS and value is not None:
            arguments.append(f"{_ARGUMENTS.get(name, name)}={value!r}")
    lines = ",\n    ".join(arguments)
    return f"Classifier.train(\n    {lines},\n)"


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether a value of a line is a finite number.

    Args:
        value: the value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)

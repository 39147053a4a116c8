"""Measures the main metric of a task on its development set, for a model and for its exports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.io.errors import InputError
from official_bert.serving.export import TrainedModel
from official_bert.tasks.base import DataFiles, Task
from official_bert.training.loop import compiled_outputs, predict

_BATCH_SIZE = 32
Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class DevMetric:
    """The main metric of a task on its first development set.

    Attributes:
        name: the name of the metric.
        encoded: the examples of the set.
    """

    def __init__(self, built: TrainedModel, data_files: DataFiles, flag: str):
        """Reads and encodes the set.

        Args:
            built: the model.
            data_files: the files of the set.
            flag: the flag for which the metric is measured, for errors.

        Raises:
            InputError: the task has no development set, or no metric.
        """
        task_name = built.task_name
        task = built.task
        if not isinstance(task, Task):
            raise InputError(
                f"{flag}: --task_name={task_name} has no metric of a dev set; leave it out"
            )
        sets = task.read(data_files, "dev")
        if not sets:
            raise InputError(
                f"{flag}: --task_name={task_name} has no dev set with labels; leave it out"
            )
        examples = next(iter(sets.values()))
        self.name: str = task.main_metric
        self.encoded: EncodedSet = task.encode(
            examples, built.tokenizer, built.max_seq_length, "dev"
        )
        self._built = built
        self._task = task
        self._flag = flag

    def measure_model(self) -> float:
        """Returns the metric of the model."""
        task, model = self._task, self._built.model
        strategy = tf.distribute.get_strategy()
        return self._measure(
            compiled_outputs(strategy, lambda features: task.outputs(model, features))
        )

    def measure_export(self, run: Run) -> float:
        """Returns the metric of an export.

        Args:
            run: a function from the encoder's features to the outputs of `serving_default`.

        Raises:
            InputError: the outputs of the model do not follow from those of the export.
        """
        call_export: Any = functools.partial(self._call_as_model, run)
        return self._measure(functools.partial(self._task.outputs, call_export))

    def _measure(self, compute_outputs: Callable[[dict], dict]) -> float:
        task, encoded = self._task, self.encoded
        strategy = tf.distribute.get_strategy()
        length = self._built.max_seq_length
        outputs = predict(compute_outputs, strategy, encoded, _BATCH_SIZE, length, True)
        metrics = task.metrics(encoded, task.example_outputs(encoded, outputs))
        return float(metrics[task.main_metric])

    def _call_as_model(self, run: Run, features: Mapping[str, Any]) -> Any:
        """Returns the outputs of an export in the form of the model's outputs."""
        outputs = run({name: np.asarray(features[name]) for name in ENCODER_INPUTS})
        if "start_logits" in outputs:
            return outputs["start_logits"], outputs["end_logits"]
        if "score" in outputs:
            return outputs["score"][:, None]
        if "logits" in outputs:
            # An export divides its logits by the temperature.
            temperature = getattr(self._task, "temperature", None) or 1.0
            return outputs["logits"] * np.float32(temperature)
        if "embedding" not in outputs:
            raise InputError(
                f"{self._flag}: nothing is known of the outputs {', '.join(outputs)} of "
                f"--task_name={self._built.task_name}; leave it out"
            )
        return outputs["embedding"]

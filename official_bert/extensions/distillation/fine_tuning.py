"""Fine-tuning with a teacher: its outputs for the training set, and the losses against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import logging
from keras import ops

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.distillation.losses import find_soft_losses
from official_bert.extensions.distillation.options import DistillationOptions
from official_bert.extensions.distillation.teacher import open_teacher, teacher_metadata
from official_bert.features import EncodedSet
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.serving.export import TrainedModel
from official_bert.tasks import registry
from official_bert.tasks.base import Task, TaskObjective
from official_bert.training import distribution
from official_bert.training.loop import compiled_outputs, predict
from official_bert.training.step import Objective
from official_bert.training.trainer import Trainer

TEACHER_OUTPUTS = "teacher_outputs"  # A feature of the batches, float32[B, ...].
Tensor = Any  # A tensor of Keras; docstrings have its shape.


class FineTuningPlugin(TrainingPlugin):
    """Trains a task on the outputs of --teacher for the training set, and on the labels."""

    def __init__(self, options: FineTuningOptions, config: BertConfig, task: Task):
        """Reads the flags of the extension.

        Args:
            options: the flags of the run.
            config: the configuration of the student.
            task: the task.
        """
        self._flags = catalog.options_part(options, DistillationOptions)
        self._task = task
        self._teacher_outputs: np.ndarray | None = None
        if self._flags.teacher:
            task.learns_from_labels_alone = False

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Compute the outputs of the teacher; return its fields for run.jsonl."""
        path = self._flags.teacher
        if not path:
            return {}
        self._teacher_outputs, metadata = compute_teacher_outputs(run, self._task, path)
        return metadata

    def wrap_training_set(self, encoded: EncodedSet) -> EncodedSet:
        """Return the training set with the outputs of the teacher."""
        if self._teacher_outputs is None:
            return encoded
        return TeacherSet(encoded, self._teacher_outputs)

    def wrap_objective(self, objective: Objective) -> Objective:
        """Return the objective with the losses against the teacher."""
        if self._teacher_outputs is None:
            return objective
        return distill(objective, self._task, self._flags)

    def finish(self, trainer: Trainer) -> None:
        """Free the memory of the outputs."""
        self._teacher_outputs = None


def compute_teacher_outputs(
    run: TrainingRun, task: Task, path: str
) -> tuple[np.ndarray, dict[str, object]]:
    """Return the outputs of a teacher of the same task for a training set.

    Args:
        run: the training of the student.
        task: its task.
        path: the value of --teacher.

    Returns:
        The outputs, float32[n, ...], and `teacher_metadata`.

    Raises:
        InputError: the folder has no teacher for this task.
    """
    find_soft_losses(task)  # This rejects a task without such losses.
    options = run.options
    assert isinstance(options, FineTuningOptions)
    encoded = run.training_set
    teacher = open_teacher(path, run, options.max_seq_length)
    _check_task(path, options.task_name, task, teacher)
    logging.info("The teacher computes its outputs for %d examples ...", len(encoded.lengths))
    pads_to_longest = options.length_aware_batches and not distribution.is_tpu(run.strategy)
    assert isinstance(teacher.task, Task)  # It is the task of the student.
    reads_padding = getattr(teacher.task.objective(teacher.model), "reads_padding", False)
    compute = compiled_outputs(
        run.strategy, lambda features: {TEACHER_OUTPUTS: _stack(teacher.model(features))}
    )
    outputs = predict(
        compute,
        run.strategy,
        encoded,
        options.predict_batch_size,
        options.max_seq_length,
        pads_to_longest and not reads_padding,
    )
    return outputs[TEACHER_OUTPUTS], teacher_metadata(path, options.output_dir, teacher)


def _check_task(path: str, task_name: str, task: Task, teacher: TrainedModel):
    """Rejects a teacher of another task, of other labels, or of the same ones in another order."""
    teacher_name = teacher.options.task_name
    label_type = task.settings().get("label_type")
    teacher_type = teacher.task.settings().get("label_type")
    if not registry.is_same(teacher_name, task_name) or label_type != teacher_type:
        kind = f" of --label_type={teacher_type}" if teacher_type else ""
        raise InputError(
            f"--teacher={path}: was trained on {teacher_name}{kind}, not on {task_name}; name the "
            "--output_dir of a training on the same task"
        )
    labels = [str(label) for label in task.labels or ()]
    teacher_labels = [str(label) for label in teacher.task.labels or ()]
    if labels != teacher_labels:
        raise InputError(
            f"--teacher={path}: its outputs stand for {', '.join(teacher_labels)}, and those of "
            f"the student for {', '.join(labels)}; give data with the teacher's labels, for a text "
            "task with --labels in its order, or train another teacher"
        )


class TeacherSet:
    """An encoded set whose batches have a teacher's outputs, as the feature `teacher_outputs`."""

    # Their last bits depend on the processor.
    computed_features = (TEACHER_OUTPUTS,)

    def __init__(self, encoded: EncodedSet, teacher_outputs: np.ndarray):
        """Adds outputs to a set.

        Args:
            encoded: the set.
            teacher_outputs: float32[n, ...], or float32[n, length, ...] with a value for each
                token, which a batch gets up to its own length.
        """
        self._encoded, self._teacher_outputs = encoded, teacher_outputs
        self.lengths = encoded.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch with the feature `teacher_outputs`.

        Args:
            rows: the rows of the examples, int[b].
            length: the tokens of each row of the batch.

        Returns:
            The features by name.
        """
        outputs = self._teacher_outputs[rows]
        if outputs.ndim > 2:
            outputs = outputs[:, :length]
        return {**self._encoded.features(rows, length), TEACHER_OUTPUTS: outputs}


def distill(objective: Objective, task: Task, flags: DistillationOptions) -> TaskObjective:
    """Return the objective of a task with the losses against a teacher's outputs.

    Args:
        objective: the objective of the task.
        task: the task.
        flags: the weight and the temperature of the losses.

    Returns:
        The objective.

    Raises:
        InputError: the objective is no TaskObjective.
    """
    if not isinstance(objective, TaskObjective):
        raise InputError(
            f"--teacher: the objective of {type(task).__name__} is no TaskObjective; leave the "
            "flag out"
        )
    soft_losses = find_soft_losses(task)
    weight = flags.distillation_weight
    temperature = flags.distillation_temperature

    def change(label_losses: Callable) -> Callable:
        def compute_losses(model: Callable, features: dict) -> Tensor:
            label_features = dict(features)
            teacher_outputs = label_features.pop(TEACHER_OUTPUTS)
            outputs = model(label_features)  # One call serves both losses.
            soft = soft_losses(_stack(outputs), teacher_outputs, temperature)
            hard = label_losses(lambda _: outputs, label_features)
            return (1.0 - weight) * hard + weight * soft

        return compute_losses

    return objective.with_losses(change)


def _stack(outputs: Tensor | tuple) -> Tensor:
    """Returns the outputs of a model as one tensor, float32; several are stacked on a last axis."""
    if isinstance(outputs, tuple):
        outputs = ops.stack(outputs, axis=-1)
    return ops.cast(outputs, "float32")

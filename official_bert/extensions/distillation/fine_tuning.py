"""Fine-tuning with a teacher: its outputs for the training set, and the objective that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
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

TEACHER_OUTPUTS = "teacher_outputs"  # a feature of the batches, float32[B, ...]


class FineTuningPlugin(TrainingPlugin):
    """Trains a task on the outputs of --teacher for the training set, and on the labels."""

    def __init__(self, options: FineTuningOptions, config: BertConfig, task: Task):
        self._flags = catalog.options_part(options, DistillationOptions)
        self._task = task
        self._teacher_outputs: np.ndarray | None = None
        if self._flags.teacher:
            task.learns_from_labels_alone = False

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        if not self._flags.teacher:
            return {}
        self._teacher_outputs, metadata = compute_teacher_outputs(run, self._flags)
        return metadata

    def wrap_training_set(self, encoded: EncodedSet) -> EncodedSet:
        if self._teacher_outputs is None:
            return encoded
        return TeacherSet(encoded, self._teacher_outputs)

    def wrap_objective(self, objective: Objective) -> Objective:
        if self._teacher_outputs is None:
            return objective
        return distill(objective, self._task, self._flags)

    def finish(self, trainer: Trainer):
        self._teacher_outputs = None  # frees its memory


def compute_teacher_outputs(
    run: TrainingRun, flags: DistillationOptions
) -> tuple[np.ndarray, dict[str, object]]:
    """Returns the outputs of a teacher of the same task for a training set, float32[n, ...].

    The second result is `teacher_metadata`.
    """
    find_soft_losses(run.task)  # raises InputError if there are none
    options, strategy, encoded = run.options, run.strategy, run.training_set
    teacher = open_teacher(flags.teacher, run)
    _check_task(flags.teacher, options.task_name, run.task, teacher)
    logging.info("The teacher computes its outputs for %d examples ...", len(encoded.lengths))
    pads_to_longest = options.length_aware_batches and not distribution.is_tpu(strategy)
    reads_padding = getattr(teacher.task.objective(teacher.model), "reads_padding", False)
    compute = compiled_outputs(
        strategy, lambda features: {TEACHER_OUTPUTS: _stack(teacher.model(features))}
    )
    outputs = predict(
        compute,
        strategy,
        encoded,
        options.predict_batch_size,
        options.max_seq_length,
        pads_to_longest and not reads_padding,
    )
    return outputs[TEACHER_OUTPUTS], teacher_metadata(flags.teacher, options.output_dir, teacher)


def _check_task(path: str, task_name: str, task: Task, teacher: TrainedModel):
    """Refuses a teacher of another task, of other labels, or of the same ones in another order."""
    teacher_name = teacher.options.task_name
    label_type, teacher_type = (one.settings().get("label_type") for one in (task, teacher.task))
    if not registry.is_same(teacher_name, task_name) or label_type != teacher_type:
        kind = f" of --label_type={teacher_type}" if teacher_type else ""
        raise InputError(
            f"--teacher={path}: was trained on {teacher_name}{kind}, not on {task_name}; name the "
            "--output_dir of a training on the same task"
        )
    labels, teacher_labels = (
        [str(label) for label in one.labels or ()] for one in (task, teacher.task)
    )
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

    def features(self, rows: np.ndarray, length: int) -> Mapping[str, np.ndarray]:
        outputs = self._teacher_outputs[rows]
        if outputs.ndim > 2:
            outputs = outputs[:, :length]
        return self._encoded.features(rows, length) | {TEACHER_OUTPUTS: outputs}


def distill(objective: TaskObjective, task: Task, flags: DistillationOptions) -> TaskObjective:
    """Returns the objective of a task with the losses against a teacher's outputs."""
    if not hasattr(objective, "with_losses"):
        raise InputError(
            f"--teacher: the objective of {type(task).__name__} is no TaskObjective; leave the "
            "flag out"
        )
    soft_losses = find_soft_losses(task)
    weight, temperature = flags.distillation_weight, flags.distillation_temperature

    def change(label_losses: Callable) -> Callable:
        def losses(model, features):
            teacher_outputs = features[TEACHER_OUTPUTS]
            features = {name: value for name, value in features.items() if name != TEACHER_OUTPUTS}
            outputs = model(features)  # one call for both losses
            soft = soft_losses(_stack(outputs), teacher_outputs, temperature)
            return (1.0 - weight) * label_losses(lambda _: outputs, features) + weight * soft

        return losses

    return objective.with_losses(change)


def _stack(outputs) -> tf.Tensor:
    """Returns the outputs of a model as one tensor, float32; several are stacked on a last axis."""
    if isinstance(outputs, tuple):
        outputs = ops.stack(outputs, axis=-1)
    return ops.cast(outputs, "float32")

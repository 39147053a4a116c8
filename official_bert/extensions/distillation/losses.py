"""The losses against a teacher's outputs: of logits, and of each kind of task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keras import ops

from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import MULTI, SCORE
from official_bert.tasks.base import Task
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.tagging.task import TaggingTask

Tensor = Any  # A tensor of Keras; docstrings have its shape.


def soft_cross_entropy(logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the loss of a student's logits against a teacher's.

        T^2 sum_k p_k (log p_k - log q_k), p = softmax(teacher / T), q = softmax(logits / T)

    It is the cross-entropy with soft labels less the teacher's entropy, which is constant, so that
    0 is the least. Its gradients have the size of those of hard labels for every T. Source:
    Hinton et al. (2015), section 2.

    Args:
        logits: the logits of the student, float[..., classes].
        teacher_logits: the logits of the teacher, float[..., classes].
        temperature: T.

    Returns:
        float32[...].
    """
    log_q = ops.log_softmax(ops.cast(logits, "float32") / temperature)
    log_p = ops.log_softmax(ops.cast(teacher_logits, "float32") / temperature)
    return temperature**2 * ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)


def soft_binary_cross_entropy(
    logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0
) -> Tensor:
    """Return `soft_cross_entropy` for classes of which each is a yes or a no.

    Args:
        logits: the logits of the student, float[..., classes].
        teacher_logits: the logits of the teacher, float[..., classes].
        temperature: the temperature of both.

    Returns:
        The mean over the classes, float32[...].
    """
    x = ops.cast(logits, "float32") / temperature
    y = ops.cast(teacher_logits, "float32") / temperature
    # softplus(x) - x p is the cross-entropy of sigmoid(x) against p.
    differences = ops.softplus(x) - ops.softplus(y) - (x - y) * ops.sigmoid(y)
    return temperature**2 * ops.mean(differences, axis=-1)


def _classification_losses(
    task: ClassificationTask, outputs: Tensor, teacher_outputs: Tensor, temperature: float
) -> Tensor:
    """Returns the loss of each example, float32[B]; scores are compared as they are."""
    label_type = task.output_kind.label_type
    if label_type == SCORE:
        return ops.square(outputs[:, 0] - teacher_outputs[:, 0])
    loss = soft_binary_cross_entropy if label_type == MULTI else soft_cross_entropy
    return loss(outputs, teacher_outputs, temperature)


def _choice_losses(
    task: ChoiceTask, outputs: Tensor, teacher_outputs: Tensor, temperature: float
) -> Tensor:
    """Returns the loss of each example, float32[B]."""
    return soft_cross_entropy(outputs, teacher_outputs, temperature)


def _tagging_losses(
    task: TaggingTask, outputs: Tensor, teacher_outputs: Tensor, temperature: float
) -> Tensor:
    """Returns the loss of each token, float32[B*S]."""
    losses = soft_cross_entropy(outputs, teacher_outputs, temperature)
    return ops.reshape(losses, [-1])


def _squad_losses(
    task: SquadTask, outputs: Tensor, teacher_outputs: Tensor, temperature: float
) -> Tensor:
    """Returns the mean of the losses of start and end, float32[B]; softmaxes include padding."""
    logits = ops.transpose(outputs, (0, 2, 1))  # [B, 2, S]
    teacher_logits = ops.transpose(teacher_outputs, (0, 2, 1))
    losses = soft_cross_entropy(logits, teacher_logits, temperature)
    return ops.mean(losses, axis=-1)


_SOFT_LOSSES: Mapping[type[Task], Callable] = MappingProxyType(
    {
        ClassificationTask: _classification_losses,
        ChoiceTask: _choice_losses,
        TaggingTask: _tagging_losses,
        SquadTask: _squad_losses,
    }
)


def find_soft_losses(task: Task) -> Callable:
    """Return the function of a task's losses against a teacher.

    It is (outputs, teacher_outputs, temperature) -> float32[N], with one loss for each loss of the
    task's objective. The outputs are those of a call of the model, several of them stacked on a
    last axis: float32[B, ...], or float32[B, S, ...] with a value for each token.

    A task of another package defines it as its method `soft_losses`.

    Args:
        task: the task.

    Returns:
        The function.

    Raises:
        InputError: the task has no such losses.
    """
    method = getattr(task, "soft_losses", None)
    if method:
        return method
    for task_class, losses in _SOFT_LOSSES.items():
        if isinstance(task, task_class):
            return functools.partial(losses, task)
    raise InputError(
        f"--teacher: {type(task).__name__} has no method soft_losses; leave the flag out"
    )

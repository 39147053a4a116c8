"""The losses against a teacher's outputs: of logits, and of each kind of task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from keras import ops

from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import MULTI, SCORE
from official_bert.tasks.base import Task
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.tagging.task import TaggingTask


def soft_cross_entropy(logits, teacher_logits, temperature: float = 1.0):
    """Returns the loss of a student's logits against a teacher's, float32[...], of float[...,
    classes] both.

        T^2 sum_k p_k (log p_k - log q_k), p = softmax(teacher / T), q = softmax(logits / T)

    It is the cross-entropy with soft labels less the teacher's entropy, which is constant, so that
    0 is the least. Its gradients have the size of those of hard labels whatever T is. Source:
    Hinton et al. (2015), section 2.
    """
    log_q, log_p = (
        ops.log_softmax(ops.cast(one, "float32") / temperature) for one in (logits, teacher_logits)
    )
    return temperature**2 * ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)


def soft_binary_cross_entropy(logits, teacher_logits, temperature: float = 1.0):
    """Returns `soft_cross_entropy` where each class is a yes or a no: the mean over the classes."""
    x = ops.cast(logits, "float32") / temperature
    y = ops.cast(teacher_logits, "float32") / temperature
    # softplus(x) - x p is the cross-entropy of sigmoid(x) against p.
    differences = ops.softplus(x) - ops.softplus(y) - (x - y) * ops.sigmoid(y)
    return temperature**2 * ops.mean(differences, axis=-1)


def _classification_losses(task: ClassificationTask, outputs, teacher_outputs, temperature: float):
    """Returns the loss of each example, float32[B]; scores are compared as they are."""
    label_type = task.output_kind.label_type
    if label_type == SCORE:
        return ops.square(outputs[:, 0] - teacher_outputs[:, 0])
    loss = soft_binary_cross_entropy if label_type == MULTI else soft_cross_entropy
    return loss(outputs, teacher_outputs, temperature)


def _choice_losses(task: ChoiceTask, outputs, teacher_outputs, temperature: float):
    """Returns the loss of each example, float32[B]."""
    return soft_cross_entropy(outputs, teacher_outputs, temperature)


def _tagging_losses(task: TaggingTask, outputs, teacher_outputs, temperature: float):
    """Returns the loss of each token, float32[B*S]."""
    return ops.reshape(soft_cross_entropy(outputs, teacher_outputs, temperature), [-1])


def _squad_losses(task: SquadTask, outputs, teacher_outputs, temperature: float):
    """Returns the mean of the losses of start and end, float32[B]; softmaxes include padding."""
    # [B, 2, S].
    x, y = (ops.transpose(logits, (0, 2, 1)) for logits in (outputs, teacher_outputs))
    return ops.mean(soft_cross_entropy(x, y, temperature), axis=-1)


_SOFT_LOSSES: Mapping[type[Task], Callable] = MappingProxyType(
    {
        ClassificationTask: _classification_losses,
        ChoiceTask: _choice_losses,
        TaggingTask: _tagging_losses,
        SquadTask: _squad_losses,
    }
)


def find_soft_losses(task: Task) -> Callable:
    """Returns the function of a task's losses against a teacher.

    It is (outputs, teacher_outputs, temperature) -> float32[N], with one loss for each loss of the
    task's objective. The outputs are those of a call of the model, several of them stacked on a
    last axis: float32[B, ...], or float32[B, S, ...] with a value for each token.

    A task of another package defines it as its method `soft_losses`.
    """
    if method := getattr(task, "soft_losses", None):
        return method
    for task_class, losses in _SOFT_LOSSES.items():
        if isinstance(task, task_class):
            return functools.partial(losses, task)
    raise InputError(
        f"--teacher: {type(task).__name__} has no method soft_losses; leave the flag out"
    )

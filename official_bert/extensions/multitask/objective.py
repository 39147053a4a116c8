"""The objective of a joint training: the loss of a batch is that of its task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from official_bert.extensions.multitask.joint_set import TASK_NUMBER, select_features
from official_bert.training.step import StepObjective
from official_bert.training.whole_batch import ComparingObjective, WholeBatch


class _TaskLoss:
    """The loss of one task, with one total and the same sums for every kind of objective."""

    def __init__(self, name: str, objective: Any):
        self.name = name
        self.compares_batch = isinstance(objective, ComparingObjective)
        self._total_name = "weight"
        self._objective: StepObjective = objective
        if isinstance(objective, ComparingObjective):
            self._total_name = "examples"
            self._objective = WholeBatch(objective)
        self.reads_padding = getattr(objective, "reads_padding", False)

    def total(self, features: dict) -> tf.Tensor:
        """Returns the part of this replica in the sum that the loss is divided by, float32[]."""
        task_features = select_features(self.name, features)
        totals = self._objective.totals(task_features)
        total = totals[self._total_name]
        return tf.convert_to_tensor(total)

    def loss(self, features: dict, total: tf.Tensor, dropout_seed: tf.Tensor | None) -> tuple:
        """Returns the loss, its value for the log, and this replica's share of the update."""
        task_features = select_features(self.name, features)
        totals = {self._total_name: total}
        loss, sums = self._objective.loss(
            task_features,
            totals,
            dropout_seed,
        )
        share = self.total(features) / total
        return loss, sums["loss"], share


class MultitaskObjective:
    """The loss of a batch is that of the task of its examples; an `Objective` of training.

    Attributes:
        reads_padding: whether the length to which a training batch is padded changes the loss.
    """

    def __init__(self, objectives: Mapping[str, Any]):
        """Combines the objectives of tasks.

        Args:
            objectives: the objectives by the names of the tasks, in the order of their numbers.
        """
        self._losses: list[_TaskLoss] = []
        for name, objective in objectives.items():
            loss = _TaskLoss(name, objective)
            self._losses.append(loss)
        self._loss_sums = [f"loss_{name}" for name in objectives]
        self._update_sums = [f"updates_{name}" for name in objectives]
        self.sum_names = ("loss", *self._loss_sums, *self._update_sums)
        self.tensorboard_only = tuple(self._loss_sums)
        self.reads_padding = any(loss.reads_padding for loss in self._losses)

    @property
    def comparing_tasks(self) -> list[str]:
        """The tasks whose loss compares the examples of a batch."""
        return [loss.name for loss in self._losses if loss.compares_batch]

    def totals(self, features: dict) -> dict:
        """Returns the part of this replica in the sum that the loss is divided by.

        Args:
            features: the features of this replica's examples.
        """
        branches = []
        for loss in self._losses:
            branch = functools.partial(loss.total, features)
            branches.append(branch)
        total = self._choose(features, branches)
        return {"total": total}

    def loss(self, features: dict, totals: dict, dropout_seed: tf.Tensor | None) -> tuple:
        """Computes this replica's part of the loss.

        Args:
            features: the features of this replica's examples.
            totals: the value of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The loss, float32[], and the sums of `sum_names`: the loss, the loss of each task, and
            the number of updates of each task.
        """
        total = totals["total"]
        branches = []
        for task_loss in self._losses:
            branch = functools.partial(
                task_loss.loss,
                features,
                total,
                dropout_seed,
            )
            branches.append(branch)
        loss, value, share = self._choose(features, branches)
        sums = {"loss": value}
        number = features[TASK_NUMBER][0]
        for task_number, loss_sum in enumerate(self._loss_sums):
            is_task = number == task_number
            update_sum = self._update_sums[task_number]
            sums[loss_sum] = tf.where(is_task, value, 0.0)
            sums[update_sum] = tf.where(is_task, share, 0.0)
        return loss, sums

    def _choose(self, features: dict, branches: list[Callable[[], Any]]) -> Any:
        """Returns the result of the branch of the batch's task."""
        if len(branches) == 1:
            return branches[0]()
        return tf.switch_case(features[TASK_NUMBER][0], branches)

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps, and that of each task that had some of them.

        Args:
            sums: the sums of the steps, by name.
            num_steps: the number of these steps.
        """
        metrics = {"loss": sums["loss"] / num_steps}
        for loss_sum, update_sum in zip(self._loss_sums, self._update_sums, strict=True):
            num_updates = float(sums[update_sum])
            if num_updates > 0:
                metrics[loss_sum] = sums[loss_sum] / num_updates
        return metrics

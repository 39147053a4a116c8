"""The contract of a fine-tuning task: what the runner asks of it, and nothing else.

A task is one class like this. It hands the runner data sets (as numbers, without padding), a model, the loss of a
batch, what to keep of each prediction, metrics, and what an export answers. docs/adding_a_task.md makes one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np


class EncodedSet(Protocol):
    """A data set as a model reads it.

    Attributes:
        lengths: int[n], tokens of each example.
    """

    lengths: np.ndarray

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """A batch: the examples `rows`, int[b], padded to `length`; values [b, ...]."""


@runtime_checkable
class Task(Protocol):
    """A task.

    Attributes:
        main_metric: key of `metrics` by which checkpoints are compared; higher is better.
        untrained: what names of weights that no output reads begin with: they receive no gradient.
        labels: in the order of the model's outputs; None where there are none.
        num_choices: texts or pairs of an example, whose features are [B, choices, S]; None where they are [B, S].
    """

    main_metric: str
    untrained: tuple[str, ...]
    labels: Sequence[str] | None
    num_choices: int | None

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A Keras model with fresh weights: model(features, training, dropout_seed) -> its outputs."""

    def losses(self, model, features: dict):
        """The loss of each example or token, float32[N]; the calls of `model` have dropout in training."""

    def weights(self, features: dict):
        """How much each of those losses counts, float32[N]; known before the model runs."""

    def outputs(self, model, features: dict) -> dict:
        """What prediction keeps of each example, its loss included: a dict of [B, ...]."""

    def serving_outputs(self, model, features: dict) -> dict:
        """What a server answers: a dict of tensors [B, ...], strings among them; `features` are the encoder's alone."""

    def metrics(self, encoded: EncodedSet, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The official metrics of a set from the outputs of all its examples, in its order."""


@runtime_checkable
class TextTask(Protocol):
    """What a task has besides if an export of it can read raw text.

    Attributes:
        text_inputs: names of the strings of a request -> their shapes, such as [None] or [None, choices].
    """

    text_inputs: Mapping[str, Sequence[int | None]]

    def serving_text(self, model, texts: dict, reader) -> dict:
        """What a server answers to text: a dict of tensors [B, ...].

        Args:
            model: of the task.
            texts: string tensors by name, as in `text_inputs`.
            reader: a data.text_inputs.TextReader.
        """


class TaskObjective:
    """The weighted mean of a task's losses over a whole update, on every replica's share of it."""

    sum_names = ("loss", "weighted_loss", "weight")

    def __init__(self, task: Task, model):
        self.task, self.model = task, model

    def totals(self, features: dict) -> dict:
        """The weights that the loss divides by."""
        from keras import ops

        return {"weight": ops.sum(self.task.weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """This replica's share of the loss, float32[], and sums for the progress line."""
        from keras import ops

        model = functools.partial(self.model, training=dropout_seed is not None, dropout_seed=dropout_seed)
        weights = self.task.weights(features)
        weighted = ops.sum(self.task.losses(model, features) * weights)
        loss = weighted / totals["weight"]
        return loss, {"loss": loss, "weighted_loss": weighted, "weight": ops.sum(weights)}

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """The mean loss of some steps."""
        return {"loss": sums["loss"] / num_steps}

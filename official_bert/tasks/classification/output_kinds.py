"""What a classifier's outputs are: one label, several labels, or a score of each example.

An `OutputKind` has all that differs between them: loss, probabilities, predictions, metrics, and
what an export answers. `output_kind` chooses the kind of a processor.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.io.errors import InputError
from official_bert.metrics import calibration, classification
from official_bert.modeling.losses import cross_entropy
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE
from official_bert.tasks.classification.client import LIKELY
from official_bert.tasks.classification.processor import DataProcessor

Arrays = dict[str, np.ndarray]

LABEL_SCORES = ("precision", "recall", "f1")
# A processor that names one of these metrics, apart from "f1", gets all three of each label, and
# with two labels those of the second one, with more the averages.
PER_LABEL_METRICS = {
    f"{average}{name}" for average in ("", "micro_", "macro_") for name in LABEL_SCORES
}
_LABEL_METRICS = {
    "accuracy": classification.accuracy,
    "f1": classification.f1,
    "matthews": classification.matthews,
}
_SCORE_METRICS = {"pearson": classification.pearson, "spearman": classification.spearman}


class OutputKind(abc.ABC):
    """The outputs of a classifier for an example.

    Attributes:
        label_type: the value of --label_type.
        has_one_label: whether each example has one label.
        metric_names: the metrics that a processor can name.
    """

    label_type: ClassVar[str]
    has_one_label: ClassVar[bool] = False
    metric_names: ClassVar[frozenset[str]] = frozenset({*_LABEL_METRICS, *PER_LABEL_METRICS})

    @abc.abstractmethod
    def losses(self, logits, targets):
        """Returns the loss of each example, float32[B], for logits float32[B, outputs]."""

    @abc.abstractmethod
    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        """Returns the losses of the best constant output on a training set, float[n]."""

    @abc.abstractmethod
    def outputs(self, logits) -> dict:
        """Returns what is computed from logits, float32[B, outputs]: a dict of [B, ...]."""

    @abc.abstractmethod
    def window_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        """Returns what is computed from the pooled logits or scores of texts in windows."""

    @abc.abstractmethod
    def predictions(self, outputs: Arrays) -> np.ndarray:
        """Returns label ids, int[n]; with several labels 0 or 1, int[n, labels]; or scores."""

    @abc.abstractmethod
    def columns(self, outputs: Arrays) -> np.ndarray:
        """Returns the columns of test_results.tsv, float[n, columns]."""

    @abc.abstractmethod
    def answers(self, logits: tf.Tensor, labels: Sequence[str] | None) -> dict[str, tf.Tensor]:
        """Returns the outputs of an export for logits, with the labels as strings."""

    def metrics(
        self,
        names: Sequence[str],
        targets: np.ndarray,
        predictions: np.ndarray,
        labels: Sequence[str] | None,
    ) -> dict[str, float]:
        """Returns the metrics with these names, and those that come with them."""
        scores: dict[str, float] = {}
        has_label_scores = self.scores_labels(names)
        if has_label_scores:
            scores |= classification.per_label(targets, predictions, labels)
        for name in names:
            if not (has_label_scores and name in PER_LABEL_METRICS):
                scores |= _LABEL_METRICS[name](targets, predictions)
        return scores

    def scores_labels(self, names: Sequence[str]) -> bool:
        """Returns whether the metrics with these names need the scores of each label."""
        return not (PER_LABEL_METRICS - _LABEL_METRICS.keys()).isdisjoint(names)


class SingleLabel(OutputKind):
    """One label of an example: a softmax over the labels.

    Attributes:
        abstain_below: the probability below which the best label is no answer; None answers all.
    """

    label_type = SINGLE
    has_one_label = True

    def __init__(self, abstain_below: float | None = None):
        self.abstain_below = abstain_below

    def losses(self, logits, targets):
        return cross_entropy(logits, targets)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        shares = np.bincount(targets) / len(targets)
        return -np.log(shares)[targets]

    def outputs(self, logits) -> dict:
        return {"logits": logits, "probabilities": ops.softmax(logits)}

    def window_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {
            "probabilities": calibration.probabilities(pooled),
            "loss": calibration.losses(pooled, targets),
        }

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"].argmax(-1)

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"]

    def answers(self, logits: tf.Tensor, labels: Sequence[str] | None) -> dict[str, tf.Tensor]:
        """Returns `logits`, `probabilities`, and `label`, string[B], which is "" if the model
        abstains.
        """
        outputs = self.outputs(logits)
        best = tf.argmax(outputs["logits"], axis=-1)
        if self.abstain_below is None:
            return outputs | {"label": tf.gather(tf.constant(labels), best)}
        is_likely = tf.reduce_max(outputs["probabilities"], axis=-1) >= self.abstain_below
        chosen = tf.where(is_likely, best + 1, 0)
        return outputs | {"label": tf.gather(tf.constant(["", *labels]), chosen)}


class MultiLabel(OutputKind):
    """Any number of labels of an example: a sigmoid of each label."""

    label_type = MULTI

    def losses(self, logits, targets):
        """Returns the mean cross-entropy of all labels; targets are 0 and 1, [B, labels]."""
        targets = ops.cast(targets, "float32")
        # softplus(x) - x t is the cross-entropy of sigmoid(x) against t.
        return ops.mean(ops.softplus(logits) - logits * targets, axis=-1)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        # The probabilities of the values that the labels have.
        shares = np.where(targets, targets.mean(0), 1 - targets.mean(0))
        return -np.log(shares).mean(-1)

    def outputs(self, logits) -> dict:
        return {"logits": logits, "probabilities": ops.sigmoid(logits)}

    def window_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {
            "probabilities": calibration.probabilities(pooled, is_multi_label=True),
            "loss": calibration.losses(pooled, targets),
        }

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return (outputs["probabilities"] > LIKELY).astype(np.int32)

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"]

    def answers(self, logits: tf.Tensor, labels: Sequence[str] | None) -> dict[str, tf.Tensor]:
        """Returns `logits`, `probabilities`, and `labels`, string[B, labels]: those with a
        probability above 0.5, and "" in place of the others.
        """
        outputs = self.outputs(logits)
        # LiteRT lacks tf.where for strings.
        chosen = tf.where(outputs["probabilities"] > LIKELY, tf.range(1, len(labels) + 1), 0)
        return outputs | {"labels": tf.gather(tf.constant(["", *labels]), chosen)}


class Score(OutputKind):
    """A number of an example: regression with the squared error."""

    label_type = SCORE
    metric_names = frozenset(_SCORE_METRICS)

    def losses(self, logits, targets):
        return ops.square(logits[:, 0] - targets)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        return np.square(targets - np.mean(targets))

    def outputs(self, logits) -> dict:
        return {"score": logits[:, 0]}

    def window_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {"loss": np.square(pooled - targets)}

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return outputs["score"]

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["score"][:, None]

    def answers(self, logits: tf.Tensor, labels: Sequence[str] | None) -> dict[str, tf.Tensor]:
        return self.outputs(logits)

    def metrics(
        self,
        names: Sequence[str],
        targets: np.ndarray,
        predictions: np.ndarray,
        labels: Sequence[str] | None,
    ) -> dict[str, float]:
        scores: dict[str, float] = {}
        for name in names:
            scores |= _SCORE_METRICS[name](targets, predictions)
        return scores

    def scores_labels(self, names: Sequence[str]) -> bool:
        return False


def output_kind(processor: DataProcessor, abstain_below: float | None = None) -> OutputKind:
    """Returns the kind of the outputs that a processor's examples have.

    Raises:
        InputError: the processor names a metric that its outputs do not have.
    """
    if processor.is_regression:
        kind = Score()
    elif processor.is_multi_label:
        kind = MultiLabel()
    else:
        kind = SingleLabel(abstain_below)
    names = (*processor.metrics, processor.main_metric)
    if unknown := [name for name in names if name not in kind.metric_names]:
        raise InputError(
            f"{type(processor).__name__}: names the metric {unknown[0]}, which is none of "
            f"{', '.join(sorted(kind.metric_names))}; correct it"
        )
    return kind

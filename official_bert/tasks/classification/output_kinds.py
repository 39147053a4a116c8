"""What a classifier's outputs are: one label, several labels, or a score for each example.

An `OutputKind` has all that differs between them: loss, probabilities, predictions, metrics, and
the outputs of an export. `choose_output_kind` chooses the kind of a processor.
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
# A processor that names one of these metrics, apart from "f1", gets the three scores of each label.
# With two labels it also gets those of the second one without a prefix, with more the averages.
PER_LABEL_METRICS = {
    *LABEL_SCORES,
    *(f"micro_{name}" for name in LABEL_SCORES),
    *(f"macro_{name}" for name in LABEL_SCORES),
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
    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, float32[B].

        Args:
            logits: the logits, float32[B, outputs].
            targets: the `label_ids` of the examples, [B, ...].
        """

    @abc.abstractmethod
    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        """Return the losses of the best constant output on a training set, float[n].

        Args:
            targets: the `label_ids` of the set, [n, ...].
        """

    @abc.abstractmethod
    def outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of a batch, each [B, ...].

        Args:
            logits: the logits, float32[B, outputs].
        """

    @abc.abstractmethod
    def pooled_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        """Return the outputs and losses of texts that were read in windows, each [n, ...].

        Args:
            pooled: the pooled logits, float32[n, outputs], or scores, float32[n].
            targets: the `label_ids` of the texts, [n, ...].
        """

    @abc.abstractmethod
    def predictions(self, outputs: Arrays) -> np.ndarray:
        """Return label ids, int[n]; for several labels 0 or 1, int[n, labels]; or scores, float[n].

        Args:
            outputs: the outputs of a set, each [n, ...].
        """

    @abc.abstractmethod
    def columns(self, outputs: Arrays) -> np.ndarray:
        """Return the columns of test_results.tsv, float[n, columns].

        Args:
            outputs: the outputs of a set, each [n, ...].
        """

    @abc.abstractmethod
    def answers(self, logits: tf.Tensor, labels: Sequence[str]) -> dict[str, tf.Tensor]:
        """Return the outputs of an export, each [B, ...].

        Args:
            logits: the logits, float32[B, outputs].
            labels: the labels in the order of the outputs; empty in regression.
        """

    def metrics(
        self,
        names: Sequence[str],
        targets: np.ndarray,
        predictions: np.ndarray,
        labels: Sequence[str],
    ) -> dict[str, float]:
        """Return the named metrics, and those that come with them.

        Args:
            names: the names of the metrics, each of them in `metric_names`.
            targets: the `label_ids` of the examples, [n, ...].
            predictions: the predictions for them, [n, ...].
            labels: the labels in the order of the outputs; empty in regression.
        """
        scores: dict[str, float] = {}
        has_label_scores = self.has_label_scores(names)
        if has_label_scores:
            scores |= classification.per_label(targets, predictions, labels)
        for name in names:
            if not (has_label_scores and name in PER_LABEL_METRICS):
                scores |= _LABEL_METRICS[name](targets, predictions)
        return scores

    def has_label_scores(self, names: Sequence[str]) -> bool:
        """Return whether one of the named metrics needs the scores of each label.

        Args:
            names: the names of the metrics.
        """
        return not (PER_LABEL_METRICS - _LABEL_METRICS.keys()).isdisjoint(names)


class SingleLabel(OutputKind):
    """One label for each example: a softmax over the labels.

    Attributes:
        abstain_below: the probability below which the model abstains; None if it never does.
    """

    label_type = SINGLE
    has_one_label = True

    def __init__(self, abstain_below: float | None = None):
        self.abstain_below = abstain_below

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return cross_entropy(logits, targets)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        shares = np.bincount(targets) / len(targets)
        return -np.log(shares)[targets]

    def outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": logits, "probabilities": ops.softmax(logits)}

    def pooled_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {
            "probabilities": calibration.probabilities(pooled),
            "loss": calibration.losses(pooled, targets),
        }

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"].argmax(-1)

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"]

    def answers(self, logits: tf.Tensor, labels: Sequence[str]) -> dict[str, tf.Tensor]:
        """Return `logits`, `probabilities`, and `label`, string[B]: "" where the model abstains."""
        outputs = self.outputs(logits)
        best = tf.argmax(outputs["logits"], axis=-1)
        if self.abstain_below is None:
            return outputs | {"label": tf.gather(tf.constant(labels), best)}
        is_likely = tf.reduce_max(outputs["probabilities"], axis=-1) >= self.abstain_below
        chosen = tf.where(is_likely, best + 1, 0)
        return outputs | {"label": tf.gather(tf.constant(["", *labels]), chosen)}


class MultiLabel(OutputKind):
    """Any number of labels for each example: a sigmoid of each label."""

    label_type = MULTI

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Return the mean cross-entropy of all labels; targets are 0 and 1, [B, labels]."""
        targets = ops.cast(targets, "float32")
        # softplus(x) - x t is the cross-entropy of sigmoid(x) against t.
        return ops.mean(ops.softplus(logits) - logits * targets, axis=-1)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        # The best constant output is the share of the examples that have each label.
        label_shares = targets.mean(0)
        target_shares = np.where(targets, label_shares, 1 - label_shares)
        return -np.log(target_shares).mean(-1)

    def outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": logits, "probabilities": ops.sigmoid(logits)}

    def pooled_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {
            "probabilities": calibration.probabilities(pooled, is_multi_label=True),
            "loss": calibration.losses(pooled, targets),
        }

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return (outputs["probabilities"] > LIKELY).astype(np.int32)

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["probabilities"]

    def answers(self, logits: tf.Tensor, labels: Sequence[str]) -> dict[str, tf.Tensor]:
        """Return `logits`, `probabilities`, and `labels`, string[B, labels]: those with a
        probability above 0.5, and "" in place of the others.
        """
        outputs = self.outputs(logits)
        is_likely = outputs["probabilities"] > LIKELY
        # LiteRT lacks tf.where for strings.
        chosen = tf.where(is_likely, tf.range(1, len(labels) + 1), 0)
        return outputs | {"labels": tf.gather(tf.constant(["", *labels]), chosen)}


class Score(OutputKind):
    """A score for each example: regression with the squared error."""

    label_type = SCORE
    metric_names = frozenset(_SCORE_METRICS)

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return ops.square(logits[:, 0] - targets)

    def constant_losses(self, targets: np.ndarray) -> np.ndarray:
        return np.square(targets - np.mean(targets))

    def outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": logits[:, 0]}

    def pooled_outputs(self, pooled: np.ndarray, targets: np.ndarray) -> Arrays:
        return {"loss": np.square(pooled - targets)}

    def predictions(self, outputs: Arrays) -> np.ndarray:
        return outputs["score"]

    def columns(self, outputs: Arrays) -> np.ndarray:
        return outputs["score"][:, None]

    def answers(self, logits: tf.Tensor, labels: Sequence[str]) -> dict[str, tf.Tensor]:
        return self.outputs(logits)

    def metrics(
        self,
        names: Sequence[str],
        targets: np.ndarray,
        predictions: np.ndarray,
        labels: Sequence[str],
    ) -> dict[str, float]:
        scores: dict[str, float] = {}
        for name in names:
            scores |= _SCORE_METRICS[name](targets, predictions)
        return scores

    def has_label_scores(self, names: Sequence[str]) -> bool:
        return False


def choose_output_kind(processor: DataProcessor, abstain_below: float | None = None) -> OutputKind:
    """Return the kind of outputs that fits the examples of a processor.

    Args:
        processor: the processor.
        abstain_below: the probability below which a model of one label abstains; None for never.

    Raises:
        InputError: the processor names a metric that its outputs do not have.
    """
    if processor.is_regression:
        kind = Score()
    elif processor.is_multi_label:
        kind = MultiLabel()
    else:
        kind = SingleLabel(abstain_below)
    for name in (*processor.metrics, processor.main_metric):
        if name not in kind.metric_names:
            raise InputError(
                f"{type(processor).__name__}: names the metric {name}, which is none of "
                f"{', '.join(sorted(kind.metric_names))}; correct it"
            )
    return kind

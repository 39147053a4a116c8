"""Metrics of predicted classes: accuracy, F1, Matthews correlation, and precision, recall, F1 of each label.

In: numbers of classes, or for several labels at once a 0 or 1 for each. Out: {name: value}, fractions. What would be
divided by zero is 0: the precision of a label never predicted, the recall of one that never occurs, the F1 where both
are so, the correlation with a constant.
"""

from collections.abc import Sequence

import numpy as np


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """The share of right predictions, as `accuracy`.

    Args:
        targets: int[n], n > 0.
        predictions: int[n].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    return {"accuracy": float(np.mean(targets == predictions))}


def f1(targets: np.ndarray, predictions: np.ndarray, positive_class: int = 1) -> dict[str, float]:
    """F1 of one class against all others, as `f1`: GLUE's metric of MRPC and QQP.

    Args:
        targets: int[n], n > 0.
        predictions: int[n].
        positive_class: its number; that of "1" in GLUE's tasks is 1.
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    expected, predicted = targets == positive_class, predictions == positive_class
    return {
        "f1": precision_recall_f1(np.sum(expected & predicted), np.sum(predicted), np.sum(expected))["f1"]
    }


def matthews(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Matthews correlation, as `matthews`: GLUE's metric of CoLA and, of three classes, AX.

    With n examples, h of them right, and t_k targets and p_k predictions of class k (Gorodkin, 2004):

        (n h - sum t_k p_k) / sqrt((n^2 - sum t_k^2) (n^2 - sum p_k^2))

    Args:
        targets: int[n], n > 0.
        predictions: int[n].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    num_classes = int(max(targets.max(), predictions.max())) + 1
    num_targets = np.bincount(targets, minlength=num_classes)
    num_predicted = np.bincount(predictions, minlength=num_classes)
    num, num_right = len(targets), int(np.sum(targets == predictions))
    covariance = num * num_right - int(num_targets @ num_predicted)
    # Python's integers: the product of the variances goes beyond 64 bits.
    variances = (num**2 - int(num_targets @ num_targets)) * (num**2 - int(num_predicted @ num_predicted))
    return {"matthews": covariance / variances**0.5 if variances else 0.0}


def per_label(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """Precision, recall and F1 of all labels and of each.

    `precision`, `recall`, `f1` count the hits of all labels together (micro-average); with one label an example, each
    is the accuracy. `macro_...` are means over the labels, those without examples included. `..._<label>` are one
    label's.

    Args:
        targets: int[n] with one label an example, else 0 or 1 in int[n, len(labels)]; n > 0.
        predictions: likewise.
        labels: their names.
    """
    num_axes = min(np.ndim(targets), 2)
    targets, predictions = _checked(targets, predictions, num_axes)
    if num_axes == 1:
        num_labels = len(labels)
        hits = np.bincount(targets[targets == predictions], minlength=num_labels)
        num_predicted = np.bincount(predictions, minlength=num_labels)
        num_targets = np.bincount(targets, minlength=num_labels)
    else:
        targets, predictions = targets.astype(bool), predictions.astype(bool)
        hits = np.sum(targets & predictions, axis=0)
        num_predicted, num_targets = np.sum(predictions, axis=0), np.sum(targets, axis=0)
    each = {
        label: precision_recall_f1(*counts)
        for label, *counts in zip(labels, hits, num_predicted, num_targets, strict=True)
    }
    scores = precision_recall_f1(np.sum(hits), np.sum(num_predicted), np.sum(num_targets))
    macro = {f"macro_{name}": float(np.mean([one[name] for one in each.values()])) for name in scores}
    return scores | macro | {f"{name}_{label}": one[name] for label, one in each.items() for name in one}


def precision_recall_f1(num_hits: int, num_predicted: int, num_targets: int) -> dict[str, float]:
    """`precision`, `recall` and `f1` of counted things; 0 where nothing was counted.

    Args:
        num_hits: how many predicted things are right.
        num_predicted: how many were predicted.
        num_targets: how many there are.
    """
    return {
        "precision": _ratio(num_hits, num_predicted),
        "recall": _ratio(num_hits, num_targets),
        "f1": _ratio(2 * num_hits, num_predicted + num_targets),
    }


def _ratio(numerator: int, denominator: int) -> float:
    return float(numerator / denominator) if denominator else 0.0


def _checked(targets: np.ndarray, predictions: np.ndarray, num_axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays; numpy would take some faults for broadcasting."""
    targets, predictions = np.asarray(targets), np.asarray(predictions)
    if targets.shape != predictions.shape or targets.ndim != num_axes or not targets.size:
        raise ValueError(f"targets of shape {targets.shape} and predictions of shape {predictions.shape}")
    return targets, predictions

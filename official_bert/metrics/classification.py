"""Metrics of predicted classes and scores: fractions, or correlations from -1 to 1; GLUE's tasks
have most of them.

A metric whose denominator is zero is 0, such as the precision of a label that is never predicted. A
correlation of scores is nan if an array is constant or contains a nan; a search for the best value
must rank it below all numbers.
"""

from collections.abc import Sequence

import numpy as np


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the share of correct predictions, as `accuracy`; both arguments are int[n]."""
    targets, predictions = _checked(targets, predictions, num_axes=1)
    return {"accuracy": float(np.mean(targets == predictions))}


def f1(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the F1 of class 1 against all others, as `f1`: GLUE's metric for MRPC and QQP."""
    targets, predictions = _checked(targets, predictions, num_axes=1)
    expected = targets == 1
    predicted = predictions == 1
    scores = precision_recall_f1(
        num_true_positives=int(np.sum(expected & predicted)),
        num_predicted=int(np.sum(predicted)),
        num_targets=int(np.sum(expected)),
    )
    return {"f1": scores["f1"]}


def matthews(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the Matthews correlation, as `matthews`: GLUE's metric for CoLA and, with three
    classes, for AX.

    With n examples, h correct predictions, and t_k targets and p_k predictions of class k
    (Gorodkin, 2004):

        (n h - sum t_k p_k) / sqrt((n^2 - sum t_k^2) (n^2 - sum p_k^2))
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    num_classes = int(max(targets.max(), predictions.max())) + 1
    num_targets = np.bincount(targets, minlength=num_classes)
    num_predicted = np.bincount(predictions, minlength=num_classes)
    num, num_correct = len(targets), int(np.sum(targets == predictions))
    covariance = num * num_correct - int(num_targets @ num_predicted)
    # In Python's integers, because the product of the variances may exceed 64 bits.
    variances = (num**2 - int(num_targets @ num_targets)) * (
        num**2 - int(num_predicted @ num_predicted)
    )
    return {"matthews": covariance / variances**0.5 if variances else 0.0}


def per_label(
    targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]
) -> dict[str, float]:
    """Returns precision, recall and F1 of the labels.

    With two labels, one of them an example, `precision`, `recall` and `f1` are those of the second
    label, as in `f1`. Else `micro_...` are those of all labels together; with one label per
    example, each of them equals the accuracy. `macro_...` are means over the labels, including
    those without examples. `..._<label>` are the scores of one label. Targets and predictions are
    class ids, int[n], or 0 and 1 for each label, int[n, labels].
    """
    num_axes = min(np.ndim(targets), 2)
    targets, predictions = _checked(targets, predictions, num_axes)
    if num_axes == 1:
        num_labels = len(labels)
        true_positives = np.bincount(targets[targets == predictions], minlength=num_labels)
        num_predicted = np.bincount(predictions, minlength=num_labels)
        num_targets = np.bincount(targets, minlength=num_labels)
    else:
        targets, predictions = targets.astype(bool), predictions.astype(bool)
        true_positives = np.sum(targets & predictions, axis=0)
        num_predicted = np.sum(predictions, axis=0)
        num_targets = np.sum(targets, axis=0)
    each = {
        label: precision_recall_f1(*counts)
        for label, *counts in zip(labels, true_positives, num_predicted, num_targets, strict=True)
    }
    micro = precision_recall_f1(
        num_true_positives=int(np.sum(true_positives)),
        num_predicted=int(np.sum(num_predicted)),
        num_targets=int(np.sum(num_targets)),
    )
    is_binary = num_axes == 1 and len(labels) == 2
    micro_scores = {f"micro_{name}": score for name, score in micro.items()}
    scores = dict(each[labels[1]]) if is_binary else micro_scores
    for name in micro:
        label_scores = [one[name] for one in each.values()]
        scores[f"macro_{name}"] = float(np.mean(label_scores))
    for label, one in each.items():
        for name, score in one.items():
            scores[f"{name}_{label}"] = score
    return scores


def abstaining(
    targets: np.ndarray,
    predictions: np.ndarray,
    is_answered: np.ndarray,
    is_out_of_scope: np.ndarray,
) -> dict[str, float]:
    """Returns the scores of predictions of which only some are given as answers; all arguments are
    [n].

    `coverage` is the share of examples that are answered, `answered_accuracy` that of right answers
    among them. If examples are out of scope, whose right answer is none, `out_of_scope_recall` is
    the share of them that are not answered, and `in_scope_accuracy` the share of right answers to
    the others, whether they are answered or not.
    """
    is_right = (targets == predictions) & is_answered & ~is_out_of_scope
    found = {
        "coverage": float(np.mean(is_answered)),
        "answered_accuracy": _ratio(np.sum(is_right), np.sum(is_answered)),
    }
    if not is_out_of_scope.any():
        return found
    return found | {
        "in_scope_accuracy": float(np.mean(is_right[~is_out_of_scope])),
        "out_of_scope_recall": float(np.mean(~is_answered[is_out_of_scope])),
    }


def confusion_matrix(targets: np.ndarray, predictions: np.ndarray, num_labels: int) -> np.ndarray:
    """Counts the examples of each true label (a row) by the predicted label (a column):
    int64[labels, labels].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    pairs = targets.astype(np.int64) * num_labels + predictions
    return np.bincount(pairs, minlength=num_labels**2).reshape(num_labels, num_labels)


def precision_recall_f1(
    num_true_positives: int, num_predicted: int, num_targets: int
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1`; a score whose denominator is zero is 0."""
    return {
        "precision": _ratio(num_true_positives, num_predicted),
        "recall": _ratio(num_true_positives, num_targets),
        "f1": _ratio(2 * num_true_positives, num_predicted + num_targets),
    }


def pearson(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the Pearson correlation, as `pearson`; both arguments are float[n]."""
    return {"pearson": _correlation(*_checked(targets, predictions, 1, np.float64))}


def spearman(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the correlation of the ranks, as `spearman`; equal values all have the mean of
    their ranks.
    """
    targets, predictions = _checked(targets, predictions, 1, np.float64)
    if np.isnan(targets).any() or np.isnan(predictions).any():
        return {"spearman": float("nan")}
    return {"spearman": _correlation(_ranks(targets), _ranks(predictions))}


def _ratio(numerator: int, denominator: int) -> float:
    return float(numerator / denominator) if denominator else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, from 1: float64[n]."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if not all(np.isfinite(values).all() and np.ptp(values) for values in (first, second)):
        return float("nan")
    return float(np.clip(_unit(first) @ _unit(second), -1.0, 1.0))  # rounding errors can exceed 1


def _unit(values: np.ndarray) -> np.ndarray:
    """Subtracts the mean of the values and scales them to norm 1."""
    # Squares of large or small values would exceed the range of float64.
    values = values / np.abs(values).max()
    values = values - values.mean()
    return values / np.linalg.norm(values)


def _checked(
    targets: np.ndarray, predictions: np.ndarray, num_axes: int, dtype: type | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to arrays and validates their shapes; numpy would broadcast some shapes that
    differ.
    """
    targets, predictions = np.asarray(targets, dtype), np.asarray(predictions, dtype)
    if targets.shape != predictions.shape or targets.ndim != num_axes or not targets.size:
        raise ValueError(
            f"targets of shape {targets.shape} and predictions of shape {predictions.shape}"
        )
    return targets, predictions

"""Metrics of predicted classes and scores, most of them those of GLUE's tasks.

The metrics are fractions, or correlations from -1 to 1. A metric with a zero denominator is 0, such
as the precision of a label that is never predicted. A correlation of scores is nan if an array is
constant or contains a nan. Code that searches for the best value must rank nan below all numbers.
"""

from collections.abc import Sequence

import numpy as np

Scores = dict[str, float]
Arrays = tuple[np.ndarray, np.ndarray]


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> Scores:
    """Returns the share of correct predictions, as `accuracy`.

    Args:
        targets: the true classes, int[n].
        predictions: the predicted classes, int[n].

    Raises:
        ValueError: the arrays are empty, or their shapes are not the same [n].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    is_correct = targets == predictions
    return {"accuracy": _mean(is_correct)}


def f1(targets: np.ndarray, predictions: np.ndarray) -> Scores:
    """Returns the F1 of class 1 against all others, as `f1`: GLUE's metric for MRPC and QQP.

    Args:
        targets: the true classes, int[n].
        predictions: the predicted classes, int[n].

    Raises:
        ValueError: the arrays are empty, or their shapes are not the same [n].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    expected = targets == 1
    predicted = predictions == 1
    scores = precision_recall_f1(
        num_true_positives=_sum(expected & predicted),
        num_predicted=_sum(predicted),
        num_targets=_sum(expected),
    )
    return {"f1": scores["f1"]}


def matthews(targets: np.ndarray, predictions: np.ndarray) -> Scores:
    """Returns the Matthews correlation, as `matthews`: GLUE's metric for CoLA and AX.

    With n examples, h correct predictions, and t_k targets and p_k predictions of class k
    (Gorodkin, 2004):

        (n h - sum t_k p_k) / sqrt((n^2 - sum t_k^2) (n^2 - sum p_k^2))

    Args:
        targets: the true classes, int[n], from 0.
        predictions: the predicted classes, int[n], from 0.

    Raises:
        ValueError: the arrays are empty, or their shapes are not the same [n].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    last_class = max(targets.max(), predictions.max())
    num_classes = int(last_class) + 1
    num_targets = np.bincount(targets, minlength=num_classes)
    num_predicted = np.bincount(predictions, minlength=num_classes)
    num = len(targets)
    num_correct = _sum(targets == predictions)
    covariance = num * num_correct - int(num_targets @ num_predicted)
    # Python's integers are unbounded. The product of the variances may exceed 64 bits.
    target_variance = num**2 - int(num_targets @ num_targets)
    predicted_variance = num**2 - int(num_predicted @ num_predicted)
    variances = target_variance * predicted_variance
    if not variances:
        return {"matthews": 0.0}
    return {"matthews": covariance / variances**0.5}


def per_label(
    targets: np.ndarray,
    predictions: np.ndarray,
    labels: Sequence[str],
) -> Scores:
    """Returns precision, recall and F1 of the labels.

    Args:
        targets: class ids, int[n], or 0 and 1 for each label, int[n, labels].
        predictions: the same as `targets`.
        labels: the names of the labels.

    Returns:
        The scores by their names:

        - `precision`, `recall` and `f1`, the scores of the second label, if there are two labels
          and each example has one of them.
        - Otherwise `micro_...`, the scores from the counts of all labels together. If each example
          has one label, they all equal the accuracy.
        - `macro_...`, the means over the labels, including those without examples.
        - `..._<label>`, the scores of one label.
    """
    num_axes = min(np.ndim(targets), 2)
    targets, predictions = _checked(targets, predictions, num_axes)
    if num_axes == 1:
        num_labels = len(labels)
        correct = targets[targets == predictions]
        true_positives = np.bincount(correct, minlength=num_labels)
        num_predicted = np.bincount(predictions, minlength=num_labels)
        num_targets = np.bincount(targets, minlength=num_labels)
    else:
        targets = targets.astype(bool)
        predictions = predictions.astype(bool)
        true_positives = np.sum(targets & predictions, axis=0)
        num_predicted = np.sum(predictions, axis=0)
        num_targets = np.sum(targets, axis=0)
    scores_by_label = {}
    label_counts = zip(true_positives, num_predicted, num_targets, strict=True)
    for label, counts in zip(labels, label_counts, strict=True):
        scores_by_label[label] = precision_recall_f1(*counts)
    micro = precision_recall_f1(
        num_true_positives=_sum(true_positives),
        num_predicted=_sum(num_predicted),
        num_targets=_sum(num_targets),
    )
    scores = {}
    is_binary = num_axes == 1 and len(labels) == 2
    if is_binary:
        scores |= scores_by_label[labels[1]]
    else:
        scores |= {f"micro_{name}": score for name, score in micro.items()}
    for name in micro:
        values = [label_scores[name] for label_scores in scores_by_label.values()]
        scores[f"macro_{name}"] = _mean(values)
    for label, label_scores in scores_by_label.items():
        for name, score in label_scores.items():
            scores[f"{name}_{label}"] = score
    return scores


def abstaining(
    targets: np.ndarray,
    predictions: np.ndarray,
    is_answered: np.ndarray,
    is_out_of_scope: np.ndarray,
) -> Scores:
    """Returns the scores of a model that abstains from some predictions.

    Args:
        targets: the labels, int[n].
        predictions: the most probable labels, int[n].
        is_answered: bool[n], whether the model gives the prediction as its answer.
        is_out_of_scope: bool[n], whether the model should abstain because no label is right.

    Returns:
        The scores by their names:

        - `coverage`: the share of examples with an answer.
        - `answered_accuracy`: the share of answers that are correct.
        - `in_scope_accuracy`: the share of examples in scope with a correct answer.
        - `out_of_scope_recall`: the share of examples out of scope without an answer.

        Without examples out of scope the last two are absent.
    """
    is_in_scope = ~is_out_of_scope
    is_correct = (targets == predictions) & is_answered & is_in_scope
    scores = {
        "coverage": _mean(is_answered),
        "answered_accuracy": _ratio(_sum(is_correct), _sum(is_answered)),
    }
    if is_out_of_scope.any():
        is_abstained = ~is_answered
        scores["in_scope_accuracy"] = _mean(is_correct[is_in_scope])
        scores["out_of_scope_recall"] = _mean(is_abstained[is_out_of_scope])
    return scores


def confusion_matrix(
    targets: np.ndarray,
    predictions: np.ndarray,
    num_labels: int,
) -> np.ndarray:
    """Counts the examples of each true label (a row) by the predicted label (a column).

    Args:
        targets: the ids of the labels, int[n].
        predictions: the ids of the predicted labels, int[n].
        num_labels: the number of labels.

    Returns:
        int64[labels, labels].
    """
    targets, predictions = _checked(targets, predictions, num_axes=1)
    pairs = targets.astype(np.int64) * num_labels + predictions
    counts = np.bincount(pairs, minlength=num_labels**2)
    return counts.reshape(num_labels, num_labels)


def precision_recall_f1(
    num_true_positives: int,
    num_predicted: int,
    num_targets: int,
) -> Scores:
    """Returns `precision`, `recall` and `f1`; a score with a zero denominator is 0.

    Args:
        num_true_positives: the number of correct predictions.
        num_predicted: the number of predictions.
        num_targets: the number of targets.
    """
    num_both = num_predicted + num_targets
    return {
        "precision": _ratio(num_true_positives, num_predicted),
        "recall": _ratio(num_true_positives, num_targets),
        "f1": _ratio(2 * num_true_positives, num_both),
    }


def pearson(targets: np.ndarray, predictions: np.ndarray) -> Scores:
    """Returns the Pearson correlation, as `pearson`.

    Args:
        targets: the true scores, float[n].
        predictions: the predicted scores, float[n].

    Raises:
        ValueError: the arrays are empty, or their shapes are not the same [n].
    """
    targets, predictions = _checked_scores(targets, predictions)
    return {"pearson": _correlation(targets, predictions)}


def spearman(targets: np.ndarray, predictions: np.ndarray) -> Scores:
    """Returns the Spearman rank correlation, as `spearman`.

    Each of several equal values has the mean of their ranks.

    Args:
        targets: the true scores, float[n].
        predictions: the predicted scores, float[n].

    Raises:
        ValueError: the arrays are empty, or their shapes are not the same [n].
    """
    targets, predictions = _checked_scores(targets, predictions)
    is_nan = np.isnan(targets) | np.isnan(predictions)
    if is_nan.any():
        return {"spearman": float("nan")}
    correlation = _correlation(
        _ranks(targets),
        _ranks(predictions),
    )
    return {"spearman": correlation}


def _ratio(numerator: int, denominator: int) -> float:
    if not denominator:
        return 0.0
    return float(numerator / denominator)


def _sum(values: np.ndarray) -> int:
    return int(np.sum(values))


def _mean(values: np.ndarray | Sequence[float]) -> float:
    return float(np.mean(values))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, from 1: float64[n]."""
    _, value_index, counts = np.unique(
        values,
        return_inverse=True,
        return_counts=True,
    )
    distinct_ranks = np.cumsum(counts) - (counts - 1) / 2
    return distinct_ranks[value_index]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the Pearson correlation of two arrays, nan if one is constant or not finite."""
    for values in (first, second):
        if not np.isfinite(values).all() or not np.ptp(values):
            return float("nan")
    correlation = _centered_unit_vector(first) @ _centered_unit_vector(second)
    # Rounding can move the result beyond 1 or -1.
    return float(np.clip(correlation, -1.0, 1.0))


def _checked_scores(targets: np.ndarray, predictions: np.ndarray) -> Arrays:
    """Does what `_checked` does, for float64[n]."""
    return _checked(
        targets,
        predictions,
        num_axes=1,
        dtype=np.float64,
    )


def _centered_unit_vector(values: np.ndarray) -> np.ndarray:
    """Subtracts the mean of the values and scales them to norm 1."""
    # Otherwise squares of very large or small values would overflow or underflow.
    values = values / np.abs(values).max()
    values = values - values.mean()
    return values / np.linalg.norm(values)


def _checked(
    targets: np.ndarray,
    predictions: np.ndarray,
    num_axes: int,
    dtype: type | None = None,
) -> Arrays:
    """Converts targets and predictions to arrays, and checks that their shapes are equal.

    NumPy would broadcast some shapes that differ.
    """
    targets = np.asarray(targets, dtype)
    predictions = np.asarray(predictions, dtype)
    has_axes = targets.ndim == num_axes and targets.size > 0
    if targets.shape != predictions.shape or not has_axes:
        raise ValueError(
            f"targets of shape {targets.shape} and predictions of shape {predictions.shape}"
        )
    return targets, predictions

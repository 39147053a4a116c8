"""Logits, the probabilities that they stand for, and how well these tell how often a model is
right.

Logits are float[n, labels]. Targets are the ids of the labels, int[n], or 0 and 1 for each label of
an example that may have several, int[n, labels].
"""

from typing import NamedTuple

import numpy as np

LOWEST, HIGHEST = 0.05, 20.0  # temperatures
RELIABILITY_FILE = "reliability{}.tsv"  # of the bins of an evaluation, by the suffix of its files
NUM_BINS = 15
_HALVINGS = 50  # of the interval of the temperature's logarithm


def probabilities(logits: np.ndarray, is_multi_label: bool = False) -> np.ndarray:
    """Returns the softmax of logits or, of several labels an example, the sigmoid of each, in
    the logits' type.
    """
    if is_multi_label:
        return np.exp(-np.logaddexp(0, -logits))
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def losses(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each example, float[n]; of several labels the mean of theirs."""
    if targets.ndim == 2:
        return (np.logaddexp(0, logits) - logits * targets).mean(axis=-1)
    highest = logits.max(axis=-1)
    at_target = np.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return highest + np.log(np.exp(logits - highest[:, None]).sum(axis=-1)) - at_target


def best_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns the temperature, from LOWEST to HIGHEST, for which the mean loss of `logits /
    temperature` is least.

    Guo et al. (2017), On calibration of modern neural networks. The loss is convex in 1 /
    temperature.
    """
    logits, is_multi_label = logits.astype(np.float64), targets.ndim == 2
    wanted = targets if is_multi_label else np.eye(logits.shape[-1])[targets]
    low, high = np.log(1 / HIGHEST), np.log(1 / LOWEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = np.sum((probabilities(np.exp(middle) * logits, is_multi_label) - wanted) * logits)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float(np.clip(np.exp(-(low + high) / 2), LOWEST, HIGHEST))


class Bins(NamedTuple):
    """Predictions by their probability, in bins of equal width from 0 to 1, each [bins]; an empty
    bin has zeros.

    Attributes:
        counts: how many predictions have a probability in a bin.
        confidences: their mean probability.
        shares: the share of them that are right.
    """

    counts: np.ndarray
    confidences: np.ndarray
    shares: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the mean difference of probability and share over all
        predictions.
        """
        return float(
            np.sum(self.counts * np.abs(self.shares - self.confidences)) / np.sum(self.counts)
        )


def reliability(logits: np.ndarray, targets: np.ndarray, num_bins: int = NUM_BINS) -> Bins:
    """Sorts predictions into bins: the most probable label of each example or, of several, each
    label by itself.
    """
    chances = probabilities(logits, targets.ndim == 2)
    if targets.ndim == 2:
        confidences, is_right = chances.ravel(), targets.ravel()
    else:
        confidences, is_right = chances.max(axis=-1), chances.argmax(axis=-1) == targets
    # A bin has its upper bound.
    bins = np.clip(np.ceil(confidences * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sums = (np.bincount(bins, values, num_bins) for values in (confidences, is_right))
    return Bins(counts, *(each / np.maximum(counts, 1) for each in sums))

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
    target_logits = np.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    exponents = np.exp(logits - highest[:, None])
    return highest + np.log(exponents.sum(axis=-1)) - target_logits


def best_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns the temperature, from LOWEST to HIGHEST, for which the mean loss of `logits /
    temperature` is least.

    Guo et al. (2017), On calibration of modern neural networks. The loss is convex in 1 /
    temperature.
    """
    logits = logits.astype(np.float64)
    is_multi_label = targets.ndim == 2
    target_shares = targets if is_multi_label else np.eye(logits.shape[-1])[targets]
    # Halve the interval of the logarithm of 1 / temperature by the sign of the loss's slope.
    low = np.log(1 / HIGHEST)
    high = np.log(1 / LOWEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        scaled_logits = np.exp(middle) * logits
        errors = probabilities(scaled_logits, is_multi_label) - target_shares
        slope = np.sum(errors * logits)
        if slope < 0:
            low = middle
        else:
            high = middle
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
        gaps = np.abs(self.shares - self.confidences)
        return float(np.sum(self.counts * gaps) / np.sum(self.counts))


def reliability(logits: np.ndarray, targets: np.ndarray, num_bins: int = NUM_BINS) -> Bins:
    """Sorts predictions into bins: the most probable label of each example or, of several, each
    label by itself.
    """
    chances = probabilities(logits, targets.ndim == 2)
    if targets.ndim == 2:
        confidences = chances.ravel()
        is_right = targets.ravel()
    else:
        confidences = chances.max(axis=-1)
        is_right = chances.argmax(axis=-1) == targets
    # A bin includes its upper bound.
    bins = np.ceil(confidences * num_bins).astype(int) - 1
    bins = np.clip(bins, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    divisors = np.maximum(counts, 1)
    return Bins(
        counts=counts,
        confidences=np.bincount(bins, confidences, num_bins) / divisors,
        shares=np.bincount(bins, is_right, num_bins) / divisors,
    )

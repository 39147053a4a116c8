"""Computes probabilities from logits, and measures and improves their calibration.

Probabilities are calibrated if they equal the share of predictions that are correct.

Logits are float[n, labels]. Targets are the ids of the labels, int[n]. If an example may have
several labels, they are 0 or 1 for each label, int[n, labels].
"""

from typing import NamedTuple

import numpy as np

# The range of temperatures.
LOWEST = 0.05
HIGHEST = 20.0
# The file of an evaluation's bins; the evaluation's suffix goes between the braces.
RELIABILITY_FILE = "reliability{}.tsv"
NUM_BINS = 15
# How often the interval of the temperature's logarithm is halved.
_NUM_HALVINGS = 50


def probabilities(
    logits: np.ndarray,
    is_multi_label: bool = False,
) -> np.ndarray:
    """Returns the probabilities of logits, in the same shape and type.

    Args:
        logits: float[..., labels].
        is_multi_label: whether an example may have several labels. The probabilities are then the
            sigmoid of each logit, otherwise the softmax.
    """
    if is_multi_label:
        return np.exp(-np.logaddexp(0, -logits))
    highest = logits.max(axis=-1, keepdims=True)
    exponents = np.exp(logits - highest)
    return exponents / exponents.sum(axis=-1, keepdims=True)


def losses(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each example, float[n].

    If an example may have several labels, it is the mean of the labels' cross-entropies.

    Args:
        logits: float[n, labels].
        targets: the ids of the labels, int[n]; if an example may have several labels, 1 for each of
            its labels and 0 for the others, [n, labels].
    """
    if targets.ndim == 2:
        label_losses = np.logaddexp(0, logits) - logits * targets
        return label_losses.mean(axis=-1)
    highest = logits.max(axis=-1)
    target_logits = np.take_along_axis(
        logits,
        targets[:, None],
        axis=-1,
    )
    exponents = np.exp(logits - highest[:, None])
    log_sums = np.log(exponents.sum(axis=-1))
    return highest + log_sums - target_logits[:, 0]


def best_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns the temperature for which the mean loss of `logits / temperature` is lowest.

    It is in the range from LOWEST to HIGHEST. See Guo et al. (2017), On calibration of modern
    neural networks. The loss is convex in 1 / temperature.

    Args:
        logits: float[n, labels].
        targets: the targets, as in `losses`.
    """
    logits = logits.astype(np.float64)
    is_multi_label = targets.ndim == 2
    target_shares = targets
    if not is_multi_label:
        num_labels = logits.shape[-1]
        target_shares = np.eye(num_labels)[targets]
    # Halve the interval of the logarithm of 1 / temperature by the sign of the loss's slope.
    low = np.log(1 / HIGHEST)
    high = np.log(1 / LOWEST)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        scaled_logits = np.exp(middle) * logits
        shares = probabilities(scaled_logits, is_multi_label)
        slope = np.sum((shares - target_shares) * logits)
        if slope < 0:
            low = middle
        else:
            high = middle
    temperature = np.exp(-(low + high) / 2)
    temperature = np.clip(temperature, LOWEST, HIGHEST)
    return float(temperature)


class Bins(NamedTuple):
    """Predictions by their probability, in bins of equal width from 0 to 1.

    Attributes:
        counts: int[bins], the number of predictions with a probability in each bin.
        confidences: float[bins], their mean probability, 0 for an empty bin.
        shares: float[bins], the share of them that is correct, 0 for an empty bin.
    """

    counts: np.ndarray
    confidences: np.ndarray
    shares: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the mean absolute difference of probability and share
        over all predictions.
        """
        gaps = np.abs(self.shares - self.confidences)
        weighted_sum = np.sum(self.counts * gaps)
        return float(weighted_sum / np.sum(self.counts))


def reliability(
    logits: np.ndarray,
    targets: np.ndarray,
    num_bins: int = NUM_BINS,
) -> Bins:
    """Sorts predictions into bins by their probability.

    A prediction is the most probable label of an example. If an example may have several labels,
    each of its labels is a prediction.

    Args:
        logits: float[n, labels].
        targets: the targets, as in `losses`.
        num_bins: the number of bins, which divide the probabilities from 0 to 1 evenly.
    """
    is_multi_label = targets.ndim == 2
    chances = probabilities(logits, is_multi_label)
    if is_multi_label:
        confidences = chances.ravel()
        is_correct = targets.ravel()
    else:
        confidences = chances.max(axis=-1)
        is_correct = chances.argmax(axis=-1) == targets
    # A bin includes its upper bound.
    bins = np.ceil(confidences * num_bins).astype(int) - 1
    bins = np.clip(bins, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    divisors = np.maximum(counts, 1)
    confidence_sums = np.bincount(bins, confidences, num_bins)
    correct_counts = np.bincount(bins, is_correct, num_bins)
    return Bins(
        counts=counts,
        confidences=confidence_sums / divisors,
        shares=correct_counts / divisors,
    )

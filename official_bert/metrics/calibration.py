"""Logits and the probabilities that they stand for, in numpy.

Logits are float[n, labels]. Targets are the ids of the labels, int[n], or 0 and 1 for each label of an example that may
have several, int[n, labels].
"""

import numpy as np


def probabilities(logits: np.ndarray, is_multi_label: bool = False) -> np.ndarray:
    """Returns the softmax of logits or, of several labels an example, the sigmoid of each, in the logits' type."""
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

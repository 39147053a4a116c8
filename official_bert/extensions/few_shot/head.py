"""The logistic regression on the vectors of texts, as the weights of a linear layer."""

from typing import NamedTuple

import numpy as np

from official_bert.io.errors import InputError

_MAX_ITERATIONS = 1000


class LinearLayer(NamedTuple):
    """The weights of a head.

    Attributes:
        weights: float32[labels, width].
        bias: float32[labels].
    """

    weights: np.ndarray
    bias: np.ndarray


def check_installed() -> None:
    """Checks that scikit-learn can be imported.

    Raises:
        InputError: it cannot.
    """
    try:
        import sklearn.linear_model  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"few-shot training needs scikit-learn, which cannot be imported ({error}); pip "
            "install 'official-bert[evaluation]'"
        ) from None


def fit(
    vectors: np.ndarray, label_ids: np.ndarray, num_labels: int, inverse_strength: float
) -> LinearLayer:
    """Fits a logistic regression with scikit-learn.

    Args:
        vectors: the vectors of the training texts, float32[n, width].
        label_ids: their labels, int[n]; each of the labels occurs.
        num_labels: the number of labels, at least 2.
        inverse_strength: the inverse strength of the regularization.

    Returns:
        The layer whose softmax is the probability of each label.

    Raises:
        InputError: scikit-learn is not installed.
    """
    check_installed()
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=inverse_strength, max_iter=_MAX_ITERATIONS)
    regression.fit(np.asarray(vectors, np.float64), label_ids)
    weights, bias = regression.coef_, regression.intercept_
    if num_labels == 2:  # scikit-learn has the weights of the second label only.
        weights = np.concatenate([np.zeros_like(weights), weights])
        bias = np.concatenate([np.zeros_like(bias), bias])
    return LinearLayer(weights.astype(np.float32), bias.astype(np.float32))

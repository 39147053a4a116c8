"""Tests of the logistic regression: its loss has no gradient where it ends."""

import sys

import numpy as np
import pytest

from official_bert.extensions.few_shot import head
from official_bert.io.errors import InputError

WIDTH = 4


@pytest.mark.parametrize("num_labels", [2, 3])
@pytest.mark.parametrize("inverse_strength", [0.5, 8.0])
def test_the_head_is_the_best_one(num_labels, inverse_strength):
    """The loss is the sum of the cross-entropies and of the squared weights / (2 C)."""
    generator = np.random.default_rng(num_labels)
    label_ids = np.arange(60) % num_labels
    vectors = generator.normal(size=(60, WIDTH)) + label_ids[:, None]

    layer = head.fit(vectors, label_ids, num_labels, inverse_strength)

    assert layer.weights.dtype == layer.bias.dtype == np.float32
    logits = vectors @ layer.weights.T + layer.bias
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    errors = powers / powers.sum(axis=1, keepdims=True) - np.eye(num_labels)[label_ids]
    gradient = errors.T @ vectors + layer.weights / inverse_strength
    first = 0
    if num_labels == 2:  # the weights of the first label stay 0
        np.testing.assert_array_equal(layer.weights[0], 0)
        first = 1
    np.testing.assert_allclose(gradient[first:], 0, atol=0.02)
    np.testing.assert_allclose(errors.sum(axis=0), 0, atol=0.02)


def test_an_error_says_how_to_install_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(InputError, match=r"pip install 'official-bert\[evaluation\]'"):
        head.fit(np.zeros((2, 2)), np.array([0, 1]), 2, 1.0)

"""Cross-entropy and its gradient against numpy in float64, at usual and at extreme logits."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.losses import cross_entropy


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_values_and_gradient(scale):
    random = np.random.default_rng(0)
    logits = (random.normal(size=(7, 300)) * scale).astype(np.float32)
    labels = random.integers(0, 300, 7).astype(np.int32)
    upstream = random.normal(size=7).astype(np.float32)

    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = np.eye(300)[labels]

    x = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = cross_entropy(x, labels)
    np.testing.assert_allclose(losses, -(log_probs * one_hot).sum(axis=1), rtol=1e-6, atol=1e-6)
    expected = (np.exp(log_probs) - one_hot) * upstream[:, None]
    np.testing.assert_allclose(tape.gradient(losses, x, output_gradients=upstream), expected, atol=1e-6)


def test_a_certain_prediction_costs_nothing():
    np.testing.assert_array_equal(cross_entropy(tf.constant([[0.0, 200.0]]), tf.constant([1])), [0.0])

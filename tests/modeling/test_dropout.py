"""Dropout: rate, scale, independence, and equal masks with and without XLA."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.layers import dropout

SEED = tf.constant([5, 7])


@pytest.mark.parametrize("width", [64, 63])  # two decisions share a random word, the last of an odd count has one alone
def test_share_of_zeros_and_scale_of_the_rest(width):
    x = tf.ones([3999, width])
    dropped = dropout(x, 0.1, SEED, index=3).numpy()
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.9)}
    deviation = np.sqrt(0.1 * 0.9 / dropped.size)
    assert abs((dropped == 0).mean() - 0.1) < 4 * deviation + 1e-5


def test_decisions_are_unrelated():
    """Those of other seeds and places in the model, and those beside one another."""
    x = tf.ones([2000, 64])
    masks = [
        dropout(x, 0.5, seed, index).numpy() == 0
        for seed in (SEED, tf.constant([5, 8]), tf.constant([6, 7]))
        for index in (0, 1)
    ]
    pairs = [(masks[a], masks[b]) for a in range(len(masks)) for b in range(a)]
    pairs += [(masks[0][:, shift:], masks[0][:, :-shift]) for shift in (1, 2)]
    for first, second in pairs:
        assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(first.size)


def test_xla_draws_the_same_mask_and_a_gradient_passes_where_the_value_did():
    x = tf.Variable(tf.random.normal([50, 8]))
    with tf.GradientTape() as tape:
        y = dropout(x, 0.25, SEED, 1)
    kept = y.numpy() != 0
    np.testing.assert_allclose(tape.gradient(y, x), np.where(kept, 1 / 0.75, 0.0), rtol=1e-6)
    compiled = tf.function(lambda: dropout(x, 0.25, SEED, 1), jit_compile=True)
    np.testing.assert_array_equal(compiled(), y)


def test_no_seed_or_no_rate_leaves_the_value():
    x = tf.ones([2, 2])
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, SEED, 0) is x

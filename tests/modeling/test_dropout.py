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
    count = dropped.size
    deviation = np.sqrt(0.1 * 0.9 / count)
    assert abs((dropped == 0).mean() - 0.1) < 4 * deviation + 1e-5


def test_masks_of_places_and_seeds_are_unrelated():
    x = tf.ones([500, 64])
    masks = [
        dropout(x, 0.5, seed, index).numpy() == 0
        for seed in (SEED, tf.constant([5, 8]), tf.constant([6, 7]))
        for index in (0, 1)
    ]
    for a in range(len(masks)):
        for b in range(a):
            agreement = (masks[a] == masks[b]).mean()
            assert abs(agreement - 0.5) < 5 * 0.5 / np.sqrt(x.shape.num_elements()), (a, b)


def test_neighbouring_decisions_are_unrelated():
    mask = dropout(tf.ones([2000, 64]), 0.5, SEED, index=0).numpy() == 0
    for shift in (1, 2):
        agreement = (mask[:, shift:] == mask[:, :-shift]).mean()
        assert abs(agreement - 0.5) < 5 * 0.5 / np.sqrt(mask[:, shift:].size)


def test_xla_draws_the_same_mask():
    x = tf.random.normal([8, 12, 16])
    compiled = tf.function(lambda x, seed: dropout(x, 0.3, seed, 1), jit_compile=True)
    np.testing.assert_array_equal(compiled(x, SEED), dropout(x, 0.3, SEED, 1))


def test_gradient_passes_where_the_value_did():
    x = tf.Variable(tf.random.normal([50, 8]))
    with tf.GradientTape() as tape:
        y = dropout(x, 0.25, SEED, 0)
    kept = y.numpy() != 0
    np.testing.assert_allclose(tape.gradient(y, x), np.where(kept, 1 / 0.75, 0.0), rtol=1e-6)


def test_no_seed_or_no_rate_leaves_the_value():
    x = tf.ones([2, 2])
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, SEED, 0) is x

"""The loss of words by blocks of the vocabulary, against numpy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling import vocabulary_loss

NUM_WORDS = 5
WIDTH = 4
VOCAB_SIZE = 11


def make_inputs(seed=0, scale=1.0):
    """Makes x, a table, a bias and labels, of which the first and last word are one each."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(NUM_WORDS, WIDTH)) * scale
    table = rng.normal(size=(VOCAB_SIZE, WIDTH))
    bias = rng.normal(size=VOCAB_SIZE)
    labels = np.array([0, VOCAB_SIZE - 1, 3, 3, 7])
    return x, table, bias, labels


def expected_scores(x, table, bias, labels, upstream):
    """Computes the losses, the gradients of their weighted sum, and which labels are the best."""
    logits = x @ table.T + bias
    largest = logits.max(axis=1)
    shifted = logits - largest[:, None]
    totals = np.exp(shifted).sum(axis=1)
    log_softmax = shifted - np.log(totals)[:, None]
    rows = np.arange(len(labels))
    losses = -log_softmax[rows, labels]

    logit_gradient = np.exp(log_softmax)
    logit_gradient[rows, labels] -= 1.0
    logit_gradient *= upstream[:, None]
    x_gradient = logit_gradient @ table
    table_gradient = logit_gradient.T @ x
    bias_gradient = logit_gradient.sum(axis=0)
    is_best = logits[rows, labels] == largest
    return losses, (x_gradient, table_gradient, bias_gradient), is_best


def computed_scores(
    x, table, bias, labels, upstream, block_size, dtype=tf.float32, table_dtype=None
):
    x = tf.constant(x, dtype)
    table = tf.constant(table, table_dtype or dtype)
    bias = tf.constant(bias, tf.float32)
    labels = tf.constant(labels, tf.int32)
    upstream = tf.constant(upstream, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([x, table, bias])
        scores = vocabulary_loss.score_words(x, table, bias, labels, block_size)
        loss = tf.reduce_sum(scores.losses * upstream)
    gradients = tape.gradient(loss, [x, table, bias])
    return scores, gradients


def assert_equal_gradients(gradients, expected_gradients, **tolerances):
    """Compares the gradients of x, the table and the bias."""
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        gradient = tf.cast(gradient, tf.float32)
        np.testing.assert_allclose(gradient, expected, **tolerances)


@pytest.mark.parametrize(
    "block_size",
    [
        pytest.param(1, id="a-word-a-block"),
        pytest.param(4, id="a-smaller-last-block"),
        pytest.param(VOCAB_SIZE, id="one-block"),
        pytest.param(100, id="a-block-larger-than-the-vocabulary"),
    ],
)
def test_losses_and_gradients_equal_numpy(block_size):
    inputs = make_inputs()
    upstream = np.array([1.0, 0.5, 0.0, -2.0, 0.25])
    losses, gradients, is_best = expected_scores(*inputs, upstream)
    scores, computed_gradients = computed_scores(*inputs, upstream, block_size)
    np.testing.assert_allclose(scores.losses, losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scores.is_correct, is_best)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("block_size", [3, VOCAB_SIZE])
def test_large_logits_do_not_overflow(block_size):
    """Logits of some hundreds overflow exp in float32, in the first block or in a later one."""
    x, table, bias, labels = make_inputs(scale=200.0)
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(x, table, bias, labels, upstream)
    assert losses.max() > 100.0
    scores, computed_gradients = computed_scores(x, table, bias, labels, upstream, block_size)
    np.testing.assert_allclose(scores.losses, losses, rtol=1e-4, atol=1e-3)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-3, atol=2e-2)


def test_a_label_that_ties_with_another_word_is_correct():
    x, table, bias, labels = make_inputs()
    table[:] = 0.0
    bias[:] = 0.0
    bias[[3, 9]] = 2.0
    scores, _ = computed_scores(x, table, bias, labels, np.ones(NUM_WORDS), block_size=4)
    np.testing.assert_array_equal(scores.is_correct, [0.0, 0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_gradients_of_likely_words_keep_their_precision_in_16_bits(dtype):
    """The probability minus 1 is a small difference, and the sum over a frequent word is long."""
    num_words = 600
    table = np.eye(WIDTH)
    bias = np.zeros(WIDTH)
    labels = np.full(num_words, 2)
    labels[:20] = 1
    x = 8.0 * table[labels]
    upstream = np.random.default_rng(0).uniform(0.5, 1.0, num_words)
    losses, gradients, _ = expected_scores(x, table, bias, labels, upstream)
    assert losses.max() < 0.002
    scores, computed_gradients = computed_scores(
        x, table, bias, labels, upstream, block_size=3, dtype=dtype, table_dtype=tf.float32
    )
    np.testing.assert_allclose(scores.losses, losses, rtol=1e-3)
    assert computed_gradients[1].dtype == tf.float32
    assert_equal_gradients(computed_gradients, gradients, rtol=0.02)


def test_a_word_that_is_impossible_has_no_gradient():
    x, table, bias, labels = make_inputs()
    bias[[0, 5]] = -np.inf
    labels[0] = 1
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(x, table, bias, labels, upstream)
    scores, computed_gradients = computed_scores(x, table, bias, labels, upstream, block_size=1)
    np.testing.assert_allclose(scores.losses, losses, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-4, atol=1e-6)


def test_products_in_bfloat16_have_gradients_of_their_type():
    inputs = make_inputs()
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(*inputs, upstream)
    scores, computed_gradients = computed_scores(*inputs, upstream, block_size=4, dtype=tf.bfloat16)
    assert scores.losses.dtype == tf.float32
    np.testing.assert_allclose(scores.losses, losses, rtol=0.02, atol=0.03)
    types = [gradient.dtype for gradient in computed_gradients]
    assert types == [tf.bfloat16, tf.bfloat16, tf.float32]
    assert_equal_gradients(computed_gradients, gradients, atol=0.06)

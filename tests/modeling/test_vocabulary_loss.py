"""The loss of words by blocks of the vocabulary, against numpy in float64."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert.modeling import vocabulary_loss

NUM_WORDS = 5
WIDTH = 4
VOCAB_SIZE = 11


class Inputs(NamedTuple):
    """What the loss is computed of."""

    x: np.ndarray
    table: np.ndarray
    bias: np.ndarray
    labels: np.ndarray


def make_inputs(scale=1.0) -> Inputs:
    """Makes inputs of five words; the first and the last word of the vocabulary are one label
    each.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_WORDS, WIDTH))
    return Inputs(
        x=x * scale,
        table=rng.normal(size=(VOCAB_SIZE, WIDTH)),
        bias=rng.normal(size=VOCAB_SIZE),
        labels=np.array([0, VOCAB_SIZE - 1, 3, 3, 7]),
    )


def expected_scores(inputs: Inputs, upstream):
    """Computes the losses, the gradients of their weighted sum, and which labels are the best."""
    x, table, bias, labels = inputs
    logits = x @ table.T + bias
    largest = logits.max(axis=1)
    shifted = logits - largest[:, None]
    totals = np.exp(shifted).sum(axis=1)
    log_totals = np.log(totals)
    log_softmax = shifted - log_totals[:, None]
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
    inputs: Inputs,
    upstream,
    block_size: int,
    dtype=tf.float32,
    table_dtype=None,
):
    x = tf.constant(inputs.x, dtype)
    table = tf.constant(inputs.table, table_dtype or dtype)
    bias = tf.constant(inputs.bias, tf.float32)
    labels = tf.constant(inputs.labels, tf.int32)
    upstream = tf.constant(upstream, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([x, table, bias])
        scores = vocabulary_loss.score_words(
            x,
            table,
            bias,
            labels,
            block_size,
        )
        loss = tf.reduce_sum(scores.losses * upstream)
    gradients = tape.gradient(loss, [x, table, bias])
    return scores, gradients


def assert_equal_gradients(gradients, expected_gradients, **tolerances):
    """Compares the gradients of x, the table and the bias."""
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        gradient = tf.cast(gradient, tf.float32)
        assert_allclose(gradient, expected, **tolerances)


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
    losses, gradients, is_best = expected_scores(inputs, upstream)
    scores, computed_gradients = computed_scores(inputs, upstream, block_size)
    assert_allclose(
        scores.losses,
        losses,
        rtol=1e-5,
        atol=1e-6,
    )
    assert_array_equal(scores.is_correct, is_best)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("block_size", [3, VOCAB_SIZE])
def test_large_logits_do_not_overflow(block_size):
    """Logits of some hundreds overflow exp in float32, in the first block or in a later one."""
    inputs = make_inputs(scale=200.0)
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(inputs, upstream)
    assert losses.max() > 100.0
    scores, computed_gradients = computed_scores(inputs, upstream, block_size)
    assert_allclose(scores.losses, losses, rtol=1e-4, atol=1e-3)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-3, atol=2e-2)


def test_a_label_that_ties_with_another_word_is_correct():
    inputs = make_inputs()
    inputs.table[:] = 0.0
    inputs.bias[:] = 0.0
    inputs.bias[[3, 9]] = 2.0
    upstream = np.ones(NUM_WORDS)
    scores, _ = computed_scores(inputs, upstream, block_size=4)
    assert_array_equal(scores.is_correct, [0.0, 0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_gradients_of_likely_words_keep_their_precision_in_16_bits(dtype):
    """The probability minus 1 is a small difference, and the sum over a frequent word is long."""
    num_words = 600
    table = np.eye(WIDTH)
    bias = np.zeros(WIDTH)
    labels = np.full(num_words, 2)
    labels[:20] = 1
    x = 8.0 * table[labels]
    inputs = Inputs(x, table, bias, labels)
    rng = np.random.default_rng(0)
    upstream = rng.uniform(0.5, 1.0, num_words)
    losses, gradients, _ = expected_scores(inputs, upstream)
    assert losses.max() < 0.002
    scores, computed_gradients = computed_scores(
        inputs,
        upstream,
        block_size=3,
        dtype=dtype,
        table_dtype=tf.float32,
    )
    assert_allclose(scores.losses, losses, rtol=1e-3)
    assert computed_gradients[1].dtype == tf.float32
    assert_equal_gradients(computed_gradients, gradients, rtol=0.02)


def test_a_word_that_is_impossible_has_no_gradient():
    inputs = make_inputs()
    inputs.bias[[0, 5]] = -np.inf
    inputs.labels[0] = 1
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(inputs, upstream)
    scores, computed_gradients = computed_scores(inputs, upstream, block_size=1)
    assert_allclose(scores.losses, losses, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(computed_gradients, gradients, rtol=1e-4, atol=1e-6)


def test_products_in_bfloat16_have_gradients_of_their_type():
    inputs = make_inputs()
    upstream = np.ones(NUM_WORDS)
    losses, gradients, _ = expected_scores(inputs, upstream)
    scores, computed_gradients = computed_scores(
        inputs,
        upstream,
        block_size=4,
        dtype=tf.bfloat16,
    )
    assert scores.losses.dtype == tf.float32
    assert_allclose(scores.losses, losses, rtol=0.02, atol=0.03)
    types = [gradient.dtype for gradient in computed_gradients]
    assert types == [tf.bfloat16, tf.bfloat16, tf.float32]
    assert_equal_gradients(computed_gradients, gradients, atol=0.06)

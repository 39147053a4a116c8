"""The loss of words over a vocabulary, computed by blocks of the vocabulary on CPUs.

Passes over the logits take most of a small model's step, because a vocabulary is so large. This
module writes neither probabilities nor the gradient of the logits. Each block keeps
exp(logits - shift). The softmax divides it by a factor of the row, and the small operands of the
matrix products absorb this factor.

N predictions   H hidden size   V vocabulary
"""

from typing import NamedTuple

import tensorflow as tf

from official_bert.modeling import cpu_bfloat16

BLOCK_SIZE = 4096  # words, so that a block stays in the cache between its passes

is_available = cpu_bfloat16.is_available


class WordScores(NamedTuple):
    """The scores of predicted words.

    Attributes:
        losses: float32[N], -log softmax(logits)[label].
        is_correct: float32[N], 1.0 where no word has a higher logit than the label, else 0.0.
    """

    losses: tf.Tensor
    is_correct: tf.Tensor


class _Block(NamedTuple):
    """The intermediate results of a block of words.

    Attributes:
        table: float[block, H], the embeddings of the words.
        exponentials: float[N, block], exp(logits - shift).
        shift: float32[N], the largest logit of each row in this block and those before it.
    """

    table: tf.Tensor
    exponentials: tf.Tensor
    shift: tf.Tensor


def score_words(
    x: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    block_size: int = BLOCK_SIZE,
) -> WordScores:
    """Scores the labels by the logits `x @ table.T + bias`.

    Args:
        x: float[N, H], the transformed outputs of the encoder, in the type of the products.
        table: float[V, H], the word embeddings, in the same type.
        bias: float32[V].
        labels: int32[N], each in [0, V).
        block_size: the number of words of a block.

    Returns:
        The scores, whose losses have gradients for all but the labels.
    """

    @tf.custom_gradient
    def score(x, table, bias):
        return _score(x, table, bias, labels, block_size)

    # A custom gradient is for tensors: a variable would be no argument of it.
    return WordScores(*score(x, tf.convert_to_tensor(table), tf.convert_to_tensor(bias)))


def _score(x, table, bias, labels, block_size):
    blocks = []
    label_logits = tf.zeros_like(labels, tf.float32)
    largest = tf.fill(tf.shape(labels), tf.float32.min)
    total = tf.zeros_like(label_logits)
    for start in range(0, table.shape[0], block_size):
        block_table = table[start : start + block_size]
        products = tf.cast(tf.matmul(x, block_table, transpose_b=True), tf.float32)
        logits = tf.nn.bias_add(products, bias[start : start + block_size])
        label_logits += _values_at(logits, labels - start)

        # Shift the sum of the blocks before to the largest logit so far.
        shift = tf.maximum(largest, tf.reduce_max(logits, axis=1))
        exponentials = tf.exp(logits - shift[:, None])
        total = total * tf.exp(largest - shift) + tf.reduce_sum(exponentials, axis=1)
        largest = shift
        blocks.append(_Block(block_table, tf.cast(exponentials, x.dtype), shift))
    losses = tf.math.log(total) + largest - label_logits
    is_correct = tf.cast(label_logits >= largest, tf.float32)

    def gradient(upstream, _):
        # The gradient of the logits is softmax * upstream, minus upstream at the label.
        label_upstream = tf.cast(upstream, x.dtype)[:, None]
        dx = -tf.gather(table, labels) * label_upstream
        table_gradients = []
        bias_gradients = []
        for block in blocks:
            factor = tf.exp(block.shift - largest) / total * upstream
            factor = tf.cast(factor, x.dtype)[:, None]
            dx += tf.matmul(block.exponentials, block.table) * factor
            table_gradients.append(tf.matmul(block.exponentials, x * factor, transpose_a=True))
            bias_gradients.append(tf.matmul(block.exponentials, factor, transpose_a=True)[:, 0])
        rows = labels[:, None]
        table_gradient = tf.concat(table_gradients, axis=0)
        table_gradient = tf.tensor_scatter_nd_sub(table_gradient, rows, x * label_upstream)
        bias_gradient = tf.cast(tf.concat(bias_gradients, axis=0), tf.float32)
        bias_gradient = tf.tensor_scatter_nd_sub(bias_gradient, rows, upstream)
        return dx, table_gradient, bias_gradient

    return (losses, is_correct), gradient


def _values_at(values, columns):
    """Returns the value of each row in its column, float32[N]; 0 where there is no such column."""
    is_inside = (columns >= 0) & (columns < values.shape[1])
    values_inside = tf.gather(values, tf.where(is_inside, columns, 0), batch_dims=1)
    return tf.where(is_inside, values_inside, 0.0)

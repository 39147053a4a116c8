"""The loss of words over a vocabulary, computed by blocks of the vocabulary on CPUs.

Passes over the logits take most of a small model's step, because a vocabulary is so large. This
module writes neither probabilities nor the gradient of the logits. Each block keeps
exp(logits - shift). The softmax divides it by a factor of the row, and the small operands of the
matrix products absorb this factor.

The word of the label is apart from the others. The gradient of its logit is the probability minus
1, a small difference in a well-trained model, which products in 16 bits would lose.

N predictions   H hidden size   V vocabulary
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from official_bert.modeling import cpu_layers

BLOCK_SIZE = 4096  # words, so that a block stays in the cache between its passes

is_available = cpu_layers.is_available


class WordScores(NamedTuple):
    """The scores of predicted words.

    Attributes:
        losses: float32[N], -log softmax(logits)[label].
        is_correct: float32[N], 1.0 where no word has a higher logit than the label, else 0.0.
    """

    losses: tf.Tensor
    is_correct: tf.Tensor


class _RowSums(NamedTuple):
    """What the blocks so far add up to, for each row.

    Attributes:
        largest: the largest logit of the words but the label, float32[N].
        total: the sum of exp(logits - largest) of these words, float32[N].
        label_logits: the logit of the label, 0 as long as no block had it, float32[N].
    """

    largest: tf.Tensor
    total: tf.Tensor
    label_logits: tf.Tensor


class _Block(NamedTuple):
    """The intermediate results of a block of words.

    Attributes:
        table: float[block, H], the embeddings of the words.
        exponentials: float[N, block], exp(logits - shift), and 0 for the label of the row.
        shift: float32[N], the largest logit of each row in this block and those before it, without
            the logit of the label.
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
        table: float[V, H], the word embeddings, in any type.
        bias: float32[V].
        labels: int32[N], each in [0, V).
        block_size: the number of words of a block.

    Returns:
        The scores, whose losses have gradients for all but the labels.
    """

    @tf.custom_gradient
    def score(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor):
        return _score(x, table, bias, labels, block_size)

    # A custom gradient is for tensors: a variable would be no argument of it.
    table = tf.convert_to_tensor(table)
    bias = tf.convert_to_tensor(bias)
    losses, is_correct = score(x, table, bias)
    return WordScores(losses, is_correct)


def _score(
    x: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    block_size: int,
) -> tuple:
    blocks = []
    zeros = tf.zeros_like(labels, tf.float32)
    sums = _RowSums(
        largest=tf.fill(tf.shape(labels), tf.float32.min),
        total=zeros,
        label_logits=zeros,
    )
    add_block = _compiled_add_block if _is_compiled(x, table) else _add_block
    for start in range(0, table.shape[0], block_size):
        stop = start + block_size
        block_table = tf.cast(table[start:stop], x.dtype)
        products = tf.matmul(x, block_table, transpose_b=True)
        exponentials, sums = add_block(
            products,
            bias[start:stop],
            labels - start,
            sums,
        )
        block = _Block(
            table=block_table,
            exponentials=exponentials,
            shift=sums.largest,
        )
        blocks.append(block)
    largest, total, label_logits = sums
    is_correct = label_logits >= largest

    # Shift the sum once more, and add the label.
    shift = tf.maximum(largest, label_logits)
    others = total * tf.exp(largest - shift)
    total = others + tf.exp(label_logits - shift)
    losses = tf.math.log(total) + shift - label_logits

    def gradient(upstream: tf.Tensor, _: Any):
        # The gradient of the logits is softmax * upstream, minus upstream at the label.
        rate = upstream / total
        label_gradient = -others * rate
        label_column = label_gradient[:, None]
        label_vectors = tf.gather(table, labels)
        dx = _to_float32(label_vectors) * label_column
        table_gradients = []
        bias_gradients = []
        for block in blocks:
            factor = tf.exp(block.shift - shift) * rate
            dx_part, table_part, bias_part = _block_gradients(
                block,
                x,
                factor[:, None],
            )
            dx += dx_part
            table_gradients.append(table_part)
            bias_gradients.append(bias_part)

        # The vectors of a frequent label add up, so their sum is in float32.
        rows = labels[:, None]
        label_updates = _to_float32(x) * label_column
        table_gradient = tf.concat(table_gradients, axis=0)
        table_gradient = tf.tensor_scatter_nd_add(table_gradient, rows, label_updates)
        bias_gradient = tf.concat(bias_gradients, axis=0)
        bias_gradient = tf.tensor_scatter_nd_add(bias_gradient, rows, label_gradient)
        dx = tf.cast(dx, x.dtype)
        table_gradient = tf.cast(table_gradient, table.dtype)
        return dx, table_gradient, bias_gradient

    scores = (losses, _to_float32(is_correct))
    return scores, gradient


def _to_float32(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.float32)


def _block_gradients(
    block: _Block,
    x: tf.Tensor,
    factor: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the parts of the gradients that a block contributes, without those of the labels.

    Args:
        block: the block.
        x: float[N, H].
        factor: the gradients of the logits divided by the exponentials of the block, float32[N, 1].

    Returns:
        The part of the gradient of x, float32[N, H], and the gradients of the words in the table,
        float32[block, H], and in the bias, float32[block].
    """
    product = tf.matmul(block.exponentials, block.table)
    dx = _to_float32(product) * factor

    factor = tf.cast(factor, x.dtype)
    scaled_x = x * factor
    table_gradient = tf.matmul(block.exponentials, scaled_x, transpose_a=True)
    bias_gradient = tf.matmul(block.exponentials, factor, transpose_a=True)
    bias_gradient = tf.squeeze(bias_gradient, axis=1)
    return dx, _to_float32(table_gradient), _to_float32(bias_gradient)


def _add_block(
    products: tf.Tensor,
    bias: tf.Tensor,
    columns: tf.Tensor,
    sums: _RowSums,
) -> tuple[tf.Tensor, _RowSums]:
    """Adds the words of a block to the sums.

    Args:
        products: the logits of the block without the bias, float[N, block].
        bias: float32[block].
        columns: the column of each label, int32[N]; the block need not have it.
        sums: the sums of the blocks before.

    Returns:
        The exponentials of the block, as in `_Block`, and the sums.
    """
    # Move the logits of the labels out of the block.
    is_inside = (columns >= 0) & (columns < products.shape[1])
    inside_columns = tf.where(is_inside, columns, 0)
    values = _to_float32(tf.gather(products, inside_columns, batch_dims=1))
    values += tf.gather(bias, inside_columns)
    label_logits = sums.label_logits + tf.where(is_inside, values, 0.0)
    is_label = tf.range(products.shape[1]) == columns[:, None]
    logits = tf.where(is_label, -math.inf, _to_float32(products) + bias)

    # Shift the sum of the blocks before to the largest logit so far.
    largest = tf.maximum(sums.largest, tf.reduce_max(logits, axis=1))
    exponentials = tf.exp(logits - largest[:, None])
    total = sums.total * tf.exp(sums.largest - largest)
    total += tf.reduce_sum(exponentials, axis=1)
    return tf.cast(exponentials, products.dtype), _RowSums(largest, total, label_logits)


_compiled_add_block = tf.function(_add_block, jit_compile=True, autograph=False)


def _is_compiled(x: tf.Tensor, table: tf.Tensor) -> bool:
    """Returns whether XLA compiles `_add_block`, which it does again for each shape."""
    if tf.executing_eagerly() or not x.shape.is_fully_defined():
        return False
    return x.shape[0] * table.shape[0] >= cpu_layers.MIN_ELEMENTS

"""The largest logit of each word over the tokens of a text, without the logits of all tokens.

Only the token with the largest logit of a word has a gradient, and only if the word has a weight.
The backward pass is therefore two products with a sparse matrix, instead of two dense ones that
take twice as long as the forward pass.

B texts   S length   H hidden size   V vocabulary
"""

import tensorflow as tf

from official_bert.modeling import cpu_layers

is_available = cpu_layers.is_available


def largest_logits(
    x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, input_mask: tf.Tensor
) -> tf.Tensor:
    """Return the largest logits of `x @ table.T + bias` over the tokens, float32[B, V].

    Args:
        x: float[B, S, H], the transformed outputs of the encoder, in the type of the products.
        table: float[V, H], the word embeddings, in any type.
        bias: float32[V].
        input_mask: int32[B, S], 1 for a token and 0 for padding. The first token always counts.
    """
    is_token = tf.concat([tf.ones_like(input_mask[:, :1]), input_mask[:, 1:]], axis=1) > 0

    @tf.custom_gradient
    def compute(x: tf.Tensor, table: tf.Tensor):
        return _compute(x, table, is_token)

    # A custom gradient is for tensors: a variable would be no argument of it.
    return compute(x, tf.convert_to_tensor(table)) + bias


def _compute(x: tf.Tensor, table: tf.Tensor, is_token: tf.Tensor) -> tuple:
    product_table = tf.cast(table, x.dtype)

    def find_largest(text: tuple[tf.Tensor, tf.Tensor]):
        vectors, is_text_token = text
        places = tf.where(is_text_token)
        tokens = places[:, 0]
        text_vectors = tf.gather(vectors, tokens)
        logits = tf.matmul(
            product_table,
            text_vectors,
            transpose_b=True,
        )
        largest = tf.reduce_max(logits, axis=1)
        best_tokens = tf.gather(
            tokens,
            tf.argmax(logits, axis=1),
        )
        return tf.cast(largest, tf.float32), best_tokens

    largest, best_tokens = tf.map_fn(
        find_largest,
        (x, is_token),
        fn_output_signature=(tf.float32, tf.int64),
        parallel_iterations=1,
    )
    largest.set_shape((None, table.shape[0]))

    def gradient(upstream: tf.Tensor):
        num_texts, length, width = tf.unstack(tf.shape(x, tf.int64))
        # A row for each word, and a column for each token of the batch.
        places = tf.where(upstream != 0)
        texts = places[:, 0]
        words = places[:, 1]
        tokens = texts * length + tf.gather_nd(best_tokens, places)
        num_words = tf.shape(table, tf.int64)[0]
        word_gradient = tf.SparseTensor(
            tf.stack([words, tokens], axis=1),
            tf.gather_nd(upstream, places),
            tf.stack([num_words, num_texts * length]),
        )
        flat = tf.reshape(x, (-1, width))
        table_gradient = tf.sparse.sparse_dense_matmul(
            word_gradient,
            tf.cast(flat, tf.float32),
        )
        flat_gradient = tf.sparse.sparse_dense_matmul(
            word_gradient,
            tf.cast(table, tf.float32),
            adjoint_a=True,
        )
        x_gradient = tf.reshape(
            flat_gradient,
            tf.shape(x),
        )
        return (
            tf.cast(x_gradient, x.dtype),
            tf.cast(table_gradient, table.dtype),
        )

    return largest, gradient

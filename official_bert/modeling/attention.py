"""Multi-head self-attention of the encoder, and its direction: which tokens a token attends to.

B batch   S length   F from-length   T to-length   N heads   H head size
"""

import keras
from keras import ops

from official_bert.config import BIDIRECTIONAL, LEFT_TO_RIGHT
from official_bert.modeling import layers
from official_bert.modeling.layers import (
    Dense,
    ResidualOutput,
    Scope,
    gather_indexes,
    get_shape_list,
)

MASKED = -10000.0


def attention_bias(input_mask, dtype="float32", direction: str = BIDIRECTIONAL):
    """Returns the bias of attention scores, float[B, 1, 1 or S, S], 0 where a token attends and
    -10000 elsewhere.

    `input_mask` is int32[B, S], 1 for a token. Because the bias is added and does not replace the
    scores, a sequence that is all padding attends to every position, as in the original.
    """
    bias = ops.expand_dims((1.0 - ops.cast(input_mask, dtype)) * MASKED, (1, 2))
    if direction == LEFT_TO_RIGHT:
        position = ops.arange(ops.shape(input_mask)[1])
        is_later = ops.cast(position[None, :] > position[:, None], dtype)  # [S, S]
        bias += is_later * MASKED
    return bias


def pooled_vectors(x, input_mask, direction: str):
    """Returns the vector of the token that stands for each text, float[B, hidden], of float[B, S,
    hidden].

    It is the first one, [CLS], or, if attention goes from left to right, the last one, [SEP],
    because only that has attended to the whole text.
    """
    if direction == BIDIRECTIONAL:
        return x[:, 0]
    position = ops.arange(ops.shape(input_mask)[1], dtype="int32")
    last = ops.max(ops.where(input_mask != 0, position, 0), axis=1, keepdims=True)  # [B, 1]
    return gather_indexes(x, last)


def create_attention_mask_from_input_mask(from_tensor, to_mask):
    """Makes an attention mask, float32[B, F, T], whose entry (b, f, t) is to_mask[b, t].

    Positions that attend are not masked: the model computes padded positions like others, but none
    attends to them.

    Args:
        from_tensor: a tensor [B, F] or [B, F, ...].
        to_mask: int32[B, T], 1 for a token and 0 for padding.
    """
    batch, length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_length = get_shape_list(to_mask, expected_rank=2)[1]
    mask = ops.cast(ops.reshape(to_mask, (-1, 1, to_length)), "float32")
    return ops.broadcast_to(mask, (batch, length, to_length))


class Attention(keras.layers.Layer):
    """Scaled dot-product attention in `num_attention_heads` heads (Vaswani et al., 2017),
    section 3.2.

    Attributes:
        dense_class: the class of the three projections.
        residual_output_class: the class of the end of the sub-layer.
    """

    dense_class = Dense
    residual_output_class = ResidualOutput

    def __init__(self, config, dropout_index: int, name: str = "attention"):
        super().__init__(name=name)
        self.config, self.dropout_index = config, dropout_index
        self.head_size = config.hidden_size // config.num_attention_heads

    def build(self, input_shape):
        def projection(name: str) -> Dense:
            return self.dense_class(input_shape[-1], self.config, name=name)

        self.heads = Scope(
            "self",
            query=projection("query"),
            key=projection("key"),
            value=projection("value"),
        )
        self.heads.build(input_shape)
        self.merge = self.residual_output_class(self.config, self.dropout_index + 1)
        self.merge.build(input_shape)

    def call(self, from_x, x, bias, dropout_seed=None, from_length=None):
        """Computes attention from the vectors `from_x`, float[B*F, N*H], to the vectors `x`,
        float[B*T, N*H].

        `bias` is float[B, 1, 1 or F, T], added to the scores; `dropout_seed` is int32[2]. F is T
        without `from_length`.

        Returns float[B*F, hidden], the output of the sub-layer, and the attention probabilities
        before dropout, float[B, N, F, T].
        """
        with keras.name_scope("self_1"):  # see EncoderLayer.call
            query = self.heads.query.apply(from_x, dropout_seed)
            key = self.heads.key.apply(x, dropout_seed)
            value = self.heads.value.apply(x, dropout_seed)
            context, probabilities = self._attend(
                query, key, value, bias, dropout_seed, from_length
            )
        return self.merge(context, from_x, dropout_seed), probabilities

    def _attend(self, query, key, value, bias, dropout_seed, from_length):
        """Returns the heads' outputs, concatenated, and the probabilities, for the projected
        vectors.
        """
        to_length = ops.shape(bias)[-1]
        query = self._split_heads(query, from_length or to_length)  # [B, N, F, H]
        key = self._split_heads(key, to_length)  # [B, N, T, H]
        value = self._split_heads(value, to_length)  # [B, N, T, H]

        # Scaling the query instead of the scores gives the same product with fewer multiplications.
        # [B, N, F, T].
        scores = ops.matmul(query * self.head_size**-0.5, ops.transpose(key, (0, 1, 3, 2)))
        probabilities = ops.softmax(ops.cast(scores, "float32") + ops.cast(bias, "float32"))
        weights = self.drop_probabilities(probabilities, scores, bias, dropout_seed)
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))  # [B, F, N, H]
        return ops.reshape(context, (-1, self.config.hidden_size)), probabilities

    def drop_probabilities(self, probabilities, scores, bias, dropout_seed):
        """Returns the probabilities after dropout, float[B, N, F, T] in the compute type.

        Dropout of probabilities drops whole tokens to attend to, which is unusual, but the
        Transformer paper does it.

        Args:
            probabilities: float32[B, N, F, T], the softmax of `scores` and `bias`.
            scores: float[B, N, F, T]. A subclass may compute the probabilities from them again.
            bias: as in `call`.
            dropout_seed: as in `call`.
        """
        weights = ops.cast(probabilities, self.compute_dtype)
        rate = self.config.attention_probs_dropout_prob
        return layers.dropout(weights, rate, dropout_seed, self.dropout_index)

    def _split_heads(self, x, length):
        # [B, F, N, H].
        x = ops.reshape(x, (-1, length, self.config.num_attention_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))

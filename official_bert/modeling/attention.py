"""Multi-head self-attention of the encoder, and its direction: which tokens a token attends to.

B batch   S length   F from-length   T to-length   N heads   H head size
"""

from typing import Any

import keras
from keras import ops

from official_bert.config import BIDIRECTIONAL, LEFT_TO_RIGHT, BertConfig
from official_bert.modeling import layers
from official_bert.modeling.layers import (
    Dense,
    ResidualOutput,
    Scope,
    Tensor,
    gather_indexes,
    get_shape_list,
)

MASKED = -10000.0


def attention_bias(
    input_mask: Tensor,
    dtype: Any = "float32",
    direction: str = BIDIRECTIONAL,
) -> Tensor:
    """Returns the bias of attention scores: 0 where a token attends and -10000 elsewhere.

    Because the bias is added and does not replace the scores, a sequence that is all padding
    attends to every position, as in the original.

    Args:
        input_mask: int32[B, S], 1 for a token and 0 for padding.
        dtype: the type of the bias.
        direction: BIDIRECTIONAL or LEFT_TO_RIGHT, in which no token attends to a later one.

    Returns:
        float[B, 1, 1, S], or float[B, 1, S, S] if attention goes from left to right.
    """
    is_padding = 1.0 - ops.cast(input_mask, dtype)
    bias = ops.expand_dims(is_padding * MASKED, (1, 2))
    if direction == LEFT_TO_RIGHT:
        length = ops.shape(input_mask)[1]
        position = ops.arange(length)
        is_later = ops.cast(position[None, :] > position[:, None], dtype)  # [S, S]
        bias += is_later * MASKED
    return bias


def pooled_vectors(x: Tensor, input_mask: Tensor, direction: str) -> Tensor:
    """Returns the vector of the token that represents each text, float[B, hidden].

    It is the first token, [CLS], or, if attention goes from left to right, the last one, [SEP],
    because only that has attended to the whole text.

    Args:
        x: the vectors of all tokens, float[B, S, hidden].
        input_mask: int32[B, S], 1 for a token and 0 for padding.
        direction: BIDIRECTIONAL or LEFT_TO_RIGHT.
    """
    if direction == BIDIRECTIONAL:
        return x[:, 0]
    length = ops.shape(input_mask)[1]
    position = ops.arange(length, dtype="int32")
    token_positions = ops.where(input_mask != 0, position, 0)
    last = ops.max(token_positions, axis=1, keepdims=True)  # [B, 1]
    return gather_indexes(x, last)


def create_attention_mask_from_input_mask(from_tensor: Tensor, to_mask: Tensor) -> Tensor:
    """Returns an attention mask, float32[B, F, T], whose entry (b, f, t) is to_mask[b, t].

    Positions that attend are not masked: the model computes padded positions like others, but none
    attends to them.

    Args:
        from_tensor: a tensor [B, F] or [B, F, ...].
        to_mask: int32[B, T], 1 for a token and 0 for padding.
    """
    batch, length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_length = get_shape_list(to_mask, expected_rank=2)[1]
    mask = ops.reshape(to_mask, (-1, 1, to_length))
    mask = ops.cast(mask, "float32")
    return ops.broadcast_to(mask, (batch, length, to_length))


class Attention(keras.layers.Layer):
    """Scaled dot-product attention in several heads (Vaswani et al., 2017, section 3.2).

    Attributes:
        dense_class: the class of the three projections.
        residual_output_class: the class of the end of the sub-layer.
    """

    dense_class = Dense
    residual_output_class = ResidualOutput

    def __init__(self, config: BertConfig, dropout_index: int, name: str = "attention"):
        """Makes a layer without weights.

        Args:
            config: the configuration of the model.
            dropout_index: the number of the first dropout of the layer in the model.
            name: the name of the layer.
        """
        super().__init__(name=name)
        self.config = config
        self.dropout_index = dropout_index
        self.head_size = config.hidden_size // config.num_attention_heads

    def build(self, input_shape: Any) -> None:
        """Makes the projections and the end of the sub-layer, with their weights.

        Args:
            input_shape: the shape of the vectors, [..., hidden].
        """

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

    def call(
        self,
        from_x: Tensor,
        x: Tensor,
        bias: Tensor,
        dropout_seed: Tensor | None = None,
        from_length: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes attention from some vectors to others, and the end of the sub-layer.

        Args:
            from_x: the vectors that attend, float[B*F, N*H].
            x: the vectors that they attend to, float[B*T, N*H].
            bias: float[B, 1, 1 or F, T], which is added to the scores.
            dropout_seed: int32[2]; None for no dropout.
            from_length: F; None if it is T.

        Returns:
            The output of the sub-layer, float[B*F, hidden], and the attention probabilities before
            dropout, float[B, N, F, T].
        """
        # Project the vectors for all heads.
        query = self.heads.query.apply(from_x, dropout_seed)
        key = self.heads.key.apply(x, dropout_seed)
        value = self.heads.value.apply(x, dropout_seed)
        to_length = ops.shape(bias)[-1]
        query = self._split_heads(query, from_length or to_length)  # [B, N, F, H]
        key = self._split_heads(key, to_length)  # [B, N, T, H]
        value = self._split_heads(value, to_length)  # [B, N, T, H]

        # Compute the probabilities with which each vector attends to the others, [B, N, F, T].
        # Scaling the query instead of the scores gives the same product with fewer multiplications.
        scaled_query = query * self.head_size**-0.5
        transposed_key = ops.transpose(key, (0, 1, 3, 2))
        scores = ops.matmul(scaled_query, transposed_key)
        biased_scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
        probabilities = ops.softmax(biased_scores)
        weights = self.drop_probabilities(
            probabilities,
            scores,
            bias,
            dropout_seed,
        )

        # Average the values, and concatenate the heads: [B, N, F, H] to [B*F, N*H].
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        context = ops.reshape(context, (-1, self.config.hidden_size))
        merged = self.merge(context, from_x, dropout_seed)
        return merged, probabilities

    def drop_probabilities(
        self,
        probabilities: Tensor,
        scores: Tensor,
        bias: Tensor,
        dropout_seed: Tensor | None,
    ) -> Tensor:
        """Returns the probabilities after dropout, float[B, N, F, T] in the compute type.

        Dropout of probabilities drops whole tokens to attend to, which is unusual, but the
        Transformer paper does it.

        Args:
            probabilities: float32[B, N, F, T], the softmax of the sum of `scores` and `bias`.
            scores: float[B, N, F, T]. A subclass may compute the probabilities from them again.
            bias: as in `call`.
            dropout_seed: as in `call`.
        """
        weights = ops.cast(probabilities, self.compute_dtype)
        rate = self.config.attention_probs_dropout_prob
        return layers.dropout(weights, rate, dropout_seed, self.dropout_index)

    def _split_heads(self, x: Tensor, length: Tensor) -> Tensor:
        """Returns [B, N, length, H] for [B*length, N*H]."""
        num_heads = self.config.num_attention_heads
        x = ops.reshape(x, (-1, length, num_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))

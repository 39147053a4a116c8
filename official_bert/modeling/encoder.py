"""The Transformer encoder: layers of self-attention and feed-forward networks, post-LN as in
tensor2tensor.

The layers work on the batch as one matrix [B*S, hidden], so that every dense layer is a plain
matrix product.
"""

import keras
from keras import ops

from official_bert.modeling.attention import attention_bias, pooled_vectors
from official_bert.modeling.layer_classes import choose_layer_classes
from official_bert.modeling.layers import Scope

_DROPOUTS_PER_LAYER = 3


class EncoderLayer(keras.layers.Layer):
    """One layer: an attention sub-layer, then a feed-forward sub-layer."""

    def __init__(self, config, index: int):
        super().__init__(name=f"layer_{index}")
        self.config = config
        self.dropout_index = 1 + _DROPOUTS_PER_LAYER * index  # the embeddings have index 0

    def build(self, input_shape):
        config, classes = self.config, choose_layer_classes(self.compute_dtype)
        self.attention = classes.attention(config, self.dropout_index)
        self.attention.build(input_shape)
        self.intermediate = Scope(
            "intermediate",
            dense=classes.dense(config.intermediate_size, config, config.hidden_act),
        )
        self.intermediate.build(input_shape)
        self.merge = classes.residual_output(config, self.dropout_index + 2)
        self.merge.build((*input_shape[:-1], config.intermediate_size))

    def call(self, from_x, x, bias, dropout_seed=None, from_length=None):
        """Returns float[B*F, hidden] and float[B, N, F, T], as Attention, whose arguments these
        are.
        """
        attended, probabilities = self.attention(
            from_x, x, bias, dropout_seed, from_length=from_length
        )
        # TensorFlow sums the gradients of a dynamic shape in an order that the names of the
        # operations determine: with these scopes, which a called layer would have, the sums keep
        # the bits of earlier versions.
        with keras.name_scope("intermediate_1"):
            inner = self.intermediate.dense.apply(attended, dropout_seed)  # [B*F, intermediate]
        return self.merge(inner, attended, dropout_seed), probabilities


class Encoder(keras.layers.Layer):
    def __init__(self, config, recompute_layers: bool, name: str = "encoder"):
        super().__init__(name=name)
        self.config, self.recompute_layers = config, recompute_layers

    def build(self, input_shape=None):
        self.stack = [
            EncoderLayer(self.config, index) for index in range(self.config.num_hidden_layers)
        ]
        for layer in self.stack:
            layer.build((None, self.config.hidden_size))

    @property
    def layer(self) -> list[EncoderLayer]:
        """The layers from first to last, by their name in transformers:
        `model.encoder.layer[0].trainable = False`.
        """
        return self.stack

    def call(
        self, x, input_mask, dropout_seed=None, first_token_only=False, output_attentions=False
    ):
        """Returns the outputs of all layers, float[B, S, hidden] each, and a list of their
        attention probabilities.

        These are float[B, N, S, S] each, and none without `output_attentions`. With
        `first_token_only` the last layer is computed for the pooled token alone: float[B, 1,
        hidden] and float[B, N, 1, S].
        """
        padded_shape = (-1, ops.shape(x)[1], self.config.hidden_size)
        x = ops.reshape(x, (-1, self.config.hidden_size))
        bias = attention_bias(input_mask, x.dtype, self.config.direction)
        outputs, attentions = [], []
        for layer in self.stack[: -1 if first_token_only else None]:
            if self.recompute_layers and not output_attentions:
                layer = _recomputed(layer)
            x, probabilities = layer(x, x, bias, dropout_seed)
            # Layers of cpu_bfloat16.py return bfloat16.
            outputs.append(ops.cast(ops.reshape(x, padded_shape), "float32"))
            if output_attentions:
                attentions.append(probabilities)
        if first_token_only:
            # [B, hidden].
            pooled = pooled_vectors(ops.reshape(x, padded_shape), input_mask, self.config.direction)
            # In both directions this token attends to the whole text.
            bias = attention_bias(input_mask, x.dtype)
            x, probabilities = self.stack[-1](pooled, x, bias, dropout_seed, from_length=1)
            outputs.append(ops.cast(x[:, None], "float32"))
            if output_attentions:
                attentions.append(probabilities)
        return outputs, attentions


def _recomputed(layer: EncoderLayer):
    """Returns a layer whose inner values the backward pass computes again; it gives no
    probabilities, None.
    """

    def apply(x, _, bias, dropout_seed):
        # Of `x` alone, the only argument that needs a gradient.
        return keras.remat(lambda x: layer(x, x, bias, dropout_seed)[0])(x), None

    return apply

"""The Transformer encoder: layers of self-attention and feed-forward networks.

The layer norms come last in each sub-layer (post-LN), as in tensor2tensor.

The layers work on the batch as one matrix [B*S, hidden], so that every dense layer is a plain
matrix product.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling.attention import attention_bias, pooled_vectors
from official_bert.modeling.layer_classes import choose_layer_classes
from official_bert.modeling.layers import Scope, Tensor

_DROPOUTS_PER_LAYER = 3


class EncoderLayer(keras.layers.Layer):
    """One layer: an attention sub-layer, then a feed-forward sub-layer."""

    def __init__(self, config: BertConfig, index: int):
        """Makes a layer without weights.

        Args:
            config: the configuration of the model.
            index: the number of the layer, from 0.
        """
        super().__init__(name=f"layer_{index}")
        self.config = config
        self.dropout_index = 1 + _DROPOUTS_PER_LAYER * index  # the embeddings have index 0

    def build(self, input_shape: Any) -> None:
        """Makes both sub-layers with their weights.

        Args:
            input_shape: the shape of the vectors, [..., hidden].
        """
        config = self.config
        classes = choose_layer_classes(self.compute_dtype)
        self.attention = classes.attention(config, self.dropout_index)
        self.attention.build(input_shape)
        self.intermediate = Scope(
            "intermediate",
            dense=classes.dense(config.intermediate_size, config, config.hidden_act),
        )
        self.intermediate.build(input_shape)
        self.merge = classes.residual_output(config, self.dropout_index + 2)
        self.merge.build((*input_shape[:-1], config.intermediate_size))

    def call(
        self,
        from_x: Tensor,
        x: Tensor,
        bias: Tensor,
        dropout_seed: Tensor | None = None,
        from_length: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes the output of the layer; the arguments are those of `Attention.call`.

        Args:
            from_x: the vectors that attend, float[B*F, hidden].
            x: the vectors that they attend to, float[B*T, hidden].
            bias: float[B, 1, 1 or F, T], which is added to the attention scores.
            dropout_seed: int32[2]; None for no dropout.
            from_length: F; None if it is T.

        Returns:
            The output, float[B*F, hidden], and the attention probabilities, float[B, N, F, T].
        """
        attended, probabilities = self.attention(
            from_x, x, bias, dropout_seed, from_length=from_length
        )
        inner = self.intermediate.dense.apply(attended, dropout_seed)  # [B*F, intermediate]
        return self.merge(inner, attended, dropout_seed), probabilities


class Encoder(keras.layers.Layer):
    """The stack of layers."""

    def __init__(self, config: BertConfig, recompute_layers: bool, name: str = "encoder"):
        """Makes an encoder without weights.

        Args:
            config: the configuration of the model.
            recompute_layers: whether the backward pass computes each layer again.
            name: the name of the layer.
        """
        super().__init__(name=name)
        self.config = config
        self.recompute_layers = recompute_layers

    def build(self, input_shape: Any = None) -> None:
        """Makes the layers with their weights.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        self.stack = [
            EncoderLayer(self.config, index) for index in range(self.config.num_hidden_layers)
        ]
        for layer in self.stack:
            layer.build((None, self.config.hidden_size))

    @property
    def layer(self) -> list[EncoderLayer]:
        """The layers from first to last, by their name in transformers.

        model.encoder.layer[0].trainable = False
        """
        return self.stack

    def call(
        self,
        x: Tensor,
        input_mask: Tensor,
        dropout_seed: Tensor | None = None,
        first_token_only: bool = False,
        output_attentions: bool = False,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Computes the outputs of all layers.

        Args:
            x: the embeddings, float[B, S, hidden].
            input_mask: int32[B, S], 1 for a token and 0 for padding.
            dropout_seed: int32[2]; None for no dropout.
            first_token_only: whether the last layer is computed for the pooled token alone.
            output_attentions: whether attention probabilities are returned.

        Returns:
            A list of float[B, S, hidden], and a list of the attention probabilities,
            float[B, N, S, S], which is empty without `output_attentions`. With `first_token_only`
            the last items are float[B, 1, hidden] and float[B, N, 1, S].
        """
        batch_shape = (-1, ops.shape(x)[1], self.config.hidden_size)
        x = ops.reshape(x, (-1, self.config.hidden_size))
        bias = attention_bias(input_mask, x.dtype, self.config.direction)
        outputs = []
        attentions = []
        full_layers = self.stack[:-1] if first_token_only else self.stack
        for layer in full_layers:
            if self.recompute_layers and not output_attentions:
                layer = _recomputed(layer)
            x, probabilities = layer(x, x, bias, dropout_seed)
            # Layers of cpu_layers.py return bfloat16.
            outputs.append(ops.cast(ops.reshape(x, batch_shape), "float32"))
            if output_attentions:
                attentions.append(probabilities)
        if first_token_only:
            vectors = ops.reshape(x, batch_shape)
            pooled = pooled_vectors(vectors, input_mask, self.config.direction)  # [B, hidden]
            # In both directions this token attends to the whole text.
            bias = attention_bias(input_mask, x.dtype)
            x, probabilities = self.stack[-1](pooled, x, bias, dropout_seed, from_length=1)
            outputs.append(ops.cast(x[:, None], "float32"))
            if output_attentions:
                attentions.append(probabilities)
        return outputs, attentions


def _recomputed(layer: EncoderLayer) -> Callable:
    """Returns a function like a layer whose inner values the backward pass computes again.

    It returns None instead of the attention probabilities.
    """

    def apply(x: Tensor, _: Any, bias: Tensor, dropout_seed: Tensor | None):
        # `x` is the only argument that needs a gradient.
        return keras.remat(lambda x: layer(x, x, bias, dropout_seed)[0])(x), None

    return apply

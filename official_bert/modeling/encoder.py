"""The Transformer encoder: layers of self-attention and feed-forward networks, post-LN as in tensor2tensor.

The layers work on the batch as one matrix [B*S, hidden], so that every dense layer is a plain matrix product.
"""

import keras
from keras import ops

from official_bert.modeling.attention import Attention, attention_bias, direction_of
from official_bert.modeling.layers import DenseLayer, ResidualOutput
from official_bert.modeling.packing import Packing, pack

_DROPOUTS_PER_LAYER = 3


class EncoderLayer(keras.layers.Layer):
    """One layer: an attention sub-layer, then a feed-forward sub-layer."""

    def __init__(self, config, index: int):
        super().__init__(name=f"layer_{index}")
        self.config = config
        self.dropout_index = 1 + _DROPOUTS_PER_LAYER * index  # the embeddings have index 0

    def build(self, input_shape):
        config = self.config
        self.attention = Attention(config, self.dropout_index)
        self.attention.build(input_shape)
        self.intermediate = DenseLayer(
            config, config.intermediate_size, config.hidden_act, name="intermediate"
        )
        self.intermediate.build(input_shape)
        self.merge = ResidualOutput(config, self.dropout_index + 2)
        self.merge.build((*input_shape[:-1], config.intermediate_size))

    def call(self, from_x, x, bias, dropout_seed=None, from_length=None):
        """Returns float[B*F, hidden] and float[B, N, F, T], as SelfAttention, whose arguments these are."""
        attended, probabilities = self.attention(from_x, x, bias, dropout_seed, from_length=from_length)
        return self.merge(self.intermediate(attended), attended, dropout_seed), probabilities


class Encoder(keras.layers.Layer):
    """The stack of all encoder layers.

    Attributes:
        recomputes: whether the backward pass computes each layer again instead of keeping its inner values.
        packs: whether padding is left out of the computation; the outputs are 0 in its places then.
    """

    def __init__(self, config, name: str = "encoder"):
        super().__init__(name=name)
        self.config, self.recomputes, self.packs = config, False, False
        self.direction = direction_of(config)

    def build(self, input_shape=None):
        self.stack = [EncoderLayer(self.config, index) for index in range(self.config.num_hidden_layers)]
        for layer in self.stack:
            layer.build((None, self.config.hidden_size))

    def call(self, x, input_mask, dropout_seed=None, first_token_only=False, output_attentions=False):
        """Computes the outputs of all layers.

        Args:
            x: float[B, S, hidden], the embeddings.
            input_mask: int32[B, S], 1 for a token and 0 for padding.
            dropout_seed: int32[2], or None for no dropout.
            first_token_only: whether the last layer is computed only for the token that is pooled, the first or, if
                attention goes from left to right, the last.
            output_attentions: whether the attention probabilities are kept, which an eager call would hold in memory.

        Returns:
            A list of float[B, S, hidden], from the first layer to the last, and a list of the attention probabilities
            of each layer, float[B, N, S, S], or an empty one. With `first_token_only` the last ones are
            float[B, 1, hidden] and float[B, N, 1, S].
        """
        length, hidden = ops.shape(x)[1], self.config.hidden_size
        bias = self.direction.bias(input_mask, x.dtype)
        x = ops.reshape(x, (-1, hidden))
        outputs, all_probabilities = [], []
        if self.packs and not first_token_only and not output_attentions:
            return self._packed_outputs(x, pack(input_mask), dropout_seed, length), all_probabilities
        for layer in self.stack[: -1 if first_token_only else None]:
            if output_attentions:
                x, probabilities = layer(x, x, bias, dropout_seed)
            else:
                x, probabilities = self._applied(layer, x, bias, dropout_seed), None
            outputs.append(ops.reshape(x, (-1, length, hidden)))
            if output_attentions:
                all_probabilities.append(probabilities)
        if first_token_only:
            pooled = self.direction.pooled_vectors(
                ops.reshape(x, (-1, length, hidden)), input_mask
            )  # [B, hidden]
            # In both directions this token attends to the whole text.
            bias = attention_bias(input_mask, x.dtype)
            x, probabilities = self.stack[-1](pooled, x, bias, dropout_seed, from_length=1)
            outputs.append(x[:, None])
            if output_attentions:
                all_probabilities.append(probabilities)
        return outputs, all_probabilities

    def _packed_outputs(self, x, packing: Packing, dropout_seed, length) -> list:
        """Returns the outputs of all layers, padded again, float[B, S, hidden], for float[B*S, hidden]."""
        x, outputs = packing.packed(x), []
        for layer in self.stack:
            x = self._applied(layer, x, packing, dropout_seed)
            outputs.append(ops.reshape(packing.padded(x), (-1, length, self.config.hidden_size)))
        return outputs

    def _applied(self, layer: EncoderLayer, x, bias, dropout_seed):
        """Returns the output of a layer, whose inner values the backward pass keeps or computes again."""
        on_itself = _on_itself(layer, bias, dropout_seed)
        return keras.remat(on_itself)(x) if self.recomputes else on_itself(x)


def _on_itself(layer: EncoderLayer, bias, dropout_seed):
    """Returns a layer as a function of its input alone, the only argument that needs a gradient."""
    return lambda x: layer(x, x, bias, dropout_seed)[0]


def set_recomputation(model: keras.Model, recomputes: bool):
    """Sets `recomputes` of the encoders in a model."""
    for encoder in _encoders(model):
        encoder.recomputes = recomputes


def set_packing(model: keras.Model, packs: bool):
    """Sets `packs` of the encoders in a model."""
    for encoder in _encoders(model):
        encoder.packs = packs


def _encoders(model: keras.Model) -> list[Encoder]:
    return [layer for layer in model._flatten_layers() if isinstance(layer, Encoder)]

"""The Transformer encoder: layers of self-attention and feed-forward, post-LN as in tensor2tensor.

Inside, the batch is one matrix [B*S, hidden]: every dense product is then a plain matrix product.
"""

import keras
from keras import ops

from official_bert.modeling.attention import Attention, attention_bias
from official_bert.modeling.layers import DenseLayer, ResidualOutput

_DROPOUTS_A_LAYER = 3


class EncoderLayer(keras.layers.Layer):
    """One layer: attention sub-layer, then feed-forward sub-layer."""

    def __init__(self, config, index: int):
        super().__init__(name=f"layer_{index}")
        self.config = config
        self.dropout_index = 1 + _DROPOUTS_A_LAYER * index  # 0 is the embeddings'

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
        """Float[B*F, hidden]; arguments as SelfAttention's."""
        attended = self.attention(from_x, x, bias, dropout_seed, from_length=from_length)
        return self.merge(self.intermediate(attended), attended, dropout_seed)


class Encoder(keras.layers.Layer):
    """All layers; gives the output of each."""

    def __init__(self, config, name: str = "encoder"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape=None):
        self.stack = [EncoderLayer(self.config, index) for index in range(self.config.num_hidden_layers)]
        for layer in self.stack:
            layer.build((None, self.config.hidden_size))

    def call(self, x, input_mask, dropout_seed=None, first_token_only=False):
        """Float[B, S, hidden] and int32[B, S] to a list of float[B, S, hidden], first layer first.

        With `first_token_only` the last of them is float[B, 1, hidden].
        """
        length, hidden = ops.shape(x)[1], self.config.hidden_size
        bias = attention_bias(input_mask, x.dtype)
        x = ops.reshape(x, (-1, hidden))
        outputs = []
        for layer in self.stack[: -1 if first_token_only else None]:
            x = layer(x, x, bias, dropout_seed)
            outputs.append(ops.reshape(x, (-1, length, hidden)))
        if first_token_only:
            first = ops.reshape(x, (-1, length, hidden))[:, 0]  # [B, hidden]
            outputs.append(self.stack[-1](first, x, bias, dropout_seed, from_length=1)[:, None])
        return outputs

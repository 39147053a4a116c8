"""What every part of the model is made of: dense layers, layer norms and the sum that ends a sub-layer.

Children are made in `build`, never in `__init__`: only then do their variables carry the parent's name, and the
names of the variables are those of the original's checkpoints.
"""

import keras

from official_bert.modeling.activations import get_activation
from official_bert.modeling.dropout import dropout

LAYER_NORM_EPSILON = 1e-12


def create_initializer(initializer_range: float = 0.02):
    """Normal with standard deviation `initializer_range`, cut at two of them."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense(units: int, config, activation=None, name: str = "dense"):
    """A dense layer as the encoder has it: kernel [in, units], zero bias.

    Args:
        units: output width.
        config: BertConfig.
        activation: name or function, None for linear.
    """
    return keras.layers.Dense(
        units,
        activation=get_activation(activation),
        kernel_initializer=create_initializer(config.initializer_range),
        name=name,
    )


def layer_norm():
    """Layer norm over the last axis, epsilon 1e-12, in float32 whatever the compute type."""
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, name="LayerNorm", dtype="float32")


class DenseLayer(keras.layers.Layer):
    """A scope that holds one dense layer: `intermediate/dense`, `pooler/dense`."""

    def __init__(self, config, units: int, activation, name: str):
        super().__init__(name=name)
        self.config, self.units, self.activation = config, units, activation

    def build(self, input_shape):
        self.dense = dense(self.units, self.config, self.activation)
        self.dense.build(input_shape)

    def call(self, x):
        return self.dense(x)


class ResidualOutput(keras.layers.Layer):
    """The end of a sub-layer: dense, dropout, sum with the sub-layer's input, layer norm (post-LN)."""

    def __init__(self, config, dropout_index: int, name: str = "output"):
        super().__init__(name=name)
        self.config, self.dropout_index = config, dropout_index

    def build(self, input_shape):
        self.dense = dense(self.config.hidden_size, self.config)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build((*input_shape[:-1], self.config.hidden_size))

    def call(self, x, residual, dropout_seed=None):
        """Float[..., in] and float[..., hidden] to float[..., hidden]."""
        x = dropout(self.dense(x), self.config.hidden_dropout_prob, dropout_seed, self.dropout_index)
        return self.norm(x + residual)

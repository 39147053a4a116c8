"""The building blocks of the model: dense layers, layer norms, and the end of a sub-layer.

All layers create their children in `build`, not in `__init__`. Only then do the children's variables carry the name
of the parent, as the names of the original's checkpoints require.

Under a mixed policy of Keras (training/precision.py) the layers hand each other 16-bit floats and multiply them; what
lies between the products is computed in float32: biases, activations, sums of residuals, layer norms and softmax. A
sum over a batch, such as the gradient of a bias, would lose most of its terms in 16 bits. Under the policy of an export
in 16 bits, kernels and tables of embeddings are stored in them, too.
"""

import keras
from keras import ops

from official_bert.modeling.activations import get_activation
from official_bert.modeling.dropout import dropout

LAYER_NORM_EPSILON = 1e-12


def create_initializer(initializer_range: float = 0.02):
    """Returns a normal initializer with standard deviation `initializer_range`, truncated at two deviations."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def float32_weight(layer: keras.layers.Layer, name: str, shape: tuple[int, ...], initializer="zeros"):
    """Adds a weight to a layer that is stored and used in float32 whatever the types of the layer are."""
    return layer.add_weight(shape, initializer, dtype="float32", name=name, autocast=False)


def dense(units: int, config, activation=None, name: str = "dense"):
    """Returns a dense layer of the encoder: a kernel [in, units] and a bias that starts at zero.

    Args:
        units: the width of the output.
        config: the BertConfig, for the initial values of the kernel.
        activation: a name or a function; None means linear.
        name: the name of the layer.
    """
    return Dense(units, get_activation(activation), create_initializer(config.initializer_range), name)


class Dense(keras.layers.Layer):
    """A dense layer whose bias and activation are float32 whatever the compute type is; `dense` makes it."""

    def __init__(self, units: int, activation, initializer, name: str):
        super().__init__(name=name)
        self.units, self.activation, self.initializer = units, activation, initializer

    def build(self, input_shape):
        self.kernel = self.add_weight(
            (input_shape[-1], self.units), initializer=self.initializer, name="kernel"
        )
        self.bias = float32_weight(self, "bias", (self.units,))

    def call(self, x):
        """Returns float[..., units] for `x`, float[..., in]."""
        x = ops.add(ops.cast(ops.matmul(x, self.kernel), "float32"), self.bias)
        if self.activation is not None:
            x = self.activation(x)
        return ops.cast(x, self.compute_dtype)


def layer_norm():
    """Returns a layer norm over the last axis with epsilon 1e-12, in float32 whatever the compute type is."""
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, name="LayerNorm", dtype="float32")


class DenseLayer(keras.layers.Layer):
    """A variable scope with one dense layer, such as `intermediate/dense` or `pooler/dense`."""

    def __init__(self, config, units: int, activation, name: str):
        super().__init__(name=name)
        self.config, self.units, self.activation = config, units, activation

    def build(self, input_shape):
        self.dense = dense(self.units, self.config, self.activation)
        self.dense.build(input_shape)

    def call(self, x):
        return self.dense(x)


class ResidualOutput(keras.layers.Layer):
    """The end of a sub-layer: a dense layer, dropout, the sum with the sub-layer's input, and layer norm (post-LN)."""

    def __init__(self, config, dropout_index: int, name: str = "output"):
        super().__init__(name=name)
        self.config, self.dropout_index = config, dropout_index

    def build(self, input_shape):
        self.dense = dense(self.config.hidden_size, self.config)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build((*input_shape[:-1], self.config.hidden_size))

    def call(self, x, residual, dropout_seed=None):
        """Returns float[..., hidden] for `x`, float[..., in], and `residual`, float[..., hidden]."""
        x = dropout(self.dense(x), self.config.hidden_dropout_prob, dropout_seed, self.dropout_index)
        return self.norm(ops.cast(x, "float32") + ops.cast(residual, "float32"))

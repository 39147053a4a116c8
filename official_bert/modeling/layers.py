"""The building blocks of the model: activations, dense layers, dropout, layer norms, the end of a
sub-layer, shapes.

All layers build their children in their own `build`. Only then do the children's variables carry
the name of the parent, as the names of the original's checkpoints require.

Under a mixed policy of Keras (training/precision.py) the layers multiply 16-bit floats, and compute
what lies between the products in float32: a sum over a batch, such as the gradient of a bias, would
lose most of its terms in 16 bits.
"""

import math

import keras
from keras import ops

from official_bert import config
from official_bert.io.errors import InputError

LAYER_NORM_EPSILON = 1e-12
_STRIDE = 0x9E3779B1  # odd, about 2^32 divided by the golden ratio


@ops.custom_gradient
def gelu(x):
    """Gaussian error linear unit in its tanh form, which the released checkpoints were trained
    with.

        0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

    The erf form is `gelu_erf`; the two differ by up to 5e-4. Source: Hendrycks and Gimpel (2016).
    """
    # Products compute the polynomials, because a power costs more than all the rest. The derivative
    # is written out because it needs only x and the gate; automatic differentiation would compute
    # and keep twice as much.
    slope = math.sqrt(2.0 / math.pi)
    gate = 0.5 + 0.5 * ops.tanh(x * (slope + (0.044715 * slope) * x * x))

    def gradient(upstream):
        inner_slope = 2.0 * slope + (6.0 * 0.044715 * slope) * x * x
        return upstream * (gate + gate * (1.0 - gate) * x * inner_slope)

    return x * gate, gradient


def gelu_erf(x):
    """Gaussian error linear unit in its exact (erf) form, which Hugging Face calls `gelu`."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


# Those of config.ACTIVATIONS that are not Keras' own of the same name.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": None,
}


def get_activation(activation_string):
    """Returns the activation function of a name of ACTIVATIONS in config.py, in upper or lower
    case.

    For "", "linear" and None it returns None, and any other value that is not a string unchanged.
    """
    if activation_string is not None and not isinstance(activation_string, str):
        return activation_string
    name = (activation_string or "linear").lower()
    if name not in config.ACTIVATIONS:
        raise InputError(
            f"no activation is called {activation_string!r}; use one of "
            f"{', '.join(config.ACTIVATIONS)}"
        )
    return ACTIVATIONS[name] if name in ACTIVATIONS else keras.activations.get(name)


def create_initializer(initializer_range: float = 0.02):
    """Returns a normal initializer with standard deviation `initializer_range`, truncated at two
    deviations.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def float32_weight(
    layer: keras.layers.Layer, name: str, shape: tuple[int, ...], initializer="zeros"
):
    """Adds a weight to a layer that is stored and used in float32 whatever the types of the
    layer are.
    """
    return layer.add_weight(shape, initializer, dtype="float32", name=name, autocast=False)


class Dense(keras.layers.Dense):
    """Keras' dense layer, with a bias and an activation that are float32 whatever the compute type
    is.

    `enable_lora` and `quantize` are those of Keras. A `.keras` file of a quantized model of this
    project cannot be
    loaded: save the model before, and quantize what is loaded.
    """

    def __init__(self, units: int, config, activation=None, name: str = "dense"):
        super().__init__(
            units,
            get_activation(activation),
            use_bias=False,  # `build` adds it in float32
            kernel_initializer=create_initializer(config.initializer_range),
            name=name,
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.bias = float32_weight(self, "bias", (self.units,))

    def call(self, x):
        """Returns float[..., units] for `x`, float[..., in]."""
        return ops.cast(super().call(x), self.compute_dtype)

    def apply(self, x, dropout_seed=None):
        """Returns what a call returns.

        Args:
            x: float[N, in].
            dropout_seed: int32[2], the seed of the dropout around this layer; None without
                dropout. A subclass that is faster in trainings reads it.
        """
        return self(x)

    def enable_lora(self, *arguments, **keywords):
        super().enable_lora(*arguments, **keywords)
        for variable in (self._kernel, self.lora_kernel_a, self.lora_kernel_b):
            # Keras adds them up: what LoRA learns would be lost in the rounding to 16 bits.
            variable._autocast = False

    @property
    def kernel(self):
        """The kernel that is multiplied, with what LoRA adds; Keras before 3.15 would leave that
        sum in float32.
        """
        kernel = super().kernel
        return ops.cast(kernel, self.compute_dtype) if self.lora_enabled else kernel

    def merged_kernel(self):
        """Returns the sum of the kernel and what LoRA adds to it, in the type of the kernel."""
        added = (
            self.lora_alpha / self.lora_rank * ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        )
        return ops.cast(self._kernel + added, self._kernel.dtype)

    def quantize(self, mode=None, type_check=True, **arguments):
        # Keras asks whether a subclass means it.
        super().quantize(mode, type_check=False, **arguments)


def dropout(x, rate: float, seed, index: int):
    """Applies inverted dropout, float like `x`, with the mask of `dropout_mask`."""
    if seed is None or not rate:
        return x
    import tensorflow as tf

    keep = dropout_mask(x, rate, seed, index)
    return tf.where(keep, x * (1.0 / (1.0 - rate)), tf.zeros([], x.dtype))


def dropout_mask(x, rate: float, seed, index: int):
    """Draws a mask, bool like `x`, that depends only on a seed, so that a resumed run draws the
    same masks.

    Each decision compares 16 bits of a philox stream with the rate, as integers. XLA and plain
    TensorFlow then draw the same mask, which is not the case for uniform floats. The effective rate
    differs from `rate` by at most 1/2^17. The seed, int32[2], is another one in every step, replica
    and micro-batch; None means no dropout. `index` is the number of the dropout in the model.
    """
    import tensorflow as tf

    # The generator scrambles its seed, so two different seeds give unrelated streams. The stride
    # keeps the seeds of the dropouts of one step different from those of steps with adjacent seeds.
    seed = seed + tf.constant([(index * _STRIDE + 2**31) % 2**32 - 2**31, 0], tf.int32)
    count = tf.size(x)
    words = tf.random.stateless_uniform(
        [(count + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    draws = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    return tf.reshape(draws, tf.shape(x)) >= tf.constant(round(rate * 2**16), tf.uint16)


def draw_seed():
    """Draws a dropout seed, int32[2], for a call without one."""
    import tensorflow as tf

    return tf.random.uniform([2], minval=tf.int32.min, maxval=tf.int32.max, dtype=tf.int32)


def layer_norm():
    """Returns a layer norm over the last axis with epsilon 1e-12, in float32 whatever the
    compute type is.
    """
    return keras.layers.LayerNormalization(
        epsilon=LAYER_NORM_EPSILON, name="LayerNorm", dtype="float32"
    )


class Scope(keras.layers.Layer):
    """A variable scope of the original, such as `self`, which names the variables of its
    children, its attributes.
    """

    def __init__(self, name: str, **children: keras.layers.Layer):
        super().__init__(name=name)
        self.children = list(children)
        for attribute, layer in children.items():
            setattr(self, attribute, layer)

    def build(self, input_shape=None):
        for attribute in self.children:
            getattr(self, attribute).build(input_shape)


class DenseLayer(Scope):
    """A scope with one dense layer; Keras files a layer of a model under the name of its class,
    which must stay.
    """


class ResidualOutput(keras.layers.Layer):
    """The end of a sub-layer: a dense layer, dropout, the sum with the sub-layer's input, and
    layer norm (post-LN).
    """

    def __init__(self, config, dropout_index: int, name: str = "output"):
        super().__init__(name=name)
        self.config, self.dropout_index = config, dropout_index

    def build(self, input_shape):
        self.dense = Dense(self.config.hidden_size, self.config)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build((*input_shape[:-1], self.config.hidden_size))

    def call(self, x, residual, dropout_seed=None):
        """Returns float[..., hidden] for `x`, float[..., in], and `residual`, float[..., hidden]."""
        rate = self.config.hidden_dropout_prob
        x = dropout(self.dense(x), rate, dropout_seed, self.dropout_index)
        return self.norm(ops.cast(x, "float32") + ops.cast(residual, "float32"))


def get_shape_list(tensor, expected_rank=None, name=None):
    """Returns the shape of a tensor: an int for each dimension or, where tracing does not know it,
    an int tensor.

    Args:
        expected_rank: the allowed rank, or a list of allowed ranks; None allows any.
        name: the name of the tensor in the error message.
    """
    shape = list(ops.shape(tensor))
    if expected_rank is not None:
        allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
        if len(shape) not in allowed:
            label = name or getattr(tensor, "name", None) or "tensor"
            raise ValueError(
                f"{label}: rank {len(shape)} (shape {tuple(tensor.shape)}) is not the expected "
                f"rank {expected_rank}"
            )
    return shape


def gather_indexes(sequence_tensor, positions):
    """Returns the vectors of float[B, S, hidden] at positions int32[B, P], each in [0, S):
    float[B*P, hidden].
    """
    batch, length, width = get_shape_list(sequence_tensor, expected_rank=3)
    offsets = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
    return ops.take(
        ops.reshape(sequence_tensor, (-1, width)), ops.reshape(positions + offsets, (-1,)), axis=0
    )

"""The building blocks of the model: activations, dense layers, dropout, layer norms, shapes.

All layers build their children in their own `build`. Only then do the children's variables have the
name of the parent, as the names of the original's checkpoints require.

Under a mixed policy of Keras (training/precision.py) the layers multiply 16-bit floats, and compute
everything between the products in float32. A sum over a batch, such as the gradient of a bias,
would lose most of its terms in 16 bits.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from official_bert import config
from official_bert.config import BertConfig
from official_bert.io.errors import InputError

Tensor = Any  # a tensor of the backend of Keras, or a KerasTensor

LAYER_NORM_EPSILON = 1e-12
_DRAWS_WEIGHTS = contextvars.ContextVar("draws_weights", default=True)
# The functions of `override_calls`, the innermost first.
_OVERRIDES: contextvars.ContextVar = contextvars.ContextVar("overrides", default=())


@contextlib.contextmanager
def override_calls(compute: Callable[..., Any]) -> Iterator[None]:
    """A context in which a function computes the calls of encoders and of BiLSTMs.

    A converter of exports uses it to trace a model without these layers. In a context inside
    another one, the function of the outer one gets the calls that the inner one leaves.

    Args:
        compute: a function of the layer and the inputs of its call. It returns None to leave a
            call.
    """
    token = _OVERRIDES.set((compute, *_OVERRIDES.get()))
    try:
        yield
    finally:
        _OVERRIDES.reset(token)


def compute_override(layer: keras.layers.Layer, *inputs: Any) -> Any:
    """Returns the output of a layer in a context of `override_calls`; None outside of any, and if
    all functions leave the call.

    Args:
        layer: the layer.
        *inputs: the inputs of its call.
    """
    for compute in _OVERRIDES.get():
        output = compute(layer, *inputs)
        if output is not None:
            return output
    return None


@ops.custom_gradient
def gelu(x: Tensor) -> Any:
    """Computes the Gaussian error linear unit in its tanh form.

        0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

    The released checkpoints were trained with it. The erf form is `gelu_erf`; the two differ by up
    to 5e-4. Source: Hendrycks and Gimpel (2016).

    Args:
        x: float of any shape.

    Returns:
        float like `x`.
    """
    # Products compute the polynomials, because a power costs more than all the rest. The derivative
    # is written out because it needs only x and the gate. Automatic differentiation would compute
    # and keep twice as much.
    slope = math.sqrt(2.0 / math.pi)
    inner = x * (slope + (0.044715 * slope) * x * x)
    gate = 0.5 + 0.5 * ops.tanh(inner)

    def gradient(upstream: Tensor):
        inner_slope = 2.0 * slope + (6.0 * 0.044715 * slope) * x * x
        derivative = gate + gate * (1.0 - gate) * x * inner_slope
        return upstream * derivative

    return x * gate, gradient


def gelu_erf(x: Tensor) -> Tensor:
    """Computes the Gaussian error linear unit in its exact (erf) form.

    Hugging Face calls it `gelu`.

    Args:
        x: float of any shape.

    Returns:
        float like `x`.
    """
    erf = ops.erf(x * math.sqrt(0.5))
    return 0.5 * x * (1.0 + erf)


# The activations of config.ACTIVATIONS that are not those of Keras with the same name.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": None,
}


def get_activation(activation_string: Any) -> Any:
    """Returns the activation function with a name.

    Args:
        activation_string: a name of ACTIVATIONS in config.py, in upper or lower case; or a
            function, which is returned unchanged.

    Returns:
        The function; None for "", "linear" and None.

    Raises:
        InputError: no activation has this name.
    """
    if not isinstance(activation_string, str | None):
        return activation_string
    name = (activation_string or "linear").lower()
    if name not in config.ACTIVATIONS:
        raise InputError(
            f"no activation is called {activation_string!r}; use one of "
            f"{', '.join(config.ACTIVATIONS)}"
        )
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    return keras.activations.get(name)


@contextlib.contextmanager
def without_random_weights() -> Iterator[None]:
    """A context that builds models with zeros, because a checkpoint has all of their weights.

    Drawing the weights of BERT-Base takes 2.5 s of a processor.
    """
    token = _DRAWS_WEIGHTS.set(False)
    try:
        yield
    finally:
        _DRAWS_WEIGHTS.reset(token)


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns an initializer of a normal distribution that is truncated at two deviations.

    In a context of `without_random_weights` it returns zeros.

    Args:
        initializer_range: the standard deviation.
    """
    if not _DRAWS_WEIGHTS.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def float32_weight(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    initializer: Any = "zeros",
) -> keras.Variable:
    """Adds a weight to a layer that is stored and used in float32.

    Args:
        layer: the layer, which may have other types.
        name: the name of the weight.
        shape: its shape.
        initializer: an initializer of Keras or its name.
    """
    return layer.add_weight(
        shape,
        initializer,
        dtype="float32",
        name=name,
        autocast=False,
    )


class Dense(keras.layers.Dense):
    """The dense layer of Keras, with a bias and an activation in float32.

    `enable_lora` and `quantize` are those of Keras. A `.keras` file of a quantized model of this
    project cannot be loaded. Save the model first, and quantize the model that is loaded.
    """

    def __init__(
        self,
        units: int,
        config: BertConfig,
        activation: Any = None,
        name: str = "dense",
    ):
        """Makes a layer without weights.

        Args:
            units: the number of outputs.
            config: the configuration, whose `initializer_range` the kernel has.
            activation: the activation as `get_activation` takes it.
            name: the name of the layer.
        """
        super().__init__(
            units,
            get_activation(activation),
            use_bias=False,  # `build` adds a bias in float32
            kernel_initializer=create_initializer(config.initializer_range),
            name=name,
        )

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.bias = float32_weight(self, "bias", (self.units,))

    def call(self, x: Tensor) -> Tensor:
        """Returns float[..., units] for `x`, float[..., in]."""
        return ops.cast(super().call(x), self.compute_dtype)

    def apply(self, x: Tensor, dropout_seed: Tensor | None = None) -> Tensor:
        """Returns the result of a call.

        Args:
            x: float[N, in].
            dropout_seed: int32[2], the seed of the dropout around this layer; None without
                dropout. A subclass that is faster in trainings reads it.
        """
        return self(x)

    def enable_lora(self, *arguments: Any, **keywords: Any) -> None:
        """Adds the kernels of LoRA; the arguments are those of Keras."""
        super().enable_lora(*arguments, **keywords)
        for variable in (self._kernel, self.lora_kernel_a, self.lora_kernel_b):
            # Keras adds up these kernels. The rounding to 16 bits would lose what LoRA learns.
            variable._autocast = False

    @property
    def kernel(self) -> Tensor:
        """The kernel that is multiplied, with the product that LoRA adds.

        Keras before 3.15 would leave this sum in float32.
        """
        kernel = super().kernel
        return ops.cast(kernel, self.compute_dtype) if self.lora_enabled else kernel

    def merged_kernel(self) -> Tensor:
        """Returns the sum of the kernel and LoRA's product, in the type of the kernel."""
        scale = self.lora_alpha / self.lora_rank
        added = scale * ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return ops.cast(self._kernel + added, self._kernel.dtype)

    def quantize(self, mode: Any = None, type_check: bool = True, **arguments: Any) -> None:
        """Quantizes the kernel; the arguments are those of Keras.

        Keras refuses subclasses with `type_check`, which is therefore ignored.
        """
        super().quantize(mode, type_check=False, **arguments)


def dropout(x: Tensor, rate: float, seed: Tensor | None, index: int) -> Tensor:
    """Applies inverted dropout with a mask of `dropout_masks.py`.

    Args:
        x: float of any shape, in which the first dimension is that of the examples, or a product of
            it and other dimensions.
        rate: the share of the values that become 0.
        seed: int32[2], or a seed of `dropout_masks.part_seed`; None for no dropout.
        index: the number of this dropout in the model.

    Returns:
        float like `x`.
    """
    if seed is None or not rate:
        return x
    import tensorflow as tf

    from official_bert.modeling.dropout_masks import dropout_mask

    keep = dropout_mask(x, rate, seed, index)
    return tf.where(
        keep,
        x * (1.0 / (1.0 - rate)),
        tf.zeros([], x.dtype),
    )


def draw_seed() -> Tensor:
    """Draws a dropout seed, int32[2], for a call without one."""
    import tensorflow as tf

    return tf.random.uniform(
        [2],
        minval=tf.int32.min,
        maxval=tf.int32.max,
        dtype=tf.int32,
    )


def to_seed(seed: Any) -> Tensor:
    """Returns the dropout seed of a caller as int32[2] or int32[4].

    Args:
        seed: int32[2], or a seed of `dropout_masks.part_seed`; also a list, an array, integers of
            another type, or one number for both.
    """
    import tensorflow as tf

    seed = ops.convert_to_tensor(seed, "int32")
    # Where tracing does not know the shape, the seed is that of a whole batch.
    return seed if seed.shape.num_elements() == 4 else tf.broadcast_to(seed, [2])


def layer_norm() -> keras.layers.LayerNormalization:
    """Returns a layer norm over the last axis, with epsilon 1e-12, which computes in float32."""
    return keras.layers.LayerNormalization(
        epsilon=LAYER_NORM_EPSILON,
        name="LayerNorm",
        dtype="float32",
    )


class Scope(keras.layers.Layer):
    """A variable scope of the original, such as `self`.

    Its name is a part of the names of its children's variables. The children are attributes.
    """

    def __init__(self, name: str, **children: keras.layers.Layer):
        """Makes a scope.

        Args:
            name: the name of the scope.
            **children: the layers by the names of the attributes.
        """
        super().__init__(name=name)
        self.children = list(children)
        for attribute, layer in children.items():
            setattr(self, attribute, layer)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of all children.

        Args:
            input_shape: the shape of the input of every child; None suits children that do not read
                it.
        """
        for attribute in self.children:
            getattr(self, attribute).build(input_shape)


class DenseLayer(Scope):
    """A scope with one dense layer.

    Keras files a layer of a model under the name of its class, so this name must stay.
    """


class ResidualOutput(keras.layers.Layer):
    """The end of a sub-layer: dense layer, dropout, sum with the sub-layer's input, layer norm."""

    def __init__(self, config: BertConfig, dropout_index: int, name: str = "output"):
        """Makes a layer without weights.

        Args:
            config: the configuration of the model.
            dropout_index: the number of the dropout in the model.
            name: the name of the layer.
        """
        super().__init__(name=name)
        self.config = config
        self.dropout_index = dropout_index

    def build(self, input_shape: Any) -> None:
        """Makes the dense layer and the layer norm, with their weights.

        Args:
            input_shape: the shape of the input of the dense layer, [..., in].
        """
        self.dense = Dense(self.config.hidden_size, self.config)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build((*input_shape[:-1], self.config.hidden_size))

    def call(self, x: Tensor, residual: Tensor, dropout_seed: Tensor | None = None) -> Tensor:
        """Returns float[..., hidden].

        Args:
            x: the output of the part before, float[..., in].
            residual: the input of the sub-layer, float[..., hidden].
            dropout_seed: int32[2]; None for no dropout.
        """
        rate = self.config.hidden_dropout_prob
        x = dropout(self.dense(x), rate, dropout_seed, self.dropout_index)
        x = ops.cast(x, "float32")
        residual = ops.cast(residual, "float32")
        return self.norm(x + residual)


def get_shape_list(
    tensor: Tensor,
    expected_rank: int | list[int] | None = None,
    name: str | None = None,
) -> list:
    """Returns the shape of a tensor.

    Args:
        tensor: the tensor.
        expected_rank: the allowed rank, or a list of allowed ranks; None allows any.
        name: the name of the tensor in the error message; None for the name that it has.

    Returns:
        An int for each dimension or, where tracing does not know it, an int tensor.

    Raises:
        ValueError: the tensor has another rank.
    """
    shape = list(ops.shape(tensor))
    if expected_rank is not None:
        allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
        if len(shape) not in allowed:
            label = name or getattr(tensor, "name", None) or "tensor"
            raise ValueError(
                f"{label}: rank {len(shape)} "
                f"(shape {tuple(tensor.shape)}) is not the expected "
                f"rank {expected_rank}"
            )
    return shape


def gather_indexes(sequence_tensor: Tensor, positions: Tensor) -> Tensor:
    """Returns the vectors of sequences at positions, float[B*P, hidden].

    Args:
        sequence_tensor: float[B, S, hidden].
        positions: int32[B, P], each in [0, S).
    """
    batch, length, width = get_shape_list(sequence_tensor, expected_rank=3)
    offsets = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
    vectors = ops.reshape(sequence_tensor, (-1, width))
    rows = ops.reshape(positions + offsets, (-1,))
    return ops.take(vectors, rows, axis=0)

"""Layers for a bfloat16 training on CPUs, in which XLA compiles what lies between the products.

TensorFlow passes over memory for each operation and each cast, a dozen times for gelu. The
functions of this module need few passes. TensorFlow keeps the products, for which XLA would take
twice as long. All functions compute in float32. `layer_classes.py` chooses the classes.

N rows
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from official_bert.modeling import attention, layers

_compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
_float32 = functools.partial(tf.cast, dtype=tf.float32)
_bfloat16 = functools.partial(tf.cast, dtype=tf.bfloat16)


def is_available() -> bool:
    """Returns whether the classes fit this machine: accelerators run the plain operations."""
    return not any(map(tf.config.list_physical_devices, ("GPU", "TPU_SYSTEM")))


class Dense(layers.Dense):
    """A dense layer whose bias and activation are one compiled function."""

    def apply(self, x: tf.Tensor, dropout_seed: tf.Tensor | None = None) -> tf.Tensor:
        if not _is_compiled(self, x, dropout_seed):
            return super().apply(x, dropout_seed)
        return activated(self.activation)(_product(self, x), self.bias)


class ResidualOutput(layers.ResidualOutput):
    """The end of a sub-layer, one compiled function after the product."""

    def call(
        self,
        x: tf.Tensor,
        residual: tf.Tensor,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns float[..., hidden], as the class of `layers` does.

        Args:
            x: the output of the part before, float[..., in].
            residual: the input of the sub-layer, float[..., hidden].
            dropout_seed: int32[2]; None for no dropout.
        """
        if not _is_compiled(self.dense, x, dropout_seed):
            return super().call(x, residual, dropout_seed)
        rate = self.config.hidden_dropout_prob
        mask = layers.dropout_mask(residual, rate, dropout_seed, self.dropout_index)
        return merged(
            _product(self.dense, x),
            residual,
            self.dense.bias,
            self.norm.gamma,
            self.norm.beta,
            layers.LAYER_NORM_EPSILON,
            mask,
            rate,
        )


class Attention(attention.Attention):
    """Attention whose softmax and dropout are one compiled function."""

    dense_class = Dense
    residual_output_class = ResidualOutput

    def drop_probabilities(
        self,
        probabilities: tf.Tensor,
        scores: tf.Tensor,
        bias: tf.Tensor,
        dropout_seed: tf.Tensor | None,
    ) -> tf.Tensor:
        if not _is_compiled(self, scores, dropout_seed):
            return super().drop_probabilities(probabilities, scores, bias, dropout_seed)
        rate = self.config.attention_probs_dropout_prob
        mask = layers.dropout_mask(scores, rate, dropout_seed, self.dropout_index)
        return attention_weights(scores, ops.cast(bias, "float32"), mask, rate)


def _product(dense: layers.Dense, x: tf.Tensor) -> tf.Tensor:
    """Returns the product alone, without the bias and the activation."""
    x = ops.cast(x, dense.compute_dtype)
    kernel = ops.cast(dense.kernel, dense.compute_dtype)
    return ops.matmul(x, kernel)


def _is_compiled(
    layer: keras.layers.Layer,
    x: tf.Tensor,
    dropout_seed: tf.Tensor | None,
) -> bool:
    """Returns whether a call of a layer uses the compiled functions.

    They are for trainings with dropout, whose seed is not None, and for graphs of known shapes,
    since XLA compiles again for each shape.
    """
    if dropout_seed is None or layer.compute_dtype != "bfloat16" or layer.quantization_mode:
        return False
    return not tf.executing_eagerly() and x.shape.is_fully_defined()


def _region(function: Callable) -> Callable:
    """Compiles a function of tensors and its gradient, which computes the function again.

    Only matrices and vectors of floats have gradients.
    """

    def is_variable(argument: tf.Tensor) -> bool:
        return argument.dtype.is_floating and argument.shape.rank > 0

    @_compiled
    def backward(arguments: Sequence[tf.Tensor], upstream: tf.Tensor) -> list:
        floats = [argument for argument in arguments if is_variable(argument)]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            output = function(*arguments)
        gradients = iter(tape.gradient(output, floats, upstream))
        return [next(gradients) if is_variable(argument) else None for argument in arguments]

    forward = _compiled(function)

    def forward_with_gradient(*arguments: Any):
        def gradient(upstream: tf.Tensor):
            return backward(arguments, upstream)

        return forward(*arguments), gradient

    return tf.custom_gradient(forward_with_gradient)


@functools.cache
def activated(activation: Callable | None) -> Callable:
    """Returns a function that adds a bias to a product and applies an activation.

    The function takes bfloat16[N, width] and float32[width].

    Args:
        activation: a function of tensors; None for none.
    """
    if activation:
        return _region(lambda product, bias: _bfloat16(activation(_float32(product) + bias)))

    # TensorFlow adds a bias without an activation within the product before.
    column_sums = _compiled(lambda x: tf.reduce_sum(_float32(x), axis=0))

    def add_bias(x: tf.Tensor, bias: tf.Tensor):
        def gradient(upstream: tf.Tensor):
            return upstream, column_sums(upstream)

        return tf.nn.bias_add(x, _bfloat16(bias)), gradient

    return tf.custom_gradient(add_bias)


@_region
def merged(  # noqa: PLR0913 - the terms of one formula
    product: tf.Tensor,
    residual: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
    keep: tf.Tensor,
    rate: float,
) -> tf.Tensor:
    """Adds a bias, applies dropout, adds the residual and normalises, bfloat16[N, hidden].

    Args:
        product: bfloat16[N, hidden].
        residual: bfloat16[N, hidden].
        bias: float32[hidden].
        gamma: the scale of the layer norm, float32[hidden].
        beta: the offset of the layer norm, float32[hidden].
        epsilon: the constant of the layer norm.
        keep: the mask of dropout, bool[N, hidden], false for a value that becomes 0.
        rate: the rate of dropout.
    """
    x = (_float32(product) + bias) * (1.0 / (1.0 - rate))
    x = tf.where(keep, x, 0.0) + _float32(residual)
    x -= tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(x * x, axis=-1, keepdims=True)
    normalized = x * tf.math.rsqrt(variance + epsilon)
    return _bfloat16(normalized * gamma + beta)


@tf.custom_gradient
def attention_weights(
    scores: tf.Tensor,
    bias: tf.Tensor,
    keep: tf.Tensor,
    rate: float,
) -> tuple[tf.Tensor, Callable]:
    """Returns the probabilities after dropout, bfloat16 like the scores.

    Args:
        scores: bfloat16[B, heads, F, T].
        bias: float32[B, 1, 1 or F, T], which is added to the scores.
        keep: the mask of dropout, bool like the scores.
        rate: the rate of dropout.
    """
    probabilities, weights = _softmax(scores, bias, keep, rate)

    def gradient(upstream: tf.Tensor):
        return _softmax_gradient(probabilities, weights, upstream, rate), None, None, None

    return weights, gradient


@_compiled
def _softmax(
    scores: tf.Tensor,
    bias: tf.Tensor,
    keep: tf.Tensor,
    rate: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    scale = 1.0 / (1.0 - rate)
    probabilities = tf.nn.softmax(_float32(scores) + bias)
    weights = tf.where(keep, probabilities * scale, 0.0)
    return _bfloat16(probabilities), _bfloat16(weights)


@_compiled
def _softmax_gradient(
    probabilities: tf.Tensor,
    weights: tf.Tensor,
    upstream: tf.Tensor,
    rate: float,
) -> tf.Tensor:
    scale = 1.0 / (1.0 - rate)
    probabilities = _float32(probabilities)
    # Where a kept probability is 0 in 16 bits, its gradient is 0 anyway.
    upstream = tf.where(weights != 0.0, _float32(upstream) * scale, 0.0)
    mean = tf.reduce_sum(upstream * probabilities, axis=-1, keepdims=True)
    return _bfloat16(probabilities * (upstream - mean))

"""Layers for a training on CPUs, in which XLA compiles what lies between the products.

TensorFlow passes over memory for each operation and each cast, a dozen times for gelu. The
functions of this module need few passes. TensorFlow keeps the products, for which XLA would take
twice as long. All functions compute in float32, and return the type of the products.
`layer_classes.py` chooses the classes.

B batch   N heads   F from-length   T to-length
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from official_bert.modeling import attention, layers
from official_bert.modeling.dropout_masks import dropout_mask

# Smaller inputs are not worth the seconds of a compilation.
MIN_ELEMENTS = 2**17

_compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
_float32 = functools.partial(tf.cast, dtype=tf.float32)


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
            dropout_seed: int32[2] or int32[4]; None for no dropout.
        """
        if not _is_compiled(self.dense, x, dropout_seed):
            return super().call(x, residual, dropout_seed)
        merge = merged(self.config.hidden_dropout_prob)
        return merge(
            _product(self.dense, x),
            residual,
            self.dense.bias,
            self.norm.gamma,
            self.norm.beta,
            dropout_seed,
            tf.constant(self.dropout_index),
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
        weights = attention_weights(self.config.attention_probs_dropout_prob)
        return weights(
            scores,
            ops.cast(bias, "float32"),
            dropout_seed,
            tf.constant(self.dropout_index),
        )


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
    if dropout_seed is None or layer.quantization_mode or tf.executing_eagerly():
        return False
    return x.shape.is_fully_defined() and x.shape.num_elements() >= MIN_ELEMENTS


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

    The function takes float[rows, width] and float32[width].

    Args:
        activation: a function of tensors; None for none.
    """
    if activation:

        def activate(product: tf.Tensor, bias: tf.Tensor):
            return tf.cast(activation(_float32(product) + bias), product.dtype)

        return _region(activate)

    # TensorFlow adds a bias without an activation within the product before.
    column_sums = _compiled(lambda x: tf.reduce_sum(_float32(x), axis=0))

    def add_bias(x: tf.Tensor, bias: tf.Tensor):
        def gradient(upstream: tf.Tensor):
            return upstream, column_sums(upstream)

        return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient

    return tf.custom_gradient(add_bias)


@functools.cache
def merged(rate: float) -> Callable:
    """Returns a function that adds a bias, applies dropout, adds the residual and normalises.

    The function returns float[rows, hidden] and takes
        product: float[rows, hidden].
        residual: float[rows, hidden].
        bias: float32[hidden].
        gamma: the scale of the layer norm, float32[hidden].
        beta: the offset of the layer norm, float32[hidden].
        seed: the seed of the dropout, int32[2] or int32[4].
        index: the number of the dropout in the model, int32[].

    Args:
        rate: the rate of dropout.
    """
    scale = 1.0 / (1.0 - rate)

    @_region
    def merge(  # noqa: PLR0913 - the terms of one formula
        product: tf.Tensor,
        residual: tf.Tensor,
        bias: tf.Tensor,
        gamma: tf.Tensor,
        beta: tf.Tensor,
        seed: tf.Tensor,
        index: tf.Tensor,
    ) -> tf.Tensor:
        keep = dropout_mask(product, rate, seed, index)
        dropped = tf.where(keep, (_float32(product) + bias) * scale, 0.0)
        x = dropped + _float32(residual)
        x -= tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(x * x, axis=-1, keepdims=True)
        normalized = x * tf.math.rsqrt(variance + layers.LAYER_NORM_EPSILON)
        return tf.cast(normalized * gamma + beta, product.dtype)

    return merge


@functools.cache
def attention_weights(rate: float) -> Callable:
    """Returns a function that computes the attention probabilities after dropout.

    The function returns them in the type and the shape of the scores, and takes
        scores: float[B, N, F, T].
        bias: float32[B, 1, 1 or F, T], which is added to the scores.
        seed: the seed of the dropout, int32[2] or int32[4].
        index: the number of the dropout in the model, int32[].

    Args:
        rate: the rate of dropout.
    """
    scale = 1.0 / (1.0 - rate)

    @_compiled
    def forward(
        scores: tf.Tensor,
        bias: tf.Tensor,
        seed: tf.Tensor,
        index: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        keep = dropout_mask(scores, rate, seed, index)
        probabilities = tf.nn.softmax(_float32(scores) + bias)
        weights = tf.where(keep, probabilities * scale, 0.0)
        return tf.cast(probabilities, scores.dtype), tf.cast(weights, scores.dtype)

    @_compiled
    def backward(
        probabilities: tf.Tensor,
        upstream: tf.Tensor,
        seed: tf.Tensor,
        index: tf.Tensor,
    ) -> tf.Tensor:
        keep = dropout_mask(probabilities, rate, seed, index)
        x = _float32(probabilities)
        upstream_x = tf.where(keep, _float32(upstream) * scale, 0.0)
        mean = tf.reduce_sum(upstream_x * x, axis=-1, keepdims=True)
        return tf.cast(x * (upstream_x - mean), probabilities.dtype)

    @tf.custom_gradient
    def weights(scores: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, index: tf.Tensor):
        probabilities, dropped = forward(scores, bias, seed, index)

        def gradient(upstream: tf.Tensor):
            return backward(probabilities, upstream, seed, index), None, None, None

        return dropped, gradient

    return weights

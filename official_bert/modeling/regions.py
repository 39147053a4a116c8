"""What lies between the bfloat16 products of a training on CPUs, where XLA compiles each function into a few passes.

TensorFlow passes over memory once for each operation, and once more for each cast to float32 and back: after gelu a
dozen times. It keeps the products, for which oneDNN takes half of XLA's time. All functions compute in float32 and
return bfloat16, and their backward passes compute again what they need instead of keeping it. layers.py asks `fit`.

N rows   V vocabulary
"""

from collections.abc import Callable

import tensorflow as tf

from official_bert.modeling.layers import LAYER_NORM_EPSILON


def fit(x: tf.Tensor) -> bool:
    """Whether the functions apply: to graphs, of known shapes, because XLA compiles for each shape, and on CPUs."""
    if tf.executing_eagerly() or not x.shape.is_fully_defined():
        return False
    return not any(map(tf.config.list_physical_devices, ("GPU", "TPU_SYSTEM")))


def _compiled(function: Callable) -> Callable:
    return tf.function(function, jit_compile=True, autograph=False)


def _region(function: Callable) -> Callable:
    """Returns a compiled function of tensors whose compiled gradient computes it again; other types have none."""
    forward = _compiled(function)

    @_compiled
    def backward(arguments, upstream):
        floats = [argument for argument in arguments if argument.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            output = function(*arguments)
        return tape.gradient(output, floats, upstream)

    @tf.custom_gradient
    def call(*arguments):
        def gradient(upstream):
            found = iter(backward(arguments, upstream))
            return [next(found) if argument.dtype.is_floating else None for argument in arguments]

        return forward(*arguments), gradient

    return call


def _float32(x):
    return tf.cast(x, tf.float32)


def _bfloat16(x):
    return tf.cast(x, tf.bfloat16)


@_compiled
def _column_sums(x):
    return tf.reduce_sum(_float32(x), axis=0)


@tf.custom_gradient
def biased(product, bias):
    """Adds float32[width] to bfloat16[N, width]; TensorFlow does it within the product before."""
    return tf.nn.bias_add(product, _bfloat16(bias)), lambda upstream: (upstream, _column_sums(upstream))


def activated(activation: Callable) -> Callable:
    """Returns a function of bfloat16[N, width] and float32[width] that adds the bias and applies the activation."""
    if activation not in _activated:
        _activated[activation] = _region(lambda product, bias: _bfloat16(activation(_float32(product) + bias)))
    return _activated[activation]


_activated: dict[Callable, Callable] = {}


@_region
def merged(product, residual, bias, gamma, beta, keep, scale):
    """Returns the output of a sub-layer, bfloat16[N, hidden]: bias, dropout, sum and layer norm.

    `product` and `residual` are bfloat16[N, hidden], the vectors float32[hidden]; dropout multiplies by `scale`,
    float32[], where `keep`, bool[N, hidden] or bool[], is true.
    """
    x = tf.where(keep, (_float32(product) + bias) * scale, 0.0) + _float32(residual)
    x -= tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(x * x, axis=-1, keepdims=True)
    return _bfloat16(x * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma + beta)


@tf.custom_gradient
def attention_weights(scores, bias, keep, scale):
    """Returns the probabilities after dropout, bfloat16 like `scores`, to which the float32 `bias` is added."""
    probabilities, weights = _softmax(scores, bias, keep, scale)
    return weights, lambda upstream: (_softmax_gradient(probabilities, weights, upstream, scale), None, None, None)


@_compiled
def _softmax(scores, bias, keep, scale):
    probabilities = tf.nn.softmax(_float32(scores) + bias)
    return _bfloat16(probabilities), _bfloat16(tf.where(keep, probabilities * scale, 0.0))


@_compiled
def _softmax_gradient(probabilities, weights, upstream, scale):
    # Of a probability that is 0 in 16 bits the gradient is 0, too, whether dropout kept it or not.
    probabilities, upstream = _float32(probabilities), tf.where(weights != 0.0, _float32(upstream) * scale, 0.0)
    mean = tf.reduce_sum(upstream * probabilities, axis=-1, keepdims=True)
    return _bfloat16(probabilities * (upstream - mean))


@tf.custom_gradient
def cross_entropy(product, bias, labels):
    """Returns the loss, and 1.0 where the label has the highest logit, float32[N]; only the loss has a gradient.

    The logits are the sums of `product`, bfloat16[N, V], and `bias`, float32[V]; `labels` are int32[N].
    """
    losses, is_correct, log_total = _cross_entropy(product, bias, labels)

    def gradient(upstream, _):
        of_logits = _cross_entropy_gradient(product, bias, labels, log_total, upstream)
        # For so many columns a product, which sums in float32, takes half of the time of XLA's sum.
        of_bias = tf.matmul(tf.ones([1, labels.shape[0]], of_logits.dtype), of_logits)
        return of_logits, _float32(of_bias[0]), None

    return (losses, is_correct), gradient


@_compiled
def _cross_entropy(product, bias, labels):
    logits = _float32(product) + bias
    highest = tf.reduce_max(logits, axis=-1)
    log_total = highest + tf.math.log(tf.reduce_sum(tf.exp(logits - highest[:, None]), axis=-1))
    at_label = tf.gather(logits, labels, batch_dims=1)
    return log_total - at_label, _float32(at_label >= highest), log_total


@_compiled
def _cross_entropy_gradient(product, bias, labels, log_total, upstream):
    probabilities = tf.exp(_float32(product) + bias - log_total[:, None])
    return _bfloat16((probabilities - tf.one_hot(labels, product.shape[-1])) * upstream[:, None])

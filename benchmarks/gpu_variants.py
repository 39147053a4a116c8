"""Candidates for a faster pre-training step on GPUs: replacements of parts of the model.

Build and trace a model inside the context `apply_candidates`, which puts the chosen candidates into
the model's modules. They compute what the model computes, except for the rounding of 16 bits and
the dropout masks. They are for steps that XLA compiles as a whole.

B batch   S length   N heads   H head size   W width of a layer
"""

import contextlib
import functools
import math

import tensorflow as tf
from keras import ops

from benchmarks import cudnn_attention, kernel_attention
from official_bert.modeling import attention, dropout_masks, encoder, heads, layers, losses
from official_bert.modeling.layer_classes import LayerClasses

CANDIDATES = {
    "hash": "dropout masks with a hash for each position, as in attention_kernels.py",
    "residual": "the residual stream in bfloat16 between sub-layers",
    "norm": "bias, dropout, sum and layer norm as one function with its own gradient",
    "gelu": "bias and gelu as one function with its own gradient",
    "probabilities": "attention probabilities kept in bfloat16",
    "softmax": "attention probabilities computed again from the scores in the backward pass",
    "loss": "the gradient of the cross-entropy by comparison, without a scatter",
    "qkv": "one product for query, key and value",
    "padded": "the vocabulary padded to a multiple of 64 inside the head",
    "barrier": "gradients start from the inputs of these functions, and keep nothing else",
    "sums": "gradients of biases and layer norms by a product with ones",
    "flash": "attention with cuDNN's kernels, called from a StableHLO module",
    "flash_custom_call": "attention with cuDNN's kernels, called by XlaCustomCallV2",
    "flash_bias": "attention with cuDNN's kernels, with padding as a bias instead of lengths",
    "kernel": "attention with the kernels of attention_kernels.py; needs qkv and hash",
}
FLASH = {"flash", "flash_custom_call", "flash_bias"}
_chosen: set[str] = set()
_STRIDE = 0x9E3779B1  # odd, about 2^32 divided by the golden ratio
_VOCAB_MULTIPLE = 64
_PADDING_BIAS = -1e9  # of the logits of classes that only pad the vocabulary
_NUM_ONES_ROWS = 16  # the fewest rows that a matrix unit multiplies
_NUM_SUM_PARTS = 64  # partial sums of a column, whose total is computed in float32
_float32 = functools.partial(tf.cast, dtype=tf.float32)


@contextlib.contextmanager
def apply_candidates(names: list[str]):
    """Replaces the parts of the model that some CANDIDATES describe, in this context."""
    unknown = sorted(set(names) - set(CANDIDATES))
    if unknown:
        raise ValueError(
            f"no candidates: {', '.join(unknown)}; use some of {', '.join(CANDIDATES)}"
        )
    replacements = _list_replacements(names)
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    _chosen.update(names)
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        _chosen.difference_update(names)
        for owner, name, original in originals:
            setattr(owner, name, original)


def _list_replacements(names: list[str]) -> list[tuple]:
    """Returns what is replaced: a module or class, the name of its attribute, and the new value."""
    residual_class = layers.ResidualOutput
    if "residual" in names or "norm" in names:
        residual_class = ResidualOutput
    classes = LayerClasses(
        dense=Dense if "gelu" in names else layers.Dense,
        residual_output=residual_class,
        attention=Attention,
    )
    replacements = [
        (Attention, "residual_output_class", residual_class),
        (encoder, "choose_layer_classes", lambda compute_dtype: classes),
    ]
    if "hash" in names:
        replacements.append((dropout_masks, "dropout_mask", hash_mask))
    if "loss" in names:
        replacements.append((losses, "_cross_entropy", cross_entropy))
    if "padded" in names:
        replacements.append((heads.MaskedLmHead, "call", _call_masked_lm_head))
    return replacements


# Dropout by a hash.


def hash_mask(x, rate: float, seed, index: int):
    """Draws a dropout mask, bool like `x`; the arguments are those of
    dropout_masks.dropout_mask.

    Each decision is a hash of the position with two keys of 32 bits. The masks of the package have
    keys for rows and columns instead, which the kernels of attention_kernels.py do not know.
    """
    first_key, second_key = hash_keys(seed, index)
    position = tf.reshape(tf.cast(tf.range(tf.size(x)), tf.uint32), tf.shape(x))
    bits = (_mix(position ^ first_key) ^ second_key) * _uint32(0x9E3779B1)
    return bits >= _uint32(min(round(rate * 2**32), 2**32 - 1))


def hash_keys(seed, index: int):
    """Returns the two keys of the hash, uint32[] each, for a seed and a number of a dropout."""
    seed = tf.bitcast(seed, tf.uint32)
    first = _mix(seed[0] + _uint32(index * _STRIDE % 2**32))
    return _mix(first ^ seed[1]), _mix(first + seed[1] + _uint32(0x85EBCA6B))


def _mix(bits):
    """Mixes the bits of uint32 values, so that each one influences nearly all others."""
    bits = (bits ^ _shift_right(bits, 16)) * _uint32(0x7FEB352D)
    bits = (bits ^ _shift_right(bits, 15)) * _uint32(0x846CA68B)
    return bits ^ _shift_right(bits, 16)


def _shift_right(bits, count: int):
    return tf.bitwise.right_shift(bits, _uint32(count))


def _uint32(number: int):
    return tf.constant(number, tf.uint32)


def draw_mask(x, rate: float, seed, index: int):
    """Draws the mask of layers.dropout, which is all true without a seed or a rate."""
    if seed is None or not rate:
        return tf.ones(tf.shape(x), tf.bool)
    return dropout_masks.dropout_mask(x, rate, seed, index)


# Helpers of gradients.


def _force_recomputation(*tensors):
    """Returns the tensors, so that XLA does not keep what the forward pass computed from them.

    Only with the candidate "barrier"; otherwise XLA decides.
    """
    if "barrier" not in _chosen:
        return tensors
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_optimization_barrier(tensors)


def column_sums(x):
    """Returns the sums of the columns, float32[W], of float[rows, W]."""
    if "sums" not in _chosen:
        return tf.reduce_sum(_float32(x), axis=0)
    # A product of 16 bits rounds its sums to 16 bits, so the last additions are in float32.
    parts = tf.reshape(x, [_NUM_SUM_PARTS, -1, x.shape[-1]])
    ones = tf.ones([_NUM_SUM_PARTS, _NUM_ONES_ROWS, tf.shape(parts)[1]], x.dtype)
    return tf.reduce_sum(_float32(tf.matmul(ones, parts))[:, 0], axis=0)


# The end of a sub-layer.


class ResidualOutput(layers.ResidualOutput):
    """The end of a sub-layer whose output has the compute type."""

    def call(self, x, residual, dropout_seed=None):
        if "norm" not in _chosen:
            return ops.cast(super().call(x, residual, dropout_seed), self.compute_dtype)
        rate = self.config.hidden_dropout_prob if dropout_seed is not None else 0.0
        return residual_norm(
            product=_multiply(self.dense, x),
            residual=ops.cast(residual, self.compute_dtype),
            bias=tf.convert_to_tensor(self.dense.bias),
            gamma=tf.convert_to_tensor(self.norm.gamma),
            beta=tf.convert_to_tensor(self.norm.beta),
            keep=draw_mask(residual, rate, dropout_seed, self.dropout_index),
            rate=rate,
        )


def residual_norm(product, residual, bias, gamma, beta, keep, rate: float):
    """Returns the layer norm of a residual plus the dropout of a product and a bias.

    The gradient is computed from the inputs and two numbers of each row.

    Args:
        product: float[rows, W]; the result has its type.
        residual: float[rows, W].
        bias: float32[W], added to the product.
        gamma: float32[W], the scale of the layer norm.
        beta: float32[W], the offset of the layer norm.
        keep: bool[rows, W], false where dropout drops.
        rate: the rate of dropout.
    """
    scale = 1.0 / (1.0 - rate)

    def add(product, residual, bias):
        return tf.where(keep, (_float32(product) + bias) * scale, 0.0) + _float32(residual)

    @tf.custom_gradient
    def apply(product, residual, bias, gamma, beta):
        summed = add(product, residual, bias)
        mean = tf.reduce_mean(summed, axis=-1, keepdims=True)
        centered = summed - mean
        variance = tf.reduce_mean(centered * centered, axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(variance + layers.LAYER_NORM_EPSILON)

        def gradient(upstream):
            normed = (add(*_force_recomputation(product, residual), bias) - mean) * inverse
            upstream = _float32(upstream)
            scaled = upstream * gamma
            scaled_mean = tf.reduce_mean(scaled, axis=-1, keepdims=True)
            normed_mean = tf.reduce_mean(scaled * normed, axis=-1, keepdims=True)
            summed_gradient = inverse * (scaled - scaled_mean - normed * normed_mean)
            dropped = tf.where(keep, summed_gradient * scale, 0.0)
            product_gradient = tf.cast(dropped, product.dtype)
            gamma_terms = upstream * normed
            if "sums" in _chosen:
                gamma_terms = tf.cast(gamma_terms, product.dtype)
            return (
                product_gradient,
                tf.cast(summed_gradient, residual.dtype),
                column_sums(product_gradient),
                column_sums(gamma_terms),
                column_sums(upstream),
            )

        return tf.cast(centered * inverse * gamma + beta, product.dtype), gradient

    return apply(product, residual, bias, gamma, beta)


# Dense layers.


class Dense(layers.Dense):
    """A dense layer whose bias and gelu are one function."""

    def apply(self, x, dropout_seed=None):
        if self.activation is not layers.gelu:
            return super().apply(x, dropout_seed)
        return bias_gelu(_multiply(self, x), tf.convert_to_tensor(self.bias))


def _multiply(dense: layers.Dense, x):
    dtype = dense.compute_dtype
    return ops.matmul(ops.cast(x, dtype), ops.cast(dense.kernel, dtype))


@tf.custom_gradient
def bias_gelu(product, bias):
    """Returns gelu of float[rows, W] plus float32[W], in the type of the product."""

    def gradient(upstream):
        (product_again,) = _force_recomputation(product)
        x = _float32(product_again) + bias
        gate, inner_slope = _gelu_gate(x)
        slope = gate + gate * (1.0 - gate) * x * inner_slope
        product_gradient = tf.cast(_float32(upstream) * slope, product.dtype)
        return product_gradient, column_sums(product_gradient)

    x = _float32(product) + bias
    return tf.cast(x * _gelu_gate(x)[0], product.dtype), gradient


def _gelu_gate(x):
    """Returns the factor gelu(x) / x, and twice the derivative of the argument of its tanh."""
    slope = math.sqrt(2.0 / math.pi)
    gate = 0.5 + 0.5 * tf.tanh(x * (slope + (0.044715 * slope) * x * x))
    return gate, 2.0 * slope + (6.0 * 0.044715 * slope) * x * x


# Attention.


class Attention(attention.Attention):
    """Attention of all positions with the chosen candidates."""

    def call(self, from_x, x, bias, dropout_seed=None, from_length=None):
        if not {"qkv", *FLASH} & _chosen:
            return super().call(from_x, x, bias, dropout_seed, from_length)
        if "qkv" in _chosen:
            parts = self.heads.query, self.heads.key, self.heads.value
            kernels = [ops.cast(part.kernel, self.compute_dtype) for part in parts]
            qkv = ops.matmul(ops.cast(x, self.compute_dtype), ops.concatenate(kernels, axis=1))
            qkv_bias = ops.concatenate([part.bias for part in parts], axis=0)
            if "kernel" in _chosen:
                context = self._attend_with_kernels(qkv, qkv_bias, bias, dropout_seed)
                return self.merge(context, from_x, dropout_seed), None
            qkv = ops.cast(ops.cast(qkv, "float32") + qkv_bias, self.compute_dtype)
            query, key, value = tf.split(qkv, 3, axis=-1)
        else:
            query = self.heads.query.apply(from_x, dropout_seed)
            key = self.heads.key.apply(x, dropout_seed)
            value = self.heads.value.apply(x, dropout_seed)
        attend = self._attend_with_cudnn if FLASH & _chosen else self._attend_with_products
        context = attend(query, key, value, bias, dropout_seed)
        return self.merge(context, from_x, dropout_seed), None

    def _attend_with_products(self, query, key, value, bias, dropout_seed):
        """Returns the heads' outputs as the model computes them."""
        length = bias.shape[-1]
        query, key, value = (self._split_heads(each, length) for each in (query, key, value))
        scores = ops.matmul(query * self.head_size**-0.5, ops.transpose(key, (0, 1, 3, 2)))
        probabilities = ops.softmax(_float32(scores) + _float32(bias))
        weights = self.drop_probabilities(probabilities, scores, bias, dropout_seed)
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        return ops.reshape(context, (-1, self.config.hidden_size))

    def _attend_with_cudnn(self, query, key, value, bias, dropout_seed):
        """Returns the heads' outputs as cuDNN's fused attention computes them."""
        shape = [bias.shape[0], -1, self.config.num_attention_heads, self.head_size]
        query, key, value = (tf.reshape(each, shape) for each in (query, key, value))
        mask = {"lengths": token_counts(bias)}
        if "flash_bias" in _chosen:
            mask = {"bias": tf.cast(tf.repeat(bias, bias.shape[-1], axis=2), query.dtype)}
        context = cudnn_attention.attend(
            query,
            key,
            value,
            rate=self._rate(dropout_seed),
            seed=self.dropout_index,
            is_in_module="flash_custom_call" not in _chosen,
            **mask,
        )
        return tf.reshape(context, [-1, self.config.hidden_size])

    def drop_probabilities(self, probabilities, scores, bias, dropout_seed):
        if not {"softmax", "probabilities"} & _chosen:
            return super().drop_probabilities(probabilities, scores, bias, dropout_seed)
        rate = self._rate(dropout_seed)
        keep = draw_mask(scores, rate, dropout_seed, self.dropout_index)
        weigh = weigh_scores if "softmax" in _chosen else weigh_probabilities
        return weigh(scores, _float32(bias), keep, rate)

    def _attend_with_kernels(self, qkv, qkv_bias, bias, dropout_seed):
        rate = self._rate(dropout_seed)
        keys = tf.zeros([2], tf.uint32)
        if rate:
            keys = tf.stack(hash_keys(dropout_seed, self.dropout_index))
        batch_size, length = bias.shape[0], bias.shape[-1]
        context = kernel_attention.attend(
            qkv=tf.reshape(qkv, [batch_size, length, 3 * self.config.hidden_size]),
            qkv_bias=tf.convert_to_tensor(qkv_bias),
            lengths=token_counts(bias),
            keys=keys,
            rate=rate,
            num_heads=self.config.num_attention_heads,
            sum_columns=column_sums,
        )
        return tf.reshape(context, [-1, self.config.hidden_size])

    def _rate(self, dropout_seed) -> float:
        return 0.0 if dropout_seed is None else self.config.attention_probs_dropout_prob


def token_counts(bias):
    """Returns the number of tokens of each text, int32[B], from the bias of scores, [B, 1, 1, S].

    Padding has to follow the tokens.
    """
    counts = tf.reduce_sum(tf.cast(bias[:, 0, 0] > -1.0, tf.int32), axis=-1)
    # A text that is all padding attends to every position.
    return tf.where(counts == 0, bias.shape[-1], counts)


def weigh_probabilities(scores, bias, keep, rate: float):
    """Returns the probabilities after dropout, in the type of the scores.

    The backward pass reads the probabilities in this type.
    """
    scale = 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def apply(scores):
        probabilities = tf.nn.softmax(_float32(scores) + bias)
        rounded = tf.cast(probabilities, scores.dtype)

        def gradient(upstream):
            return _softmax_gradient(_float32(rounded), upstream, keep, scale)

        return tf.cast(tf.where(keep, probabilities * scale, 0.0), scores.dtype), gradient

    return apply(scores)


def weigh_scores(scores, bias, keep, rate: float):
    """Returns the probabilities after dropout, in the type of the scores.

    The backward pass computes them again from the scores and one number of each row.
    """
    scale = 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def apply(scores):
        biased = _float32(scores) + bias
        log_total = _log_total(biased)

        def gradient(upstream):
            (scores_again,) = _force_recomputation(scores)
            probabilities = tf.exp(_float32(scores_again) + bias - log_total)
            return _softmax_gradient(probabilities, upstream, keep, scale)

        weights = tf.where(keep, tf.exp(biased - log_total) * scale, 0.0)
        return tf.cast(weights, scores.dtype), gradient

    return apply(scores)


def _softmax_gradient(probabilities, upstream, keep, scale: float):
    dropped = tf.where(keep, _float32(upstream) * scale, 0.0)
    mean = tf.reduce_sum(dropped * probabilities, axis=-1, keepdims=True)
    return tf.cast(probabilities * (dropped - mean), upstream.dtype)


def _log_total(logits):
    """Returns the logarithm of the sum of the exponentials of each row, float32[..., 1]."""
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    return largest + tf.math.log(tf.reduce_sum(tf.exp(logits - largest), axis=-1, keepdims=True))


# The head and the loss of the masked LM.


def _call_masked_lm_head(self, sequence_output, positions, embedding_table):
    x = self.transform_outputs(sequence_output, positions)
    missing = -self.config.vocab_size % _VOCAB_MULTIPLE
    table = tf.pad(ops.cast(embedding_table, self.compute_dtype), [[0, missing], [0, 0]])
    bias = tf.convert_to_tensor(self.output_bias)
    bias = tf.pad(bias, [[0, missing]], constant_values=_PADDING_BIAS)
    return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + bias


@tf.custom_gradient
def cross_entropy(logits, labels):
    """Returns the cross-entropy, float32[N], of float32[N, classes] and int32[N].

    The backward pass computes the probabilities again from the logits and one number of each row.
    """
    log_total = _log_total(logits)
    is_label = tf.range(tf.shape(logits)[1])[None] == labels[:, None]

    def gradient(upstream):
        probabilities = tf.exp(logits - log_total)
        return (probabilities - tf.where(is_label, 1.0, 0.0)) * upstream[:, None], None

    at_label = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)
    return log_total[:, 0] - at_label, gradient

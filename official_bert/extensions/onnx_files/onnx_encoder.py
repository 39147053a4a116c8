"""Writes encoders and BiLSTMs into an ONNX graph, from their weights and their configuration.

B batch   S length   F from-length   N heads   H head size
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from official_bert.config import LEFT_TO_RIGHT, BertConfig
from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
from official_bert.extensions.onnx_files.onnx_products import OnnxProducts
from official_bert.io.errors import InputError
from official_bert.modeling.attention import MASKED
from official_bert.modeling.bert import BertModel
from official_bert.modeling.encoder import EncoderLayer
from official_bert.modeling.heads import BiLstm
from official_bert.modeling.layers import Dense, ResidualOutput

_LENGTH_AXIS = 1


def _gelu(graph: OnnxGraph, x: str) -> str:
    return graph.node("Gelu", x, approximate="tanh")


def _gelu_erf(graph: OnnxGraph, x: str) -> str:
    return graph.node("Gelu", x)


def _relu(graph: OnnxGraph, x: str) -> str:
    return graph.node("Relu", x)


def _tanh(graph: OnnxGraph, x: str) -> str:
    return graph.node("Tanh", x)


def _linear(graph: OnnxGraph, x: str) -> str:
    return x


class _Activation(NamedTuple):
    """A function that writes an activation, and a number below which no value is, or None."""

    write: Callable[[OnnxGraph, str], str]
    lower_bound: float | None = None


_SMALLEST_GELU = -0.17005  # of both forms
# The activations of config.ACTIVATIONS.
_ACTIVATIONS = {
    "gelu": _Activation(_gelu, _SMALLEST_GELU),
    "gelu_erf": _Activation(_gelu_erf, _SMALLEST_GELU),
    "relu": _Activation(_relu, 0.0),
    "tanh": _Activation(_tanh),
    "linear": _Activation(_linear),
}


def _activation_name(hidden_act: object) -> str:
    return str(hidden_act or "linear").lower()


def check_config(config: BertConfig) -> None:
    """Check that the graph of an encoder can have the activation of a model.

    Args:
        config: the configuration of the model.

    Raises:
        InputError: its activation is a function, or has another name.
    """
    if _activation_name(config.hidden_act) not in _ACTIVATIONS:
        raise InputError(
            f"--export_format=onnx: the activation {config.hidden_act!r} of the model has no ONNX "
            f"form; give a model with one of {', '.join(_ACTIVATIONS)}, or --export_format=litert"
        )


class EncoderWriter:
    """Writes the calls of one encoder."""

    def __init__(self, graph: OnnxGraph, products: OnnxProducts, model: BertModel):
        """Reads a model.

        Args:
            graph: the graph to write into.
            products: what writes the matrix products.
            model: the encoder, with its weights.

        Raises:
            InputError: the model has another activation than those of `_ACTIVATIONS`.
        """
        self._graph = graph
        self._products = products
        self._model = model
        self._config = model.config
        self._head_size = self._config.hidden_size // self._config.num_attention_heads
        check_config(self._config)
        self._activation = _ACTIVATIONS[_activation_name(self._config.hidden_act)]

    def write(
        self, input_ids: str, input_mask: str, segment_ids: str, first_token_only: bool
    ) -> list[str]:
        """Add the nodes of a call of the encoder.

        Args:
            input_ids: int32[B, S].
            input_mask: int32[B, S].
            segment_ids: int32[B, S].
            first_token_only: whether the last layer is computed for the pooled token alone.

        Returns:
            The embedding output, the output of each layer, the sequence output, and the pooled
            output. The last layer is float32[B, 1, hidden] with `first_token_only`.
        """
        graph = self._graph
        with graph.scope("embeddings"):
            embedded = self._write_embeddings(input_ids, segment_ids)
        with graph.scope("encoder"):
            bias = self._write_bias(input_mask, self._config.direction)
            x = embedded
            outputs = []
            for index, layer in enumerate(self._model.encoder.stack):
                is_last = index == self._config.num_hidden_layers - 1
                with graph.scope(f"layer_{index}"):
                    from_x = x
                    if is_last and first_token_only:
                        from_x = self._write_pooled_vectors(x, input_mask)
                        # In both directions this token attends to the whole text.
                        bias = self._write_bias(input_mask)
                    x = self._write_layer(layer, from_x, x, bias)
                outputs.append(x)
        with graph.scope("pooler"):
            vectors = x if first_token_only else self._write_pooled_vectors(x, input_mask)
            length_axis = graph.integers(_LENGTH_AXIS)
            vector = graph.node("Squeeze", vectors, length_axis)
            pooled = self._write_dense(self._model.pooler.dense, vector)
            activation = _ACTIVATIONS[_activation_name(self._config.pooler_activation)]
            pooled = activation.write(graph, pooled)
        return [embedded, *outputs, outputs[-1], pooled]

    def _write_embeddings(self, input_ids: str, segment_ids: str) -> str:
        """Returns float32[B, S, hidden]."""
        graph = self._graph
        embeddings = self._model.embeddings
        word_table = _to_float32(embeddings.word_embeddings)
        words = self._products.look_up(word_table, input_ids)
        segment_table = _to_float32(embeddings.token_type_embeddings)
        segments = self._products.look_up(segment_table, segment_ids)
        position_table = _to_float32(embeddings.position_embeddings)
        table = graph.constant(position_table, "position_embeddings")
        length = graph.node("Shape", input_ids, start=1, end=2)
        zero = graph.integers(0)
        positions = graph.node("Slice", table, zero, length, zero)
        sums = graph.node("Add", words, segments)
        sums = graph.node("Add", sums, positions)
        return self._write_norm(embeddings.norm, sums)

    def _write_bias(self, input_mask: str, direction: str = "") -> str:
        """Returns the bias of the scores, float32[B, 1, 1, S] or float32[B, 1, S, S]."""
        graph = self._graph
        mask = graph.cast(input_mask, np.float32)
        one = graph.constant(np.float32(1))
        is_padding = graph.node("Sub", one, mask)
        masked = graph.constant(np.float32(MASKED))
        bias = graph.node("Mul", is_padding, masked)
        bias = graph.node("Unsqueeze", bias, graph.integers(1, 2))
        if direction != LEFT_TO_RIGHT:
            return bias
        positions = self._write_positions(input_mask)
        rows = graph.node("Unsqueeze", positions, graph.integers(1))
        is_later = graph.node("Greater", positions, rows)
        is_later = graph.cast(is_later, np.float32)
        direction_bias = graph.node("Mul", is_later, masked)
        return graph.node("Add", bias, direction_bias)

    def _write_positions(self, input_mask: str) -> str:
        """Returns the positions of the tokens, int64[S]."""
        graph = self._graph
        length = graph.node("Shape", input_mask, start=1, end=2)
        length = graph.node("Squeeze", length)
        zero = graph.constant(np.int64(0))
        one = graph.constant(np.int64(1))
        return graph.node("Range", zero, length, one)

    def _write_pooled_vectors(self, x: str, input_mask: str) -> str:
        """Returns the vectors of the pooled tokens, float32[B, 1, hidden]."""
        graph = self._graph
        if self._config.direction != LEFT_TO_RIGHT:
            first = graph.integers(0)
            second = graph.integers(1)
            length_axis = graph.integers(_LENGTH_AXIS)
            return graph.node("Slice", x, first, second, length_axis)
        is_token = graph.cast(input_mask, np.bool_)
        zero = graph.constant(np.int64(0))
        positions = self._write_positions(input_mask)
        positions = graph.node("Where", is_token, positions, zero)
        last = graph.node("ReduceMax", positions, graph.integers(1))  # [B, 1]
        indices = graph.node("Unsqueeze", last, graph.integers(-1))  # [B, 1, 1]
        return graph.node("GatherND", x, indices, batch_dims=1)

    def _write_layer(self, layer: EncoderLayer, from_x: str, x: str, bias: str) -> str:
        """Returns float32[B, F, hidden] for `from_x` of this shape and `x`, float32[B, S,
        hidden].
        """
        graph = self._graph
        with graph.scope("attention"):
            heads = layer.attention.heads
            # Scaling the query's weights instead of the query saves its multiplication.
            query = self._write_dense(heads.query, from_x, scale=self._head_size**-0.5)
            key = self._write_dense(heads.key, x)
            value = self._write_dense(heads.value, x)
            query = self._split_heads(query, axes=(0, 2, 1, 3))
            key = self._split_heads(key, axes=(0, 2, 3, 1))
            value = self._split_heads(value, axes=(0, 2, 1, 3))
            scores = self._products.multiply_values(query, key)
            biased_scores = graph.node("Add", scores, bias)
            probabilities = graph.node("Softmax", biased_scores, axis=-1)
            context = self._products.multiply_values(probabilities, value)
            context = graph.node("Transpose", context, perm=[0, 2, 1, 3])
            shape = graph.integers(0, 0, self._config.hidden_size)
            context = graph.node("Reshape", context, shape)
            attended = self._write_residual(layer.attention.merge, context, from_x)
        with graph.scope("intermediate"):
            inner = self._write_dense(layer.intermediate.dense, attended)
            inner = self._activation.write(graph, inner)
            if self._activation.lower_bound is not None:
                self._products.note_lower_bound(inner, self._activation.lower_bound)
        with graph.scope("output"):
            return self._write_residual(layer.merge, inner, attended)

    def _split_heads(self, x: str, axes: tuple[int, ...]) -> str:
        """Returns [B, N, S, H], or another order of these axes, for [B, S, N * H]."""
        graph = self._graph
        num_heads = self._config.num_attention_heads
        shape = graph.integers(0, 0, num_heads, self._head_size)
        split = graph.node("Reshape", x, shape)
        return graph.node("Transpose", split, perm=list(axes))

    def _write_residual(self, residual_output: ResidualOutput, x: str, residual: str) -> str:
        """Returns the end of a sub-layer, float32[B, F, hidden]."""
        x = self._write_dense(residual_output.dense, x)
        x = self._graph.node("Add", x, residual)
        return self._write_norm(residual_output.norm, x)

    def _write_dense(self, dense: Dense, x: str, scale: float = 1.0) -> str:
        """Returns a product and its bias, without the activation. LoRA is in the kernel."""
        graph = self._graph
        factor = np.float32(scale)
        kernel = _to_float32(dense.kernel) * factor
        product = self._products.multiply(x, kernel)
        bias = _to_float32(dense.bias) * factor
        bias_name = graph.constant(bias, "bias")
        return graph.node("Add", product, bias_name)

    def _write_norm(self, norm: keras.layers.LayerNormalization, x: str) -> str:
        graph = self._graph
        gamma = _to_float32(norm.gamma)
        beta = _to_float32(norm.beta)
        return graph.node(
            "LayerNormalization",
            x,
            graph.constant(gamma, "gamma"),
            graph.constant(beta, "beta"),
            axis=-1,
            epsilon=norm.epsilon,
        )


def write_bilstm(graph: OnnxGraph, layer: BiLstm, x: str, input_mask: str) -> str:
    """Add the nodes of a call of a BiLSTM.

    Args:
        graph: the graph to write into.
        layer: the BiLSTM, with its weights.
        x: float32[B, S, width].
        input_mask: int32[B, S]: 1 for each token, and then 0 for padding.

    Returns:
        float32[B, S, size], 0 at padding.
    """
    length_axis = graph.integers(_LENGTH_AXIS)
    lengths = graph.node("ReduceSum", input_mask, length_axis, keepdims=0)
    # onnxruntime refuses a length of 0.
    one = graph.constant(np.int32(1))
    lengths = graph.node("Max", lengths, one)
    mask = graph.cast(input_mask, np.float32)
    mask = graph.node("Unsqueeze", mask, graph.integers(-1))
    for bidirectional in layer.stack:
        cells = [bidirectional.forward_layer.cell, bidirectional.backward_layer.cell]
        kernels = [_order_gates(cell.kernel) for cell in cells]
        recurrent_kernels = [_order_gates(cell.recurrent_kernel) for cell in cells]
        biases = np.stack([_order_gates(cell.bias) for cell in cells])
        # ONNX has a second bias, of the recurrent product.
        both_biases = np.concatenate([biases, np.zeros_like(biases)], axis=1)
        y = graph.node(
            "LSTM",
            graph.node("Transpose", x, perm=[1, 0, 2]),
            graph.constant(np.stack(kernels), "kernel"),
            graph.constant(np.stack(recurrent_kernels), "recurrent_kernel"),
            graph.constant(both_biases, "bias"),
            lengths,
            hidden_size=layer.size // 2,
            direction="bidirectional",
        )
        # [S, directions, B, size / 2] to [B, S, size].
        y = graph.node("Transpose", y, perm=[2, 0, 1, 3])
        x = graph.node("Reshape", y, graph.integers(0, 0, layer.size))
    return graph.node("Mul", x, mask)


def _order_gates(weight: Any) -> np.ndarray:
    """Returns a weight of an LSTM as ONNX has it, [4 * units, ...]; Keras has [..., 4 * units].

    Keras has the gates in the order input, forget, cell, output, and ONNX input, output, forget,
    cell.
    """
    gates = np.split(_to_float32(weight), 4, axis=-1)
    return np.concatenate([gates[0], gates[3], gates[1], gates[2]], axis=-1).T


def _to_float32(weight: Any) -> np.ndarray:
    """Returns the values of a weight."""
    return np.asarray(ops.convert_to_numpy(weight), np.float32)

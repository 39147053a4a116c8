"""Writes a signature of a model as an ONNX file.

The encoder is written from its weights (`onnx_encoder.py`). The head is traced by TensorFlow and
translated operation by operation (`onnx_operations.py`), so that every task can be exported whose
head has only operations of that table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from official_bert.extensions.runtimes.onnx_encoder import EncoderWriter
from official_bert.extensions.runtimes.onnx_graph import OnnxGraph
from official_bert.extensions.runtimes.onnx_operations import OperationWriter
from official_bert.extensions.runtimes.onnx_products import PRODUCTS
from official_bert.features import MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel, BertOutput, override_encoder

Outputs = Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]]
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


class _EncoderCall(NamedTuple):
    """A call of an encoder in a traced graph: its arguments and its outputs, all tensors."""

    model: BertModel
    inputs: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    first_token_only: bool
    output: BertOutput


def write_signature(
    outputs: Outputs,
    inputs: Mapping[str, Sequence[str]],
    dtype: str,
    metadata: Mapping[str, str],
) -> bytes:
    """Write a signature as an ONNX model.

    Args:
        outputs: a function from the tensors of the inputs by name to the outputs by name.
        inputs: name -> the names of the dimensions of an int32 input.
        dtype: the type of the weights, a key of PRODUCTS.
        metadata: the fields of the file by name.

    Returns:
        The content of the file.

    Raises:
        InputError: the model has an activation or an operation that has no ONNX form here, or is
            too large.
    """
    traced, calls = _trace(outputs, inputs)
    graph = OnnxGraph()
    products = PRODUCTS[dtype](graph)
    translator = _Translator(graph, OperationWriter(graph, products), calls)
    translator.enter(traced, inputs)
    results = {}
    for name, tensor in traced.structured_outputs.items():
        dimensions = _name_dimensions(name, tensor)
        is_text = tensor.dtype == tf.string
        numpy_type = object if is_text else tensor.dtype.as_numpy_dtype
        results[name] = translator.translate(tensor), numpy_type, dimensions
    return graph.model(inputs, results, metadata)


def _trace(outputs: Outputs, inputs: Mapping[str, Sequence[str]]) -> tuple[Any, list[_EncoderCall]]:
    """Returns a graph without the encoder, and the calls of the encoder in it."""
    calls: list[_EncoderCall] = []

    def encode(
        model: BertModel,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        first_token_only: bool,
    ) -> BertOutput:
        width = model.config.hidden_size
        vectors = [None, None, width]
        last_vectors = [None, 1 if first_token_only else None, width]
        num_layers = model.config.num_hidden_layers
        layers = [_placeholder(vectors) for _ in range(num_layers - 1)]
        layers.append(_placeholder(last_vectors))
        output = BertOutput(_placeholder(vectors), layers, layers[-1], _placeholder([None, width]))
        features = (input_ids, input_mask, segment_ids)
        calls.append(_EncoderCall(model, features, first_token_only, output))
        return output

    specs = [
        tf.TensorSpec([None] * len(dimensions), tf.int32, name)
        for name, dimensions in inputs.items()
    ]

    @tf.function(autograph=False, input_signature=specs)
    def compute(*features: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(outputs(dict(zip(inputs, features, strict=True))))

    with override_encoder(encode):
        return compute.get_concrete_function().graph, calls


def _placeholder(shape: Sequence[int | None]) -> tf.Tensor:
    return tf.compat.v1.placeholder(keras.backend.floatx(), shape)


def _name_dimensions(name: str, tensor: tf.Tensor) -> list[str | int] | None:
    """Returns the sizes of an output, or names where they are open; None for an unknown rank."""
    if tensor.shape.rank is None:
        return None
    sizes: list[Any] = tensor.shape.as_list()
    for axis, size in enumerate(sizes):
        if size is None:
            sizes[axis] = f"{name}_{axis}" if axis else "batch"
    return sizes


class _Translator:
    """Writes the operations that tensors of a TensorFlow graph need, each once."""

    def __init__(self, graph: OnnxGraph, writer: OperationWriter, calls: Sequence[_EncoderCall]):
        self._graph = graph
        self._writer = writer
        self._names: dict[Any, str] = {}
        self._encoder_calls = {}
        for call in calls:
            for tensor in keras.tree.flatten(tuple(call.output)):
                self._encoder_calls[tensor.ref()] = call

    def enter(self, graph: Any, inputs: Iterable[str]) -> None:
        """Give the inputs of a graph names, and its captured variables their values.

        Args:
            graph: the traced graph.
            inputs: the names of its inputs without the captured ones, which follow them.
        """
        for tensor, name in zip(graph.inputs, inputs, strict=False):
            self._names[tensor.ref()] = name
        variables = {id(variable.handle): variable for variable in graph.variables}
        for captured, placeholder in graph.captures:
            variable = variables.get(id(captured))
            if variable is None:
                name = self._graph.constant(captured.numpy())
            else:
                name = self._graph.constant(variable.numpy(), variable.name.split(":")[0])
            self._names[placeholder.ref()] = name

    def translate(self, tensor: tf.Tensor) -> str:
        """Return the name of a tensor in the ONNX graph.

        Args:
            tensor: a tensor of a graph that was entered.
        """
        key = tensor.ref()
        if key not in self._names:
            if key in self._encoder_calls:
                self._translate_encoder(self._encoder_calls[key])
            else:
                self._translate_operation(tensor.op)
        return self._names[key]

    def _translate_operation(self, operation: tf.Operation) -> None:
        inputs = [self.translate(tensor) for tensor in operation.inputs]
        if operation.type == "ReadVariableOp":
            outputs = inputs
        elif operation.type in _CALLS:
            outputs = self._translate_call(operation, inputs)
        else:
            outputs = self._writer.write(operation, inputs)
        for tensor, name in zip(operation.outputs, outputs, strict=True):
            self._names[tensor.ref()] = name

    def _translate_call(self, operation: tf.Operation, inputs: Sequence[str]) -> list[str]:
        """Returns the outputs of a function that an operation calls."""
        body = operation.graph._get_function(operation.get_attr("f").name).graph
        outer_names = self._names
        # Another call of the function has other values of the same tensors.
        self._names = {tensor.ref(): name for tensor, name in zip(body.inputs, inputs, strict=True)}
        outputs = [self.translate(tensor) for tensor in body.outputs]
        self._names = outer_names
        return outputs

    def _translate_encoder(self, call: _EncoderCall) -> None:
        writer = EncoderWriter(self._graph, self._writer.products, call.model)
        inputs = [self.translate(tensor) for tensor in call.inputs]
        with self._graph.scope(call.model.name):
            values = writer.write(*inputs, first_token_only=call.first_token_only)
        tensors = keras.tree.flatten(tuple(call.output))
        last = values.all_encoder_layers[-1]
        names = [
            values.embedding_output,
            *values.all_encoder_layers,
            last,
            values.pooled_output,
        ]
        for tensor, name in zip(tensors, names, strict=True):
            self._names[tensor.ref()] = name


def list_inputs(signature_inputs: Sequence[str], num_choices: int | None) -> dict[str, list[str]]:
    """Return the dimensions of inputs.

    Args:
        signature_inputs: the names of the inputs.
        num_choices: the number of choices of an example; None for a model without choices.

    Returns:
        Name -> the names of its dimensions.
    """
    dimensions = ["batch", "length"] if num_choices is None else ["batch", "choices", "length"]
    return {
        name: ["batch", "predictions"] if name == MASKED_LM_POSITIONS else dimensions
        for name in signature_inputs
    }

"""Writes a signature of a model as an ONNX file.

The encoder and BiLSTMs are written from their weights (`onnx_encoder.py`). The head is traced by
TensorFlow and translated operation by operation (`onnx_operations.py`), so that every task can be
exported whose head has only operations of that table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from official_bert.extensions.runtimes.onnx_encoder import EncoderWriter, write_bilstm
from official_bert.extensions.runtimes.onnx_graph import OnnxGraph
from official_bert.extensions.runtimes.onnx_operations import OperationWriter
from official_bert.extensions.runtimes.onnx_products import PRODUCTS
from official_bert.features import MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel, BertOutput
from official_bert.modeling.heads import BiLstm
from official_bert.modeling.layers import override_calls

Outputs = Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]]
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


class _LayerCall(NamedTuple):
    """A call of an encoder or of a BiLSTM in a traced graph.

    Attributes:
        layer: the layer.
        inputs: the inputs of its call: tensors, and perhaps numbers.
        outputs: the placeholders that the traced graph reads in place of its outputs.
    """

    layer: Any
    inputs: tuple
    outputs: list[tf.Tensor]


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


def _trace(outputs: Outputs, inputs: Mapping[str, Sequence[str]]) -> tuple[Any, list[_LayerCall]]:
    """Returns a graph without encoders and BiLSTMs, and their calls in it."""
    calls: list[_LayerCall] = []

    def override(layer: Any, *layer_inputs: Any) -> Any:
        make_output = _make_encoder_output if isinstance(layer, BertModel) else _make_bilstm_output
        output = make_output(layer, *layer_inputs)
        tensors = keras.tree.flatten(tuple(output) if isinstance(output, tuple) else output)
        calls.append(_LayerCall(layer, layer_inputs, tensors))
        return output

    specs = [
        tf.TensorSpec([None] * len(dimensions), tf.int32, name)
        for name, dimensions in inputs.items()
    ]

    @tf.function(autograph=False, input_signature=specs)
    def compute(*features: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(outputs(dict(zip(inputs, features, strict=True))))

    with override_calls(override):
        return compute.get_concrete_function().graph, calls


def _make_encoder_output(
    model: BertModel,
    input_ids: tf.Tensor,
    input_mask: tf.Tensor,
    segment_ids: tf.Tensor,
    first_token_only: bool,
) -> BertOutput:
    width = model.config.hidden_size
    num_layers = model.config.num_hidden_layers
    layers = [_placeholder(None, None, width) for _ in range(num_layers - 1)]
    layers.append(_placeholder(None, 1 if first_token_only else None, width))
    return BertOutput(
        embedding_output=_placeholder(None, None, width),
        all_encoder_layers=layers,
        sequence_output=layers[-1],
        pooled_output=_placeholder(None, width),
    )


def _make_bilstm_output(layer: BiLstm, x: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
    return _placeholder(None, None, layer.size)


def _placeholder(*shape: int | None) -> tf.Tensor:
    return tf.compat.v1.placeholder(tf.float32, shape)


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

    def __init__(self, graph: OnnxGraph, writer: OperationWriter, calls: Sequence[_LayerCall]):
        self._graph = graph
        self._writer = writer
        self._names: dict[Any, str] = {}
        self._layer_calls = {}
        for call in calls:
            for tensor in call.outputs:
                self._layer_calls[tensor.ref()] = call

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
            if key in self._layer_calls:
                self._translate_layer(self._layer_calls[key])
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

    def _translate_layer(self, call: _LayerCall) -> None:
        layer = call.layer
        inputs: list[Any] = [
            self.translate(value) if isinstance(value, tf.Tensor) else value
            for value in call.inputs
        ]
        with self._graph.scope(layer.name):
            if isinstance(layer, BertModel):
                writer = EncoderWriter(self._graph, self._writer.products, layer)
                outputs = writer.write(*inputs)
            else:
                outputs = [write_bilstm(self._graph, layer, *inputs)]
        for tensor, name in zip(call.outputs, outputs, strict=True):
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

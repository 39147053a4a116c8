"""Writes a signature of a model as an ONNX file.

The encoder and BiLSTMs are written from their weights (`onnx_encoder.py`). The head is traced by
TensorFlow and translated operation by operation (`onnx_operations.py`), so that every task can be
exported whose head has only operations of that table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from official_bert.extensions.onnx_files.onnx_encoder import EncoderWriter, write_bilstm
from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
from official_bert.extensions.onnx_files.onnx_operations import OperationWriter
from official_bert.extensions.onnx_files.onnx_products import PRODUCTS
from official_bert.extensions.onnx_files.onnx_translator import (
    TracedCall,
    Translator,
    make_call,
    make_placeholder,
)
from official_bert.features import MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel, BertOutput
from official_bert.modeling.heads import BiLstm
from official_bert.modeling.layers import override_calls

Outputs = Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]]


def write_signature(
    outputs: Outputs,
    inputs: Mapping[str, Sequence[str | int]],
    dtype: str,
    metadata: Mapping[str, str],
    text_calls: Sequence[TracedCall] | None = None,
) -> bytes:
    """Write a signature as an ONNX model.

    Args:
        outputs: a function from the tensors of the inputs by name to the outputs by name.
        inputs: name -> the dimensions of an input, names where they are open.
        dtype: the type of the weights, a key of PRODUCTS.
        metadata: the fields of the file by name.
        text_calls: a list to which `outputs` adds the calls by which it reads texts; None if the
            inputs are int32.

    Returns:
        The content of the file.

    Raises:
        InputError: the model has an activation or an operation that has no ONNX form here, or is
            too large.
    """
    reads_text = text_calls is not None
    traced, calls = _trace(outputs, inputs, tf.string if reads_text else tf.int32)
    graph = OnnxGraph()
    writer = OperationWriter(graph, PRODUCTS[dtype](graph))
    translator = Translator(writer, [*calls, *(text_calls or ())])
    translator.enter(traced, inputs)
    results = {}
    for name, tensor in traced.structured_outputs.items():
        dimensions = _name_dimensions(name, tensor)
        value = translator.translate(tensor)
        # Texts have the type object.
        numpy_type = tensor.dtype.as_numpy_dtype
        results[name] = (value, numpy_type, dimensions)
    return graph.model(inputs, results, metadata, reads_text)


def _trace(
    outputs: Outputs, inputs: Mapping[str, Sequence[str | int]], dtype: tf.DType
) -> tuple[Any, list[TracedCall]]:
    """Returns a graph without encoders and BiLSTMs, and their calls in it."""
    calls: list[TracedCall] = []

    def override(layer: Any, *layer_inputs: Any) -> Any:
        if not isinstance(layer, BertModel):
            output = make_placeholder(tf.float32, None, None, layer.size)
            write = functools.partial(_write_bilstm, layer)
            calls.append(make_call(layer_inputs, [output], write))
            return output
        *features, first_token_only = layer_inputs
        output = _make_encoder_output(layer, first_token_only)
        write = functools.partial(_write_encoder, layer, first_token_only)
        tensors = keras.tree.flatten(tuple(output))
        calls.append(make_call(features, tensors, write))
        return output

    specs = []
    for name, dimensions in inputs.items():
        sizes = [size if isinstance(size, int) else None for size in dimensions]
        specs.append(tf.TensorSpec(sizes, dtype, name))

    @tf.function(autograph=False, input_signature=specs)
    def compute(*features: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(outputs(dict(zip(inputs, features, strict=True))))

    with override_calls(override):
        return compute.get_concrete_function().graph, calls


def _make_encoder_output(model: BertModel, first_token_only: bool) -> BertOutput:
    width = model.config.hidden_size

    def make_vectors(length: int | None = None) -> tf.Tensor:
        return make_placeholder(tf.float32, None, length, width)

    layers = [make_vectors() for _ in range(model.config.num_hidden_layers)]
    if first_token_only:
        layers[-1] = make_vectors(1)
    return BertOutput(
        embedding_output=make_vectors(),
        all_encoder_layers=layers,
        sequence_output=layers[-1],
        pooled_output=make_placeholder(tf.float32, None, width),
    )


def _write_encoder(
    model: BertModel,
    first_token_only: bool,
    writer: OperationWriter,
    input_ids: str,
    input_mask: str,
    segment_ids: str,
) -> list[str]:
    with writer.graph.scope(model.name):
        encoder_writer = EncoderWriter(writer.graph, writer.products, model)
        return encoder_writer.write(input_ids, input_mask, segment_ids, first_token_only)


def _write_bilstm(layer: BiLstm, writer: OperationWriter, x: str, input_mask: str) -> list[str]:
    with writer.graph.scope(layer.name):
        return [write_bilstm(writer.graph, layer, x, input_mask)]


def _name_dimensions(name: str, tensor: tf.Tensor) -> list[str | int] | None:
    """Returns the sizes of an output, or names where they are open; None for an unknown rank."""
    if tensor.shape.rank is None:
        return None
    sizes: list[Any] = []
    for axis, size in enumerate(tensor.shape):
        axis_name = f"{name}_{axis}" if axis else "batch"
        sizes.append(axis_name if size is None else size)
    return sizes


def list_text_inputs(text_inputs: Mapping[str, Sequence[int | None]]) -> dict[str, list[str | int]]:
    """Return the dimensions of texts.

    Args:
        text_inputs: the names of the inputs of a task, and their shapes.

    Returns:
        Name -> its dimensions, of which the first is "batch".
    """
    dimensions: dict[str, list[str | int]] = {}
    for name, (_, *sizes) in text_inputs.items():
        dimensions[name] = ["batch", *(size or "choices" for size in sizes)]
    return dimensions


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

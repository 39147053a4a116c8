"""TensorFlow Serving's prediction requests: JSON to tensors, and outputs to JSON.

A request is {"instances": rows} or {"inputs": columns}, with "signature_name".
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.extensions.serve.batching import Row
from official_bert.extensions.serve.bodies import RefusalError, read_field
from official_bert.extensions.serve.hosted_models import TENSORS, HostedModel, suggest_path
from official_bert.io.errors import InputError, brief
from official_bert.serving.exported_model import DEFAULT

_CHARACTERS_PER_TOKEN = 4
_MAX_REASON_CHARS = 200
# Signatures with these names have a row for each example.
_BATCHED_PREFIX = "serving_"
_INVALID_INPUTS = (ValueError, TypeError, OverflowError, RecursionError, tf.errors.OpError)
# The names of types in TensorFlow Serving's metadata.
_DTYPE_NAMES = {
    tf.int32: "DT_INT32",
    tf.int64: "DT_INT64",
    tf.float32: "DT_FLOAT",
    tf.string: "DT_STRING",
}
_ASSERTION = re.compile(r"assertion failed: (.*)")


class TensorRequest(NamedTuple):
    """A prediction request.

    Attributes:
        key: the kind of its batch. Requests with equal keys can be joined.
        row: the tensors, and their size.
        has_columns: whether the request has "inputs".
    """

    key: tuple
    row: Row
    has_columns: bool


def read_tensor_request(fields: Mapping[str, Any], model: HostedModel) -> TensorRequest:
    """Reads the body of a request.

    Args:
        fields: the body.
        model: the model.

    Raises:
        RefusalError: the body has another form, or is not for the signature.
    """
    signature = read_field(fields, "signature_name", str, DEFAULT)
    specs = _find_specs(signature, model)
    if ("instances" in fields) == ("inputs" in fields):
        raise RefusalError(
            400, "the body must have one of 'instances', a list of rows, and 'inputs', of columns"
        )
    has_columns = "inputs" in fields
    values = _name(fields["inputs"], specs) if has_columns else _read_rows(fields, specs, model)
    fault = _find_name_fault(values, specs, model, signature)
    if fault:
        raise RefusalError(400, fault)
    tensors = {}
    for name, spec in specs.items():
        tensors[name] = _convert(name, values[name], spec)
    is_batched = _is_batched(signature, model)
    sizes = {len(tensor) for tensor in tensors.values() if tensor.ndim}
    if is_batched and len(sizes) > 1:
        raise RefusalError(400, "the inputs have different numbers of rows; send a row for each")
    num_rows = max(sizes, default=1)
    if not num_rows:
        raise RefusalError(400, "the request has no rows; send at least one")
    model.check_count(num_rows)
    shapes = tuple(tensor.shape[1:] for tensor in tensors.values())
    # A request that cannot be joined with others has a key of its own.
    uniqueness = () if is_batched else (object(),)
    length = max(_estimate_length(tensor) for tensor in tensors.values())
    return TensorRequest(
        key=(TENSORS, signature, shapes, *uniqueness),
        row=Row(tensors, length, num_rows),
        has_columns=has_columns,
    )


def _is_batched(signature: str, model: HostedModel) -> bool:
    """Returns whether a signature has a row for each example; others, such as `rank`, may not."""
    if signature in model.predictor.heads:
        return True
    return signature.startswith(_BATCHED_PREFIX)


def _find_specs(signature: str, model: HostedModel) -> dict[str, tf.TensorSpec]:
    if not model.functions:
        raise RefusalError(
            400,
            f"the model {model.name!r} has no signatures of TensorFlow; use {suggest_path(model)}",
        )
    if signature not in model.functions:
        names = ", ".join(model.functions)
        raise RefusalError(400, f"there is no signature {signature!r}; the model has {names}")
    return model.signature_specs(signature)


def _read_rows(
    fields: Mapping[str, Any], specs: Mapping[str, tf.TensorSpec], model: HostedModel
) -> dict[str, list]:
    """Returns the columns of the rows of "instances"."""
    rows = read_field(fields, "instances", list)
    model.check_count(len(rows))
    named_rows = [_name(row, specs) for row in rows]
    if any(row.keys() != named_rows[0].keys() for row in named_rows):
        raise RefusalError(400, "all instances must have the same inputs")
    names = named_rows[0] if named_rows else specs
    return {name: [row[name] for row in named_rows] for name in names}


def _name(value: Any, specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Returns tensors by name; a single input needs no name."""
    if not isinstance(value, dict) or value.keys() == {"b64"}:
        if len(specs) > 1:
            names = ", ".join(specs)
            raise RefusalError(400, f"the signature takes the inputs {names}: send them by name")
        value = dict.fromkeys(specs, value)
    try:
        return {name: _decode(tensor) for name, tensor in value.items()}
    except RecursionError:
        raise RefusalError(400, "a tensor is nested too deeply") from None


def _decode(value: Any) -> Any:
    """Returns a tensor in which each {"b64": ...} has become bytes."""
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        raise RefusalError(400, 'an object in a tensor must be {"b64": text}')
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusalError(400, f"a text of b64 is no base64 ({error})") from None


def _find_name_fault(
    values: Mapping[str, Any],
    specs: Mapping[str, tf.TensorSpec],
    model: HostedModel,
    signature: str,
) -> str | None:
    """Returns the sentence about missing or unknown inputs; None without."""
    missing = ", ".join(sorted(specs.keys() - values.keys()))
    unknown = ", ".join(sorted(values.keys() - specs.keys()))
    if not missing and not unknown:
        return None
    fault = f"missing input: {missing}" if missing else f"unknown input: {unknown}"
    names = ", ".join(specs)
    remedy = f"the signature {signature} has {names}"
    if unknown and set(values) <= set(model.predictor.columns):
        remedy += f"; send texts to {suggest_path(model)}"
    return f"{fault}; {remedy}"


def _convert(name: str, values: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Returns a tensor of the type and the rank of an input."""
    try:
        tensor = tf.constant(values, spec.dtype).numpy()
    except _INVALID_INPUTS as error:
        expected = f"{spec.dtype.name} {_format_shape(spec)}"
        reason = brief(error)[:_MAX_REASON_CHARS]
        raise RefusalError(
            400, f"{name}: is no tensor of {expected} ({reason}); rows must have equal lengths"
        ) from None
    if spec.dtype == tf.string:
        tensor = np.asarray(tensor, object)
    if not spec.shape.is_compatible_with(tensor.shape):
        shape = list(tensor.shape)
        expected = _format_shape(spec)
        raise RefusalError(
            400, f"{name}: has the shape {shape}, but the signature takes {expected}"
        )
    return tensor


def _format_shape(spec: tf.TensorSpec) -> str:
    return str(spec.shape.as_list()).replace("None", "any")


def _estimate_length(tensor: np.ndarray) -> int:
    """Returns the number of tokens of a row."""
    if tensor.dtype == object:
        longest = max(map(len, tensor.ravel()), default=0)
        return longest // _CHARACTERS_PER_TOKEN + 2
    return max(1, math.prod(tensor.shape[1:]))


def explain_failure(error: InputError) -> str:
    """Returns the sentence about tensors that a graph refuses.

    Args:
        error: the exception of the computation, whose cause is that of TensorFlow.
    """
    assertion = _ASSERTION.search(str(error.__cause__ or error))
    return f"assertion failed: {assertion.group(1)}" if assertion else str(error)


def write_predictions(outputs: Mapping[str, np.ndarray], has_columns: bool) -> dict[str, Any]:
    """Returns the answer to a request.

    Args:
        outputs: the outputs by name, for the rows of the request.
        has_columns: whether the request has "inputs".

    Raises:
        RefusalError: the outputs are no rows, and the request has "instances".
    """
    columns = {name: _to_json(outputs[name]) for name in sorted(outputs)}
    result_name = "outputs" if has_columns else "predictions"
    if len(columns) == 1:  # it is sent without its name
        return {result_name: next(iter(columns.values()))}
    if has_columns:
        return {result_name: columns}
    if len({len(values) for values in columns.values()}) > 1:
        raise RefusalError(400, "the outputs have no row for each instance: send 'inputs'")
    predictions = []
    for row in zip(*columns.values(), strict=True):
        prediction = dict(zip(columns, row, strict=True))
        predictions.append(prediction)
    return {result_name: predictions}


def _to_json(values: np.ndarray) -> list:
    """Returns an array as JSON values. A float32 has no more digits than it needs."""
    if values.dtype == object:
        decode = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
        return decode(values).tolist()
    if values.dtype == np.float32:
        values = values.astype(str).astype(float)
    return values.tolist()


def describe_signatures(model: HostedModel) -> dict[str, Any]:
    """Returns the inputs and outputs of the signatures of a model, as TensorFlow Serving does.

    Args:
        model: the model.
    """
    signatures = {}
    for name, function in model.functions.items():
        outputs = {}
        for output, tensor in function.structured_outputs.items():
            outputs[output] = tf.TensorSpec(tensor.shape, tensor.dtype)
        signatures[name] = {
            "inputs": _describe(model.signature_specs(name)),
            "outputs": _describe(outputs),
            "method_name": "tensorflow/serving/predict",
        }
    return {"signature_def": {"signature_def": signatures}}


def _describe(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    described = {}
    for name, spec in specs.items():
        has_rank = spec.shape.rank is not None
        dimensions = []
        for size in spec.shape.as_list() if has_rank else []:
            shown_size = "-1" if size is None else str(size)
            dimensions.append({"size": shown_size, "name": ""})
        described[name] = {
            "dtype": _DTYPE_NAMES.get(spec.dtype, spec.dtype.name),
            "tensor_shape": {"dim": dimensions, "unknown_rank": not has_rank},
            "name": name,
        }
    return described

"""The forms of requests and answers of TensorFlow Serving.

In: JSON bodies and TensorProtos. Out: arrays for a signature, and its outputs as JSON values. A request is measured
before an array is made of it: a few bytes can claim a tensor of gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from serving_limits import BAD_REQUEST, Limits, RequestError

DEFAULT_SIGNATURE = "serving_default"
BYTES_SUFFIX = "_bytes"  # marks outputs that are not text


def parse_json(body: bytes, limits: Limits) -> dict:
    """Returns the JSON object of a body."""
    # Every value but the first follows one of these, and a comma or bracket in a text is a token of its own.
    num_values = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    most = 4 * limits.max_tokens + 1000
    if num_values > most:
        raise RequestError(
            BAD_REQUEST,
            f"the body has {num_values} commas and brackets, more than the {most} that --max_tokens="
            f"{limits.max_tokens} allows",
        )
    try:
        request = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestError(BAD_REQUEST, f"the body is no UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise RequestError(BAD_REQUEST, f"JSON Parse error: {error}") from error
    if not isinstance(request, dict):
        raise RequestError(BAD_REQUEST, "the body must be a JSON object")
    return request


def json_inputs(request: dict, specs: Mapping[str, tf.TensorSpec], limits: Limits) -> dict[str, np.ndarray]:
    """Returns the arrays of a request, which is {"instances": rows} or {"inputs": columns}."""
    by_row = "instances" in request
    columns = _columns(request["instances"], specs) if by_row else _named(request["inputs"], specs)
    missing = [name for name in specs if name not in columns]
    if missing:
        raise RequestError(BAD_REQUEST, f"missing input: {', '.join(missing)}")
    unknown = [name for name in columns if name not in specs]
    if unknown:
        raise RequestError(BAD_REQUEST, f"the signature has no input {', '.join(unknown)[:80]}")
    return {name: _array(name, values, specs[name], limits) for name, values in columns.items()}


def json_answer(outputs: Mapping[str, np.ndarray], by_row: bool) -> dict:
    """Returns the answer with these outputs, [batch, ...] each, in the form of the request."""
    values_of = {name: _plain(name, values) for name, values in outputs.items()}
    if not by_row:
        return {"outputs": values_of if len(values_of) > 1 else next(iter(values_of.values()))}
    if len(values_of) == 1:
        return {"predictions": next(iter(values_of.values()))}
    rows = zip(*values_of.values(), strict=True)
    return {"predictions": [dict(zip(values_of, row, strict=True)) for row in rows]}


def tensor_input(name: str, proto, spec: tf.TensorSpec, num_bytes: int, limits: Limits) -> np.ndarray:
    """Returns the array of a TensorProto.

    Args:
        name: the name of the input.
        proto: the TensorProto.
        spec: what the signature takes.
        num_bytes: the size of the whole request; a tensor has no more elements than that.
        limits: of the server.
    """
    sizes = [axis.size for axis in proto.tensor_shape.dim]
    is_shape = not proto.tensor_shape.unknown_rank and min(sizes, default=0) >= 0
    if not is_shape or max(sizes, default=0) >= 1 << 63 or not spec.shape.is_compatible_with(sizes):
        raise RequestError(
            BAD_REQUEST, f"input {name}: must be {spec.dtype.name} of shape {spec.shape}, this has {sizes}"
        )
    if proto.dtype != spec.dtype.as_datatype_enum:
        raise RequestError(
            BAD_REQUEST,
            f"input {name}: must be {spec.dtype.name} of shape {spec.shape}, this has another type",
        )
    limits.check_shape(name, sizes)
    if math.prod(sizes) > num_bytes:
        raise RequestError(
            BAD_REQUEST,
            f"input {name}: has {math.prod(sizes)} elements, more than the {num_bytes} bytes of the request",
        )
    try:
        values = tf.make_ndarray(proto)
    except (TypeError, ValueError, OverflowError, DecodeError) as error:
        raise RequestError(BAD_REQUEST, f"input {name}: is no tensor ({error})") from error
    if spec.dtype == tf.string:
        limits.check_texts(name, values)
    return values


def _named(value: Any, specs: Mapping) -> dict[str, Any]:
    """Returns values by name from a JSON object, or from a single value if the signature has only one input."""
    if isinstance(value, dict) and value.keys() != {"b64"}:
        return value
    if len(specs) != 1:
        raise RequestError(
            BAD_REQUEST, f"the signature takes the inputs {', '.join(specs)}: give them by name"
        )
    return {next(iter(specs)): value}


def _columns(instances: Any, specs: Mapping) -> dict[str, list]:
    if not isinstance(instances, list) or not instances:
        raise RequestError(BAD_REQUEST, "'instances' must be a list, and not empty")
    rows = [_named(instance, specs) for instance in instances]
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise RequestError(BAD_REQUEST, f"instance {number} has other inputs than the first one")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _array(name: str, value: Any, spec: tf.TensorSpec, limits: Limits) -> np.ndarray:
    """Converts a JSON value, nested lists of numbers, texts or {"b64": ...}, to an array."""
    shape, level = [], [value]
    while len(shape) < spec.shape.rank:
        if not all(isinstance(part, list) for part in level):
            raise RequestError(BAD_REQUEST, f"input {name}: must have the shape {spec.shape}")
        lengths = {len(part) for part in level}
        if len(lengths) > 1:
            raise RequestError(BAD_REQUEST, f"input {name}: has lists of different lengths; fill them up")
        shape.append(lengths.pop() if lengths else 0)
        level = [item for part in level for item in part]
    limits.check_shape(name, shape)
    leaf = _leaf_reader(name, spec.dtype)
    values = [leaf(item) for item in level]
    try:
        flat = np.array(values, object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
    except OverflowError as error:
        raise RequestError(
            BAD_REQUEST, f"input {name}: has a number that {spec.dtype.name} cannot hold"
        ) from error
    if spec.dtype == tf.string:
        limits.check_texts(name, flat)
    return flat.reshape(shape)


def _leaf_reader(name: str, dtype: tf.DType) -> Callable[[Any], Any]:
    kinds = {str, dict} if dtype == tf.string else {bool} if dtype.is_bool else {int}
    if dtype.is_floating:
        kinds = {int, float}

    def read(item):
        if type(item) not in kinds:
            raise RequestError(
                BAD_REQUEST, f"input {name}: JSON value {_short(item)} is not of the type {dtype.name}"
            )
        if dtype != tf.string:
            return item
        try:
            return item.encode() if isinstance(item, str) else base64.b64decode(item["b64"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise RequestError(
                BAD_REQUEST, f"input {name}: {_short(item)} is neither text nor base64 ({error})"
            ) from error

    return read


def _short(item: Any) -> str:
    text = json.dumps(item)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _plain(name: str, values: np.ndarray) -> list:
    """Converts an array to JSON values; a float32 has as few digits as distinguish it from all others."""
    if values.dtype == object:
        flat = [_text(name, value) for value in values.ravel()]
    elif values.dtype == np.float32:
        flat = [float(str(value)) for value in values.ravel()]
    else:
        return values.tolist()
    shaped = np.empty(len(flat), object)
    shaped[:] = flat
    return shaped.reshape(values.shape).tolist()


def _text(name: str, value: bytes) -> str | dict:
    if not name.endswith(BYTES_SUFFIX):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}

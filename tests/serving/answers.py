"""Runs the signatures of exported models."""

import collections
import functools
import pathlib
from collections.abc import Mapping

import numpy as np

from official_bert.data.records.framing import read_records

_REQUEST = 64
TOLERANCE = 1e-5  # of what an export answers
# The largest difference of an output of a converted model: in float32, and otherwise as a share of
# the largest value.
TOLERANCES = {"float32": TOLERANCE, "float16": 0.01, "int8": 0.2, "int8_weights": 0.1}


@functools.cache
def signatures_of(version: pathlib.Path):
    """The signatures of the SavedModel in a folder, which a process loads once."""
    import tensorflow as tf

    return tf.saved_model.load(str(version)).signatures


def answers(
    version: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs of a signature of the SavedModel in a folder, for requests of at most 64
    examples.
    """
    serve = signatures_of(version)[signature]
    first_input, *_ = inputs.values()
    parts = collections.defaultdict(list)
    for start in range(0, len(first_input), _REQUEST):
        end = start + _REQUEST
        request = {name: values[start:end] for name, values in inputs.items()}
        for name, values in call(serve, request).items():
            parts[name].append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def answers_to_records(version: pathlib.Path, record_file: pathlib.Path) -> dict[str, np.ndarray]:
    """The outputs of `serving_examples` for the records of a file, in their order."""
    records = [data for _, data in read_records(str(record_file))]
    inputs = {"examples": np.array(records, object)}
    return answers(version, "serving_examples", inputs)


def call(signature, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a loaded signature for one request."""
    import tensorflow as tf

    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    outputs = signature(**tensors)
    return {name: value.numpy() for name, value in outputs.items()}


def assert_same(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]):
    """Equal outputs: floats within TOLERANCE, everything else exactly."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(
                found[name],
                values,
                atol=TOLERANCE,
                rtol=TOLERANCE,
                err_msg=name,
            )
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def assert_near(
    computed: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> None:
    """Equal names, shapes and types, and numbers that differ by the rounding of a type.

    Args:
        computed: the outputs of a converted model.
        expected: those of the model in float32.
        dtype: the type of the converted weights.
    """
    assert computed.keys() == expected.keys()
    for name, values in expected.items():
        assert computed[name].shape == values.shape, name
        assert computed[name].dtype == values.dtype, name
        if values.dtype == np.float32:
            scale = 1.0 if dtype == "float32" else np.abs(values).max()
            difference = np.abs(computed[name] - values).max()
            assert difference <= TOLERANCES[dtype] * scale, name
        elif dtype == "float32":
            np.testing.assert_array_equal(computed[name], values, err_msg=name)

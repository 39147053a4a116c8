"""Small models, written as ONNX files and run by onnxruntime."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnxruntime
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.extensions.onnx_files import onnx_writer
from official_bert.features import ENCODER_INPUTS
from tests import toy

FIELDS = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
METADATA = {"signature": "serving_default"}


def make_config(**fields) -> BertConfig:
    """The configuration of a model that is large enough for 8 bits."""
    return BertConfig.from_dict(toy.BERT_CONFIG | FIELDS | fields)


def draw_weights(model) -> None:
    """Gives all weights of a model random values that make different outputs different."""
    draws = np.random.default_rng(1)
    for variable in model.weights:
        values = draws.normal(scale=0.15, size=variable.shape)
        if variable.path.endswith("gamma"):
            values = values + 1.0
        variable.assign(values.astype(np.float32))


def open_session(content: bytes) -> onnxruntime.InferenceSession:
    """A session of a file, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def compile_onnx(
    outputs: Callable,
    dtype: str = "float32",
    names: Sequence[str] = ENCODER_INPUTS,
    num_choices: int | None = None,
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Writes a signature, and returns a function that runs the file on arrays."""
    inputs = onnx_writer.list_inputs(names, num_choices)
    content = onnx_writer.write_signature(outputs, inputs, dtype, METADATA)
    session = open_session(content)
    output_names = [output.name for output in session.get_outputs()]

    def run(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = session.run(output_names, dict(features))
        return dict(zip(output_names, values, strict=True))

    return run


def compute_in_tensorflow(
    outputs: Callable, features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Computes the outputs by TensorFlow; texts are str, as in onnxruntime."""
    tensors = {name: tf.constant(values) for name, values in features.items()}
    results = {}
    for name, tensor in outputs(tensors).items():
        values = tensor.numpy()
        if values.dtype == object:
            flat = [text.decode() for text in values.ravel()]
            values = np.array(flat, object).reshape(values.shape)
        results[name] = values
    return results

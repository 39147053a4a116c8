"""Runs ONNX files by onnxruntime."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from official_bert.extensions.runtimes.parts import split_batches
from official_bert.io import files
from official_bert.serving.export_format import ConvertedRuntime, import_runtime
from official_bert.serving.exported_model import DEFAULT, TEXT_SIGNATURE

# The type of texts in onnxruntime.
_TEXT = "tensor(string)"


class OnnxRuntime(ConvertedRuntime):
    """The signatures by onnxruntime.

    model.onnx has serving_default, and <signature>.onnx each further one.
    """

    FILE = "model.onnx"

    def __init__(self, path: str, num_threads: int | None = None):
        """Opens the files of a folder.

        Args:
            path: the folder.
            num_threads: the number of threads; None for those of the machine.
        """
        onnxruntime = import_runtime("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads or 0  # 0 means those of the machine.
        self._sessions = {}
        self.inputs = {}
        for file in sorted(files.matching("*.onnx", path)):
            name = os.path.basename(file)
            signature = DEFAULT if name == self.FILE else name.removesuffix(".onnx")
            session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
            self._sessions[signature] = session
            self.inputs[signature] = _list_names(session.get_inputs())
        default = self._sessions[DEFAULT]
        if default.get_inputs()[0].type == _TEXT:
            # Exports of text have this signature, too.
            self._sessions[TEXT_SIGNATURE] = default
            self.inputs[TEXT_SIGNATURE] = self.inputs[DEFAULT]
        self.outputs = set(_list_names(default.get_outputs()))
        self.rank = len(default.get_inputs()[0].shape)

    @split_batches
    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        session = self._sessions[signature]
        names = _list_names(session.get_outputs())
        # Strings are bytes, as in TensorFlow.
        decode = np.vectorize(_decode, otypes=[object])
        arrays = {}
        for name, array in inputs.items():
            arrays[name] = decode(array) if array.dtype == object else array
        values = session.run(names, arrays)
        encode = np.vectorize(str.encode, otypes=[object])
        outputs = {}
        for name, value in zip(names, values, strict=True):
            outputs[name] = encode(value) if value.dtype == object else value
        return outputs


def _decode(text: bytes) -> str:
    """Returns a text without the bytes that are not UTF-8."""
    return text.decode("utf-8", "ignore")


def _list_names(values: Iterable[Any]) -> list[str]:
    """Returns the names of the inputs or outputs of an ONNX session."""
    return [value.name for value in values]

"""The runtimes of exports: a class for each format, in the form of serving/exported_model.py's
Runtime.
"""

import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from official_bert.extensions.runtimes.options import LITERT, ONNX
from official_bert.io import files
from official_bert.io.errors import InputError, brief
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving.exported_model import DEFAULT, SavedModelRuntime


class RuntimeMissingError(InputError):
    """A package of the extra `runtimes` that cannot be imported."""


def import_runtime(module: str) -> Any:
    """Import a package of the extra `runtimes`.

    Args:
        module: the name of a module.

    Returns:
        The module.

    Raises:
        RuntimeMissingError: it cannot be imported; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise RuntimeMissingError(
            f"{package}: cannot be imported ({brief(error)}); pip install 'official-bert[runtimes]'"
        ) from error


class _ConvertedRuntime:
    """A runtime of converted files, whose graphs contain no labels and no sizes."""

    errors: tuple[type[Exception], ...] = (Exception,)
    labels: list[str] | None = None
    num_outputs: int | None = None
    vocab_size: int | None = None


class LiteRtRuntime(_ConvertedRuntime):
    """The signatures of model.tflite, computed by LiteRT.

    LiteRT lays out its memory again for each new shape of inputs.
    """

    FILE = "model.tflite"

    def __init__(self, path: str, num_threads: int | None = None):
        """Opens a file.

        Args:
            path: the folder of the file.
            num_threads: the number of threads; None for those of the machine.
        """
        module = import_runtime("ai_edge_litert.interpreter")
        file = os.path.join(path, self.FILE)
        interpreter = module.Interpreter(file, num_threads=num_threads or os.cpu_count())
        self._interpreter = interpreter
        signatures = interpreter.get_signature_list()
        self._runners = {name: interpreter.get_signature_runner(name) for name in signatures}
        self.inputs = {name: list(signature["inputs"]) for name, signature in signatures.items()}
        self.outputs = set(signatures[DEFAULT]["outputs"])
        input_details = self._runners[DEFAULT].get_input_details()
        first_input = next(iter(input_details.values()))
        self.rank = len(first_input["shape"])

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        return self._runners[signature](**inputs)


class OnnxRuntime(_ConvertedRuntime):
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
        self.outputs = set(_list_names(default.get_outputs()))
        self.rank = len(default.get_inputs()[0].shape)

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        session = self._sessions[signature]
        names = _list_names(session.get_outputs())
        values = session.run(names, dict(inputs))
        # Strings become bytes, as in TensorFlow.
        encode = np.vectorize(str.encode, otypes=[object])
        outputs = {}
        for name, value in zip(names, values, strict=True):
            outputs[name] = encode(value) if value.dtype == object else value
        return outputs


def _list_names(values: Iterable[Any]) -> list[str]:
    """Returns the names of the inputs or outputs of an ONNX session."""
    return [value.name for value in values]


RUNTIMES = {
    SAVED_MODEL: SavedModelRuntime,
    ONNX: OnnxRuntime,
    LITERT: LiteRtRuntime,
}

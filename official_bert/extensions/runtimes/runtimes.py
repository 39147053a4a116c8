"""The runtimes of exports: a class for each format, in the form of serving/exported_model.py's Runtime."""

import importlib
import os
from collections.abc import Mapping

import numpy as np

from official_bert.extensions.runtimes.options import LITERT, ONNX
from official_bert.io import files
from official_bert.io.errors import InputError, brief
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving.exported_model import DEFAULT, SavedModelRuntime


class RuntimeMissingError(InputError):
    """A package of the extra `runtimes` that cannot be imported."""


def import_runtime(module: str):
    """Imports a package of the extra `runtimes`.

    Raises:
        RuntimeMissingError: it cannot be imported; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RuntimeMissingError(
            f"{module.split('.')[0]}: cannot be imported ({brief(error)}); pip install "
            "'official-bert[runtimes]'"
        ) from error


class LiteRtRuntime:
    """The signatures of model.tflite, by LiteRT, which lays out its memory again for each new shape
    of inputs.
    """

    FILE = "model.tflite"
    errors = (Exception,)
    labels = num_outputs = vocab_size = None

    def __init__(self, path: str, num_threads: int | None = None):
        interpreter = import_runtime("ai_edge_litert.interpreter")
        self._interpreter = interpreter.Interpreter(
            os.path.join(path, self.FILE), num_threads=num_threads or os.cpu_count()
        )
        signatures = self._interpreter.get_signature_list()
        self._runners = {name: self._interpreter.get_signature_runner(name) for name in signatures}
        self.inputs = {name: tuple(signature["inputs"]) for name, signature in signatures.items()}
        self.outputs = set(signatures[DEFAULT]["outputs"])
        self.rank = len(next(iter(self._runners[DEFAULT].get_input_details().values()))["shape"])

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._runners[signature](**inputs)


class OnnxRuntime:
    """The signatures by onnxruntime: model.onnx has serving_default, and <signature>.onnx each
    further one.
    """

    FILE = "model.onnx"
    errors = (Exception,)
    labels = num_outputs = vocab_size = None

    def __init__(self, path: str, num_threads: int | None = None):
        onnxruntime = import_runtime("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads or 0  # 0: those of the machine
        self._sessions = {}
        for file in sorted(files.matching("*.onnx", path)):
            name = os.path.basename(file)
            signature = DEFAULT if name == self.FILE else name.removesuffix(".onnx")
            self._sessions[signature] = onnxruntime.InferenceSession(
                file, options, ["CPUExecutionProvider"]
            )
        self.inputs = {
            name: tuple(value.name for value in session.get_inputs())
            for name, session in self._sessions.items()
        }
        default = self._sessions[DEFAULT]
        self.outputs = {value.name for value in default.get_outputs()}
        self.rank = len(default.get_inputs()[0].shape)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self._sessions[signature]
        names = [output.name for output in session.get_outputs()]
        outputs = zip(names, session.run(names, dict(inputs)), strict=True)
        # Strings are bytes, as TensorFlow's.
        encode = np.vectorize(str.encode, otypes=[object])
        return {name: encode(value) if value.dtype == object else value for name, value in outputs}


RUNTIMES = {SAVED_MODEL: SavedModelRuntime, ONNX: OnnxRuntime, LITERT: LiteRtRuntime}

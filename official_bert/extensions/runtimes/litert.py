"""LiteRT: converts models by TensorFlow's converter, and runs model.tflite."""

import os
import tempfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official_bert.extensions.runtimes.formats import FILE
from official_bert.extensions.runtimes.parts import split_batches
from official_bert.io import files
from official_bert.options.shared import INT8
from official_bert.serving.export_format import (
    ConversionSource,
    ConvertedRuntime,
    import_runtime,
)
from official_bert.serving.exported_model import DEFAULT


def write_litert(source: ConversionSource, folder: str) -> str:
    """Write model.tflite with all signatures.

    With int8 the weights have 8 bits and a scale for each channel.

    Args:
        source: the model and its signatures.
        folder: the folder of the file.

    Returns:
        The version of the converter.
    """
    with tempfile.TemporaryDirectory() as saved_model:
        source.save(saved_model)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            saved_model, signature_keys=list(source.signatures)
        )
        if source.dtype == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content = converter.convert()
    with files.open_file(os.path.join(folder, FILE), "wb") as file:
        file.write(content)
    return f"tf.lite {tf.__version__}"


class LiteRtRuntime(ConvertedRuntime):
    """The signatures of model.tflite, computed by LiteRT.

    LiteRT lays out its memory again for each new shape of inputs.
    """

    FILE = FILE

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

    @split_batches
    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        return self._runners[signature](**inputs)

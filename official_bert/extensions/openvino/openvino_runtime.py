"""Runs the ONNX files and the files of exports in OpenVINO's own format, on the processor."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving.export_format import ConvertedRuntime, import_runtime
from official_bert.serving.exported_model import DEFAULT

_DEVICE = "CPU"


class OpenVinoRuntime(ConvertedRuntime):
    """The signatures of ONNX files, computed in float32.

    model.onnx has serving_default, and <signature>.onnx each further one.
    """

    FILE = "model.onnx"
    PRECISION = "f32"

    def __init__(self, path: str, num_threads: int | None = None):
        """Opens the files of a folder.

        Args:
            path: the folder.
            num_threads: the number of threads; None for those of the machine.

        Raises:
            InputError: the processor cannot compute in the precision.
        """
        core = import_runtime("openvino", extra="openvino").Core()
        self._check_precision(core)
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": self.PRECISION,
            "PERFORMANCE_HINT": "LATENCY",
        }
        if num_threads is not None:
            settings["INFERENCE_NUM_THREADS"] = num_threads
        self._models = {}
        self._output_names = {}
        self.inputs = {}
        suffix = os.path.splitext(self.FILE)[1]
        for file in sorted(files.matching(f"*{suffix}", path)):
            name = os.path.basename(file)
            signature = DEFAULT if name == self.FILE else name.removesuffix(suffix)
            model = core.read_model(file)
            # The compiled model may have other names.
            self._output_names[signature] = [value.get_any_name() for value in model.outputs]
            self.inputs[signature] = [value.get_any_name() for value in model.inputs]
            if signature == DEFAULT:
                self.rank = len(model.inputs[0].get_partial_shape())
            self._models[signature] = core.compile_model(model, _DEVICE, settings)
        self.outputs = set(self._output_names[DEFAULT])

    def _check_precision(self, core: Any) -> None:
        """Raises InputError if the processor cannot compute in the precision."""

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        results = self._models[signature](dict(inputs))
        # Strings become bytes, as in TensorFlow.
        encode = np.vectorize(str.encode, otypes=[object])
        outputs = {}
        for number, name in enumerate(self._output_names[signature]):
            values = np.array(results[number])
            outputs[name] = encode(values) if values.dtype.kind in "UO" else values
        return outputs


class OpenVinoFileRuntime(OpenVinoRuntime):
    """The signatures of files in OpenVINO's own format.

    model.xml has serving_default, and <signature>.xml each further one. A file with the suffix .bin
    has the weights. Products whose ranges are in the file are computed in 8 bits.
    """

    FILE = "model.xml"


class OpenVinoBfloat16Runtime(OpenVinoRuntime):
    """The same in bfloat16, which newer processors multiply faster."""

    PRECISION = "bf16"

    def _check_precision(self, core: Any) -> None:
        if "BF16" not in core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES"):
            raise InputError(
                "runtime=openvino_bfloat16: this processor has no instructions for bfloat16; give "
                "runtime=openvino"
            )

"""The runtimes of OpenVINO, for the hook `format_runtimes`."""

from official_bert.options.shared import FLOAT16, FLOAT32, INT8_WEIGHTS
from official_bert.serving.export_format import FormatRuntime

_MODULE = "official_bert.extensions.openvino.openvino_runtime"


def list_runtimes() -> list[FormatRuntime]:
    """Return OpenVINO in float32, and in bfloat16, which changes the outputs."""
    return [
        FormatRuntime(
            name="openvino",
            export_format="onnx",
            package="openvino",
            runtime_class=f"{_MODULE}:OpenVinoRuntime",
            tried_dtypes=(FLOAT32, FLOAT16, INT8_WEIGHTS),  # Some models of 8 bits fail in it.
        ),
        FormatRuntime(
            name="openvino_bfloat16",
            export_format="onnx",
            package="openvino",
            runtime_class=f"{_MODULE}:OpenVinoBfloat16Runtime",
            tried_dtypes=(),
        ),
    ]

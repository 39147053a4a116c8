"""OpenVINO's own format, for the hook `export_formats`, and the runtimes of OpenVINO."""

from official_bert import catalog
from official_bert.options.shared import FLOAT16, FLOAT32, INT8, INT8_WEIGHTS
from official_bert.serving.export_format import ExportFormat, FormatRuntime

OPENVINO = "openvino"
ONNX = "onnx"
_ONNX_EXTENSION = "onnx_files"
_HERE = "official_bert.extensions.openvino"


def list_formats() -> list[ExportFormat]:
    """Return OpenVINO's own format, whose converter reads ONNX files."""
    if _ONNX_EXTENSION not in [record.name for record in catalog.extensions()]:
        return []
    return [
        ExportFormat(
            name=OPENVINO,
            runtime=OPENVINO,
            file="model.xml",
            packages=("onnx", "openvino", "nncf"),
            dtypes=(FLOAT32, INT8),
            converter=f"{_HERE}.openvino_writer:write_openvino",
            model_check=f"{_HERE}.openvino_writer:check_config",
            extra="nncf",
            calibrated_dtypes=(INT8,),
            data_suffix=".bin",
        )
    ]


def list_runtimes() -> list[FormatRuntime]:
    """Return OpenVINO in float32 and 8 bits, and in bfloat16, which changes the outputs."""
    module = f"{_HERE}.openvino_runtime"
    return [
        FormatRuntime(
            name=OPENVINO,
            export_format=OPENVINO,
            package="openvino",
            runtime_class=f"{module}:OpenVinoFileRuntime",
        ),
        FormatRuntime(
            name=OPENVINO,
            export_format=ONNX,
            package="openvino",
            runtime_class=f"{module}:OpenVinoRuntime",
            tried_dtypes=(FLOAT32, FLOAT16, INT8_WEIGHTS),  # Some models of 8 bits fail in it.
        ),
        FormatRuntime(
            name="openvino_bfloat16",
            export_format=ONNX,
            package="openvino",
            runtime_class=f"{module}:OpenVinoBfloat16Runtime",
            tried_dtypes=(),
        ),
    ]

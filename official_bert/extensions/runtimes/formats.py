"""The format of LiteRT, for the hook `export_formats`; its runtime, and that of ONNX files."""

from official_bert.options.shared import FLOAT32, INT8
from official_bert.serving.export_format import ExportFormat, FormatRuntime

LITERT = "litert"
FILE = "model.tflite"
_HERE = "official_bert.extensions.runtimes"


def list_formats() -> list[ExportFormat]:
    """Return the format of LiteRT."""
    return [
        ExportFormat(
            name=LITERT,
            runtime=LITERT,
            file=FILE,
            packages=("ai_edge_litert",),
            dtypes=(FLOAT32, INT8),
            converter=f"{_HERE}.litert:write_litert",
        )
    ]


def list_runtimes() -> list[FormatRuntime]:
    """Return the runtimes of this extension, for the hook `format_runtimes`."""
    return [
        FormatRuntime(
            name="onnxruntime",
            export_format="onnx",
            package="onnxruntime",
            runtime_class=f"{_HERE}.onnx:OnnxRuntime",
        ),
        FormatRuntime(
            name=LITERT,
            export_format=LITERT,
            package="ai_edge_litert",
            runtime_class=f"{_HERE}.litert:LiteRtRuntime",
        ),
    ]

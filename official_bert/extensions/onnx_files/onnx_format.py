"""The format of ONNX files, for the hook `export_formats`."""

from official_bert.options.shared import FLOAT16, FLOAT32, INT8, INT8_WEIGHTS
from official_bert.serving.export_format import ExportFormat

ONNX = "onnx"
FILE = "model.onnx"
_HERE = "official_bert.extensions.onnx_files"


def list_formats() -> list[ExportFormat]:
    """Return the format of ONNX files."""
    return [
        ExportFormat(
            name=ONNX,
            runtime="onnxruntime",
            file=FILE,
            packages=("onnx", "onnxruntime"),
            dtypes=(FLOAT32, FLOAT16, INT8, INT8_WEIGHTS),
            converter=f"{_HERE}.onnx_exporter:write_onnx",
            model_check=f"{_HERE}.onnx_encoder:check_config",
            reads_text=True,
        )
    ]

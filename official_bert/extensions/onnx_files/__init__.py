"""The writer of ONNX files."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.onnx_files"

EXTENSION = Extension(
    name="onnx_files",
    summary="Writes models as ONNX files, which may read raw text.",
    hooks={"export_formats": f"{_HERE}.onnx_format:list_formats"},
)

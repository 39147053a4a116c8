"""OpenVINO: a further runtime of ONNX files, and a format of its own with 8 bits by NNCF."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.openvino"

EXTENSION = Extension(
    name="openvino",
    summary="Runs ONNX files by OpenVINO, and writes its own files, in 8 bits by NNCF.",
    hooks={
        "export_formats": f"{_HERE}.formats:list_formats",
        "format_runtimes": f"{_HERE}.formats:list_runtimes",
    },
)

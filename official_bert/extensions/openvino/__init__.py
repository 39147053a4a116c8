"""OpenVINO: a further runtime of ONNX files."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.openvino"

EXTENSION = Extension(
    name="openvino",
    summary="Runs ONNX files by OpenVINO.",
    hooks={"format_runtimes": f"{_HERE}.runtime_names:list_runtimes"},
)

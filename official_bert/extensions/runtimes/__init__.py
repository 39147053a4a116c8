"""Exports for onnxruntime and LiteRT, in 32 and 8 bits, and what opens them."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.runtimes"

EXTENSION = Extension(
    name="runtimes",
    summary="Exports models to ONNX and LiteRT, with 32 or 8 bits, and runs them.",
    options={
        "export_saved_model": f"{_HERE}.options:FormatOptions",
        "predict": f"{_HERE}.options:RuntimeOptions",
    },
    hooks={
        "export_runtimes": f"{_HERE}.opening:OtherRuntimes",
        "export_writer": f"{_HERE}.writer:FormatWriter",
    },
)

"""Exports in formats of other runtimes, in 32, 16 and 8 bits, and what opens them."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.runtimes"

EXTENSION = Extension(
    name="runtimes",
    summary="Exports models to ONNX and LiteRT, and runs the fastest of several formats.",
    options={
        "export_saved_model": f"{_HERE}.options:FormatOptions",
        "predict": f"{_HERE}.options:RuntimeOptions",
    },
    hooks={
        "export_formats": f"{_HERE}.formats:list_formats",
        "export_runtimes": f"{_HERE}.opening:OtherRuntimes",
        "export_writer": f"{_HERE}.writer:FormatWriter",
        "format_runtimes": f"{_HERE}.formats:list_runtimes",
    },
)

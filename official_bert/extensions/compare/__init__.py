"""Comparison: the quality, the speed and the size of models in all formats and types."""

from official_bert.extension import Command, Extension

_HERE = "official_bert.extensions.compare"

EXTENSION = Extension(
    name="compare",
    summary="Compares the quality, speed and size of models in all formats and types.",
    commands={
        "compare": Command(
            options=f"{_HERE}.options:CompareOptions",
            function=f"{_HERE}.command:run",
            summary="Measures the quality, speed and size of models in all formats and types.",
            check=f"{_HERE}.options:check_paths",
            stage="Use the model",
            example="--model=my_model --dev_file=dev.tsv --output_dir=comparison",
        )
    },
)

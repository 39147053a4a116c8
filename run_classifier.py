#!/usr/bin/env python3
"""Fine-tunes BERT for text classification or regression, evaluates it, and predicts with it."""

import importlib

from official_bert.cli import commands

_PUBLIC = {  # the names that users import from this script
    "official_bert.tasks.classification.examples": ("InputExample", "PaddingInputExample"),
    "official_bert.tasks.classification.glue": ("ColaProcessor", "MnliProcessor", "MrpcProcessor", "XnliProcessor"),
    "official_bert.compat.input_functions": (
        "InputFeatures",
        "convert_examples_to_features",
        "convert_single_example",
        "file_based_convert_examples_to_features",
        "file_based_input_fn_builder",
        "input_fn_builder",
    ),
    "official_bert.tasks.classification.processor": ("DataProcessor",),
}


def __getattr__(name: str):
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    commands.run_command("run_classifier")

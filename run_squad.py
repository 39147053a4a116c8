#!/usr/bin/env python3
"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers with it, and scores them."""

import importlib

from official_bert.cli import commands

_PUBLIC = {  # the names that users import from this script
    "official_bert.tasks.squad.examples": ("SquadExample", "read_squad_examples"),
    "official_bert.tasks.squad.answers": ("RawResult", "get_final_text"),
    "official_bert.tasks.squad.windows": ("InputFeatures",),
    "official_bert.compat.feature_writer": (
        "FeatureWriter",
        "convert_examples_to_features",
        "input_fn_builder",
        "write_predictions",
    ),
}


def __getattr__(name: str):
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    commands.run_command("run_squad")

#!/usr/bin/env python3
"""Makes masked LM and next-sentence TFRecords from raw text for run_pretraining."""

import importlib

from official_bert.cli import commands

_PUBLIC = (  # the names that users import from this script
    "TrainingInstance",
    "create_instances_from_document",
    "create_masked_lm_predictions",
    "create_training_instances",
    "truncate_seq_pair",
    "write_instance_to_example_files",
)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("official_bert.compat.training_instances"), name)


if __name__ == "__main__":
    commands.run_command("create_pretraining_data")

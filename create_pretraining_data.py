#!/usr/bin/env python3
"""Makes masked LM and next-sentence TFRecords from raw text for run_pretraining.py."""

import importlib

from official_bert import flags
from official_bert.options.pretraining_data import PretrainingDataOptions

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
    return getattr(importlib.import_module("official_bert.data.corpus.token_instances"), name)


def main(options: PretrainingDataOptions):
    from official_bert.runners import create_pretraining_data  # --help does not need it

    create_pretraining_data.run(options)


if __name__ == "__main__":
    flags.run(main, PretrainingDataOptions)

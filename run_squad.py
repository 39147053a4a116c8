#!/usr/bin/env python3
"""Fine-tunes BERT on SQuAD 1.1 or 2.0, answers questions with it and scores the answers."""

import importlib

from official_bert import flags
from official_bert.options.squad import SquadOptions

_PUBLIC = {  # what people import from this script
    "official_bert.tasks.squad": ("SquadExample", "read_squad_examples"),
    "official_bert.tasks.squad_answers": ("RawResult", "write_predictions"),
    "official_bert.tasks.squad_features": ("InputFeatures", "convert_examples_to_features"),
    "official_bert.tasks.squad_final_text": ("get_final_text",),
    "official_bert.tasks.squad_records": ("FeatureWriter", "input_fn_builder"),
}


def __getattr__(name: str):
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main(options: SquadOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import squad

    squad.run(options)


if __name__ == "__main__":
    flags.run(main, SquadOptions)

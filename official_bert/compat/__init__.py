"""The original's functions for training loops and scripts of one's own; `find_name` finds the
names of its scripts.
"""

import importlib
from typing import Any

from official_bert.io.errors import no_attribute

# What users import from a script, by the module where it lives; `name=other` has another name
# there.
_PUBLIC = {
    "create_pretraining_data": {
        "compat.training_instances": "MaskedLmInstance TrainingInstance create_float_feature "
        "create_int_feature create_instances_from_document create_masked_lm_predictions "
        "create_training_instances truncate_seq_pair write_instance_to_example_files"
    },
    "run_pretraining": {"modeling": "gather_indexes"},
    "extract_features": {"tokenizer_config": "_truncate_seq_pair=truncate_seq_pair"},
    "run_classifier": {
        "tasks.classification.examples": "InputExample PaddingInputExample",
        "tasks.classification.glue": "ColaProcessor MnliProcessor MrpcProcessor XnliProcessor",
        "tasks.classification.processor": "DataProcessor",
        "tokenizer_config": "_truncate_seq_pair=truncate_seq_pair",
        "compat.input_functions": "InputFeatures convert_examples_to_features "
        "convert_single_example file_based_convert_examples_to_features "
        "file_based_input_fn_builder input_fn_builder",
    },
    "run_squad": {
        "tasks.squad.examples": "SquadExample read_squad_examples",
        "tasks.squad.answers": "RawResult get_final_text",
        "tasks.squad.windows": "InputFeatures",
        "compat.feature_writer": "FeatureWriter _compute_softmax _get_best_indexes "
        "convert_examples_to_features input_fn_builder write_predictions",
    },
}


def find_name(script: str, name: str) -> Any:
    """Returns what a script of the original defines under a name.

    Args:
        script: the name of the script without `.py`, such as "run_squad".
        name: the name in the script.

    Raises:
        AttributeError: the script has no such name, or its name is gone.
    """
    for module, names in _PUBLIC[script].items():
        for public, _, inner in (entry.partition("=") for entry in names.split()):
            if public == name:
                return getattr(importlib.import_module(f"official_bert.{module}"), inner or name)
    raise no_attribute(script, name)

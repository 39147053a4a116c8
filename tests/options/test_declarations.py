"""Tests the declarations of flags: whether one changes a training, and which others it needs."""

import dataclasses

import pytest

from official_bert.options.fields import flag_names, flag_without_effect, list_typed_flags
from official_bert.options.fine_tuning import (
    ChoiceOptions,
    ClassificationOptions,
    SquadOptions,
    TaggingOptions,
)
from official_bert.options.training import PretrainingOptions

TRAININGS = (
    PretrainingOptions,
    ClassificationOptions,
    ChoiceOptions,
    SquadOptions,
    TaggingOptions,
)

# Flags that change no update of a training, by the reason.
DATA_AND_MODEL = """
model vocab_file bert_config_file allow_missing_weights random_seed input_file data_dir train_file
task_name text_a_column text_b_column label_column has_header label_separator quoting data_format
labels
"""  # their content is compared, or the checkpoint keeps it
DEVICES = """
use_tpu tpu_name tpu_zone gcp_project master num_tpu_cores iterations_per_loop steps_per_loop
distribution_strategy num_devices collective jit_compile num_accumulation_steps recompute_layers
"""
AROUND_THE_TRAINING = """
output_dir do_train do_eval do_predict save_checkpoints_steps keep_checkpoint_max log_every_steps
search calibrate eval_input_file dev_file test_file predict_file eval_batch_size predict_batch_size
max_eval_steps abstain_below n_best_size max_answer_length null_score_diff_threshold
null_score_diff_file verbose_logging ensemble_dirs profile_steps
"""
# In pre-training they describe the records, for the users of the model.
CASING = {"do_lower_case", "strip_accents"}
FIXED_IN_FINE_TUNING = {"do_lower_case", "strip_accents", "num_bilstm_layers"}
CHANGE_NOTHING = {*DATA_AND_MODEL.split(), *DEVICES.split(), *AROUND_THE_TRAINING.split()}


@pytest.mark.parametrize("options_class", TRAININGS)
def test_every_flag_changes_a_training_or_is_listed_here(options_class):
    """A new flag declares that it changes a training, or is added to a list here."""
    names = {field.name for field in dataclasses.fields(options_class)}
    changing = set(flag_names(options_class, "changes_training"))
    unchanging = set(CHANGE_NOTHING)
    if options_class is PretrainingOptions:
        unchanging |= CASING | {"stop_at_step", "peak_flops"}
    assert changing == names - unchanging
    assert changing >= set(flag_names(options_class, "fixed_by_training"))


def test_flags_that_cannot_change_during_a_training():
    fixed = {each: set(flag_names(each, "fixed_by_training")) for each in TRAININGS}
    tuning = FIXED_IN_FINE_TUNING
    assert fixed == {
        PretrainingOptions: set(),
        ChoiceOptions: tuning,
        SquadOptions: tuning,
        TaggingOptions: tuning,
        ClassificationOptions: tuning | {"label_type", "long_texts", "pooling", "class_weights"},
    }


def test_the_sequence_length_may_change_during_a_training_but_not_after_it():
    for each in (
        ClassificationOptions,
        ChoiceOptions,
        SquadOptions,
        TaggingOptions,
    ):
        fixed_after_training = set(flag_names(each, "fixed_after_training"))
        assert "max_seq_length" in fixed_after_training
        assert set(flag_names(each, "fixed_by_training")) < fixed_after_training


@pytest.mark.parametrize(
    ("options_class", "idle", "needed", "missing"),
    [
        pytest.param(
            ClassificationOptions,
            {"doc_stride": 9},
            {"long_texts": "windows"},
            "--long_texts=windows",
            id="doc_stride",
        ),
        pytest.param(
            ClassificationOptions,
            {"pooling": "max"},
            {"long_texts": "windows"},
            "--long_texts=windows",
            id="pooling",
        ),
        pytest.param(
            PretrainingOptions,
            {"eval_input_file": ["e"]},
            {"do_eval": True},
            "--do_eval",
            id="eval_input_file",
        ),
    ],
)
def test_a_flag_without_effect_is_named(options_class, idle, needed, missing):
    required = {
        ClassificationOptions: {"task_name": "text"},
        PretrainingOptions: {"input_file": ["r"]},
    }.get(options_class, {})
    required = {"output_dir": "o", **required}
    options = options_class(**required | idle)
    name = next(iter(idle))
    sentence = flag_without_effect(options, options)
    assert sentence.startswith(f"--{name}=")
    assert sentence.endswith(f": has no effect without {missing}; add that, or leave the flag out")
    completed = dataclasses.replace(options, **needed)
    assert flag_without_effect(completed, completed) is None
    # The folder of the model may set the other flag, and a flag that is not typed needs none.
    assert flag_without_effect(options, completed) is None
    assert flag_without_effect(options_class(**required), options) is None


def test_typed_flags_are_those_without_their_defaults():
    options = ClassificationOptions(
        task_name="text",
        output_dir="out",
        model="minilm",
        learning_rate=5e-5,  # the default
        max_seq_length=128,  # the value without the flag, and typed
        do_train=True,
    )
    assert list_typed_flags(options) == {
        "task_name": "text",
        "output_dir": "out",
        "model": "minilm",
        "max_seq_length": 128,
        "do_train": True,
    }

"""The headings of --help, by flags of every kind."""

import dataclasses

import pytest

from official_bert.cli import flags
from official_bert.cli.flags import heading_of
from official_bert.options.fine_tuning import ClassificationOptions, SquadOptions


@pytest.mark.parametrize(
    ("options_class", "name", "heading"),
    [
        (ClassificationOptions, "data_dir", flags.NEEDED),
        (ClassificationOptions, "output_dir", flags.NEEDED),
        (ClassificationOptions, "model", flags.MODEL),
        (ClassificationOptions, "vocab_file", flags.MODEL),
        (ClassificationOptions, "init_checkpoint", flags.MODEL),
        (ClassificationOptions, "class_weights", flags.THIS_SCRIPT),
        (ClassificationOptions, "columns", flags.TSV),
        (ClassificationOptions, "learning_rate", flags.COMMON),
        (ClassificationOptions, "num_train_epochs", flags.COMMON),
        (ClassificationOptions, "tpu_zone", flags.DEVICES),
        (SquadOptions, "length_aware_batches", flags.THIS_SCRIPT),  # which has a default of its own there
    ],
)
def test_a_flag_stands_under_its_heading(options_class, name, heading):
    (field,) = (field for field in dataclasses.fields(options_class) if field.name == name)
    assert heading_of(options_class, field) == heading

"""The headings of --help, by flags of every kind."""

import dataclasses

import pytest

from official_bert.options import headings
from official_bert.options.classification import ClassificationOptions
from official_bert.options.headings import heading_of
from official_bert.options.squad import SquadOptions


@pytest.mark.parametrize(
    ("options_class", "name", "heading"),
    [
        (ClassificationOptions, "data_dir", headings.NEEDED),
        (ClassificationOptions, "output_dir", headings.NEEDED),
        (ClassificationOptions, "model", headings.MODEL),
        (ClassificationOptions, "vocab_file", headings.MODEL),
        (ClassificationOptions, "init_checkpoint", headings.MODEL),
        (ClassificationOptions, "class_weights", headings.THIS_SCRIPT),
        (ClassificationOptions, "has_header", headings.TSV),
        (ClassificationOptions, "learning_rate", headings.COMMON),
        (ClassificationOptions, "num_train_epochs", headings.COMMON),
        (ClassificationOptions, "search_epochs", headings.SEARCH),
        (ClassificationOptions, "tpu_zone", headings.DEVICES),
        (ClassificationOptions, "bert_hub_module_handle", headings.OTHERS),
        (ClassificationOptions, "length_aware_batches", headings.COMMON),
        (SquadOptions, "length_aware_batches", headings.THIS_SCRIPT),  # which has a default of its own there
    ],
)
def test_a_flag_stands_under_its_heading(options_class, name, heading):
    (field,) = (field for field in dataclasses.fields(options_class) if field.name == name)
    assert heading_of(options_class, field) == heading

"""The flags of adaptations: what they declare, and values that are refused."""

import dataclasses
import re

import pytest

from official_bert import catalog
from official_bert.extensions.adaptation.options import AdaptationOptions
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_names
from official_bert.training import starting_point
from tests.hostile.rows import check, row, table
from tests.hostile.test_flags import train
from tests.training.test_starting_point import earlier_run


def test_every_flag_changes_a_training_and_most_cannot_change_in_its_middle():
    names = {field.name for field in dataclasses.fields(AdaptationOptions)}
    assert set(flag_names(AdaptationOptions, "changes_training")) == names
    assert set(flag_names(AdaptationOptions, "fixed_by_training")) == names - {
        "layer_wise_lr_decay"
    }


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (
            {"freeze_layers": 1},
            {"freeze_layers": None},
            "--freeze_layers=1, .* has no --freeze_layers",
        ),
        ({}, {"reinit_layers": 1}, "began with no --reinit_layers, .* has --reinit_layers=1"),
    ],
)
def test_what_cannot_change_in_the_middle_is_refused(tmp_path, before, now, sentence):
    options = earlier_run(tmp_path, catalog.options_class("run_ner"), **before)
    starting_point.refuse_fixed_flags(options)
    where = f"^--output_dir={re.escape(str(tmp_path))}: its training "
    with pytest.raises(
        InputError, match=f"{where}.*{sentence}; give the same as before, or another --output_dir$"
    ):
        starting_point.refuse_fixed_flags(dataclasses.replace(options, **now))


ROWS = [
    *(
        row(flag, lambda folder, flag=flag: train(folder, flag), flag, leaves=("out/*",))
        for flag in ("--lora_rank=0", "--layer_wise_lr_decay=1.1", "--reinit_layers=-1")
    ),
    row(
        "adapters of random weights",
        lambda folder: train(folder, "--lora_rank=2", "--init_checkpoint="),
        "--init_checkpoint: is not given for bert/",
        "would stay random, since this training leaves it as it is",
        leaves=("out/*",),
    ),
]


@table(ROWS)
def test_wrong_values_are_refused(row, folder):
    check(row, folder)

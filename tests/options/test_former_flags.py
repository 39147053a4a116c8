"""Flags that earlier versions recorded, read as the flags of today."""

import pytest

from official_bert.options.fields import find_fault
from official_bert.options.fine_tuning import SquadOptions
from official_bert.options.former_flags import upgrade_flags


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param(None, {}, id="no columns"),
        pytest.param(
            "text_a=text, label=kind",
            {"text_a_column": "text", "label_column": "kind"},
            id="a text and a label",
        ),
        pytest.param(
            "text_b=,header=false,separator=;",
            {"text_b_column": "", "has_header": False, "label_separator": ";"},
            id="no second text, no header and another separator",
        ),
        pytest.param("separator=,", {"label_separator": ","}, id="a comma as the separator"),
        pytest.param(
            "anchor=a, b,positive=c,negative=d,e",
            {
                "anchor_column": "a, b",
                "positive_column": "c",
                "negative_columns": ["d", "e"],
            },
            id="names with commas and a list",
        ),
        pytest.param("negative=", {"negative_columns": []}, id="an empty list"),
    ],
)
def test_columns_become_plain_flags(columns, expected):
    flags = {"task_name": "text", "columns": columns}
    assert upgrade_flags(flags) == {
        "task_name": "text",
        "has_header": True,
        "label_separator": ",",
        **expected,
    }


def test_a_ramp_becomes_sizes_and_boundaries():
    flags = {"train_batch_size_ramp": ["256:0.1", "1024:0.6"]}
    assert upgrade_flags(flags) == {
        "train_batch_size_ramp": ["256", "1024"],
        "train_batch_size_boundaries": ["0.1", "0.6"],
    }


def test_a_threshold_with_a_file_becomes_two_flags():
    flags = {"null_score_diff_threshold": "auto:dev.json"}
    assert upgrade_flags(flags) == {
        "null_score_diff_threshold": "auto",
        "null_score_diff_file": "dev.json",
    }


def test_a_threshold_with_a_file_is_refused_with_the_flag_of_the_file():
    field = SquadOptions.__dataclass_fields__["null_score_diff_threshold"]
    assert find_fault(field, "auto") is find_fault(field, "-1.5") is None
    sentence = "must be a number or auto; the file of auto is --null_score_diff_file=FILE"
    assert find_fault(field, "auto:dev.json") == sentence


def test_flags_of_this_version_stay_as_they_are():
    flags = {"text_a_column": "text", "has_header": False, "train_batch_size_ramp": ["256"]}
    flags |= {"null_score_diff_threshold": "auto"}
    assert upgrade_flags(flags) == flags

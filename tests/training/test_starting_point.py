"""Flags with which a run resumes: those that differ from before are named, or refused."""

import dataclasses
import logging
import re

import pytest

from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.options.training import PretrainingOptions
from official_bert.training import run_log, starting_point

REQUIRED = {
    ClassificationOptions: {"task_name": "text"},
    PretrainingOptions: {"input_file": ["r"]},
}


def earlier_run(folder, options_class, **flags):
    """Writes the log of a training in a folder; returns the options of the same command."""
    options = options_class(
        output_dir=str(folder),
        do_train=True,
        **REQUIRED.get(options_class, {}) | flags,
    )
    run_log.write(
        str(folder),
        run_log.START,
        {"flags": dataclasses.asdict(options), "num_updates": 9, "first_step": 0},
    )
    return options


@pytest.mark.parametrize(
    ("options_class", "before", "now", "sentence"),
    [
        (
            ClassificationOptions,
            {},
            {"class_weights": ["1", "5"]},
            "no --class_weights, .* has --class_weights=1,5",
        ),
        (
            ClassificationOptions,
            {},
            {"long_texts": "windows"},
            "no --long_texts, .* has --long_texts=windows",
        ),
    ],
)
def test_what_cannot_change_in_the_middle_is_refused(
    tmp_path, options_class, before, now, sentence
):
    options = earlier_run(tmp_path, options_class, **before)
    starting_point.refuse_fixed_flags(options)
    where = f"^--output_dir={re.escape(str(tmp_path))}: its training "
    with pytest.raises(
        InputError,
        match=f"{where}.*{sentence}; give the same as before, or another --output_dir$",
    ):
        starting_point.refuse_fixed_flags(dataclasses.replace(options, **now))


@pytest.mark.parametrize(
    ("options_class", "now", "words"),
    [
        (
            ClassificationOptions,
            {"init_checkpoint": "other"},
            "--init_checkpoint=other (None before)",
        ),
        (
            ClassificationOptions,
            {"shuffle_buffer_size": 7},
            "--shuffle_buffer_size=7 (None before)",
        ),
        (
            ClassificationOptions,
            {"max_seq_length": 64},
            "--max_seq_length=64 (None before)",
        ),
        (
            ClassificationOptions,
            {"doc_stride": 9, "eval_every_steps": 5},
            "--eval_every_steps=5 (None before), --doc_stride=9 (",
        ),
        (
            PretrainingOptions,
            {"file_order": "each_pass"},
            "--file_order=each_pass (original before)",
        ),
        (PretrainingOptions, {"dynamic_masking": True}, "--dynamic_masking=True (False before)"),
    ],
)
def test_what_may_change_is_named(tmp_path, caplog, options_class, now, words):
    names = {field.name for field in dataclasses.fields(options_class)}
    earlier_flags = {"teacher": "a"} if "teacher" in names else {}
    options = earlier_run(tmp_path, options_class, **earlier_flags)
    changed = dataclasses.replace(options, **now)
    with caplog.at_level(logging.WARNING):
        starting_point.warn_of_changed_flags(options, str(tmp_path), 4)
        assert not caplog.records
        starting_point.refuse_fixed_flags(changed)
        starting_point.warn_of_changed_flags(changed, str(tmp_path), 4)
    assert f"{tmp_path} resumes from step 4 with other flags than before: " in caplog.text
    assert words in caplog.text


def test_the_same_folder_by_another_path_is_no_change(tmp_path, caplog):
    before = {"init_checkpoint": str(tmp_path / "model")}
    options = earlier_run(tmp_path, ClassificationOptions, **before)
    same = {"init_checkpoint": f"{tmp_path}/./model/"}
    for now in (same, same | {"init_checkpoint": None}):
        starting_point.warn_of_changed_flags(dataclasses.replace(options, **now), str(tmp_path), 4)
    assert not caplog.records


def test_a_folder_without_a_log_or_with_flags_of_an_earlier_version_is_resumed(tmp_path):
    options = ClassificationOptions(
        task_name="text",
        output_dir=str(tmp_path),
        do_train=True,
        pooling="max",
    )
    starting_point.refuse_fixed_flags(options)
    run_log.write(
        str(tmp_path),
        run_log.START,
        {"flags": {"gone": 1}, "num_updates": 9, "first_step": 0},
    )
    starting_point.refuse_fixed_flags(options)

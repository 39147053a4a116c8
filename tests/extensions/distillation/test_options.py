"""The flags of distillation: what they declare, and with which others they have an effect."""

import dataclasses
import logging

import pytest

from official_bert import catalog
from official_bert.extensions.distillation.options import PretrainingDistillationOptions
from official_bert.options.fields import flag_names, flag_without_effect
from official_bert.training import starting_point
from tests.training.test_starting_point import earlier_run

COMMANDS = {
    "run_classifier": {"output_dir": "o", "task_name": "text"},
    "run_pretraining": {"output_dir": "o", "input_file": ["r"]},
}


def test_every_flag_changes_a_training():
    names = {field.name for field in dataclasses.fields(PretrainingDistillationOptions)}
    assert set(flag_names(PretrainingDistillationOptions, "changes_training")) == names


@pytest.mark.parametrize(
    ("command", "idle", "needed", "missing"),
    [
        ("run_classifier", {"distillation_temperature": 1.0}, {"teacher": "t"}, "--teacher"),
        ("run_pretraining", {"distillation": ["hidden"]}, {"teacher": "t"}, "--teacher"),
        (
            "run_pretraining",
            {"relation_heads": 2, "teacher": "t"},
            {"distillation": ["hidden", "attention_relations"]},
            "--distillation=attention_relations",
        ),
    ],
)
def test_a_flag_without_effect_is_named(command, idle, needed, missing):
    options = catalog.options_class(command)(**COMMANDS[command] | idle)
    sentence = flag_without_effect(options, options)
    assert f"has no effect without {missing}; add that, or leave the flag out" in sentence
    complete = dataclasses.replace(options, **needed)
    assert flag_without_effect(complete, complete) is None


def test_a_changed_flag_is_named_and_another_path_to_the_teacher_is_not(tmp_path, caplog):
    options_class = catalog.options_class("run_pretraining")
    teacher = tmp_path / "teacher"
    options = earlier_run(tmp_path, options_class, input_file=["r"], teacher=str(teacher))
    same = dataclasses.replace(options, teacher=f"{tmp_path}/./teacher/")
    changed = dataclasses.replace(options, distillation=["logits", "hidden"])
    with caplog.at_level(logging.WARNING):
        starting_point.warn_of_changed_flags(same, str(tmp_path), 4)
        assert not caplog.records
        starting_point.warn_of_changed_flags(changed, str(tmp_path), 4)
    assert "--distillation=logits,hidden (None before)" in caplog.text

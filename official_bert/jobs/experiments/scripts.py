"""Checks what a plan hands to the scripts: flags that they do not have, and given files that are not there.

A script only warns of an unknown flag, and a config keeps an unknown field; a run would then silently be another one.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
from collections.abc import Iterable, Mapping

from official_bert import files
from official_bert.config import FURTHER_FIELDS, BertConfig
from official_bert.errors import InputError
from official_bert.jobs.experiments.steps import DATA, Layout, Step
from official_bert.options.fields import flag_fields
from official_bert.options.training import TrainingOptions

OPTIONS = {
    "build_vocab": "build_vocab.VocabularyOptions",
    "create_pretraining_data": "pretraining_data.PretrainingDataOptions",
    "run_pretraining": "pretraining.PretrainingOptions",
    "run_classifier": "classification.ClassificationOptions",
    "run_squad": "squad.SquadOptions",
    "run_swag": "choice.ChoiceOptions",
    "run_ner": "tagging.TaggingOptions",
    "convert_triviaqa": "triviaqa.TriviaqaOptions",
}


def fields_of(script: str) -> dict[str, dataclasses.Field]:
    """Returns the flags of a script.

    Raises:
        InputError: no experiment can use the script.
    """
    if script not in OPTIONS:
        raise InputError(
            f"script {script!r}: is none that experiments use; it is one of {', '.join(OPTIONS)}"
        )
    module, name = OPTIONS[script].split(".")
    options = getattr(importlib.import_module(f"official_bert.options.{module}"), name)
    return {field.name: field for field in flag_fields(options)}


def _config_fields() -> set[str]:
    """Returns the fields of bert_config.json that a model is built by."""
    return {*vars(BertConfig(None)), *FURTHER_FIELDS}


def unknown_words(steps: Iterable[Step]) -> dict[tuple[str, str], Step]:
    """Returns (script, flag) of flags that scripts do not have, and ("bert_config.json", field) of unknown fields.

    Each comes with a step that has it.
    """
    known_fields = _config_fields()
    found: dict[tuple[str, str], Step] = {}
    for step in steps:
        known = fields_of(step.script)
        for name, _ in step.flags:
            if name not in known:
                found.setdefault((step.script, name), step)
        for name, _ in step.config:
            if name not in known_fields:
                found.setdefault(("bert_config.json", name), step)
    return found


def check_words(steps: Iterable[Step], path: str):
    """Refuses flags and fields that are unknown.

    Args:
        steps: the steps of an experiment.
        path: the file of the experiment.

    Raises:
        InputError: a script lacks a flag, or a model's configuration a field.
    """
    for (owner, name), step in unknown_words(steps).items():
        is_flag = owner in OPTIONS
        what = f"{owner}.py has no flag --{name}" if is_flag else f"a {owner} has no field {name!r}"
        known = fields_of(owner) if is_flag else _config_fields()
        nearest = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {nearest[0]}?" if nearest else "remove it"
        raise InputError(
            f"{path}, or the scale or the task that it uses: {what} ({step.kind} {step.label}); {remedy}"
        )


def check_given(steps: Iterable[Step], layout: Layout, encoders: Mapping[str, str]):
    """Refuses data and models that are not there, before anything runs.

    Raises:
        InputError: a file or a folder is missing.
    """
    for step in steps:
        for given in step.given():
            path = layout.path(given)
            if files.exists(path) or files.matching(path):
                continue
            if given.encoder != DATA:
                raise InputError(
                    f"--encoder={given.encoder}={encoders[given.encoder]}: no such folder; check the path"
                )
            raise InputError(
                f"{path}: no such file or folder, which {step.kind} {step.label!r} reads; put the data there "
                "(docs/experiments.md lists the layout), or name another --data_dir"
            )


def training_flags(words: Iterable[str]) -> dict[str, str]:
    """Reads --training_flags: name=value, or a name alone for true.

    Raises:
        InputError: a word is no flag that all training scripts share.
    """
    known = {field.name for field in flag_fields(TrainingOptions)}
    found = {}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if name not in known:
            raise InputError(
                f"--training_flags={word}: the training scripts share no flag of that name; write name=value, such as "
                "dtype=bfloat16"
            )
        found[name] = value or "true"
    return found


def read_encoders(words: Iterable[str], default: str) -> dict[str, str]:
    """Reads --encoder: name=folder, or a folder alone for the default name.

    Raises:
        InputError: a folder is missing or two have one name.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        name, folder = (name, folder) if equals and os.sep not in name else (default, word)
        if name in found:
            raise InputError(
                f"--encoder={word}: names {name} a second time; give each model a name of its own"
            )
        if not folder or not files.is_folder(folder):
            raise InputError(f"--encoder={word}: no such folder; check the path")
        found[name] = folder
    return found

"""Checks what a plan hands to the scripts: flags that they do not have or refuse, and given files that are not there.

A script only warns of an unknown flag, and a config keeps an unknown field; a run would then silently be another one. A
wrong value would end the experiment hours later.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import math
import os
from collections.abc import Iterable, Mapping

from official_bert.config import FURTHER_FIELDS, BertConfig
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.jobs.experiments.steps import DATA, Layout, Step
from official_bert.options.fields import flag_fields, kind_of
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
# Flags by which an experiment connects its steps; no declaration sets them.
OWN_FLAGS = frozenset(
    {
        "bert_config_file",
        "do_eval",
        "do_predict",
        "do_train",
        "ensemble_dirs",
        "init_checkpoint",
        "input_file",
        "model",
        "output_dir",
        "output_file",
        "random_seed",
        "vocab_file",
    }
)
_TRUE_WORDS, _FALSE_WORDS = ("true", "t", "1"), ("false", "f", "0")  # of flags, as absl reads them
_NUMBERS = {int: "a whole number", float: "a number"}


@functools.cache
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


@functools.cache
def _config_fields() -> set[str]:
    """Returns the fields of bert_config.json that a model is built by."""
    return {*vars(BertConfig(None)), *FURTHER_FIELDS}


def check_step(step: Step, path: str):
    """Refuses flags and fields of a configuration that are unknown, and values that a script would refuse.

    Args:
        step: the step.
        path: the file of the experiment, for the message.

    Raises:
        InputError: a script lacks a flag, a flag cannot have its value, or a model's configuration lacks a field.
    """
    place = f"{path}, or the scale or the task that it uses: "
    where = f"({step.kind} {step.label})"
    known = fields_of(step.script)
    for name, value in step.flags:
        if name not in known:
            raise InputError(f"{place}{step.script}.py has no flag --{name} {where}; {_nearest(name, known)}")
        if isinstance(value, tuple) and kind_of(known[name]) in (bool, int, float):
            raise InputError(
                f"{place}{step.script}.py, --{name}: takes one value, and no list {where}; correct it"
            )
        if isinstance(value, str | bool | int | float) and (sentence := _refusal(known[name], value)):
            raise InputError(f"{place}{step.script}.py, --{name}={value}: {sentence} {where}; correct it")
    for name, _ in step.config:
        if name not in (fields := _config_fields()):
            raise InputError(
                f"{place}a bert_config.json has no field {name!r} {where}; {_nearest(name, fields)}"
            )


def is_true(value: str | bool | int) -> bool:
    """Tells whether the value of a boolean flag is true."""
    return str(value).lower() in _TRUE_WORDS


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"


def _refusal(field: dataclasses.Field, value: str | bool | int | float) -> str | None:
    """Returns why a flag cannot have a value, in words; None if it can."""
    kind = kind_of(field)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if kind is bool:
        return None if text.lower() in _TRUE_WORDS + _FALSE_WORDS else "must be true or false"
    if kind in _NUMBERS:
        try:
            value = kind(text)
        except ValueError:
            return f"must be {_NUMBERS[kind]}"
        if not math.isfinite(value):
            return "must be a finite number"
    choices, check = field.metadata["choices"], field.metadata["check"]
    if choices and text not in choices:
        return f"must be one of {', '.join(choices)}"
    if check and kind in _NUMBERS and not check[0](value):
        return check[1]
    return None


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
        InputError: a word is no flag that all training scripts share, is one that the experiment sets itself, or has a
            value that the scripts refuse.
    """
    known = {field.name: field for field in flag_fields(TrainingOptions)}
    found = {}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if name in OWN_FLAGS:
            raise InputError(f"--training_flags={word}: the experiment sets this flag itself; leave it out")
        if name not in known:
            raise InputError(
                f"--training_flags={word}: the training scripts share no flag of that name; write name=value, such as "
                "dtype=bfloat16"
            )
        found[name] = value or "true"
        if sentence := _refusal(known[name], found[name]):
            raise InputError(f"--training_flags={word}: {sentence}; correct it")
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

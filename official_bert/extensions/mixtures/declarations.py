"""The data sets of a mixture, as its TOML file declares them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.io.reading import read_toml
from official_bert.io.toml_tables import find_type_fault, name_remedy
from official_bert.options.fields import find_fault, flag_without_effect

FILE_FLAGS = ("train_file", "dev_file")
# The flags of a command that a data set may set; a command has some of them.
SET_FLAGS = (
    *FILE_FLAGS,
    "loss",
    "scale",
    "symmetric",
    "triplet_margin",
    "contrastive_margin",
    "teacher",
    "eval_task",
    "anchor_column",
    "positive_column",
    "negative_columns",
    "label_column",
    "has_header",
    "quoting",
    "data_format",
)
# Flags that a set takes from the command line unless it has a value of its own.
_SHARED_FLAGS = ("loss", "teacher")
# A name is a part of the names of metrics.
_NAME = re.compile(r"[a-z0-9_]+")


def read_data_sets(path: str, options: Any) -> dict[str, dict[str, Any]]:
    """Returns the values of flags that each data set changes, by the name of the set.

    Args:
        path: the TOML file.
        options: the options of the command.

    Raises:
        InputError: the file is damaged, or declares what the command cannot use.
    """
    tables = read_toml(path)
    if not tables:
        raise InputError(f"{path}: has no data sets; write a table for each, such as [pairs]")
    data_sets = {}
    for name, table in tables.items():
        place = f"{path}: [{name}]"
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{place}: a name may have small letters, digits and underscores only; change it"
            )
        data_sets[name] = _read_table(place, table, options, os.path.dirname(path))
    return data_sets


def _read_table(place: str, table: Any, options: Any, folder: str) -> dict[str, Any]:
    """Returns the values of a table, with paths that start from the folder of its file."""
    if not isinstance(table, Mapping):
        raise InputError(f"{place}: must be a table with the flags of a data set")
    fields = {field.name: field for field in dataclasses.fields(options)}
    fields = {name: fields[name] for name in SET_FLAGS if name in fields}
    values = {}
    for name, value in table.items():
        if name not in fields:
            raise InputError(f"{place}: unknown field {name!r}; {name_remedy(name, fields)}")
        requirement = find_type_fault(value, fields[name].type)
        if requirement:
            raise InputError(f"{place}: {name}: must be {requirement}, got {value!r}")
        if fault := find_fault(fields[name], value):
            raise InputError(f"{place}: {name}: {value!r} {fault}")
        values[name] = float(value) if fields[name].type is float else value
    for name in FILE_FLAGS:
        if name in values:
            values[name] = _start_from(folder, values[name])
    if not any(name in values for name in FILE_FLAGS):
        raise InputError(f"{place}: has neither train_file nor dev_file; name one of them")
    defaults = {name: field.default for name, field in fields.items() if name not in _SHARED_FLAGS}
    set_options = dataclasses.replace(options, **defaults | values)
    if sentence := flag_without_effect(set_options, set_options):
        raise InputError(f"{place}: {sentence}")
    return values


def _start_from(folder: str, paths: str) -> str:
    """Returns the paths of a flag, with commas between them, that start from a folder."""
    started = []
    for path in paths.split(","):
        is_absolute = os.path.isabs(path) or files.is_remote(path)
        started.append(path if is_absolute else os.path.join(folder, path))
    return ",".join(started)

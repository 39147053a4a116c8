"""The data sets of a mixture, as its TOML file declares them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from official_bert.data import set_tables
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_without_effect

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


def read_data_sets(source: str | Mapping[str, Any], options: Any) -> dict[str, dict[str, Any]]:
    """Returns the values of flags that each data set changes, by the name of the set.

    Args:
        source: the TOML file; or its tables, of data sets in memory.
        options: the options of the command.

    Raises:
        InputError: the file is damaged, or declares what the command cannot use.
    """
    data_sets = {}
    if isinstance(source, str):
        folder = os.path.dirname(source)
        for name, table in set_tables.read_tables(source).items():
            data_sets[name] = _read_table(f"{source}: [{name}]", table, options, folder)
        return data_sets
    for name, table in source.items():
        place = f"data_sets: {name}"
        set_tables.check_table(place, name, table)
        data_sets[name] = _read_table(place, table, options, folder="")
    return data_sets


def _read_table(place: str, table: Mapping[str, Any], options: Any, folder: str) -> dict[str, Any]:
    """Returns the values of a table, with paths that start from the folder of its file."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    fields = {name: fields[name] for name in SET_FLAGS if name in fields}
    values = set_tables.read_values(place, table, fields)
    set_tables.move_paths(values, FILE_FLAGS, folder)
    if not any(name in values for name in FILE_FLAGS):
        raise InputError(f"{place}: has neither train_file nor dev_file; name one of them")
    defaults = {name: field.default for name, field in fields.items() if name not in _SHARED_FLAGS}
    set_options = dataclasses.replace(options, **defaults | values)
    if sentence := flag_without_effect(set_options, set_options):
        raise InputError(f"{place}: {sentence}")
    return values

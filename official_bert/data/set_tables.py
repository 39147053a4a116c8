"""Reads the TOML file of a training on several data sets: a table of flags for each set."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.io.reading import read_toml
from official_bert.io.toml_tables import find_type_fault, name_remedy
from official_bert.options.fields import find_fault

# A name is a part of the names of metrics.
_NAME = re.compile(r"[a-z0-9_]+")


def read_tables(path: str) -> dict[str, Mapping[str, Any]]:
    """Returns the tables of a file by the names of the data sets.

    Args:
        path: the TOML file.

    Raises:
        InputError: the file is damaged, has no table, or a name cannot be used.
    """
    tables = read_toml(path)
    if not tables:
        raise InputError(f"{path}: has no data sets; write a table for each, such as [pairs]")
    for name, table in tables.items():
        check_table(f"{path}: [{name}]", name, table)
    return tables


def check_table(place: str, name: str, table: Any) -> None:
    """Checks the name of a data set, and that it has a table.

    Args:
        place: the place of the table, for messages.
        name: the name.
        table: the value that must be a table.

    Raises:
        InputError: the name cannot be used, or the value is not a table.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{place}: a name may have small letters, digits and underscores only; change it"
        )
    if not isinstance(table, Mapping):
        raise InputError(f"{place}: must be a table with the flags of a data set")


def read_values(
    place: str, table: Mapping[str, Any], fields: Mapping[str, dataclasses.Field]
) -> dict[str, Any]:
    """Returns the values of a table, which are checked as those of flags.

    Args:
        place: the file and the name of the table, for messages.
        table: the table.
        fields: the fields of the flags that it may set, by name.

    Raises:
        InputError: a field is unknown, or a value is not one of its flag.
    """
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
    return values


def move_paths(values: dict[str, Any], names: Sequence[str], folder: str) -> None:
    """Lets relative paths start from a folder.

    Args:
        values: the values of flags by name, which are changed. A path may be several, separated by
            commas.
        names: the names of the paths.
        folder: the folder.
    """
    for name in names:
        if name not in values:
            continue
        moved = []
        for path in values[name].split(","):
            is_absolute = os.path.isabs(path) or files.is_remote(path)
            moved.append(path if is_absolute else os.path.join(folder, path))
        values[name] = ",".join(moved)

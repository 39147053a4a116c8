"""Makes dataclasses of TOML tables, and rejects unknown fields and fields of a wrong type."""

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any

from official_bert.io.errors import InputError, did_you_mean

Value = str | int | float | bool | list[str | int | float | bool]
_TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
    Value: "a text, a number, true, false, or a list of them",
}


def build_dataclass(kind: type, table: Any, place: str, **other_fields: Any) -> Any:
    """Makes an instance of a dataclass from a table, whose fields have the types of the dataclass.

    Args:
        kind: the dataclass.
        table: the TOML table with its fields; anything else is rejected.
        place: the place of the table in its file, for error messages.
        **other_fields: fields that are not in the table.

    Raises:
        InputError: a field is unknown, missing or of another type.
    """
    if find_type_fault(table, dict):
        raise InputError(f"{place}must be a table")
    fields = {each.name: each for each in dataclasses.fields(kind) if each.name not in other_fields}
    for name, value in table.items():
        if name not in fields:
            raise InputError(f"{place}unknown field {name!r}; {name_remedy(name, fields)}")
        requirement = find_type_fault(value, fields[name].type)
        if requirement:
            raise InputError(f"{place}{name}: must be {requirement}, got {value!r}")
    for name, each in fields.items():
        is_required = each.default is each.default_factory is dataclasses.MISSING
        if is_required and name not in table:
            raise InputError(f"{place}{name} is missing; add it")
    return kind(**table, **other_fields)


def find_type_fault(value: Any, kind: Any) -> str | None:
    """Returns the type that a value should have, in words; None if it has that type.

    Args:
        value: the value, as tomllib returns it.
        kind: a type of TOML, a union, or a list or dict of them. Any other type accepts any value.
    """
    if isinstance(kind, types.UnionType):
        return _find_union_fault(value, kind)
    outer = typing.get_origin(kind) or kind
    if outer not in _TYPE_NAMES:  # A dataclass that has been built already, or anything.
        return None
    if not _has_type(value, outer):
        return _TYPE_NAMES[outer]
    inner = (typing.get_args(kind) or (Any,))[-1]
    values: Iterable[Any] = ()
    if isinstance(value, dict):
        values = value.values()
    elif isinstance(value, list):
        values = value
    for each in values:
        requirement = find_type_fault(each, inner)
        if requirement:
            return f"{_TYPE_NAMES[outer]}, each value {requirement}"
    return None


def _find_union_fault(value: Any, kind: types.UnionType) -> str | None:
    members = [each for each in kind.__args__ if each is not types.NoneType]
    requirements = [find_type_fault(value, each) for each in members]
    if None in requirements:
        return None
    return _TYPE_NAMES.get(kind, requirements[0])


def _has_type(value: Any, kind: type) -> bool:
    """Returns whether a value has a TOML type; a whole number is also a float, and no bool is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float:
        return is_number
    if kind is int:
        return is_number and isinstance(value, int)
    return isinstance(value, kind)


def name_remedy(name: str, choices: Iterable[str]) -> str:
    """Returns what to do about an unknown name, as the end of a sentence.

    Args:
        name: the name.
        choices: the known names.
    """
    return did_you_mean(name, choices) or f"it is one of {', '.join(choices)}"

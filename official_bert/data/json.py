"""Checks the types of values in JSON: the objects of a file, their fields, and the fields' values.

In: values that `official_bert.reading.read_json` or `parse_json` returns. Out: the value of a field, or an error that
names the object and the field.
"""

import math
from typing import Any

from official_bert.errors import InputError

_NAMES_OF_TYPES = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def as_object(value: Any, where: str) -> dict[str, Any]:
    """Returns a JSON value that must be an object.

    Args:
        value: the value.
        where: the file and the place in it, with which the error message begins.

    Raises:
        InputError: `value` is not an object.
    """
    if not isinstance(value, dict):
        raise InputError(f"{where}: is no object; it should be one, in braces")
    return value


def field(holder: Any, name: str, kind: type, where: str) -> Any:
    """Returns holder[name].

    Args:
        holder: a JSON value that should be an object.
        name: the name of the field.
        kind: the type of its value: str, list, dict, int, float (which accepts whole numbers) or bool. A number must be
            finite and in the range of int64 or float64.
        where: the file and the object in it, with which the error message begins.

    Raises:
        InputError: `holder` is not an object, or its field is missing or has another type.
    """
    if not isinstance(holder, dict):
        raise InputError(f'{where}: is no object; it should be one with the field "{name}"')
    value = holder.get(name)
    if not is_of_kind(value, kind):
        fault = "is missing" if name not in holder else f"is not {_NAMES_OF_TYPES[kind]}"
        raise InputError(f'{where}: "{name}" {fault}; give it {_NAMES_OF_TYPES[kind]}')
    return value


def is_of_kind(value: Any, kind: type) -> bool:
    """Tells whether a JSON value has a type of `field`; true and false are no numbers."""
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            return False
        return abs(value) < 1 << 63 if isinstance(value, int) else math.isfinite(value)
    return isinstance(value, kind)

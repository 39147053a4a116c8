"""Reads the fields of objects in JSON files and checks their types.

In: values that `official_bert.files.read_json` returns. Out: the value of a field, or an error that names the object.
"""

from typing import Any

from official_bert.errors import InputError

_NAMES_OF_TYPES = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    bool: "true or false",
}


def field(holder: Any, name: str, kind: type, where: str) -> Any:
    """Returns holder[name].

    Args:
        holder: a JSON value that should be an object.
        name: the name of the field.
        kind: the type of its value: str, list, dict, int or bool.
        where: the file and the object in it, with which the error message begins.

    Raises:
        InputError: `holder` is not an object, or its field is missing or has another type.
    """
    if not isinstance(holder, dict):
        raise InputError(f'{where}: is no object; it should be one with the field "{name}"')
    value = holder.get(name)
    if not isinstance(value, kind):
        fault = "is missing" if name not in holder else f"is not {_NAMES_OF_TYPES[kind]}"
        raise InputError(f'{where}: "{name}" {fault}; give it {_NAMES_OF_TYPES[kind]}')
    return value

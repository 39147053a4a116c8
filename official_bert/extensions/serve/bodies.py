"""Reads the bodies of requests: JSON objects whose fields have the right types."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request  # pyright: ignore[reportMissingImports]

from official_bert.io import reading
from official_bert.io.errors import InputError

_REQUIRED: Any = object()  # the default of a field that must be there
_KINDS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}


class RefusalError(Exception):
    """A request that the server refuses.

    Attributes:
        status: the HTTP status.
        retry_secs: the number of seconds after which the client may try again; None for no retry.
    """

    def __init__(self, status: int, sentence: str, retry_secs: int | None = None):
        super().__init__(sentence)
        self.status = status
        self.retry_secs = retry_secs


async def read_json_object(
    request: Request, max_bytes: int, timeout_secs: float
) -> Mapping[str, Any]:
    """Reads the body of a request.

    Args:
        request: the request.
        max_bytes: the largest size.
        timeout_secs: the number of seconds in which the whole body must arrive.

    Raises:
        RefusalError: the body is too large or too slow, or is no JSON object.
        ClientDisconnect: the client has gone.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_secs):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise RefusalError(
                        413,
                        f"the body has more than {max_bytes} bytes; send fewer or shorter texts",
                    )
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {timeout_secs:g} seconds; send it again"
        ) from None
    try:
        fields = reading.parse_json(bytes(body), object_pairs_hook=reading.distinct_fields)
    except InputError as error:
        raise RefusalError(400, f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RefusalError(400, "the body must be a JSON object")
    return fields


def read_field(fields: Mapping[str, Any], name: str, kind: type, default: Any = _REQUIRED) -> Any:
    """Returns a field of an object.

    Args:
        fields: the object.
        name: the name of the field.
        kind: its type in Python.
        default: the value without the field, or with null.

    Raises:
        RefusalError: the field is missing or has another type.
    """
    value = fields.get(name)
    if value is None:
        if default is _REQUIRED:
            raise RefusalError(400, f"{name}: is missing; it must be {_KINDS[kind]}")
        return default
    if not reading.has_type(value, kind):
        raise RefusalError(400, f"{name}: must be {_KINDS[kind]}")
    return value


def check_texts(name: str, values: Any) -> list[str]:
    """Checks a list of texts.

    Args:
        name: the name of the field, for errors.
        values: the value.

    Raises:
        RefusalError: it is no list of texts, or is empty.
    """
    if not isinstance(values, list) or not values:
        raise RefusalError(400, f"{name}: must be a list with at least one text")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise RefusalError(400, f"{name}[{index}]: must be a text")
    return values

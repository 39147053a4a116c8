"""Reads text and JSON files of users, and checks the types of the values in JSON.

An error names the file, and the line or the field.
"""

import gzip
import io
import itertools
import json
import math
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from official_bert.io import errors, files
from official_bert.io.errors import InputError

_SAMPLE_BYTES, _PART_BYTES = 1 << 16, 1 << 20
_GZIP = b"\x1f\x8b"
_COMPRESSED = {
    _GZIP: "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_NO_TEXT = re.compile("[\0-\x08\x0e-\x1f\x7f\ufffd]")  # U+FFFD stands for bytes that are not UTF-8


def read_lines(
    path: str,
    undecodable: Literal["ignore", "replace"] = "ignore",
    decompresses: bool = False,
    keeps_returns: bool = False,
) -> Iterator[str]:
    """Yields the lines of a text file without "\\n", and without any "\\r", as the original's
    reader does.

    With `keeps_returns` each "\\r" stays. Bytes that are not UTF-8 are left out or become U+FFFD; a
    warning counts the lines with them.
    """
    num_corrupt = 0
    with files.open_file(path, "rb") as opened:
        is_gzip = decompresses and _begins_as_gzip(path)
        file = _Decompressed(path, opened) if is_gzip else opened
        for line in _checked_lines(path, file):
            line = line.removesuffix(b"\n")
            if not keeps_returns:
                line = line.replace(b"\r", b"")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                num_corrupt += 1
                yield line.decode("utf-8", undecodable)
    if num_corrupt:
        done = "left out" if undecodable == "ignore" else "replaced"
        errors.warn("%s: %s bytes that are not UTF-8 in %d lines", path, done, num_corrupt)


def read_metrics(path: str) -> dict[str, float]:
    """Reads a file of metrics, `name = value` a line; names, such as those of labels, may contain "
    = ".

    Raises:
        ValueError: a line has another form.
    """
    pairs = (line.rsplit(" = ", 1) for line in read_lines(path))
    return {name: float(value) for name, value in pairs}


def unpacked_size(path: str) -> int | None:
    """Returns the number of bytes that a gzip file has when it is decompressed; None for any
    other file.
    """
    if not _begins_as_gzip(path):
        return None
    with files.open_file(path, "rb") as opened:
        file, size = _Decompressed(path, opened), 0
        while part := file.read(_PART_BYTES):
            size += len(part)
    return size


def _begins_as_gzip(path: str) -> bool:
    if files.is_special(path):  # what is read of a pipe cannot be read again
        return False
    with files.open_file(path, "rb") as file:
        return file.read(len(_GZIP)) == _GZIP


class _Decompressed:
    def __init__(self, path: str, file):
        self._path, self._file = path, gzip.GzipFile(fileobj=file)

    def read(self, size: int) -> bytes:
        return self._checked(self._file.read, size)

    def readline(self) -> bytes:
        return self._checked(self._file.readline)

    def __iter__(self) -> Iterator[bytes]:
        while line := self.readline():
            yield line

    def _checked(self, read, *arguments) -> bytes:
        try:
            return read(*arguments)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                f"{self._path}: is a corrupt gzip file ({error}); compress or download it again"
            ) from error


def _checked_lines(path: str, file) -> Iterator[bytes]:
    """Yields the lines of a binary file, once its first 64 KiB look like lines of UTF-8 text."""
    start = file.read(_SAMPLE_BYTES)
    for beginning, name in _COMPRESSED.items():
        if start.startswith(beginning):
            raise InputError(f"{path}: is compressed with {name}; decompress it")
    text = start.decode("utf-8", "replace")
    # A text in UTF-8 may begin with a zero byte, too.
    is_other = start[2:].count(0) > 0.3 * len(start) or text.count("\ufffd") > 1
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (start[:2].count(0) == 1 and is_other):
        raise InputError(f"{path}: is UTF-16; save it as UTF-8")
    num_strange = len(_NO_TEXT.findall(text))
    if num_strange > 16 and num_strange > 0.3 * len(start):
        raise InputError(
            f"{path}: is binary, or text in another encoding than UTF-8; save it as UTF-8 text"
        )
    start += file.readline()
    if start.count(b"\r") > 1 and b"\n" not in start:
        raise InputError(f'{path}: ends its lines with "\\r" alone; save it with "\\n" or "\\r\\n"')
    yield from itertools.chain(io.BytesIO(start), file)


def read_json(path: str) -> Any:
    """Returns the content of a JSON file; a byte order mark is ignored."""
    with files.open_file(path, "rb") as file:
        data = file.read()
    try:
        return parse_json(data)
    except InputError as error:
        is_text = not isinstance(error.__cause__, UnicodeDecodeError)
        remedy = "download or make the file anew" if is_text else "save the file as UTF-8"
        raise InputError(f"{path}: {error}; {remedy}") from error


def read_toml(path: str) -> dict[str, Any]:
    """Returns the content of a TOML file.

    Raises:
        InputError: the file cannot be read, or is no TOML.
    """
    with files.open_file(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: is no TOML ({error}); correct it") from None


def parse_json(
    text: str | bytes, has_lines: bool = True, object_pairs_hook: Callable | None = None
) -> Any:
    """Returns the value of a JSON text, as every reader of JSON does; a byte order mark at the
    start is ignored.

    An error begins with the line and column, but for a text that is itself a line, without
    `has_lines`. The hook, as of `json.loads`, makes the objects and may raise ValueError.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is no {error.encoding}") from error
    # Also thousands of digits, or thousands of brackets.
    except (ValueError, RecursionError) as error:
        if has_lines and isinstance(error, json.JSONDecodeError):
            raise InputError(
                f"line {error.lineno}, column {error.colno}: no JSON ({error.msg})"
            ) from error
        raise InputError(f"no JSON ({error})") from error


def distinct_fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object, as a hook of `parse_json`; parsers disagree about one that has a name
    twice.
    """
    if len(fields := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return fields


_find_half_pair = re.compile("[\ud800-\udfff]").search


def half_pair_in(text: str) -> str | None:
    """Returns what the first half of a surrogate pair is called in an error, for no file can
    hold it; None without.
    """
    half = _find_half_pair(text)
    return half and f"{half[0]!a}, half of a surrogate pair, which is no character"


_TYPE_NAMES = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: is no object; it should be one, in braces")
    return value


def field(holder: Any, name: str, kind: type, where: str) -> Any:
    """Returns holder[name], which must be a str, list, dict, bool, int or float, as `kind` says.

    A float may be a whole number; numbers must be finite and in the range of int64 or float64.
    """
    if not isinstance(holder, dict):
        raise InputError(f'{where}: is no object; it should be one with the field "{name}"')
    value = holder.get(name)
    if not has_type(value, kind):
        fault = "is missing" if name not in holder else f"is not {_TYPE_NAMES[kind]}"
        raise InputError(f'{where}: "{name}" {fault}; give it {_TYPE_NAMES[kind]}')
    return value


def has_type(value: Any, kind: type) -> bool:
    """Tells whether a JSON value has a type of `field`; true and false are no numbers."""
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            return False
        return abs(value) < 1 << 63 if isinstance(value, int) else math.isfinite(value)
    return isinstance(value, kind)


def untuned():
    """Returns tf.data.Options for a pipeline of given parallelism, so that TensorFlow starts no
    thread to tune it.

    Such a thread can miss that its iterator is deleted, and whoever deletes it, often the end of
    the process, then waits for the thread: as long as the pipeline has run, up to a minute.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return options

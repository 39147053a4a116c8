"""Reads text and JSON files of users, and checks the types of the values in JSON.

An error names the file, and the line or the field.
"""

import gzip
import io
import itertools
import json
import math
import os
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from official_bert.io import errors, files
from official_bert.io.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf


_SAMPLE_BYTES = 1 << 16
_PART_BYTES = 1 << 20
_LONG_LINE = 1000  # bytes of a line of a log, which few lines reach
_GZIP = b"\x1f\x8b"
_COMPRESSED = {
    _GZIP: "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
# U+FFFD stands for bytes that are not UTF-8.
_NO_TEXT = re.compile("[\0-\x08\x0e-\x1f\x7f\ufffd]")
# A sample with a larger share of zero bytes, or of strange characters, is not UTF-8.
_MAX_STRANGE_SHARE = 0.3


def read_lines(
    path: str,
    undecodable: Literal["ignore", "replace"] = "ignore",
    decompresses: bool = False,
    keeps_returns: bool = False,
) -> Iterator[str]:
    """Yields the lines of a text file without "\\n", and without any "\\r", as the original's
    reader does.

    Args:
        path: the file, local or remote.
        undecodable: whether bytes that are not UTF-8 are left out ("ignore") or become U+FFFD
            ("replace"). A warning counts the lines with such bytes.
        decompresses: whether a gzip file is decompressed. Otherwise it is an error.
        keeps_returns: whether each "\\r" stays.

    Raises:
        InputError: the file cannot be read, or does not look like UTF-8 text.
    """
    num_corrupt = 0
    is_gzip = decompresses and _begins_as_gzip(path)
    with files.open_file(path, "rb") as opened:
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
    """Returns the metrics of a file with a line `name = value` for each.

    Args:
        path: the file, local or remote. Names, such as those of labels, may contain " = ".

    Raises:
        ValueError: a line has another form.
        InputError: the file cannot be read, or does not look like UTF-8 text.
    """
    pairs = (line.rsplit(" = ", 1) for line in read_lines(path))
    return {name: float(value) for name, value in pairs}


def read_last_lines(path: str, count: int) -> list[str]:
    """Returns the last lines of a log, with a sign for what is not UTF-8.

    Args:
        path: the path of the file.
        count: the number of lines; fewer if they are very long.
    """
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - count * _LONG_LINE))
        text = file.read().decode("utf-8", "replace")
    return text.splitlines()[-count:]


def unpacked_size(path: str) -> int | None:
    """Returns the decompressed size of a gzip file in bytes, None for any other file.

    Args:
        path: the file, local or remote. It is read to its end; a pipe or device is not read.

    Raises:
        InputError: the file cannot be read, or is a corrupt gzip file.
    """
    if not _begins_as_gzip(path):
        return None
    with files.open_file(path, "rb") as opened:
        file = _Decompressed(path, opened)
        size = 0
        while part := file.read(_PART_BYTES):
            size += len(part)
    return size


def _begins_as_gzip(path: str) -> bool:
    # Bytes that are read from a pipe cannot be read again.
    if files.is_special(path):
        return False
    with files.open_file(path, "rb") as file:
        return file.read(len(_GZIP)) == _GZIP


class _Decompressed:
    """A gzip file whose content is decompressed, and whose errors name its path."""

    def __init__(self, path: str, file: BinaryIO):
        self._path = path
        self._file = gzip.GzipFile(fileobj=file)

    def read(self, size: int) -> bytes:
        return self._checked(self._file.read, size)

    def readline(self) -> bytes:
        return self._checked(self._file.readline)

    def __iter__(self) -> Iterator[bytes]:
        while line := self.readline():
            yield line

    def _checked(self, read: Callable[..., bytes], *arguments: int) -> bytes:
        try:
            return read(*arguments)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                f"{self._path}: is a corrupt gzip file ({error}); compress or download it again"
            ) from error


def _checked_lines(path: str, file: BinaryIO | _Decompressed) -> Iterator[bytes]:
    """Yields the lines of a binary file, once its first 64 KiB look like lines of UTF-8 text."""
    start = file.read(_SAMPLE_BYTES)
    for beginning, name in _COMPRESSED.items():
        if start.startswith(beginning):
            raise InputError(f"{path}: is compressed with {name}; decompress it")
    text = start.decode("utf-8", "replace")
    max_strange = _MAX_STRANGE_SHARE * len(start)
    # A text in UTF-8 may also begin with a zero byte.
    is_not_utf8 = start[2:].count(0) > max_strange or text.count("\ufffd") > 1
    has_utf16_mark = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if has_utf16_mark or (start[:2].count(0) == 1 and is_not_utf8):
        raise InputError(f"{path}: is UTF-16; save it as UTF-8")
    num_strange = len(_NO_TEXT.findall(text))
    if num_strange > 16 and num_strange > max_strange:
        raise InputError(
            f"{path}: is binary, or text in another encoding than UTF-8; save it as UTF-8 text"
        )
    start += file.readline()
    if start.count(b"\r") > 1 and b"\n" not in start:
        raise InputError(f'{path}: ends its lines with "\\r" alone; save it with "\\n" or "\\r\\n"')
    yield from itertools.chain(io.BytesIO(start), file)


def read_json(path: str) -> Any:
    """Returns the content of a JSON file; a byte order mark is ignored.

    Args:
        path: the JSON file, local or remote.

    Raises:
        InputError: the file cannot be read, or is not JSON.
    """
    with files.open_file(path, "rb") as file:
        data = file.read()
    try:
        return parse_json(data)
    except InputError as error:
        is_text = not isinstance(error.__cause__, UnicodeDecodeError)
        remedy = "download or create the file again" if is_text else "save the file as UTF-8"
        raise InputError(f"{path}: {error}; {remedy}") from error


def read_toml(path: str) -> dict[str, Any]:
    """Returns the content of a TOML file.

    Args:
        path: the TOML file, local or remote.

    Raises:
        InputError: the file cannot be read, or is not TOML.
    """
    with files.open_file(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: is not TOML ({error}); correct it") from None


def parse_json(
    text: str | bytes,
    has_lines: bool = True,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Returns the value of a JSON text; a byte order mark at the start is ignored.

    Args:
        text: the JSON text.
        has_lines: whether an error begins with the line and column. Pass False for a text that is
            itself a line.
        object_pairs_hook: creates each object from its pairs of name and value, as in `json.loads`;
            it may raise ValueError.

    Raises:
        InputError: the text is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is no {error.encoding}") from error
    # Thousands of digits or brackets are also errors.
    except (ValueError, RecursionError) as error:
        if has_lines and isinstance(error, json.JSONDecodeError):
            raise InputError(
                f"line {error.lineno}, column {error.colno}: no JSON ({error.msg})"
            ) from error
        raise InputError(f"no JSON ({error})") from error


def distinct_fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object, as a hook of `parse_json`.

    Args:
        pairs: the names and values of the object, in the order of its text.

    Raises:
        ValueError: the object has a name twice, about which parsers disagree.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has a name twice")
    return fields


_find_half_pair = re.compile("[\ud800-\udfff]").search


def half_pair_in(text: str) -> str | None:
    """Returns words for the first half of a surrogate pair in a text, for an error; None without.

    No file can contain such a half.

    Args:
        text: the text, which may come from an escape sequence of JSON.
    """
    half = _find_half_pair(text)
    return f"{half[0]!a}, half of a surrogate pair, which is not a character" if half else None


_TYPE_NAMES = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_object(value: Any, where: str) -> dict[str, Any]:
    """Returns a JSON value that has to be an object.

    Args:
        value: the value.
        where: the file or line of the value, for the error.

    Raises:
        InputError: the value is not an object.
    """
    if not isinstance(value, dict):
        raise InputError(f"{where}: is not an object; it should be one, in braces")
    return value


def field(holder: Any, name: str, kind: type, where: str) -> Any:
    """Returns a field of a JSON object, `holder[name]`, which has to have a type.

    Args:
        holder: the object.
        name: the name of the field.
        kind: the type: str, list, dict, bool, int or float. See `has_type`.
        where: the file or line of the object, for errors.

    Raises:
        InputError: the holder is not an object, or the field is missing or has another type.
    """
    if not isinstance(holder, dict):
        raise InputError(f'{where}: is not an object; it should be one with the field "{name}"')
    value = holder.get(name)
    if not has_type(value, kind):
        fault = "is missing" if name not in holder else f"is not {_TYPE_NAMES[kind]}"
        raise InputError(f'{where}: "{name}" {fault}; give it {_TYPE_NAMES[kind]}')
    return value


def has_type(value: Any, kind: type) -> bool:
    """Returns whether a JSON value has a type.

    A float may be a whole number. Numbers must be finite and in the range of int64 or float64. True
    and false are not numbers.

    Args:
        value: the value.
        kind: the type: str, list, dict, bool, int or float.
    """
    if kind not in (int, float):
        return isinstance(value, kind)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return isinstance(value, kind) and math.isfinite(value)


def unconverted(function: Callable) -> Callable:
    """Returns a function that a dataset traces as it is, without AutoGraph.

    AutoGraph translates `if` and `for` on tensors, which a function of tensors rarely has. The
    translation takes longer than the trace.

    Args:
        function: a function whose control flow does not depend on tensors.
    """
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def untuned() -> "tf.data.Options":
    """Returns options for a pipeline with fixed parallelism, so that TensorFlow starts no thread to
    tune it.

    Such a thread may not notice that its iterator is deleted. The deletion, which is often part of
    the end of the process, then waits for the thread: as long as the pipeline has run, up to a
    minute.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return options

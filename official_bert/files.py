"""Opens, lists and replaces local and remote files.

Local paths need only plain Python. For paths with a scheme (gs://, hdfs://, ...) the functions import and use
tf.io.gfile.
"""

import contextlib
import errno
import glob as local_glob
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from official_bert.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_remote(path: str) -> bool:
    """Tells whether `path` has a scheme, which names a remote file system."""
    return "://" in os.fspath(path)


def open_file(path: str, mode: str = "r"):
    """Opens a file; text is UTF-8 and only "\\n" ends a line, whatever the locale is.

    Raises:
        InputError: a file to read does not exist, or the path is a folder.
    """
    if is_remote(path):
        return _gfile().GFile(path, mode)
    try:
        if "b" in mode:
            return open(path, mode)
        return open(path, mode, encoding="utf-8", newline="\n")
    except FileNotFoundError:
        if "r" in mode:
            raise InputError(f"{path}: no such file; check the path") from None
        raise
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file") from None


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a text file without "\\n"; it ignores bytes that are not UTF-8, as the original does."""
    with open_file(path, "rb") as file:
        for line in file:
            yield line.removesuffix(b"\n").decode("utf-8", "ignore")


def read_json(path: str) -> Any:
    """Returns the content of a JSON file; a byte order mark is ignored.

    Raises:
        InputError: the file does not exist or is not JSON. The message names the line and column of invalid JSON, and
            the first byte that is not UTF-8.
    """
    with open_file(path, "rb") as file:
        data = file.read()
    try:
        return parse_json(data)
    except InputError as error:
        is_text = not isinstance(error.__cause__, UnicodeDecodeError)
        remedy = "download or make the file anew" if is_text else "save the file as UTF-8"
        raise InputError(f"{path}: {error}; {remedy}") from error


def parse_json(text: str | bytes, has_lines: bool = True) -> Any:
    """Returns the value of a JSON text; every reader of JSON calls this function.

    Args:
        text: the text; a byte order mark at the start of bytes is ignored.
        has_lines: whether the error message begins with the line and column; False for a text that is itself a line.

    Raises:
        InputError: the text is not JSON, not UTF-8, nested too deep, or has a number of thousands of digits. The caller
            names the file and the remedy.
    """
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is no {error.encoding}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # also a number of thousands of digits, or thousands of brackets
        if has_lines and isinstance(error, json.JSONDecodeError):
            raise InputError(f"line {error.lineno}, column {error.colno}: no JSON ({error.msg})") from error
        raise InputError(f"no JSON ({error})") from error


def exists(path: str) -> bool:
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_folder(path: str):
    """Creates a folder and its parents if they do not exist.

    Raises:
        InputError: the path is a file, or the folder cannot be created.
    """
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: no folder can be made there ({error.strerror}); name another path"
        ) from None


def remove(path: str):
    _gfile().remove(path) if is_remote(path) else os.remove(path)


def matching(pattern: str) -> list[str]:
    """Returns the files that a glob matches, sorted by name (the original takes the file system's order)."""
    return sorted(_gfile().glob(pattern) if is_remote(pattern) else local_glob.glob(pattern))


def expand(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the files that a list of names and globs matches, in the order of the list, sorted within each glob.

    Args:
        patterns: names or globs.
        flag: the flag with the list, for the error message.

    Raises:
        InputError: a pattern matches no file, or there is no pattern.
    """
    found = []
    for pattern in patterns:
        names = matching(pattern)
        if not names:
            raise InputError(f"--{flag}: no file matches {pattern!r}; check the path or the glob")
        found += names
    if not found:
        raise InputError(f"--{flag}: names no file")
    return found


@contextlib.contextmanager
def replacing(path: str, mode: str = "w"):
    """Opens a temporary file beside `path`; on success it is renamed to `path`, on any failure it is deleted.

    Raises:
        InputError: the path is empty or a folder, it cannot be written to, or the disk is full.
    """
    if not path:
        raise InputError("the name of a file to be written is empty; give one")
    if is_folder(path):
        raise InputError(f"{path}: cannot be written, it is a folder; name a file")
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        file = open_file(temporary, mode)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); check that its folder exists and is writable"
        ) from error
    try:
        with file:
            yield file
        if is_remote(path):
            _gfile().rename(temporary, path, overwrite=True)
        else:
            os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(Exception):
            remove(temporary)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise InputError(
                f"{path}: cannot be written ({error.strerror}); make room or name another path"
            ) from error
        raise


def _gfile():
    import tensorflow as tf

    return tf.io.gfile

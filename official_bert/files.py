"""Opening, listing and replacing files, local or remote.

Local paths take plain Python; paths with a scheme (gs://, hdfs://, ...) go through tf.io.gfile, imported only then.
"""

import contextlib
import errno
import glob as local_glob
import os
from collections.abc import Iterable, Iterator

from official_bert.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_remote(path: str) -> bool:
    """Whether `path` names a file system by its scheme."""
    return "://" in os.fspath(path)


def open_file(path: str, mode: str = "r"):
    """Opens a file; text is UTF-8 and only "\\n" ends a line, whatever the locale.

    Raises:
        InputError: a file to be read that does not exist or is a folder.
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
    """Lines of a text file without their "\\n", bytes that are not UTF-8 ignored as the original does."""
    with open_file(path, "rb") as file:
        for line in file:
            yield line.removesuffix(b"\n").decode("utf-8", "ignore")


def exists(path: str) -> bool:
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_folder(path: str):
    """Creates a folder and its parents; one that is there already is fine.

    Raises:
        InputError: a path that is a file, or where nothing can be made.
    """
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: no folder can be made there ({error.strerror}); name another place"
        ) from None


def remove(path: str):
    _gfile().remove(path) if is_remote(path) else os.remove(path)


def matching(pattern: str) -> list[str]:
    """Files that a glob matches, sorted by name (the original took the file system's order)."""
    return sorted(_gfile().glob(pattern) if is_remote(pattern) else local_glob.glob(pattern))


def expand(patterns: Iterable[str], flag: str) -> list[str]:
    """Files of a comma list of names and globs: sorted within each glob, in the order of the list.

    Args:
        patterns: names or globs.
        flag: the flag that they came from, for the error.

    Raises:
        InputError: a pattern that matches nothing.
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
    """Opens a temporary file beside `path` that takes its name on success and vanishes on any failure.

    Raises:
        InputError: a path that is empty or a folder, or where nothing can be written, or not all of it.
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
            f"{path}: cannot be written ({error.strerror or error}); check that its folder exists and is yours"
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
                f"{path}: cannot be written ({error.strerror}); make room or name another place"
            ) from error
        raise


def _gfile():
    import tensorflow as tf

    return tf.io.gfile

"""Names, opens, lists and removes local and remote files; `reading` and `writing` build on it.

Local paths need only plain Python. For paths with a scheme (gs://, hdfs://, ...) the functions
import and use tf.io.gfile, or fsspec for schemes that TensorFlow lacks (s3://).
"""

import contextlib
import functools
import glob as local_glob
import hashlib
import importlib.util
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from official_bert.io import fsspec_files, operating_system
from official_bert.io.errors import InputError

# How long the opening of a pipe waits for the process at its other end.
PIPE_LIMIT_SECS = 60.0
_PART_BYTES = 1 << 20
# The names of locks, unfinished outputs and manifests of records, which no glob matches.
_INTERNAL_NAMES = re.compile(r"\.lock|\..+\.(tmp-.+|sharded|mining|manifest\.json)")
# The largest sizes in bytes of the model's files that are read into memory at once.
_MAX_MODEL_FILE_SIZES = {".json": 1 << 26, ".txt": 1 << 30}


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, which names a remote file system.

    Args:
        path: the path of a file or folder, which need not exist.
    """
    return "://" in os.fspath(path)


def check_name(path: str) -> None:
    """Checks that TensorFlow, logs and JSON can represent the name of a file.

    Args:
        path: the path, which need not exist.

    Raises:
        InputError: the name is not UTF-8, or contains a zero byte.
    """
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!a}: the name is not UTF-8; rename the file or folder") from None
    if "\0" in name:
        raise InputError(f"{name!a}: the name contains a zero byte; correct it")


@overload
def open_file(path: str, mode: Literal["r", "w", "a"] = "r") -> TextIO: ...


@overload
def open_file(path: str, mode: Literal["rb", "wb", "ab"]) -> BinaryIO: ...


@overload
def open_file(path: str, mode: str) -> IO[Any]: ...


def open_file(path: str, mode: str = "r") -> IO[Any]:
    """Opens a file; text is UTF-8 and only "\\n" ends a line, whatever the locale is.

    Args:
        path: the file, local or remote.
        mode: "r", "w" or "a", with "b" for bytes.

    Raises:
        InputError: the file cannot be read, or is a folder, or is a pipe (FIFO) that no process
            opens at its other end within a minute.
    """
    check_name(path)
    if is_remote(path):
        return _open_remote(path, mode)
    is_text = "b" not in mode
    try:
        return open(
            path,
            mode,
            encoding="utf-8" if is_text else None,
            newline="\n" if is_text else None,
            opener=_open_pipe if _is_pipe(path) else None,
        )
    except FileNotFoundError:
        if "r" in mode:
            raise InputError(f"{path}: no such file; check the path") from None
        raise
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file") from None
    except OSError as error:
        if "r" in mode:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
            ) from None
        raise


def exists(path: str) -> bool:
    """Returns whether a file or folder exists.

    Args:
        path: the path, local or remote; a symbolic link counts as the file that it names.

    Raises:
        InputError: the name is not UTF-8, or contains a zero byte.
    """
    check_name(path)
    return _gfile(path).exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    """Returns whether a path is an existing folder.

    Args:
        path: the path, local or remote; a symbolic link counts as the folder that it names.
    """
    return _gfile(path).isdir(path) if is_remote(path) else os.path.isdir(path)


def size(path: str) -> int:
    """Returns the size of a file in bytes.

    Args:
        path: the file, local or remote.

    Raises:
        InputError: a local file cannot be read, or the name is not UTF-8 or contains a zero byte.
    """
    check_name(path)
    if is_remote(path):
        return _gfile(path).stat(path).length
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def sha256(path: str) -> str:
    """Returns the SHA-256 digest of the content of a file, as hexadecimal digits.

    Args:
        path: the file, local or remote.

    Raises:
        InputError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with open_file(path, "rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def make_folder(path: str) -> None:
    """Creates a folder and its parents if they do not exist.

    Args:
        path: the folder, local or remote.

    Raises:
        InputError: a local folder cannot be made.
    """
    if is_remote(path):
        _gfile(path).makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: no folder can be made there ({error.strerror}); name another path"
        ) from None


def real_path(path: str) -> str:
    """Returns the absolute path of a local file with all symbolic links resolved.

    A remote path is returned unchanged.

    Args:
        path: the path, which need not exist.
    """
    return path if is_remote(path) else os.path.realpath(path)


def is_special(path: str) -> bool:
    """Returns whether a path is a device, a FIFO or a socket, which is written directly.

    Args:
        path: the path, local or remote; an existing local folder also counts as special.
    """
    return not is_remote(path) and os.path.exists(path) and not os.path.isfile(path)


def check_model_file(path: str) -> str:
    """Checks a file in a model's folder and returns its path.

    Reading a device or a FIFO may never end, and reading a huge file may fill the memory.

    Args:
        path: the file, local or remote; a file that does not exist passes.

    Raises:
        InputError: the path is a device or a pipe, or the file is too large for its extension.
    """
    if is_special(path) and not is_folder(path):
        raise InputError(
            f"{path}: is not a regular file, but a device or a pipe; put the model's file there"
        )
    max_size = _MAX_MODEL_FILE_SIZES.get(os.path.splitext(path)[1])
    if max_size and exists(path) and size(path) > max_size:
        raise InputError(f"{path}: has more than {max_size >> 20} MiB; put the model's file there")
    return path


def rename(source: str, target: str) -> None:
    """Renames a file or folder; a file that already has the new name is replaced.

    Args:
        source: the file or folder, local or remote.
        target: its new path in the same file system.
    """
    if is_remote(source):
        _gfile(source).rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Deletes a file.

    Args:
        path: the file, local or remote. Of a symbolic link, only the link is deleted.

    Raises:
        InputError: the path is a folder, into which somebody may have put other files.
    """
    if is_remote(path):
        _gfile(path).remove(path)
        return
    if os.path.isdir(path) and not os.path.islink(path):
        raise InputError(f"{path}: is a folder where a file is expected; move it away")
    os.remove(path)


def remove_folder(path: str) -> None:
    """Deletes a folder, which this project has created, with its content.

    Args:
        path: the folder, local or remote.
    """
    if is_remote(path):
        _gfile(path).rmtree(path)
    else:
        shutil.rmtree(path)


def list_folder(path: str) -> list[str]:
    """Returns the names of the files and subfolders of a folder, in the file system's order.

    Args:
        path: the folder, local or remote. Remote file systems may end the name of a subfolder with
            "/".
    """
    return _gfile(path).listdir(path) if is_remote(path) else os.listdir(path)


def find_ignoring_case(folder: str, names: Iterable[str]) -> list[str]:
    """Returns the paths of the files with these names in a folder, in upper or lower case.

    They are in the order of the names. Of several files for a name, the one with exactly the same
    letters comes first.

    Args:
        folder: the folder. A folder that does not exist has no files.
        names: the names, without folders.
    """
    entries = sorted(list_folder(folder)) if is_folder(folder) else []
    paths = []
    for name in names:
        matches = [entry for entry in entries if entry.casefold() == name.casefold()]
        matches.sort(key=lambda entry, name=name: entry != name)
        paths += [os.path.join(folder, match) for match in matches]
    return paths


def to_python_glob(pattern: str) -> str:
    """Converts a glob of TensorFlow to one of Python.

    `[^y]` becomes `[!y]`, and a character behind a backslash is escaped as Python does it. On
    Windows, a backslash parts folders.

    Args:
        pattern: the glob, in TensorFlow's form.
    """

    if operating_system.HAS_BACKSLASH_PATHS:
        return pattern.replace("[^", "[!")

    def convert(match: re.Match) -> str:
        escaped_character = match[1]
        return local_glob.escape(escaped_character) if escaped_character else "[!"

    return re.sub(r"(?s)\\(.)|\[\^", convert, pattern)


def matching(pattern: str, folder: str = "") -> list[str]:
    """Returns the files that a glob matches, sorted by name.

    Hidden files match, as in TensorFlow and so in the original. The original returns them in the
    file system's order.

    Args:
        pattern: the glob, in TensorFlow's form.
        folder: the folder in which the glob matches. Its name is not a pattern.
    """
    pattern = os.path.join(local_glob.escape(folder), pattern)
    if is_remote(pattern):
        names = _gfile(pattern).glob(pattern)
    else:
        names = local_glob.glob(to_python_glob(pattern), include_hidden=True)
    return sorted(name for name in names if not _INTERNAL_NAMES.fullmatch(os.path.basename(name)))


def expand(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the files that a list of names and globs matches.

    They are in the order of the list, and sorted within each glob.

    Args:
        patterns: names and globs of files.
        flag: the name of the flag with the list, for errors.

    Raises:
        InputError: a name is empty, or no file matches it.
    """
    paths = []
    for pattern in patterns:
        if not pattern:
            raise InputError(f"--{flag}: a name is empty; write a name or leave out the comma")
        names = matching(pattern)
        if not names and exists(pattern):  # brackets may be part of a name
            names = [pattern]
        if not names:
            raise InputError(f"--{flag}: no file matches {pattern!r}; check the path or the glob")
        for name in names:
            check_name(name)
        paths += names
    if not paths:
        raise InputError(f"--{flag}: names no file")
    return paths


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def _open_pipe(path: str, flags: int) -> int:
    """Returns the descriptor of a pipe, as the `opener` of open(); it waits for the other end up
    to a time limit.

    A thread waits, because a pipe that is opened without waiting does not show whether it has a
    writer.
    """
    descriptors = []
    failures = []

    def wait():
        try:
            descriptors.append(os.open(path, flags))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        thread.join(PIPE_LIMIT_SECS)
    finally:
        # The thread also waits still after a signal.
        if thread.is_alive():
            _end_waiting(path, flags)
            thread.join(1)
            while descriptors:
                os.close(descriptors.pop())
    if failures:
        raise failures[0]
    if not descriptors:
        partner = "writing" if flags & os.O_ACCMODE == os.O_RDONLY else "reading"
        raise InputError(
            f"{path}: is a pipe that no process has opened for {partner} in {PIPE_LIMIT_SECS:g} "
            "seconds; start that process, or name a file"
        )
    return descriptors[0]


def _end_waiting(path: str, flags: int):
    """Opens the other end of a pipe for a moment, so that the thread that waits for it ends."""
    other_end = os.O_WRONLY if flags & os.O_ACCMODE == os.O_RDONLY else os.O_RDONLY
    with contextlib.suppress(OSError):
        os.close(os.open(path, other_end | os.O_NONBLOCK))


def _open_remote(path: str, mode: str):
    try:
        file = _gfile(path).GFile(path, mode)
    except FileNotFoundError:  # of fsspec
        raise InputError(f"{path}: no such file; check the path") from None

    def write_lines(lines: Iterable):
        for line in lines:
            file.write(line)

    # GFile lacks this method of files.
    file.writelines = write_lines
    return file


def _gfile(path: str) -> Any:
    """Returns tf.io.gfile, or its functions by fsspec for a scheme that TensorFlow lacks."""
    scheme = os.fspath(path).partition("://")[0]
    schemes = _tensorflow_schemes()
    # Without TensorFlow there are none, and without fsspec, TensorFlow says what it lacks.
    if scheme not in schemes and (not schemes or fsspec_files.is_installed()):
        return fsspec_files.file_system(scheme)
    import tensorflow as tf

    return tf.io.gfile


@functools.cache
def _tensorflow_schemes() -> frozenset[str]:
    if importlib.util.find_spec("tensorflow") is None:
        return frozenset()
    import tensorflow as tf

    return frozenset(tf.io.gfile.get_registered_schemes())

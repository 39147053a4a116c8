"""Names, opens, lists and removes local and remote files; `reading` and `writing` build on it.

Local paths need only plain Python. For paths with a scheme (gs://, hdfs://, ...) the functions
import and use tf.io.gfile.
"""

import contextlib
import glob as local_glob
import hashlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from official_bert.io.errors import InputError

PIPE_LIMIT_SECS = 60.0  # how long the opening of a pipe waits for the process at its other end
_PART_BYTES = 1 << 20
# Names of what runs work on, and of manifests that lie beside records; no glob matches them.
_OURS = re.compile(r"\.lock|\..+\.(tmp-.+|sharded|mining|manifest\.json)")
# Which are read as a whole; weights are not.
_LARGEST_MODEL_FILES = {".json": 1 << 26, ".txt": 1 << 30}


def is_remote(path: str) -> bool:
    """Tells whether `path` has a scheme, which names a remote file system."""
    return "://" in os.fspath(path)


def check_name(path: str) -> None:
    """Checks that TensorFlow, logs and JSON can hold a name."""
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

    A pipe (FIFO) that no process opens at its other end within a minute is an InputError.
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
    check_name(path)
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def size(path: str) -> int:
    check_name(path)
    if is_remote(path):
        return _gfile().stat(path).length
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open_file(path, "rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


def make_folder(path: str) -> None:
    """Creates a folder and its parents if they do not exist."""
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: no folder can be made there ({error.strerror}); name another path"
        ) from None


def real_path(path: str) -> str:
    """Returns the absolute path of a local file, with all symbolic links followed, and a remote
    path as it is.
    """
    return path if is_remote(path) else os.path.realpath(path)


def is_special(path: str) -> bool:
    """Tells whether a path is a device, a FIFO or a socket, which is written directly."""
    return not is_remote(path) and os.path.exists(path) and not os.path.isfile(path)


def check_model_file(path: str) -> str:
    """Returns the path of a file of a model's folder, which must be a regular file whose size can
    be what it is for.

    A device or a FIFO may never end, and who reads one waits, or fills the memory.
    """
    if is_special(path) and not is_folder(path):
        raise InputError(
            f"{path}: is no regular file, but a device or a pipe; put the model's own file there"
        )
    largest = _LARGEST_MODEL_FILES.get(os.path.splitext(path)[1])
    if largest and exists(path) and size(path) > largest:
        raise InputError(
            f"{path}: has more than {largest >> 20} MiB; put the model's own file there"
        )
    return path


def rename(source: str, target: str) -> None:
    """Renames a file or folder; a file of the new name is replaced."""
    if is_remote(source):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Deletes a file; a folder, in which another may have put something, is refused."""
    if is_remote(path):
        _gfile().remove(path)
        return
    if os.path.isdir(path) and not os.path.islink(path):
        raise InputError(f"{path}: is a folder in the place of a file; move it away")
    os.remove(path)


def remove_folder(path: str) -> None:
    """Deletes a folder that this project has made, with all that is in it."""
    if is_remote(path):
        _gfile().rmtree(path)
    else:
        shutil.rmtree(path)


def list_folder(path: str) -> list[str]:
    return _gfile().listdir(path) if is_remote(path) else os.listdir(path)


def find_ignoring_case(folder: str, names: Iterable[str]) -> list[str]:
    """Returns the paths in a folder that have one of these names in any case, in the order of the
    names.

    Of several paths for a name, the one with the same letters comes first.
    """
    there, paths = sorted(list_folder(folder)) if is_folder(folder) else [], []
    for name in names:
        matches = [path for path in there if path.casefold() == name.casefold()]
        paths += sorted(matches, key=lambda path, name=name: path != name)
    return [os.path.join(folder, path) for path in paths]


def to_python_glob(pattern: str) -> str:
    """Writes a glob in the form of Python's: `[^y]` is [!y], and a backslash takes the next
    character as it is.
    """
    return re.sub(
        r"(?s)\\(.)|\[\^", lambda found: local_glob.escape(found[1]) if found[1] else "[!", pattern
    )


def matching(pattern: str, folder: str = "") -> list[str]:
    """Returns the files that a glob matches, as TensorFlow's, and so the original's: hidden ones,
    too.

    They are sorted by name; the original takes the file system's order. With a folder, whose name
    is no pattern, the glob is for what is in it.
    """
    pattern = os.path.join(local_glob.escape(folder), pattern)
    if is_remote(pattern):
        found = _gfile().glob(pattern)
    else:
        found = local_glob.glob(to_python_glob(pattern), include_hidden=True)
    return sorted(name for name in found if not _OURS.fullmatch(os.path.basename(name)))


def expand(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the files that a list of names and globs matches, in the order of the list, sorted
    within each glob.
    """
    found = []
    for pattern in patterns:
        if not pattern:
            raise InputError(f"--{flag}: a name is empty; give one, or leave out its comma")
        names = matching(pattern)
        if not names and exists(pattern):  # brackets may be part of a name
            names = [pattern]
        if not names:
            raise InputError(f"--{flag}: no file matches {pattern!r}; check the path or the glob")
        for name in names:
            check_name(name)
        found += names
    if not found:
        raise InputError(f"--{flag}: names no file")
    return found


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def _open_pipe(path: str, flags: int) -> int:
    """Returns the descriptor of a pipe, as `opener` of open(); it waits for the other end, but not
    for ever.

    The waiting is in a thread, because a pipe that is opened without waiting does not show whether
    it has a writer.
    """
    descriptors, failures = [], []

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
        if thread.is_alive():  # also after a signal
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
    file = _gfile().GFile(path, mode)
    file.writelines = lambda lines: [file.write(line) for line in lines]  # which it lacks
    return file


def _gfile():
    import tensorflow as tf

    return tf.io.gfile

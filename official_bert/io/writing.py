"""Writes files and folders that appear under their names when they are complete, and never over an
input.

Until then an output is a file or folder beside its name, which begins with a dot and ends with the
id of the process, and which no glob of inputs matches. Outputs that are no regular files (devices,
FIFOs) are written directly, and a symbolic link stays: the file that it names is replaced.
"""

import contextlib
import errno
import fnmatch
import functools
import glob as local_glob
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, TextIO, overload

from official_bert.io import errors, files
from official_bert.io.errors import InputError

_REMEDIES: Mapping[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room or name another path"),
    errno.EPIPE: "keep the process that reads it running",
    errno.ENAMETOOLONG: "give it a shorter name",
}
_TEMPORARY = re.compile(r"\..+\.tmp-(\d+)")


def keep_apart(outputs: Iterable[str], inputs: Mapping[str, Iterable[str | None]]) -> None:
    """Refuses outputs that would replace an input, another output, or become an input of the next
    run.

    Scripts call it before they read anything, with the names and globs of `inputs` by the flag that
    names them. Links are followed. Devices and FIFOs are no regular files, and may be named twice.
    """
    outputs = list(outputs)
    places = [files.real_path(output) for output in outputs]
    existing = [_identity(output) for output in outputs]
    times = Counter(places)
    for output, place in zip(outputs, places, strict=True):
        if times[place] > 1 and not files.is_special(output):
            raise InputError(f"{output}: is an output twice; give each output a file of its own")
    for flag, patterns in inputs.items():
        for pattern in filter(None, patterns):
            read = {_identity(name) for name in (pattern, *files.matching(pattern))} - {None}
            would_match = _matcher(pattern)
            for output, place, identity in zip(outputs, places, existing, strict=True):
                if identity in read:
                    if not files.is_special(output):
                        raise InputError(
                            f"{output}: is an input of this run, too (--{flag}), and would be "
                            "overwritten; name another output"
                        )
                elif would_match(output) or would_match(place):
                    raise InputError(
                        f"{output}: --{flag}={pattern} matches it, so that the next run would read "
                        "it; name another output, or a narrower glob"
                    )


def check_new_folder(path: str) -> None:
    """Refuses an --output_dir that is there and holds something."""
    if not path or (
        files.exists(path) and not (files.is_folder(path) and not files.list_folder(path))
    ):
        raise InputError(f"--output_dir={path}: must be a new folder or an empty one; name another")


def is_same_file(path: str, other: str) -> bool:
    return _identity(path) is not None and _identity(path) == _identity(other)


def _identity(path: str) -> Hashable | None:
    """Returns what all names of a file have in common; None for a local file that does not exist."""
    if files.is_remote(path):
        return path
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that tells whether a glob would match a file that need not exist."""
    folder, last = os.path.split(pattern)
    if not local_glob.has_magic(files.to_python_glob(pattern)):
        return lambda path: False
    is_named = re.compile(fnmatch.translate(files.to_python_glob(last))).match
    folders = {
        files.real_path(found) for found in ([folder] if folder == "" else files.matching(folder))
    }
    place_of = functools.cache(files.real_path)
    return lambda path: (
        bool(is_named(os.path.basename(path))) and place_of(os.path.dirname(path)) in folders
    )


@overload
def replacing(
    path: str, mode: Literal["w"] = "w", removes_left: bool = True
) -> contextlib.AbstractContextManager[TextIO]: ...


@overload
def replacing(
    path: str, mode: Literal["wb"], removes_left: bool = True
) -> contextlib.AbstractContextManager[BinaryIO]: ...


@contextlib.contextmanager
def replacing(path: str, mode: str = "w", removes_left: bool = True) -> Iterator[Any]:
    """Opens a temporary file beside `path`; on success it is renamed to `path`, on any failure it
    is deleted.

    A file that a killed run left is deleted, too, for which the whole folder is listed, unless not
    `removes_left`.
    """
    if not path:
        raise InputError("the name of a file to be written is empty; give one")
    if files.exists(path) and files.is_folder(path):  # exists() refuses unknown schemes
        raise InputError(f"{path}: cannot be written, it is a folder; name a file")
    target = files.real_path(path)
    temporary = None if files.is_special(path) else _temporary(target, removes_left)
    try:
        if temporary and os.path.islink(target):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        file = files.open_file(temporary or path, mode)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with file:
            yield file
        if temporary:
            files.rename(temporary, target)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(Exception):
                files.remove(temporary)
        if isinstance(error, OSError) and find_remedy(error):
            raise _cannot_write(path, error) from error
        raise


@contextlib.contextmanager
def saying_why(path: str) -> Iterator[None]:
    """Replaces the error of a file that cannot be written by a sentence, as a context manager
    round its writing.
    """
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder; on success its files are moved to the folder `path`, on any
    failure it is deleted.

    A folder that does not exist yet is created with all its files at once.
    """
    target = files.real_path(path.rstrip("/") or path)
    files.make_folder(os.path.dirname(target))
    if not files.is_remote(path) and os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path}: no folder can be made there (File exists); name another path")
    temporary = _temporary(target)
    try:
        files.make_folder(temporary)
        yield temporary
        if files.exists(target):
            # A checkpoint exists if its index does, so that comes last.
            for name in sorted(
                files.list_folder(temporary), key=lambda name: name.endswith(".index")
            ):
                files.rename(os.path.join(temporary, name), os.path.join(target, name))
        else:
            files.rename(temporary, target)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(Exception):
            files.remove_folder(temporary)


def append_line(path: str, line: str) -> None:
    """Appends a line to a file, which never has half of it: the file is replaced by a longer one."""
    before = b""
    if files.exists(path):
        with files.open_file(path, "rb") as file:
            before = file.read()
    with replacing(path, "wb") as file:
        file.write(before + line.encode() + b"\n")


def markdown_table(
    heads: Iterable[str], rows: Iterable[Iterable[object]], rule: str = "---"
) -> str:
    """Returns a table of Markdown, a line for each row; `rule` "--:" aligns the columns behind
    the first as numbers.
    """
    heads = list(heads)
    lines = [heads, ["---", *[rule] * (len(heads) - 1)], *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def find_remedy(error: OSError) -> str | None:
    """Returns what helps when a file that was opened cannot be written: room on a full disk, for
    instance.
    """
    return _REMEDIES.get(error.errno)


def _cannot_write(path: str, error: OSError) -> InputError:
    remedy = find_remedy(error) or "check that its folder exists and is writable"
    return InputError(f"{path}: cannot be written ({error.strerror or error}); {remedy}")


_OWN: set[str] = set()  # an earlier process may have had the number of this one


def temporary_name(folder: str, name: str) -> str:
    """Returns the path in `folder` under which this process writes what becomes `name`."""
    path = os.path.join(folder, f".{name}.tmp-{os.getpid()}")
    _OWN.add(path)
    return path


def remove_left(folder: str, pattern: str) -> None:
    """Deletes what killed processes left in a folder, but in no remote one, whose processes may
    run elsewhere.
    """
    if files.is_remote(folder):
        return
    for left in local_glob.glob(os.path.join(local_glob.escape(folder), f".{pattern}.tmp-*")):
        found = _TEMPORARY.fullmatch(os.path.basename(left))
        if found and left not in _OWN and not _is_running(int(found[1])):
            errors.warn("%s: deleted, since a run that was killed left it", left)
            with contextlib.suppress(OSError):
                (files.remove_folder if files.is_folder(left) else files.remove)(left)


def _temporary(target: str, removes_left: bool = True) -> str:
    """Returns a temporary name beside `target`, without what killed processes left for the same
    one.
    """
    folder, name = os.path.split(target)
    if removes_left:
        remove_left(folder, local_glob.escape(name))
    return temporary_name(folder, name)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return process != os.getpid()

"""Writes files and folders that get their names when they are complete, and never replaces an
input.

An unfinished output is a temporary file or folder in the same folder. Its name begins with a dot
and ends with the id of the process, and no glob of inputs matches it. Devices and FIFOs are written
directly. A symbolic link stays, and the file that it names is replaced.
"""

import contextlib
import errno
import fnmatch
import functools
import glob as local_glob
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, TextIO, overload

from official_bert.io import errors, files, operating_system
from official_bert.io.errors import InputError

_REMEDIES: Mapping[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room or name another path"),
    errno.EPIPE: "keep the process that reads it running",
    errno.ENAMETOOLONG: "give it a shorter name",
}
_TEMPORARY = re.compile(r"\..+\.tmp-(\d+)")


def keep_apart(outputs: Iterable[str], inputs: Mapping[str, Iterable[str | None]]) -> None:
    """Refuses outputs that would replace an input or another output, or that the next run would
    read.

    Commands call it before they read anything. Symbolic links are resolved. Devices and FIFOs may
    be named twice.

    Args:
        outputs: the paths of the outputs.
        inputs: names and globs of the inputs, by the flag that names them.

    Raises:
        InputError: an output is named twice, is an input, or matches a glob of the inputs.
    """
    outputs = list(outputs)
    times = Counter(files.real_path(output) for output in outputs)
    for output in outputs:
        if times[files.real_path(output)] > 1 and not files.is_special(output):
            raise InputError(f"{output}: is an output twice; name another file for each output")
    for flag, patterns in inputs.items():
        for pattern in filter(None, patterns):
            _keep_apart_from_pattern(outputs, pattern, flag)


def _keep_apart_from_pattern(outputs: Iterable[str], pattern: str, flag: str):
    """Refuses outputs that are inputs, or would be ones of the next run, by one name or glob."""
    input_names = [pattern, *files.matching(pattern)]
    input_identities = {_identity(name) for name in input_names}
    would_match = _matcher(pattern)
    for output in outputs:
        identity = _identity(output)
        if identity is not None and identity in input_identities:
            if files.is_special(output):
                continue
            raise InputError(
                f"{output}: is also an input of this run (--{flag}) and would be overwritten; "
                "name another output"
            )
        if would_match(output) or would_match(files.real_path(output)):
            raise InputError(
                f"{output}: --{flag}={pattern} matches it, so that the next run would read it; "
                "name another output, or a narrower glob"
            )


def check_new_folder(path: str) -> None:
    """Refuses an --output_dir that exists and is not an empty folder.

    Args:
        path: the value of --output_dir, a local or remote path.

    Raises:
        InputError: the path is empty, a file, or a folder that is not empty.
    """
    if path and not files.exists(path):
        return
    if path and files.is_folder(path) and not files.list_folder(path):
        return
    raise InputError(f"--output_dir={path}: must be a new folder or an empty one; name another")


def is_same_file(path: str, other: str) -> bool:
    """Returns whether two paths name the same existing file, also through links.

    Args:
        path: a path. A local file that does not exist is the same as no other.
        other: the other path. Remote paths name the same file only if they are equal.
    """
    return _identity(path) is not None and _identity(path) == _identity(other)


def _identity(path: str) -> Hashable | None:
    """Returns a key that is equal for all names of a file, None for a local file that does not
    exist.
    """
    if files.is_remote(path):
        return path
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that returns whether a glob would match a path, which need not exist."""
    folder, name_pattern = os.path.split(pattern)
    if not local_glob.has_magic(files.to_python_glob(pattern)):
        return lambda path: False
    matches_name = re.compile(fnmatch.translate(files.to_python_glob(name_pattern))).match
    folders = files.matching(folder) if folder else [""]
    real_folders = {files.real_path(name) for name in folders}
    real_path = functools.cache(files.real_path)

    def would_match(path: str) -> bool:
        folder, name = os.path.split(path)
        return bool(matches_name(name)) and real_path(folder) in real_folders

    return would_match


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
    """Opens a temporary file, as a context manager.

    It is renamed to `path` at the end of the context, or deleted after an exception.

    Args:
        path: the file to write.
        mode: "w" for text or "wb" for bytes.
        removes_left: whether to delete a temporary file that a killed run left. This lists the
            whole folder.

    Raises:
        InputError: the file cannot be written.
    """
    if not path:
        raise InputError("the name of a file to write is empty; name a file")
    # The call of exists() refuses unknown schemes.
    if files.exists(path) and files.is_folder(path):
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
    """Turns the errors of writing a file into InputError, as a context manager.

    Args:
        path: the file that the context writes, for the error message.

    Raises:
        InputError: the context has raised OSError.
    """
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder, as a context manager.

    Its files are moved to the folder `path` at the end of the context, or deleted after an
    exception.

    Args:
        path: the folder to write, local or remote. A folder that does not exist yet is created with
            all its files at once.

    Raises:
        InputError: the folder cannot be written.
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
            # A checkpoint exists if its index does, so the index is moved last.
            names = sorted(
                files.list_folder(temporary),
                key=lambda name: name.endswith(".index"),
            )
            for name in names:
                files.rename(os.path.join(temporary, name), os.path.join(target, name))
        else:
            files.rename(temporary, target)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(Exception):
            files.remove_folder(temporary)


def copy_files(patterns: Iterable[str], folder: str) -> None:
    """Copies files into a folder, in the order of their globs. None is ever there in part.

    Args:
        patterns: the globs of the files; one without a match adds none.
        folder: the folder, which exists.

    Raises:
        InputError: a copy cannot be written.
    """
    for pattern in patterns:
        for path in files.matching(pattern):
            copy = os.path.join(folder, os.path.basename(path))
            with files.open_file(path, "rb") as source, replacing(copy, "wb") as target:
                shutil.copyfileobj(source, target)


def append_line(path: str, line: str) -> None:
    """Appends a line to a file by replacing it, so that the file never has half a line.

    Args:
        path: the file, local or remote; it is created if it does not exist.
        line: the line, without "\\n".

    Raises:
        InputError: the file cannot be read or written.
    """
    content = b""
    if files.exists(path):
        with files.open_file(path, "rb") as file:
            content = file.read()
    with replacing(path, "wb") as file:
        file.write(content + line.encode() + b"\n")


def markdown_table(
    heads: Iterable[str], rows: Iterable[Iterable[object]], rule: str = "---"
) -> str:
    """Returns a Markdown table.

    Args:
        heads: the heads of the columns.
        rows: the cells of each row.
        rule: the rule below the heads after the first one; "--:" aligns these columns to the right,
            as numbers.
    """
    heads = list(heads)
    rules = ["---"] + [rule] * (len(heads) - 1)
    lines = []
    for row in (heads, rules, *rows):
        cells = [str(cell).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def find_remedy(error: OSError) -> str | None:
    """Returns what the user can do about an error of writing, or None if that is unknown.

    Args:
        error: the error, whose `errno` decides.
    """
    return _REMEDIES.get(error.errno)


def _cannot_write(path: str, error: OSError) -> InputError:
    remedy = find_remedy(error) or "check that its folder exists and is writable"
    return InputError(f"{path}: cannot be written ({error.strerror or error}); {remedy}")


# The temporary paths of this process. An earlier process may have had the same number.
_temporary_paths: set[str] = set()


def temporary_name(folder: str, name: str) -> str:
    """Returns the temporary path in `folder` of an output with the final name `name`.

    Args:
        folder: the folder of the output.
        name: the final name of the file or folder, without its folder.
    """
    path = os.path.join(folder, f".{name}.tmp-{os.getpid()}")
    _temporary_paths.add(path)
    return path


def remove_left(folder: str, pattern: str) -> None:
    """Deletes temporary files and folders that killed processes left in a local folder.

    Nothing is deleted in a remote folder, which processes of other machines may use.

    Args:
        folder: the folder.
        pattern: a glob of the final names.
    """
    if files.is_remote(folder):
        return
    glob = os.path.join(local_glob.escape(folder), f".{pattern}.tmp-*")
    for path in local_glob.glob(glob):
        match = _TEMPORARY.fullmatch(os.path.basename(path))
        if not match or path in _temporary_paths or _other_process_runs(int(match[1])):
            continue
        errors.warn("%s: deleted, since a killed run left it", path)
        with contextlib.suppress(OSError):
            if files.is_folder(path):
                files.remove_folder(path)
            else:
                files.remove(path)


def _temporary(target: str, removes_left: bool = True) -> str:
    """Returns a temporary path in the folder of `target`.

    With `removes_left` it deletes the temporary files that killed processes left for the target.
    """
    folder, name = os.path.split(target)
    if removes_left:
        remove_left(folder, local_glob.escape(name))
    return temporary_name(folder, name)


def _other_process_runs(process: int) -> bool:
    """Returns whether another process than this one runs under a number."""
    return process != os.getpid() and operating_system.is_running(process)

"""Opens, lists and replaces local and remote files.

Local paths need only plain Python. For paths with a scheme (gs://, hdfs://, ...) the functions import and use
tf.io.gfile.

An output appears under its name when it is complete. Until then it is a file beside it whose name begins with a dot,
which no glob of inputs matches, and ends with the id of the process. Outputs that are no regular files (devices, FIFOs,
the descriptors in /dev/fd) are written directly, and a symbolic link stays: the file that it names is replaced.
"""

import contextlib
import errno
import fnmatch
import glob as local_glob
import io
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from official_bert import waiting
from official_bert.errors import InputError

_FIFO_LIMIT_SECS = 60.0  # for the process at the other end to open it
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room or name another path"),
    errno.EPIPE: "keep the process that reads it running",
}
_SAMPLE_BYTES = 1 << 16
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_NO_TEXT = re.compile("[\0-\x08\x0e-\x1f\x7f\ufffd]")  # U+FFFD stands for bytes that are not UTF-8
_TEMPORARY = re.compile(r"\..+\.tmp-(\d+)")


def is_remote(path: str) -> bool:
    """Tells whether `path` has a scheme, which names a remote file system."""
    return "://" in os.fspath(path)


def check_name(path: str):
    """Checks that TensorFlow, logs and JSON can hold a name.

    Raises:
        InputError: the name is not UTF-8, or it contains a zero byte.
    """
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!a}: the name is not UTF-8; rename the file or folder") from None
    if "\0" in name:
        raise InputError(f"{name!a}: the name contains a zero byte; correct it")


def open_file(path: str, mode: str = "r"):
    """Opens a file; text is UTF-8 and only "\\n" ends a line, whatever the locale is.

    A FIFO is opened when another process has opened its other end.

    Raises:
        InputError: a file to read does not exist or cannot be read, the path is a folder, its name is not UTF-8, or
            nobody opens the other end of a FIFO within a minute.
    """
    check_name(path)
    if is_remote(path):
        return _open_remote(path, mode)
    try:
        return _open_local(path, mode)
    except TimeoutError:
        other = "writes to" if "r" in mode else "reads from"
        raise InputError(f"{path}: is a FIFO that no process {other}; start one") from None
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


def read_lines(path: str, errors: Literal["ignore", "replace"] = "ignore") -> Iterator[str]:
    """Yields the lines of a text file without "\\n".

    Args:
        path: the file.
        errors: the treatment of bytes that are not UTF-8: "ignore" leaves them out, as the original does, and "replace"
            makes them U+FFFD. A warning counts the lines with such bytes.

    Raises:
        InputError: the file cannot be read, is UTF-16, compressed or binary, or ends its lines with "\\r" alone.
    """
    num_damaged = 0
    with open_file(path, "rb") as file:
        for line in _checked_lines(path, file):
            line = line.removesuffix(b"\n")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                num_damaged += 1
                yield line.decode("utf-8", errors)
    if num_damaged:
        done = "left out" if errors == "ignore" else "replaced"
        _warn("%s: %s bytes that are not UTF-8 in %d lines", path, done, num_damaged)


def _checked_lines(path: str, file) -> Iterator[bytes]:
    """Yields the lines of a binary file, once its first 64 KiB look like lines of UTF-8 text."""
    start = file.read(_SAMPLE_BYTES)
    for beginning, name in _COMPRESSED.items():
        if start.startswith(beginning):
            raise InputError(f"{path}: is compressed with {name}; decompress it")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or start[:2].count(0) == 1:
        raise InputError(f"{path}: is UTF-16; save it as UTF-8")
    num_strange = len(_NO_TEXT.findall(start.decode("utf-8", "replace")))
    if num_strange > 16 and num_strange > 0.3 * len(start):
        raise InputError(f"{path}: is binary, or text in another encoding than UTF-8; save it as UTF-8 text")
    start += file.readline()
    if b"\r" in start[:-1] and b"\n" not in start:
        raise InputError(f'{path}: ends its lines with "\\r" alone; save it with "\\n" or "\\r\\n"')
    yield from itertools.chain(io.BytesIO(start), file)


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
    check_name(path)
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
        InputError: a pattern matches no file or one whose name is not UTF-8, or there is no pattern.
    """
    found = []
    for pattern in patterns:
        names = matching(pattern)
        if not names:
            raise InputError(f"--{flag}: no file matches {pattern!r}; check the path or the glob")
        for name in names:
            check_name(name)
        found += names
    if not found:
        raise InputError(f"--{flag}: names no file")
    return found


def keep_apart(outputs: Iterable[str], inputs: Mapping[str, Iterable[str | None]]):
    """Refuses outputs that would replace an input, another output, or become an input of the next run.

    Scripts call it before they read anything. Links are followed. Devices and FIFOs are no regular files, and may be
    named twice.

    Args:
        outputs: the files to be written.
        inputs: the names and globs of the files to be read, by the flag that names them; None for a flag that was not
            given.

    Raises:
        InputError: an output is an input or matches the glob of one, or two outputs are the same file.
    """
    places = [_place(output) for output in outputs]
    for output, place in zip(outputs, places, strict=True):
        if places.count(place) > 1 and not _is_special(output):
            raise InputError(f"{output}: is an output twice; give each output a file of its own")
        for flag, patterns in inputs.items():
            for pattern in filter(None, patterns):
                if any(_is_same(name, output) for name in (pattern, *matching(pattern))):
                    if not _is_special(output):
                        raise InputError(
                            f"{output}: is an input of this run, too (--{flag}), and would be overwritten; name "
                            "another output"
                        )
                elif _would_match(pattern, output) or _would_match(pattern, place):
                    raise InputError(
                        f"{output}: --{flag}={pattern} matches it, so that the next run would read it; name "
                        "another output, or a narrower glob"
                    )


def _place(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def _is_same(path: str, other: str) -> bool:
    if is_remote(path) or is_remote(other):
        return path == other
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _would_match(pattern: str, path: str) -> bool:
    """Tells whether a glob would match a file that need not exist."""
    folder, last = os.path.split(pattern)
    if not local_glob.has_magic(pattern) or not fnmatch.fnmatchcase(os.path.basename(path), last):
        return False
    if os.path.basename(path).startswith(".") and not last.startswith("."):
        return False
    own = _place(os.path.dirname(path))
    return any(_place(found) == own for found in ([folder] if folder == "" else matching(folder)))


@contextlib.contextmanager
def replacing(path: str, mode: str = "w"):
    """Opens a temporary file beside `path`; on success it is renamed to `path`, on any failure it is deleted.

    A file that a killed run left is deleted, too. A symbolic link stays: the file that it names is replaced. What is no
    regular file is written directly.

    Raises:
        InputError: the path is empty or a folder, it cannot be written to, or the disk is full.
    """
    if not path:
        raise InputError("the name of a file to be written is empty; give one")
    if exists(path) and is_folder(path):  # of a remote path, exists() also tells that its scheme is unknown
        raise InputError(f"{path}: cannot be written, it is a folder; name a file")
    target = _place(path)
    temporary = None if _is_special(path) else _temporary(target)
    try:
        if temporary and os.path.islink(target):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        file = open_file(temporary or path, mode)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with file:
            yield file
        if temporary:
            _rename(temporary, target)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(Exception):
                remove(temporary)
        if isinstance(error, OSError) and remedy_of(error):
            raise _cannot_write(path, error) from error
        raise


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder; on success its files are moved to the folder `path`, on any failure it is deleted.

    A folder that does not exist yet is created with all its files at once.

    Raises:
        InputError: the folder cannot be created, or the disk is full.
    """
    target = _place(path.rstrip("/") or path)
    make_folder(os.path.dirname(target))
    if not is_remote(path) and os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path}: no folder can be made there (File exists); name another path")
    temporary = _temporary(target)
    try:
        make_folder(temporary)
        yield temporary
        if exists(target):
            # A checkpoint exists if its index does, so that comes last.
            for name in sorted(_listed(temporary), key=lambda name: name.endswith(".index")):
                _rename(os.path.join(temporary, name), os.path.join(target, name))
        else:
            _rename(temporary, target)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(Exception):
            _remove_all(temporary)


def append_line(path: str, line: str):
    """Appends a line to a file, which never has half of it: the file is replaced by a longer one.

    Raises:
        InputError: the file cannot be written, or the disk is full.
    """
    before = b""
    if exists(path):
        with open_file(path, "rb") as file:
            before = file.read()
    if before and not before.endswith(b"\n"):  # an older version may have been killed here
        before += b"\n"
    with replacing(path, "wb") as file:
        file.write(before + line.encode() + b"\n")


def remedy_of(error: OSError) -> str | None:
    """Returns what helps when a file that was opened cannot be written: room on a full disk, for instance."""
    return _REMEDIES.get(error.errno)


def _cannot_write(path: str, error: OSError) -> InputError:
    remedy = remedy_of(error) or "check that its folder exists and is writable"
    return InputError(f"{path}: cannot be written ({error.strerror or error}); {remedy}")


def _open_local(path: str, mode: str):
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    descriptor = _own_descriptor(path)
    if descriptor is not None:  # opened by its name, a file that the shell appends to would be truncated
        return open(os.dup(descriptor), mode, **text)
    if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        return waiting.result_of(
            lambda: open(path, mode, **text), f"the other end of {path}", _FIFO_LIMIT_SECS
        )
    return open(path, mode, **text)


def _open_remote(path: str, mode: str):
    file = _gfile().GFile(path, mode)
    file.writelines = lambda lines: [file.write(line) for line in lines]  # which it lacks
    return file


def _own_descriptor(path: str) -> int | None:
    """Returns the number of the open file that /dev/stdout, /dev/fd/1 or /proc/self/fd/1 names."""
    for _ in range(4):  # /dev/stdout is a link to /proc/self/fd/1, which is one itself
        folder, name = os.path.split(os.fspath(path))
        if os.path.realpath(folder) == f"/proc/{os.getpid()}/fd" and name.isdecimal():
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _is_special(path: str) -> bool:
    """Tells whether a path is a device, a FIFO, a socket or an open file, which is written directly."""
    if is_remote(path):
        return False
    return _own_descriptor(path) is not None or (os.path.exists(path) and not os.path.isfile(path))


def _warn(sentence: str, *values):
    from absl import logging  # late: it loads absl.flags, which light uses of the package do without

    logging.warning(sentence, *values)


def _temporary(target: str) -> str:
    """Returns a name beside `target` for this process, and deletes what killed processes left under such names."""
    folder, name = os.path.split(target)
    if not is_remote(target):
        for left in local_glob.glob(
            os.path.join(local_glob.escape(folder), f".{local_glob.escape(name)}.tmp-*")
        ):
            found = _TEMPORARY.fullmatch(os.path.basename(left))
            if found and not _is_running(int(found[1])):
                _warn("%s: deleted, since a run that was killed left it", left)
                with contextlib.suppress(OSError):
                    _remove_all(left)
    return os.path.join(folder, f".{name}.tmp-{os.getpid()}")


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return process != os.getpid()


def _listed(folder: str) -> list[str]:
    return _gfile().listdir(folder) if is_remote(folder) else os.listdir(folder)


def _rename(source: str, target: str):
    _gfile().rename(source, target, overwrite=True) if is_remote(source) else os.replace(source, target)


def _remove_all(path: str):
    if is_remote(path):
        _gfile().rmtree(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def _gfile():
    import tensorflow as tf

    return tf.io.gfile

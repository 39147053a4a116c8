"""Reads .zip files; whatever a damaged one makes zipfile raise becomes one sentence."""

import contextlib
import zipfile
from collections.abc import Callable, Iterator

from official_bert.io import files
from official_bert.io.errors import InputError, brief

_ENCRYPTED = 1  # the bit of zipfile.ZipInfo.flag_bits


def read_entries(path: str, is_wanted: Callable[[str], bool], remedy: str) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the wanted entries of a .zip file, sorted by name.

    Raises:
        InputError: the file is no .zip file, or is damaged; the sentence ends with the remedy.
    """
    if files.is_special(path) and not files.is_folder(path):
        raise InputError(f"{path}: is a device or a pipe, and a .zip file is read from its end; name a regular file")
    with files.open_file(path, "rb") as file:
        with _naming_damage(path, remedy):
            archive = zipfile.ZipFile(file)
            entries = sorted((entry for entry in archive.infolist() if is_wanted(entry.filename)), key=_name)
            _check(entries, files.size(path))
        for entry in entries:
            with _naming_damage(path, remedy):
                content = archive.read(entry)
            yield entry.filename, content


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename


def _check(entries: list[zipfile.ZipInfo], size: int):
    """Raises BadZipFile for entries of which one cannot be read, or is not the only one of its name."""
    for number, entry in enumerate(entries):
        if number and entry.filename == entries[number - 1].filename:
            raise zipfile.BadZipFile(f"it has two entries {entry.filename!r}")
        if entry.flag_bits & _ENCRYPTED:
            raise zipfile.BadZipFile(f"{entry.filename!r} is encrypted")
        if entry.compress_size > size:
            raise zipfile.BadZipFile(f"{entry.filename!r} claims more bytes than the file has")


@contextlib.contextmanager
def _naming_damage(path: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zipfile fails in a dozen ways: struct.error, zlib.error, NotImplementedError, ...
        raise InputError(f"{path}: cannot be read as a .zip file ({brief(error)}); {remedy}") from error

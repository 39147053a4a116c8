"""Reads .zip files. Whatever zipfile raises for a damaged one becomes one sentence."""

import contextlib
import zipfile
from collections.abc import Callable, Iterator, Mapping

from official_bert.io import files
from official_bert.io.errors import InputError, brief

_ENCRYPTED = 1  # the bit of zipfile.ZipInfo.flag_bits
_PART_BYTES = 1 << 20


class DamagedArchive(InputError):
    """A file is not a .zip file, or is damaged; `reason` says why in a few words."""

    def __init__(self, path: str, reason: str, remedy: str):
        super().__init__(f"{path}: cannot be read as a .zip file ({reason}); {remedy}")
        self.reason = reason


def read_entries(
    path: str, is_wanted: Callable[[str], bool], remedy: str
) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the wanted entries of a .zip file, sorted by name.

    Args:
        path: the .zip file, local or remote.
        is_wanted: returns whether the entry of a name is read.
        remedy: what the user can do about a damaged file; it ends the error message.

    Raises:
        DamagedArchive: the file is not a .zip file, or is damaged.
    """
    with _opened(path, is_wanted, remedy) as (archive, entries):
        for entry in entries:
            with _naming_damage(path, remedy):
                content = archive.read(entry)
            yield entry.filename, content


def entry_names(path: str, remedy: str) -> list[str]:
    """Returns the names of the entries of a .zip file, sorted.

    Args:
        path: the .zip file, local or remote.
        remedy: what the user can do about a damaged file; it ends the error message.

    Raises:
        DamagedArchive: the file is not a .zip file, or is damaged.
    """
    with _opened(path, lambda name: True, remedy) as (_, entries):
        return [entry.filename for entry in entries]


def copy_entries(path: str, targets: Mapping[str, str], remedy: str) -> None:
    """Copies entries of a .zip file to other paths.

    Args:
        path: the .zip file, local or remote.
        targets: the path of the copy by the name of each wanted entry.
        remedy: what the user can do about a damaged file; it ends the error message.

    Raises:
        DamagedArchive: the file is not a .zip file, or is damaged.
    """
    with _opened(path, targets.__contains__, remedy) as (archive, entries):
        for entry in entries:
            with files.open_file(targets[entry.filename], "wb") as copy:
                for part in _parts(archive, entry, path, remedy):
                    copy.write(part)


@contextlib.contextmanager
def _opened(
    path: str, is_wanted: Callable[[str], bool], remedy: str
) -> Iterator[tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]]:
    """Yields a .zip file and its wanted entries, sorted by name."""
    if files.is_special(path) and not files.is_folder(path):
        raise InputError(
            f"{path}: is a device or a pipe, but a .zip file is read from its end; name a regular "
            "file"
        )
    with files.open_file(path, "rb") as file:
        with _naming_damage(path, remedy):
            archive = zipfile.ZipFile(file)
            entries = [entry for entry in archive.infolist() if is_wanted(entry.filename)]
            entries.sort(key=lambda entry: entry.filename)
            _check(entries, files.size(path))
        yield archive, entries


def _parts(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, remedy: str
) -> Iterator[bytes]:
    """Yields the content of an entry in parts, so that large weights do not fill the memory."""
    with _naming_damage(path, remedy):
        source = archive.open(entry)
    while True:
        with _naming_damage(path, remedy):
            part = source.read(_PART_BYTES)
        if not part:
            return
        yield part


def _check(entries: list[zipfile.ZipInfo], size: int):
    """Raises BadZipFile if an entry cannot be read, or if two entries have the same name.

    The entries are sorted by name, and the file has `size` bytes.
    """
    previous_name = None
    for entry in entries:
        if entry.filename == previous_name:
            raise zipfile.BadZipFile(f"it has two entries {entry.filename!r}")
        previous_name = entry.filename
        if entry.flag_bits & _ENCRYPTED:
            raise zipfile.BadZipFile(f"{entry.filename!r} is encrypted")
        if entry.compress_size > size:
            raise zipfile.BadZipFile(f"{entry.filename!r} claims more bytes than the file has")


@contextlib.contextmanager
def _naming_damage(path: str, remedy: str) -> Iterator[None]:
    """Turns the errors of zipfile into DamagedArchive."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    # Zipfile fails in a dozen ways: struct.error, zlib.error, NotImplementedError, ...
    except Exception as error:
        raise DamagedArchive(path, brief(error), remedy) from error

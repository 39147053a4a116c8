"""Writes and reads TFRecord files without TensorFlow.

A record consists of its length, a checksum of the length, its bytes and a checksum of the bytes. Data creation writes
its files with this module. The checks of input files read with it, because they name the number of a bad record.
"""

import contextlib
import functools
import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np

from official_bert.data.records.examples import MalformedExample, decode_example, encode_examples
from official_bert.io import files, writing
from official_bert.io.errors import InputError

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_LARGEST_RECORD_BYTES = 1 << 30  # a larger length must be damaged
COMPRESSED_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b\x08"


def frame(data: bytes) -> bytes:
    """Returns a record as TFRecord files hold it: with its length and checksums."""
    return b"".join((_header(len(data)), data, _checksum(data)))


@functools.lru_cache
def _header(num_bytes: int) -> bytes:
    """Returns what stands before the bytes of a record: their number and its checksum."""
    length = _LENGTH.pack(num_bytes)
    return length + _checksum(length)


def frame_examples(features: Mapping[str, np.ndarray]) -> bytes:
    """Returns the records of a batch of examples, framed, one after the other.

    Args:
        features: name -> integer or float[batch, length].
    """
    return b"".join(map(frame, encode_examples(features)))


class ExampleFiles:
    """TFRecord files that receive examples in turn: example k goes into file k mod n.

    `open_example_files` creates it.

    Attributes:
        num_written: the number of examples written so far.
    """

    def __init__(self, opened: Sequence[BinaryIO]):
        self._files = opened
        self.num_written = 0

    def write(self, features: Mapping[str, np.ndarray]):
        """Appends one example for each row.

        Args:
            features: name -> integer or float[batch, length].
        """
        framed = [frame(example) for example in encode_examples(features)]
        num_files = len(self._files)
        for k, file in enumerate(self._files):
            file.write(b"".join(framed[(k - self.num_written) % num_files :: num_files]))
        self.num_written += len(framed)


@contextlib.contextmanager
def open_example_files(paths: Sequence[str]) -> Iterator[ExampleFiles]:
    """Opens TFRecord files for writing, as a context manager.

    The files get their names when the block ends; if it raises an exception, they are deleted. A file whose name ends
    in .gz is compressed.

    Raises:
        InputError: `paths` is empty or names a file twice, or a file cannot be written.
    """
    if not paths:
        raise InputError("--output_file: names no file")
    if len({os.path.normpath(path) for path in paths}) < len(paths):
        raise InputError(f"--output_file: {','.join(paths)} names a file twice; give each file its own name")
    with contextlib.ExitStack() as stack:
        opened = []
        for path in paths:
            file = stack.enter_context(writing.replacing(path, "wb"))
            if path.endswith(COMPRESSED_SUFFIX):  # without name and time, equal records give equal bytes
                file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            opened.append(file)
        yield ExampleFiles(opened)


class _CorruptError(Exception):
    """A record has other bytes than were written, or its file ends within it."""


def read_records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields the number (from 0) and bytes of every record of a file, which is decompressed if it is compressed.

    Raises:
        InputError: the file does not exist, or a record is corrupt; the message names the record and its place.
    """
    with files.open_file(path, "rb") as raw, _decompressed(raw) as file:
        number = offset = 0
        try:
            while header := _read(file, _HEADER.size, may_end=True):
                length, length_checksum = _HEADER.unpack(header)
                if _CHECKSUM.pack(length_checksum) != _checksum(header[:8]):
                    raise _CorruptError("its length does not fit its checksum")
                if length > _LARGEST_RECORD_BYTES:
                    raise _CorruptError(f"its length is {length} bytes")
                data = _read(file, length)
                if _read(file, _CHECKSUM.size) != _checksum(data):
                    raise _CorruptError("its bytes do not fit their checksum")
                yield number, data
                number, offset = number + 1, offset + _HEADER.size + length + _CHECKSUM.size
        except _CorruptError as error:
            of_what = " of the decompressed file" if is_compressed(path) else ""
            raise _damaged(path, number, f"{error} (it begins at byte {offset}{of_what})") from error


def read_examples(path: str) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the number (from 0) and features of every example: name -> int64, float32 or object[length].

    Raises:
        InputError: the file does not exist, or a record is corrupt or not a tf.Example; the message names the record.
    """
    for number, data in read_records(path):
        try:
            yield number, decode_example(data)
        except MalformedExample as error:
            raise _damaged(path, number, f"it is no tf.Example: {error}") from error


def _checksum(data: bytes) -> bytes:
    """Returns the masked (rotated and offset) CRC-32C that TFRecord files store, little-endian."""
    crc = google_crc32c.value(data)
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def is_compressed(path: str) -> bool:
    """Tells whether a record file is compressed with gzip, by its first bytes.

    Raises:
        InputError: the file does not exist.
    """
    with files.open_file(path, "rb") as file:
        return _begins_gzip(file.read(_HEADER.size))


def _begins_gzip(start: bytes) -> bool:
    """Tells whether a file that begins so is gzip; a record of half a megabyte can begin so, but has a checksum."""
    return start.startswith(_GZIP_MAGIC) and start[8:] != _checksum(start[:8])


def _decompressed(file: BinaryIO):
    if isinstance(file, io.BufferedReader):
        start = file.peek(_HEADER.size)[: _HEADER.size]
    else:  # a remote file
        start = file.read(_HEADER.size)
        file.seek(0)
    return gzip.open(file) if _begins_gzip(start) else contextlib.nullcontext(file)


def _read(file: BinaryIO, size: int, may_end: bool = False) -> bytes:
    """Reads `size` bytes; returns none at the end of the file if `may_end` allows it."""
    try:
        data = file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _CorruptError(str(error)) from error
    if len(data) < size and (data or not may_end):
        raise _CorruptError("the file ends within it")
    return data


def _damaged(path: str, number: int, reason: str) -> InputError:
    return InputError(
        f"{path}: record {number} (from 0) is damaged: {reason}; make the file anew with create_pretraining_data.py"
    )

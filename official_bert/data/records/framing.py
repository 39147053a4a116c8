"""TFRecord files without TensorFlow: writing examples in bulk, reading them back with their number.

A record is its length, a checksum of the length, its bytes and a checksum of the bytes. Worker processes write with
this module; tests and error messages read with it.
"""

import contextlib
import gzip
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np

from official_bert import files
from official_bert.data.records.examples import MalformedExample, decode_example, encode_examples
from official_bert.errors import InputError

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_LARGEST_RECORD_BYTES = 1 << 30  # a longer length is a damaged one


def frame(data: bytes) -> bytes:
    """A record as it stands in a TFRecord file."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _checksum(length), data, _checksum(data)))


class ExampleFiles:
    """TFRecord files that take examples in turn: example k goes into file k mod n.

    Made by `open_example_files`.
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
    """Opens TFRecord files for writing; they take their names when the block ends well, and vanish otherwise.

    A name that ends in .gz is compressed.

    Raises:
        InputError: no file, one that cannot be written, or one that is named twice.
    """
    if not paths:
        raise InputError("--output_file: names no file")
    if len({os.path.normpath(path) for path in paths}) < len(paths):
        raise InputError(f"--output_file: {','.join(paths)} names a file twice; give each file its own name")
    with contextlib.ExitStack() as stack:
        opened = []
        for path in paths:
            file = stack.enter_context(files.replacing(path, "wb"))
            if path.endswith(".gz"):  # without name and time, the same records are the same bytes
                file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            opened.append(file)
        yield ExampleFiles(opened)


def read_records(path: str) -> Iterator[tuple[int, bytes]]:
    """Numbers (from 0) and bytes of the records of a file; a name that ends in .gz is decompressed.

    Raises:
        InputError: no such file, or a damaged record, which is named.
    """
    with files.open_file(path, "rb") as raw, _decompressed(path, raw) as file:
        number = 0
        while header := _read(file, _HEADER.size, path, number, may_end=True):
            length, length_checksum = _HEADER.unpack(header)
            if _CHECKSUM.pack(length_checksum) != _checksum(header[:8]) or length > _LARGEST_RECORD_BYTES:
                raise _damaged(path, number, "its length does not fit its checksum")
            data = _read(file, length, path, number)
            if _read(file, _CHECKSUM.size, path, number) != _checksum(data):
                raise _damaged(path, number, "its bytes do not fit their checksum")
            yield number, data
            number += 1


def read_examples(path: str) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Numbers (from 0) and features of the examples of a file: name -> int64, float32 or object[length].

    Raises:
        InputError: no such file, or a damaged record or one that is no tf.Example, which is named.
    """
    for number, data in read_records(path):
        try:
            yield number, decode_example(data)
        except MalformedExample as error:
            raise _damaged(path, number, f"it is no tf.Example: {error}") from error


def _checksum(data: bytes) -> bytes:
    """Masked CRC-32C, little-endian: checksums stored beside their data are rotated and offset."""
    crc = google_crc32c.value(data)
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _decompressed(path: str, file: BinaryIO):
    return gzip.open(file) if path.endswith(".gz") else contextlib.nullcontext(file)


def _read(file: BinaryIO, size: int, path: str, number: int, may_end: bool = False) -> bytes:
    """`size` bytes, or none at the end of the file where it may end."""
    try:
        data = file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, number, str(error)) from error
    if len(data) < size and (data or not may_end):
        raise _damaged(path, number, "the file ends within it")
    return data


def _damaged(path: str, number: int, reason: str) -> InputError:
    return InputError(f"{path}: record {number} (from 0) is damaged: {reason}; make the file anew")

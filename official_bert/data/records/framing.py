"""Writes TFRecord files of tf.Example messages, and reads them record by record.

Only `read_examples` loads TensorFlow. An Example is a protobuf map from feature name to a list. Its
keys are sorted and its lists are packed here, so that its bytes equal those of TensorFlow's
`SerializeToString(deterministic=True)`.
"""

import contextlib
import functools
import gzip
import io
import itertools
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import google_crc32c
import numpy as np

from official_bert.io import files, writing
from official_bert.io.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_LARGEST_RECORD_BYTES = 1 << 30  # A larger length must be corrupt.
COMPRESSED_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b\x08"

# Wire format: a field is a varint (number << 3 | type) and its content. The content of type 2 is a
# length as a varint, and the bytes.
_BYTES = 2
# Field 1: Example.features, Features.feature, a map entry's key, a list's values.
_FIRST = bytes([1 << 3 | _BYTES])
_SECOND = bytes([2 << 3 | _BYTES])  # Field 2: a map entry's value; Feature.float_list.
_THIRD = bytes([3 << 3 | _BYTES])  # Field 3: Feature.int64_list.
_CACHED_HEADS = 1 << 12  # of each kind; few lengths occur
_DTYPES = {
    "bytes_list": object,
    "float_list": np.float32,
    "int64_list": np.int64,
}


def frame(data: bytes) -> bytes:
    """Returns a record as a TFRecord file contains it: with its length and checksums.

    Args:
        data: the bytes of the record.
    """
    parts = (
        _header(len(data)),
        data,
        _checksum(data),
    )
    return b"".join(parts)


@functools.lru_cache
def _header(num_bytes: int) -> bytes:
    length = _LENGTH.pack(num_bytes)
    return length + _checksum(length)


class ExampleFiles:
    """TFRecord files that receive examples in turn: example k goes into file k mod n.

    `open_example_files` opens them.
    """

    def __init__(self, opened_files: Sequence[BinaryIO]):
        self._files = opened_files
        self.num_written = 0

    def write(self, features: Mapping[str, np.ndarray]) -> None:
        """Appends one example for each row.

        Args:
            features: name -> integer or float[batch, length].
        """
        examples = encode_examples(features)
        framed = [frame(example) for example in examples]
        num_files = len(self._files)
        for k, file in enumerate(self._files):
            file_records = framed[(k - self.num_written) % num_files :: num_files]
            file.write(b"".join(file_records))
        self.num_written += len(framed)


@contextlib.contextmanager
def open_example_files(paths: Sequence[str]) -> Iterator[ExampleFiles]:
    """Opens TFRecord files for writing, as a context manager.

    The files get their names when the block ends; if it raises an exception, they are deleted.

    Args:
        paths: the files; one whose name ends in .gz is compressed.

    Raises:
        InputError: there is no file, or one is named twice.
    """
    if not paths:
        raise InputError("--output_file: names no file")
    distinct_paths = {os.path.normpath(path) for path in paths}
    if len(distinct_paths) < len(paths):
        raise InputError(
            f"--output_file: {','.join(paths)} names a file twice; give each file its own name"
        )
    with contextlib.ExitStack() as stack:
        opened_files = []
        for path in paths:
            file = stack.enter_context(writing.replacing(path, "wb"))
            if path.endswith(COMPRESSED_SUFFIX):
                # Without name and time, equal records give equal bytes.
                gzip_file = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
                file = stack.enter_context(gzip_file)
            opened_files.append(file)
        yield ExampleFiles(opened_files)


class _CorruptError(Exception):
    """A record has other bytes than were written, or its file ends within it."""


def read_records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields the number (from 0) and the bytes of every record of a plain or gzip file.

    Args:
        path: the file, local or remote.

    Raises:
        InputError: the file cannot be read, or a record is corrupt; the message names it.
    """
    with (
        files.open_file(path, "rb") as raw,
        _decompressed(raw) as file,
    ):
        number = 0
        offset = 0
        try:
            while header := _read(file, _HEADER.size, may_end=True):
                data = _read_data(file, header)
                yield number, data
                number += 1
                offset += len(header) + len(data) + _CHECKSUM.size
        except _CorruptError as error:
            file_note = ""
            if is_compressed(path):
                file_note = " of the decompressed file"
            reason = f"{error} (it begins at byte {offset}{file_note})"
            raise _corrupt(path, number, reason) from error


def _read_data(file: BinaryIO | io.BufferedIOBase, header: bytes) -> bytes:
    """Reads the record after its header, which has its length, and validates both."""
    length, _ = _HEADER.unpack(header)
    if not _has_valid_length(header):
        raise _CorruptError("its length does not fit its checksum")
    if length > _LARGEST_RECORD_BYTES:
        raise _CorruptError(f"its length is {length} bytes")
    data = _read(file, length)
    if _read(file, _CHECKSUM.size) != _checksum(data):
        raise _CorruptError("its bytes do not fit their checksum")
    return data


def read_examples(path: str) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the number (from 0) and the features of every example.

    The features are name -> int64, float32 or object[length].

    Args:
        path: the record file, plain or gzip.

    Raises:
        InputError: the file cannot be read, or a record is corrupt or not an example.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    for number, data in read_records(path):
        try:
            example = tf.train.Example.FromString(data)
        except DecodeError as error:
            raise _corrupt(path, number, f"it is no tf.Example: {error}") from error
        values = {}
        for name, feature in example.features.feature.items():
            values[name] = _read_values(feature)
        yield number, values


def _read_values(feature: "tf.train.Feature") -> np.ndarray:
    """Returns the values of a feature; none if it is not set."""
    kind = feature.WhichOneof("kind") or "int64_list"
    values = getattr(feature, kind).value
    return np.array(values, _DTYPES[kind])


def _checksum(data: bytes) -> bytes:
    """Returns the masked (rotated and offset) CRC-32C that TFRecord files store, little-endian."""
    crc = google_crc32c.value(data)
    rotated = crc >> 15 | crc << 17
    return _CHECKSUM.pack((rotated + 0xA282EAD8) & 0xFFFFFFFF)


def is_compressed(path: str) -> bool:
    """Returns whether a record file is compressed with gzip, by its first bytes.

    Args:
        path: the file, local or remote.

    Raises:
        InputError: the file cannot be read.
    """
    with files.open_file(path, "rb") as file:
        return _begins_gzip(file.read(_HEADER.size))


def _begins_gzip(start: bytes) -> bool:
    """Returns whether the first bytes of a file, as many as a header has, are those of gzip.

    A record of half a megabyte begins like gzip, too, but has the checksum of its length.
    """
    return start.startswith(_GZIP_MAGIC) and not _has_valid_length(start)


def _has_valid_length(header: bytes) -> bool:
    """Returns whether a header has the checksum of its length."""
    length = header[: _LENGTH.size]
    checksum = header[_LENGTH.size :]
    return checksum == _checksum(length)


def _decompressed(
    file: BinaryIO,
) -> contextlib.AbstractContextManager[BinaryIO | io.BufferedIOBase]:
    if isinstance(file, io.BufferedReader):
        start = file.peek(_HEADER.size)
        start = start[: _HEADER.size]
    else:  # The file is remote.
        start = file.read(_HEADER.size)
        file.seek(0)
    if _begins_gzip(start):
        return gzip.open(file)
    return contextlib.nullcontext(file)


def _read(
    file: BinaryIO | io.BufferedIOBase,
    size: int,
    may_end: bool = False,
) -> bytes:
    """Reads `size` bytes, or none at the end of the file if `may_end`."""
    try:
        data = file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _CorruptError(str(error)) from error
    if len(data) < size and (data or not may_end):
        raise _CorruptError("the file ends within it")
    return data


def _corrupt(path: str, number: int, reason: str) -> InputError:
    return InputError(
        f"{path}: record {number} (from 0) is corrupt: {reason}; make the file again "
        "with create_pretraining_data.py"
    )


def encode_examples(
    features: Mapping[str, np.ndarray],
) -> list[bytes]:
    """Serialises one Example for each row.

    Args:
        features: name -> integer or float[batch, length].

    Returns:
        The bytes of the examples; integers become int64 lists, and floats become float32 lists.
    """
    # The bytes of each feature, or of several, in each row.
    columns: list[list[bytes]] = []
    # Neighbouring features whose rows all have one length: their entries, bytes[B, width].
    fixed: list[np.ndarray] = []
    for name in sorted(features):
        values = features[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        key = _length_prefixed(name.encode())
        kind = _SECOND if is_float else _THIRD
        if is_float or _fit_into_bytes(values):
            dtype = "<f4" if is_float else np.uint8
            data = np.ascontiguousarray(values, dtype)
            data = data.view(np.uint8)
            head_bytes = _entry_head(key, kind, data.shape[1])
            head = np.frombuffer(head_bytes, np.uint8)
            heads = np.broadcast_to(head, (len(values), len(head)))
            fixed += [heads, data]
        else:
            columns += _join_columns(fixed)
            fixed = []
            rows = _varint_rows(values)
            column = [_entry_head(key, kind, len(row)) + row for row in rows]
            columns.append(column)
    columns += _join_columns(fixed)
    examples = []
    for entries in zip(*columns, strict=True):
        num_bytes = sum(map(len, entries))
        head_bytes = _example_head(num_bytes)
        example = b"".join((head_bytes, *entries))
        examples.append(example)
    return examples


def _fit_into_bytes(values: np.ndarray) -> bool:
    """Returns whether the varint of each integer is the byte of the same value."""
    lowest = values.min(initial=0)
    highest = values.max(initial=0)
    return bool(lowest >= 0 and highest < 0x80)


def _join_columns(
    parts: list[np.ndarray],
) -> list[list[bytes]]:
    """Returns the rows of neighbouring columns, each uint8[B, width], as one column of bytes.

    Of no columns, none is returned.
    """
    if not parts:
        return []
    table = np.concatenate(parts, axis=1)
    data = table.tobytes()
    width = table.shape[1]
    starts = range(0, len(data), width)
    rows = [data[start : start + width] for start in starts]
    return [rows]


def _length_prefixed(content: bytes) -> bytes:
    """Returns field 1 with this content."""
    return _FIRST + varint(len(content)) + content


@functools.lru_cache(_CACHED_HEADS)
def _example_head(num_bytes: int) -> bytes:
    return _FIRST + varint(num_bytes)


@functools.lru_cache(_CACHED_HEADS)
def _entry_head(key: bytes, kind: bytes, num_bytes: int) -> bytes:
    """Returns the bytes of a map entry before its packed values: tags, lengths and the key."""
    values_head = _FIRST + varint(num_bytes) if num_bytes else b""
    list_size = len(values_head) + num_bytes
    feature_head = kind + varint(list_size) + values_head
    feature_size = len(feature_head) + num_bytes
    entry_head = key + _SECOND + varint(feature_size) + feature_head
    entry_size = len(entry_head) + num_bytes
    return _FIRST + varint(entry_size) + entry_head


def varint(value: int) -> bytes:
    """Encodes a non-negative integer as a protobuf varint.

    Args:
        value: the integer.
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint_rows(values: np.ndarray) -> list[bytes]:
    """Returns the concatenated varints of each row of integers, of which there is one at least."""
    # A negative number has ten bytes.
    signed = values.astype(np.int64, copy=False)
    rest = signed.view(np.uint64).ravel()
    largest = int(rest.max(initial=0))
    if largest < 1 << 32:
        rest = rest.astype(np.uint32)
    num_bytes = np.ones(rest.shape, np.uint8)
    for shift in range(7, largest.bit_length(), 7):
        limit = rest.dtype.type(1 << shift)
        num_bytes += rest >= limit
    ends = np.cumsum(num_bytes, dtype=np.int64)
    data = np.empty(ends[-1], np.uint8)
    offsets = ends - num_bytes
    while len(rest):  # Write one byte of every number at a time.
        has_more = rest > 0x7F
        high_bit = has_more.view(np.uint8) << 7
        low_bits = (rest & 0x7F).astype(np.uint8)
        data[offsets] = low_bits | high_bit
        rest = rest[has_more]
        rest >>= rest.dtype.type(7)
        offsets = offsets[has_more] + 1
    data = data.tobytes()
    row_length = values.shape[1]
    row_ends = ends[row_length - 1 :: row_length]
    bounds = [0, *row_ends.tolist()]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]

"""Writes TFRecord files of tf.Example messages, and reads them record by record.

Nothing but `read_examples` loads TensorFlow. With sorted keys and packed lists, the bytes of an
Example, a protobuf map from feature name to a list, equal those of TensorFlow's
`SerializeToString(deterministic=True)`.
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

from official_bert.io import files, writing
from official_bert.io.errors import InputError

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_LARGEST_RECORD_BYTES = 1 << 30  # a larger length must be corrupt
COMPRESSED_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b\x08"

# Wire format: a field is a varint (number << 3 | type) and its content; for type 2, a length as a
# varint and the bytes.
_BYTES = 2
# Field 1: Example.features, Features.feature, a map entry's key, a list's values.
_FIRST = 1 << 3 | _BYTES
_SECOND = 2 << 3 | _BYTES  # field 2: a map entry's value; Feature.float_list
_THIRD = 3 << 3 | _BYTES  # field 3: Feature.int64_list
_HEADS = 1 << 12  # kept of each kind; few lengths occur
_DTYPES = {"bytes_list": object, "float_list": np.float32, "int64_list": np.int64}


def frame(data: bytes) -> bytes:
    """Returns a record as TFRecord files hold it: with its length and checksums."""
    return b"".join((_header(len(data)), data, _checksum(data)))


@functools.lru_cache
def _header(num_bytes: int) -> bytes:
    length = _LENGTH.pack(num_bytes)
    return length + _checksum(length)


class ExampleFiles:
    """TFRecord files that receive examples in turn: example k goes into file k mod n. See
    `open_example_files`.
    """

    def __init__(self, opened: Sequence[BinaryIO]):
        self._files = opened
        self.num_written = 0

    def write(self, features: Mapping[str, np.ndarray]) -> None:
        """Appends one example for each row of name -> integer or float[batch, length]."""
        framed = [frame(example) for example in encode_examples(features)]
        num_files = len(self._files)
        for k, file in enumerate(self._files):
            file.write(b"".join(framed[(k - self.num_written) % num_files :: num_files]))
        self.num_written += len(framed)


@contextlib.contextmanager
def open_example_files(paths: Sequence[str]) -> Iterator[ExampleFiles]:
    """Opens TFRecord files for writing, gzip if their name ends in .gz, as a context manager.

    The files get their names when the block ends; if it raises an exception, they are deleted.
    """
    if not paths:
        raise InputError("--output_file: names no file")
    if len({os.path.normpath(path) for path in paths}) < len(paths):
        raise InputError(
            f"--output_file: {','.join(paths)} names a file twice; give each file its own name"
        )
    with contextlib.ExitStack() as stack:
        opened = []
        for path in paths:
            file = stack.enter_context(writing.replacing(path, "wb"))
            # Without name and time, equal records give equal bytes.
            if path.endswith(COMPRESSED_SUFFIX):
                file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            opened.append(file)
        yield ExampleFiles(opened)


class _CorruptError(Exception):
    """A record has other bytes than were written, or its file ends within it."""


def read_records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields the number (from 0) and bytes of every record of a plain or gzip file; its errors
    name the record.
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
            file_note = " of the decompressed file" if is_compressed(path) else ""
            raise _corrupt(
                path, number, f"{error} (it begins at byte {offset}{file_note})"
            ) from error


def read_examples(path: str) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the number (from 0) and features of every example: name -> int64, float32 or
    object[length].
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    for number, data in read_records(path):
        try:
            features = tf.train.Example.FromString(data).features.feature
        except DecodeError as error:
            raise _corrupt(path, number, f"it is no tf.Example: {error}") from error
        yield number, {name: _read_values(feature) for name, feature in features.items()}


def _read_values(feature) -> np.ndarray:
    """Returns the values of a tf.train.Feature; none of one that is not set."""
    kind = feature.WhichOneof("kind") or "int64_list"
    return np.array(getattr(feature, kind).value, _DTYPES[kind])


def _checksum(data: bytes) -> bytes:
    """Returns the masked (rotated and offset) CRC-32C that TFRecord files store, little-endian."""
    crc = google_crc32c.value(data)
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def is_compressed(path: str) -> bool:
    """Tells whether a record file is compressed with gzip, by its first bytes."""
    with files.open_file(path, "rb") as file:
        return _begins_gzip(file.read(_HEADER.size))


def _begins_gzip(start: bytes) -> bool:
    """A record of half a megabyte can begin like gzip, but has a checksum."""
    return start.startswith(_GZIP_MAGIC) and start[8:] != _checksum(start[:8])


def _decompressed(
    file: BinaryIO,
) -> contextlib.AbstractContextManager[BinaryIO | io.BufferedIOBase]:
    if isinstance(file, io.BufferedReader):
        start = file.peek(_HEADER.size)[: _HEADER.size]
    else:  # a remote file
        start = file.read(_HEADER.size)
        file.seek(0)
    return gzip.open(file) if _begins_gzip(start) else contextlib.nullcontext(file)


def _read(file: BinaryIO | io.BufferedIOBase, size: int, may_end: bool = False) -> bytes:
    """Reads `size` bytes; returns none at the end of the file if `may_end` allows it."""
    try:
        data = file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _CorruptError(str(error)) from error
    if len(data) < size and (data or not may_end):
        raise _CorruptError("the file ends within it")
    return data


def _corrupt(path: str, number: int, reason: str) -> InputError:
    return InputError(
        f"{path}: record {number} (from 0) is corrupt: {reason}; make the file anew with "
        "create_pretraining_data.py"
    )


def encode_examples(features: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serialises one Example for each row of name -> integer or float[batch, length], as int64
    and float32 lists.
    """
    columns: list[list[bytes]] = []
    # Neighbouring columns whose rows all have one length: their entries, bytes[B, width].
    fixed: list[np.ndarray] = []
    for name in sorted(features):
        values = features[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        key = bytes((_FIRST,)) + varint(len(name.encode())) + name.encode()
        kind = _SECOND if is_float else _THIRD
        if is_float or (values.min(initial=0) >= 0 and values.max(initial=0) < 0x80):
            data = np.ascontiguousarray(values, "<f4" if is_float else np.uint8).view(np.uint8)
            head = np.frombuffer(_entry_head(key, kind, data.shape[1]), np.uint8)
            fixed += [np.broadcast_to(head, (len(values), len(head))), data]
        else:
            entries = [_entry_head(key, kind, len(row)) + row for row in _varint_rows(values)]
            columns += [*_join_columns(fixed), entries]
            fixed = []
    columns += _join_columns(fixed)
    return [
        b"".join((_example_head(sum(map(len, entries))), *entries))
        for entries in zip(*columns, strict=True)
    ]


def _join_columns(parts: list[np.ndarray]) -> list[list[bytes]]:
    """Returns the rows of neighbouring columns, each uint8[B, width], as one column of bytes;
    none of no columns.
    """
    if not parts:
        return []
    table = np.concatenate(parts, axis=1)
    data, width = table.tobytes(), table.shape[1]
    return [[data[start : start + width] for start in range(0, len(data), width)]]


@functools.lru_cache(_HEADS)
def _example_head(num_bytes: int) -> bytes:
    return bytes((_FIRST,)) + varint(num_bytes)


@functools.lru_cache(_HEADS)
def _entry_head(key: bytes, kind: int, num_bytes: int) -> bytes:
    """Returns the bytes of a map entry before its packed values: tags, lengths and the key."""
    values = bytes((_FIRST,)) + varint(num_bytes) if num_bytes else b""
    list_size = len(values) + num_bytes
    feature = bytes((kind,)) + varint(list_size) + values
    feature_size = len(feature) + num_bytes
    entry = key + bytes((_SECOND,)) + varint(feature_size) + feature
    return bytes((_FIRST,)) + varint(len(entry) + num_bytes) + entry


def varint(value: int) -> bytes:
    """Encodes a non-negative integer as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_rows(values: np.ndarray) -> list[bytes]:
    """Returns the concatenated varints of each row of integers, of which there is one at least."""
    # A negative number takes ten bytes.
    rest = values.astype(np.int64, copy=False).view(np.uint64).ravel()
    largest = int(rest.max(initial=0))
    if largest < 1 << 32:
        rest = rest.astype(np.uint32)
    num_bytes = np.ones(rest.shape, np.uint8)
    for shift in range(7, largest.bit_length(), 7):
        num_bytes += rest >= rest.dtype.type(1 << shift)
    ends = np.cumsum(num_bytes, dtype=np.int64)
    data = np.empty(ends[-1], np.uint8)
    at = ends - num_bytes
    while len(rest):  # a byte of every number at a time
        goes_on = rest > 0x7F
        data[at] = (rest & 0x7F).astype(np.uint8) | goes_on.view(np.uint8) << 7
        rest, at = rest[goes_on] >> rest.dtype.type(7), at[goes_on] + 1
    data = data.tobytes()
    row_ends = ends[values.shape[1] - 1 :: values.shape[1]].tolist()
    return [data[start:end] for start, end in zip([0, *row_ends], row_ends, strict=False)]

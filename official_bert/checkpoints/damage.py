"""Finds damaged files of a checkpoint.

In: the prefix of a checkpoint. Out: nothing where its files are whole, else a `Damaged` error that names a file.

TensorFlow compares each tensor with its checksum when it reads it. It has no checksum for the lengths in the state of
an iterator, and a wrong one can end the process. The data file of an input state therefore ends with a seal, a checksum
of all bytes before it, which TensorFlow does not read.
"""

import struct
import zlib

import tensorflow as tf

from official_bert.errors import InputError

_MARK = b"checksum"
_SEAL = struct.Struct("<8sI")
_gfile = tf.io.gfile


class Damaged(InputError):
    """A file of a checkpoint is missing, cut off, or holds other bytes than were written.

    Attributes:
        file: the path of the file.
        reason: what is wrong with it.
    """

    def __init__(self, message: str, file: str, reason: str):
        super().__init__(message)
        self.file, self.reason = file, reason


def data_file(prefix: str) -> str:
    """Returns the path of a checkpoint's data; with a pattern for the number where there are several files."""
    found = _gfile.glob(f"{prefix}.data-*")
    return f"{prefix}.data-*" if len(found) > 1 else (found or [f"{prefix}.data-00000-of-00001"])[0]


def is_damage(file: str) -> bool:
    """Tells whether a file that could not be read is damaged or missing, and not only out of reach or forbidden."""
    try:
        with _gfile.GFile(file, "rb") as opened:
            opened.read(1)
    except tf.errors.NotFoundError:
        return True
    except tf.errors.OpError:
        return False
    return True


def seal(prefix: str):
    """Appends the checksum to the data file of a checkpoint that has one data file."""
    path = data_file(prefix)
    with _gfile.GFile(path, "rb") as file:
        content = file.read()
    with _gfile.GFile(path, "wb") as file:  # as a whole, because some remote file systems cannot append
        file.write(content + _SEAL.pack(_MARK, zlib.crc32(content)))


def fault_of_seal(prefix: str) -> str | None:
    """Compares the data file of a checkpoint with its seal.

    Returns:
        What is wrong with the file; None if nothing is, or if it has no seal because an earlier version wrote it.
    """
    with _gfile.GFile(data_file(prefix), "rb") as file:
        content = file.read()
    end = content[-_SEAL.size :]
    if not any(end):
        return "its end is empty"
    if len(end) == _SEAL.size and end.startswith(_MARK):
        _, checksum = _SEAL.unpack(end)
        if checksum != zlib.crc32(content[: -_SEAL.size]):
            return "its bytes do not fit their checksum"
    return None

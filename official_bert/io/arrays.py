"""Reads arrays of numpy: a .npy file, or those of an .npz file.

An array is made of the bytes that are there: no size that a header claims makes numpy reserve
memory.
"""

import io
import math
from collections.abc import Collection

import numpy as np

from official_bert.io import archives, files
from official_bert.io.errors import InputError, brief

_ENDING = ".npy"
_MAGIC = b"\x93NUMPY"
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npy(path: str) -> np.ndarray:
    """Returns the array of a .npy file; raises InputError for any other file."""
    with files.open_file(path, "rb") as file:
        start = file.read(len(_MAGIC))
        # A device such as /dev/zero never ends.
        data = start + file.read() if start == _MAGIC else start
    try:
        return parse_npy(data)
    except ValueError as error:
        raise InputError(
            f"{path}: cannot be read as .npy ({brief(error)}); write it anew with numpy.save"
        ) from error


def read_npz(path: str, names: Collection[str], remedy: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file by these names.

    Raises:
        InputError: it is damaged, or lacks one of them; the sentence ends with the remedy.
    """
    entries = archives.read_entries(path, lambda name: name.removesuffix(_ENDING) in names, remedy)
    contents = {name.removesuffix(_ENDING): data for name, data in entries}
    if missing := [name for name in names if name not in contents]:
        raise InputError(f"{path}: lacks the array {missing[0]}; {remedy}")
    arrays = {}
    for name in names:
        try:
            arrays[name] = parse_npy(contents.pop(name))
        except ValueError as error:
            raise InputError(
                f"{path}: its array {name} cannot be read ({brief(error)}); {remedy}"
            ) from error
    return arrays


def parse_npy(data: bytes) -> np.ndarray:
    """Returns the array, read-only, that the bytes of a .npy file are; raises ValueError if they
    are none.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as an array of numpy")
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        shape, is_fortran, dtype = _HEADER_READERS[version](stream)
    except Exception as error:  # numpy parses the header as Python: it fails in a dozen ways
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    if dtype.hasobject:
        raise ValueError("it has Python objects, which are not loaded")
    num_bytes, count = len(data) - stream.tell(), math.prod(shape)
    if count * dtype.itemsize != num_bytes:
        raise ValueError(
            f"its header says {dtype}{list(shape)}, and behind it are {num_bytes} bytes"
        )
    array = (
        np.frombuffer(data, dtype, count, stream.tell()) if num_bytes else np.empty(shape, dtype)
    )
    return array.reshape(shape, order="F" if is_fortran else "C")

"""Reads NumPy arrays from .npy and .npz files.

A header that claims a wrong size never makes NumPy reserve memory: the size of the file is checked
first.
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
    """Returns the array of a .npy file.

    Args:
        path: the .npy file, local or remote.

    Raises:
        InputError: the file cannot be read as .npy.
    """
    with files.open_file(path, "rb") as file:
        start = file.read(len(_MAGIC))
        # A device such as /dev/zero never ends.
        data = start + file.read() if start == _MAGIC else start
    try:
        return parse_npy(data)
    except ValueError as error:
        raise InputError(
            f"{path}: cannot be read as .npy ({brief(error)}); write it again with numpy.save"
        ) from error


def read_npz(
    path: str, names: Collection[str], remedy: str, optional_names: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file by their names.

    Args:
        path: the .npz file, local or remote.
        names: the names of the arrays to read.
        remedy: what the user can do about a damaged file; it ends the error message.
        optional_names: the names of arrays that are also read, if the file has them.

    Raises:
        InputError: the file is damaged, or lacks one of the arrays.
    """

    def is_wanted(entry_name: str) -> bool:
        return entry_name.removesuffix(_ENDING) in (*names, *optional_names)

    contents = {}
    for entry_name, data in archives.read_entries(path, is_wanted, remedy):
        contents[entry_name.removesuffix(_ENDING)] = data
    missing = [name for name in names if name not in contents]
    if missing:
        raise InputError(f"{path}: lacks the array {missing[0]}; {remedy}")
    arrays = {}
    for name in list(contents):
        try:
            arrays[name] = parse_npy(contents.pop(name))
        except ValueError as error:
            raise InputError(
                f"{path}: its array {name} cannot be read ({brief(error)}); {remedy}"
            ) from error
    return arrays


def parse_npy(data: bytes) -> np.ndarray:
    """Returns the array of the content of a .npy file; it is read-only.

    Args:
        data: the whole content of the file.

    Raises:
        ValueError: the content is not that of a .npy file.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as an array of NumPy")
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        shape, is_fortran, dtype = _HEADER_READERS[version](stream)
    # NumPy parses the header as Python, which fails in a dozen ways.
    except Exception as error:
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    if dtype.hasobject:
        raise ValueError("it has Python objects, which are not loaded")
    header_size = stream.tell()
    num_bytes = len(data) - header_size
    count = math.prod(shape)
    if count * dtype.itemsize != num_bytes:
        raise ValueError(
            f"its header says {dtype}{list(shape)}, and behind it are {num_bytes} bytes"
        )
    if not num_bytes:
        return np.empty(shape, dtype)
    array = np.frombuffer(data, dtype, count, offset=header_size)
    return array.reshape(shape, order="F" if is_fortran else "C")

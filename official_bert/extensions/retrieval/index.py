"""Texts and their embeddings, and the file that holds them."""

from __future__ import annotations

import itertools
import types
import zipfile
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Self

import numpy as np

from official_bert.io import files, writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError, brief


class Index(NamedTuple):
    """Texts and their vectors, float32[n, width]."""

    texts: Sequence[str]
    vectors: np.ndarray

    @classmethod
    def read(cls, path: str) -> Self:
        """Reads the file of `write_index`, which holds no pickled objects."""
        remedy = f"make it anew with official-bert predict --index={path}"
        arrays = read_npz(path, ("texts", "ends", "vectors"), remedy)
        data, ends, vectors = arrays["texts"].tobytes(), arrays["ends"], arrays["vectors"]
        try:
            if ends.dtype != np.int64 or ends.ndim != 1:
                raise ValueError("the ends of its texts are no list of int64")
            starts = [0, *ends.tolist()]
            texts = [data[start:end].decode() for start, end in itertools.pairwise(starts)]
            if (
                starts != sorted(starts)
                or starts[-1] != len(data)
                or vectors.shape[:-1] != (len(texts),)
            ):
                raise ValueError("its texts and vectors do not belong together")
            if not vectors.size:
                raise ValueError("it has no text, or vectors without a component")
            if vectors.dtype != np.float32 or not np.isfinite(vectors.sum(dtype=np.float64)):
                raise ValueError("its vectors are no finite numbers of float32")
        except ValueError as error:
            raise InputError(f"{path}: is no index ({brief(error)}); {remedy}") from error
        return cls(texts, vectors)


def write_index(path: str, texts: Sequence[str], blocks: Sequence[np.ndarray]):
    """Writes texts and their vectors, in blocks of float32[rows, width], as an .npz file that numpy
    reads.

    Its arrays are the UTF-8 of all `texts`, uint8[bytes], the `ends` of each in it, int64[n], and
    `vectors`.
    """
    data = [text.encode() for text in texts]
    shape = (len(texts), blocks[0].shape[1])
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (
        writing.replacing(path, "wb") as file,
        zipfile.ZipFile(_stream(path, file), "w") as archive,
    ):
        with archive.open("vectors.npy", "w", force_zip64=True) as array:
            np.lib.format.write_array_header_1_0(array, header)
            for block in blocks:
                array.write(np.ascontiguousarray(block, "<f4"))
        for name, values in (
            ("texts", np.frombuffer(b"".join(data), np.uint8)),
            ("ends", np.cumsum([len(one) for one in data], dtype=np.int64)),
        ):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as array:
                np.save(array, values)


def _stream(path: str, file: BinaryIO):
    """Returns what zipfile writes to: a device or a pipe without its `tell`, which always says 0
    of /dev/null.
    """
    return (
        types.SimpleNamespace(write=file.write, flush=file.flush)
        if files.is_special(path)
        else file
    )

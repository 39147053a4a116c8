"""Texts and their embeddings, and the file that holds them."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Self

import numpy as np

from official_bert.io import files, writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError, brief

_PROMPT = "prompt"  # the name of an array
_NO_FIT = "its texts and vectors do not belong together"


class Index(NamedTuple):
    """Texts and their vectors.

    Attributes:
        texts: the texts.
        vectors: float32[n, width].
        prompt: the text that was put before each text; None for the prompt of the model.
    """

    texts: Sequence[str]
    vectors: np.ndarray
    prompt: str | None = None

    @classmethod
    def read(cls, path: str) -> Self:
        """Read the file of `write_index`; it contains no pickled objects.

        Args:
            path: the .npz file.

        Returns:
            The index.

        Raises:
            InputError: the file is damaged, or is no index.
        """
        remedy = f"make it anew with official-bert predict --index={path}"
        arrays = read_npz(path, ("texts", "ends", "vectors"), remedy, (_PROMPT,))
        vectors = arrays["vectors"]
        try:
            texts = _split_texts(arrays["texts"].tobytes(), arrays["ends"])
            prompt = arrays[_PROMPT].tobytes().decode() if _PROMPT in arrays else None
            if vectors.shape[:-1] != (len(texts),):
                raise ValueError(_NO_FIT)
            if not vectors.size:
                raise ValueError("it has no text, or vectors without a component")
            if vectors.dtype != np.float32 or not np.isfinite(vectors.sum(dtype=np.float64)):
                raise ValueError("its vectors are no finite numbers of float32")
        except ValueError as error:
            raise InputError(f"{path}: is no index ({brief(error)}); {remedy}") from error
        return cls(texts, vectors, prompt)


def _split_texts(data: bytes, ends: np.ndarray) -> list[str]:
    """Returns the texts of their joined UTF-8, each up to its end."""
    if ends.dtype != np.int64 or ends.ndim != 1:
        raise ValueError("the ends of its texts are no list of int64")
    starts = [0, *ends.tolist()]
    texts = [data[start:end].decode() for start, end in itertools.pairwise(starts)]
    if starts != sorted(starts) or starts[-1] != len(data):
        raise ValueError(_NO_FIT)
    return texts


def write_index(
    path: str, texts: Sequence[str], blocks: Sequence[np.ndarray], prompt: str | None = None
) -> None:
    """Write texts and their vectors as an .npz file that numpy reads.

    Its arrays are the UTF-8 of all `texts`, uint8[bytes], the `ends` of each in it, int64[n], and
    `vectors`. A prompt is one more array, its UTF-8 as uint8[bytes].

    Args:
        path: the file.
        texts: the texts.
        blocks: their vectors in order, each block float32[rows, width].
        prompt: the text that was put before each text; None for the prompt of the model.
    """
    encoded_texts = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded_texts], dtype=np.int64)
    shape = (len(texts), blocks[0].shape[1])
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (
        writing.replacing(path, "wb") as file,
        zipfile.ZipFile(_zip_target(path, file), "w") as archive,
    ):
        with archive.open("vectors.npy", "w", force_zip64=True) as array:
            np.lib.format.write_array_header_1_0(array, header)
            for block in blocks:
                array.write(np.ascontiguousarray(block, "<f4").data)
        _write_array(archive, "texts", np.frombuffer(b"".join(encoded_texts), np.uint8))
        _write_array(archive, "ends", ends)
        if prompt is not None:
            _write_array(archive, _PROMPT, np.frombuffer(prompt.encode(), np.uint8))


def _write_array(archive: zipfile.ZipFile, name: str, values: np.ndarray):
    with archive.open(f"{name}.npy", "w", force_zip64=True) as array:
        np.save(array, values)


class _Unseekable:
    """A file without `tell`, so that zipfile does not rely on the position of a device or pipe.

    The position in /dev/null is always 0.
    """

    def __init__(self, file: BinaryIO):
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _zip_target(path: str, file: BinaryIO) -> BinaryIO | _Unseekable:
    """Returns the file, or for a device or a pipe one without a position."""
    return _Unseekable(file) if files.is_special(path) else file

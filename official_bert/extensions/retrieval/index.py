"""Texts and their embeddings, and the file that holds them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zipfile
from collections.abc import Sequence
from typing import BinaryIO, Self

import numpy as np

from official_bert.extensions.retrieval.binary_search import search_binary
from official_bert.extensions.retrieval.rows import FloatRows, Int8Rows, Rows
from official_bert.extensions.retrieval.small_vectors import decode_binary
from official_bert.extensions.retrieval.vector_search import search
from official_bert.io import files, writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError, brief
from official_bert.metrics.cosines import cosines

_PROMPT, _RANGES = "prompt", "ranges"  # names of arrays
# The lowest cosine of two vectors of a text from the same model. On other devices or in bfloat16 it
# is higher; with another model it is lower.
_SAME_MODEL = 0.99
_SAME_INT8 = 0.97  # The same, if one of them has 8 bits for each component.
_SAME_SIGNS = 0.9  # The lowest share of equal signs.
_NO_FIT = "its texts and vectors do not belong together"


@dataclasses.dataclass(frozen=True)
class Index:
    """Texts and their vectors.

    Attributes:
        texts: the texts.
        vectors: float32[n, width], or int8[n, width] with `ranges`, or for binary vectors
            uint8[n, width / 8].
        prompt: the text that was put before each text; None for the prompt of the model.
        ranges: the ranges of the components of int8 vectors, float32[2, width]; else None.
    """

    texts: Sequence[str]
    vectors: np.ndarray
    prompt: str | None = None
    ranges: np.ndarray | None = None

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return self.vectors.shape[1] * (8 if self._is_binary else 1)

    @property
    def _is_binary(self) -> bool:
        return self.vectors.dtype == np.uint8

    @functools.cached_property
    def _rows(self) -> Rows:
        if self.ranges is None:
            return FloatRows(self.vectors)
        return Int8Rows(self.vectors, self.ranges)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the nearest texts of queries, best first.

        Args:
            queries: float32[q, D]; the components that the index has are read.
            k: the number of texts for a query.

        Returns:
            The cosines, float32[q, k], and the rows of the texts, int64[q, k].
        """
        queries = queries[:, : self.width]
        if self._is_binary:
            return search_binary(queries, self.vectors, k)
        return search(queries, self._rows, k)

    def has_model_vectors(self, vectors: np.ndarray) -> bool:
        """Return whether the first vectors may come from the model of others.

        Args:
            vectors: the vectors that the model computes for the first texts, float32[n, D].
        """
        if vectors.shape[1] < self.width:
            return False
        vectors = vectors[:, : self.width]
        num_vectors = len(vectors)
        if self._is_binary:
            stored = decode_binary(self.vectors[:num_vectors])
            return bool((stored == np.where(vectors > 0, 1, -1)).mean() > _SAME_SIGNS)
        lowest = _SAME_MODEL if self.ranges is None else _SAME_INT8
        stored = self._rows[:num_vectors]
        return bool((cosines(stored, vectors) >= lowest).all())

    def choose(self, rows: Sequence[int]) -> Index:
        """Return the index of some of the texts.

        Args:
            rows: their rows.
        """
        texts = [self.texts[row] for row in rows]
        return dataclasses.replace(self, texts=texts, vectors=self.vectors[rows])

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
        arrays = read_npz(path, ("texts", "ends", "vectors"), remedy, (_PROMPT, _RANGES))
        vectors = arrays["vectors"]
        if vectors.dtype == np.int8:
            # Memory that can be written can be shared with TensorFlow.
            vectors = vectors.copy()
        try:
            texts = _split_texts(arrays["texts"].tobytes(), arrays["ends"])
            prompt = arrays[_PROMPT].tobytes().decode() if _PROMPT in arrays else None
            if vectors.shape[:-1] != (len(texts),):
                raise ValueError(_NO_FIT)
            if not vectors.size:
                raise ValueError("it has no text, or vectors without a component")
            _check_vectors(vectors, arrays.get(_RANGES))
        except ValueError as error:
            raise InputError(f"{path}: is no index ({brief(error)}); {remedy}") from error
        return cls(texts, vectors, prompt, arrays.get(_RANGES))


def _check_vectors(vectors: np.ndarray, ranges: np.ndarray | None):
    """Raises ValueError for vectors of another type than those of an index."""
    if vectors.dtype == np.float32 and ranges is None:
        if np.isfinite(vectors.sum(dtype=np.float64)):
            return
        raise ValueError("its vectors are no finite numbers of float32")
    if vectors.dtype == np.uint8 and ranges is None:
        return
    if vectors.dtype != np.int8 or ranges is None:
        raise ValueError(
            "its vectors are no finite numbers of float32, nor int8 with ranges, nor binary"
        )
    is_valid = ranges.dtype == np.float32 and ranges.shape == (2, vectors.shape[1])
    if not is_valid or not np.isfinite(ranges).all() or (ranges[0] > ranges[1]).any():
        raise ValueError("its ranges are not the lowest and highest value of each component")


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
    path: str,
    texts: Sequence[str],
    blocks: Sequence[np.ndarray],
    prompt: str | None = None,
    ranges: np.ndarray | None = None,
) -> None:
    """Write texts and their vectors as an .npz file that numpy reads.

    Its arrays are the UTF-8 of all `texts`, uint8[bytes], the `ends` of each in it, int64[n], and
    `vectors`. A prompt is one more array, its UTF-8 as uint8[bytes], and so are ranges.

    Args:
        path: the file.
        texts: the texts.
        blocks: their vectors in order, all of one type, each block [rows, width].
        prompt: the text that was put before each text; None for the prompt of the model.
        ranges: the ranges of int8 vectors, float32[2, width].
    """
    encoded_texts = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded_texts], dtype=np.int64)
    shape = (len(texts), blocks[0].shape[1])
    dtype = blocks[0].dtype.newbyteorder("<")
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    with (
        writing.replacing(path, "wb") as file,
        zipfile.ZipFile(_zip_target(path, file), "w") as archive,
    ):
        with archive.open("vectors.npy", "w", force_zip64=True) as array:
            np.lib.format.write_array_header_1_0(array, header)
            for block in blocks:
                array.write(np.ascontiguousarray(block, dtype).data)
        _write_array(archive, "texts", np.frombuffer(b"".join(encoded_texts), np.uint8))
        _write_array(archive, "ends", ends)
        if prompt is not None:
            _write_array(archive, _PROMPT, np.frombuffer(prompt.encode(), np.uint8))
        if ranges is not None:
            _write_array(archive, _RANGES, ranges)


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

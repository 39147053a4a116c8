"""Compares texts by the cosine of their vectors: exact search, pairs of like texts, and the file of
an index.

In: float32[n, width], an array or a np.memmap, of which a block at a time is computed with. Out:
scores and rows that depend on no block: what float32 finds is computed again in float64, and of
equal scores the lower row comes first.
"""

from __future__ import annotations

import itertools
import os
import types
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

from official_bert.io import files, writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError, brief
from official_bert.io.reading import is_of_kind
from official_bert.metrics.embeddings import all_cosines, unit_vectors
from official_bert.tasks.clients import numbers
from official_bert.tokenizer_call import listed_texts

_CORPUS_ROWS, _QUERY_ROWS, _PAIR_ROWS = 1 << 14, 1 << 8, 1 << 11
_EXACT_AT_ONCE = 1 << 12
# The cosine of a text's two vectors: devices and bfloat16 differ by less, other models by more.
_SAME_MODEL = 0.99


def search(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    corpus_rows: int = _CORPUS_ROWS,
    query_rows: int = _QUERY_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows of float32[n, width] with the highest cosine to each query, float32[q,
    width], best first.

    Returns:
        The cosines, float32[q, k], and the rows, int64[q, k], with n in place of a larger k.
    """
    k, rough_queries = min(k, len(corpus)), unit_vectors(queries, np.float32)
    found = [_Best(k, corpus.shape[1]) for _ in queries]
    for start in range(0, len(corpus), corpus_rows):
        block = np.asarray(corpus[start : start + corpus_rows])
        rough_block = unit_vectors(block, np.float32).T
        for first in range(0, len(queries), query_rows):
            rough = rough_queries[first : first + query_rows] @ rough_block
            for number, of_query in enumerate(rough, first):
                found[number].add(of_query[None], queries[number : number + 1], block, start)
    return (
        np.array([best.scores for best in found], np.float32).reshape(len(queries), k),
        np.array([best.places for best in found], np.int64).reshape(len(queries), k),
    )


def paraphrases(
    vectors: np.ndarray, limit: int, threshold: float = -1.0, block_rows: int = _PAIR_ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the pairs of rows of float32[n, width] with the highest cosines, each pair once, best
    first.

    Returns:
        The cosines, float32[p], of at least `threshold`, and the rows, int64[p, 2], the lower one
        first; p is at most `limit`.
    """
    best, n = _Best(limit, vectors.shape[1], threshold), len(vectors)
    for start in range(0, n, block_rows):
        block = np.asarray(vectors[start : start + block_rows])
        rough_block = unit_vectors(block, np.float32)
        for first in range(0, start + 1, block_rows):
            others = np.asarray(vectors[first : first + block_rows])
            rough = unit_vectors(others, np.float32) @ rough_block.T  # [others, block]
            if first == start:
                rough[np.tri(len(block), dtype=bool)] = -np.inf  # a row with itself or a lower one
            best.add(rough, others, block, first * n + start, n)
    return best.scores, np.stack(np.divmod(best.places, max(n, 1)), axis=1)


class _Best:
    """The `k` highest scores so far, of at least `lowest`, best first, and their places; equal
    ones by their place.
    """

    def __init__(self, k: int, width: int, lowest: float = -np.inf):
        self.scores, self.places = np.empty(0, np.float32), np.empty(0, np.int64)
        self._k, self._bar = k, lowest
        # Twice the largest error of a product in float32.
        self._slack = (2 * width + 16) * np.finfo(np.float32).eps

    def add(self, rough: np.ndarray, a: np.ndarray, b: np.ndarray, place: int, stride: int = 0):
        """Adds the cosines of rows of `a` and `b`, which `rough`, float32[len(a), len(b)], has in
        float32.

        The place of rows i and j is `place` + i `stride` + j. The best are computed again, each of
        its rows alone.
        """
        rough = rough.ravel()
        found = np.flatnonzero(rough >= self._bar - self._slack)
        if len(found) > self._k:
            values = rough[found]
            found = found[values >= np.partition(values, -self._k)[-self._k] - self._slack]
        for start in range(0, len(found), _EXACT_AT_ONCE):
            i, j = np.divmod(found[start : start + _EXACT_AT_ONCE], len(b))
            exact = np.einsum("nd,nd->n", unit_vectors(a[i]), unit_vectors(b[j])).astype(np.float32)
            is_kept = exact >= self._bar
            scores = np.concatenate([self.scores, exact[is_kept]])
            places = np.concatenate([self.places, (place + i * stride + j)[is_kept]])
            order = np.lexsort((places, -scores))[: self._k]
            self.scores, self.places = scores[order], places[order]
            if len(order) == self._k:
                self._bar = max(self._bar, self.scores[-1])


class Index(NamedTuple):
    """Texts and their vectors, float32[n, width]."""

    texts: Sequence[str]
    vectors: np.ndarray

    @classmethod
    def read(cls, path: str) -> Self:
        """Reads the file of `write_index`, which holds no pickled objects."""
        remedy = f"make it anew with predict.py --index={path}"
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


class TextComparisons:
    """What can be asked of anything that encodes texts; a subclass has `encode`: texts ->
    float32[n, width].
    """

    encode: Callable[..., np.ndarray]

    def similarity(self, a: str | list[str], b: str | list[str]) -> float | list[list[float]]:
        """Returns the cosine of two texts; for lists the rows of a table, one for each text of `a`."""
        table = list(map(numbers, all_cosines(self.encode(a), self.encode(b))))
        return table[0][0] if isinstance(a, str) and isinstance(b, str) else table

    def search(
        self, queries: str | list[str], corpus: Iterable[str] | str | Index, k: int = 10
    ) -> list:
        """Returns the `k` texts of a corpus that are nearest to a text, best first; for a list a
        list of these.

        The corpus is a list of texts, which each call encodes anew; what `index_of` returned for
        one; or the path of an index that predict.py --index wrote. Each hit is a dict with `text`,
        `row`, its place in the corpus from 0, and `score`, the cosine.
        """
        _check("k", k, int, 1)
        index = self.index_of(corpus)
        scores, rows = search(self.encode(queries), index.vectors, k)
        found = [
            hits(index.texts, *of_query) for of_query in zip(rows.tolist(), scores, strict=True)
        ]
        return found[0] if isinstance(queries, str) else found

    def paraphrases(self, texts: list[str], limit: int = 100, threshold: float = 0.0) -> list[dict]:
        """Returns the pairs of texts with the highest cosines, at most `limit` and not below
        `threshold`, best first.

        Each is a dict with `text_a`, `text_b`, their places `row_a` < `row_b` from 0, and `score`.
        """
        _check("limit", limit, int, 1)
        _check("threshold", threshold, float, -1)
        texts = listed_texts("texts", texts)
        scores, pairs = paraphrases(self.encode(texts), limit, threshold)
        return [
            {"text_a": texts[a], "text_b": texts[b], "row_a": a, "row_b": b, "score": score}
            for (a, b), score in zip(pairs.tolist(), numbers(scores), strict=True)
        ]

    def index_of(self, corpus: Iterable[str] | str | Index) -> Index:
        """Returns the texts and the vectors of a corpus, which is what `search` takes."""
        if isinstance(corpus, Index):
            return corpus
        if not isinstance(corpus, (str, os.PathLike)):
            texts = listed_texts("corpus", corpus)
            return Index(texts, self.encode(texts))
        index = Index.read(os.fspath(corpus))
        first, own = index.vectors[:1], self.encode(index.texts[:1])
        if first.shape != own.shape or (all_cosines(first, own) < _SAME_MODEL).any():
            raise InputError(
                f"{os.fspath(corpus)}: was made by another model; name that one, or make the index "
                "anew"
            )
        return index


def hits(
    texts: Sequence[str], rows: Iterable[int], scores: Iterable[np.float32]
) -> list[dict[str, Any]]:
    """Returns the results of a search for some rows of its texts."""
    return [
        {"text": texts[row], "row": row, "score": score}
        for row, score in zip(rows, numbers(scores), strict=True)
    ]


def _check(name: str, value: Any, kind: type, least: int):
    if not is_of_kind(value, kind) or value < least:
        raise InputError(
            f"{name}={value!r}: must be a {'whole ' if kind is int else ''}number from {least}"
        )

"""The vectors of the tokens of many texts: packed, quantised to 8 bits, saved, and searched.

A search has two stages: the mean vectors of all texts, then MaxSim of the best of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import unit_vectors

_QUERY_ROWS = 8
_DOCUMENT_ROWS = 256
_LARGEST = 127


class TokenVectors(NamedTuple):
    """The vectors of the tokens of n texts, one text after the other.

    Attributes:
        values: float32[tokens, D], or int8[tokens, D] of `quantize`.
        starts: the place of the first vector of each text, and that behind the last: int64[n + 1].
        scales: the factor of each vector of int8, float32[tokens]; None for float32.
    """

    values: np.ndarray
    starts: np.ndarray
    scales: np.ndarray | None = None

    @classmethod
    def pack(cls, texts: Sequence[np.ndarray], width: int) -> Self:
        """Pack the vectors of texts.

        Args:
            texts: float32[tokens, D] of each text.
            width: D.
        """
        lengths = [len(vectors) for vectors in texts]
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        empty = np.empty((0, width), np.float32)
        return cls(np.concatenate([empty, *texts]), starts.astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def text(self, row: int) -> np.ndarray:
        """Return the vectors of a text, float32[tokens, D].

        Args:
            row: the row of the text.
        """
        tokens = slice(self.starts[row], self.starts[row + 1])
        vectors = self.values[tokens].astype(np.float32)
        return vectors if self.scales is None else vectors * self.scales[tokens, None]

    def padded(self, rows: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of some texts, and which of them are vectors.

        Args:
            rows: the rows of the texts.

        Returns:
            float32[n, longest, D] and bool[n, longest].
        """
        texts = [self.text(row) for row in rows]
        longest = max(map(len, texts), default=0)
        vectors = np.zeros((len(texts), longest, self.values.shape[1]), np.float32)
        is_vector = np.zeros((len(texts), longest), bool)
        for place, text in enumerate(texts):
            vectors[place, : len(text)] = text
            is_vector[place, : len(text)] = True
        return vectors, is_vector

    def means(self) -> np.ndarray:
        """Return the mean vector of each text, float32[n, D]."""
        means = np.zeros((len(self), self.values.shape[1]), np.float32)
        for row in range(len(self)):
            vectors = self.text(row)
            if len(vectors):
                means[row] = vectors.mean(axis=0)
        return means

    def quantize(self) -> Self:
        """Return the vectors in 8 bits, a quarter of the memory.

        Each vector has a factor of its own, so that its largest component is 127.
        """
        largest = np.abs(self.values).max(axis=1, initial=0)
        scales = np.maximum(largest, 1e-12) / _LARGEST
        values = np.rint(self.values / scales[:, None]).astype(np.int8)
        return type(self)(values, self.starts, scales.astype(np.float32))

    def save(self, path: str) -> None:
        """Write the vectors to a file .npz.

        Args:
            path: the path of the file.
        """
        with writing.replacing(path, "wb") as file:
            if self.scales is None:
                np.savez(file, values=self.values, starts=self.starts)
            else:
                np.savez(file, values=self.values, starts=self.starts, scales=self.scales)

    @classmethod
    def load(cls, path: str) -> Self:
        """Read the vectors of a file that `save` wrote.

        Args:
            path: the path of the file.

        Raises:
            InputError: the file is missing, or is not such a file.
        """
        files.check_name(path)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                contents = dict(arrays)
            loaded = cls(contents["values"], contents["starts"], contents.get("scales"))
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path}: is no file of TokenVectors.save ({error}); write it again"
            ) from None
        are_packed = loaded.values.ndim == 2 and loaded.starts.ndim == 1 and len(loaded.starts) > 0
        if not are_packed or loaded.starts[-1] != len(loaded.values):
            raise InputError(f"{path}: its vectors and texts do not fit; write it again")
        return loaded


def score_texts(queries: TokenVectors, documents: TokenVectors, rows: Iterable[int]) -> np.ndarray:
    """Return the MaxSim scores of all queries with some documents, float32[q, rows].

    Args:
        queries: the vectors of q queries.
        documents: the vectors of documents.
        rows: the rows of the documents that are scored.
    """
    query_vectors, is_query_token = queries.padded(range(len(queries)))
    vectors, is_token = documents.padded(rows)
    width = vectors.shape[-1]
    products = query_vectors.reshape(-1, width) @ vectors.reshape(-1, width).T
    products = products.reshape(*query_vectors.shape[:2], *vectors.shape[:2])
    products = np.where(is_token[None, None], products, -np.inf)
    largest = products.max(axis=-1, initial=-np.inf)
    # A document without tokens scores 0.
    largest = np.where(np.isfinite(largest), largest, 0)
    return (largest * is_query_token[..., None]).sum(axis=1, dtype=np.float32)


def score_blocks(queries: TokenVectors, documents: TokenVectors) -> Iterator[np.ndarray]:
    """Yield the MaxSim scores of all documents with some queries at a time.

    Args:
        queries: the vectors of queries.
        documents: the vectors of n documents.

    Yields:
        float32[queries in the block, n].
    """
    for first in range(0, len(queries), _QUERY_ROWS):
        block = queries_in(queries, first, first + _QUERY_ROWS)
        scores = []
        for start in range(0, len(documents), _DOCUMENT_ROWS):
            rows = range(start, min(start + _DOCUMENT_ROWS, len(documents)))
            scores.append(score_texts(block, documents, rows))
        yield np.concatenate(scores, axis=1)


def queries_in(queries: TokenVectors, first: int, last: int) -> TokenVectors:
    """Return some of the texts.

    Args:
        queries: the vectors of texts.
        first: the row of the first one.
        last: the row behind the last one.
    """
    last = min(last, len(queries))
    return TokenVectors.pack(
        [queries.text(row) for row in range(first, last)], queries.values.shape[1]
    )


def search(
    queries: TokenVectors, documents: TokenVectors, k: int, num_candidates: int
) -> list[list[tuple[int, float]]]:
    """Find the documents with the largest MaxSim scores, best first.

    Args:
        queries: the vectors of queries.
        documents: the vectors of documents.
        k: the number of documents for a query.
        num_candidates: the number of documents whose mean vectors are nearest to that of the query,
            which alone are scored. If it is not smaller than the number of documents, all are.

    Returns:
        For each query the rows of the documents and their scores. Of equal scores the lower row
        comes first.
    """
    num_candidates = min(max(num_candidates, k), len(documents))
    means = unit_vectors(documents.means(), np.float32)
    query_means = unit_vectors(queries.means(), np.float32)
    results = []
    for row in range(len(queries)):
        rows = np.arange(len(documents))
        if num_candidates < len(documents):
            nearness = means @ query_means[row]
            rows = np.sort(np.argpartition(-nearness, num_candidates)[:num_candidates])
        query = queries_in(queries, row, row + 1)
        scores = []
        for start in range(0, len(rows), _DOCUMENT_ROWS):
            block = rows[start : start + _DOCUMENT_ROWS]
            scores.append(score_texts(query, documents, block)[0])
        all_scores = np.concatenate(scores)
        order = np.argsort(-all_scores, kind="stable")[:k]
        results.append(list(zip(rows[order].tolist(), all_scores[order].tolist(), strict=True)))
    return results

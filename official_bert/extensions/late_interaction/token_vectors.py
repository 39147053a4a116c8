"""The vectors of the tokens of many texts: packed, in 8, 4 or 2 bits, saved, and searched.

A search has two stages: the mean vectors of all texts, then MaxSim of the best of them.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from official_bert.extensions.late_interaction.residual_codec import RESIDUAL_BITS, ResidualCodec
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import unit_vectors

_QUERY_ROWS = 8
_DOCUMENT_ROWS = 256
_INT8_BITS = 8
_LARGEST = 127
_SMALLEST = 1e-12  # A vector of zeros has this factor.


@dataclasses.dataclass(frozen=True)
class TokenVectors:
    """The vectors of the tokens of n texts, one text after the other.

    Attributes:
        values: float32[tokens, D]; or of `quantize` int8[tokens, D], or the residuals of a codec,
            uint8[tokens, D * bits / 8].
        starts: the place of the first vector of each text, and that behind the last: int64[n + 1].
        scales: the factor of each vector of int8, float32[tokens]; else None.
        codec: the codec of residuals; else None.
        centroid_ids: the numbers of the centroids of residuals, uint16[tokens]; else None.
    """

    values: np.ndarray
    starts: np.ndarray
    scales: np.ndarray | None = None
    codec: ResidualCodec | None = None
    centroid_ids: np.ndarray | None = None

    @classmethod
    def pack(cls, texts: Sequence[np.ndarray], width: int) -> Self:
        """Pack the vectors of texts.

        Args:
            texts: float32[tokens, D] of each text.
            width: D.
        """
        starts = [0]
        for vectors in texts:
            starts.append(starts[-1] + len(vectors))
        empty = np.empty((0, width), np.float32)
        values = np.concatenate([empty, *texts])
        return cls(values, np.array(starts, np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return self.values.shape[1] if self.codec is None else self.codec.width

    @property
    def num_bytes(self) -> int:
        """The memory of the vectors, without the centroids."""
        arrays = (
            self.values,
            self.scales,
            self.centroid_ids,
        )
        return sum(array.nbytes for array in arrays if array is not None)

    def text(self, row: int) -> np.ndarray:
        """Return the vectors of a text, float32[tokens, D].

        Args:
            row: the row of the text.
        """
        start = self.starts[row]
        end = self.starts[row + 1]
        if self.codec is not None and self.centroid_ids is not None:
            return self.codec.decode(
                self.centroid_ids[start:end],
                self.values[start:end],
            )
        vectors = self.values[start:end].astype(np.float32)
        if self.scales is None:
            return vectors
        return vectors * self.scales[start:end, None]

    def padded(self, rows: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of some texts, and which of them are vectors.

        Args:
            rows: the rows of the texts.

        Returns:
            float32[n, longest, D] and bool[n, longest].
        """
        texts = [self.text(row) for row in rows]
        longest = max(map(len, texts), default=0)
        shape = (len(texts), longest)
        vectors = np.zeros((*shape, self.width), np.float32)
        is_vector = np.zeros(shape, bool)
        for place, text in enumerate(texts):
            length = len(text)
            vectors[place, :length] = text
            is_vector[place, :length] = True
        return vectors, is_vector

    def means(self) -> np.ndarray:
        """Return the mean vector of each text, float32[n, D]; residuals are left out."""
        means = np.zeros((len(self), self.width), np.float32)
        for row in range(len(self)):
            vectors = self._rough_text(row)
            if len(vectors):
                means[row] = vectors.mean(axis=0)
        return means

    def _rough_text(self, row: int) -> np.ndarray:
        """Returns vectors of a text whose mean is computed fast, float32[tokens, D]."""
        if self.codec is None or self.centroid_ids is None:
            return self.text(row)
        start = self.starts[row]
        end = self.starts[row + 1]
        centroid_ids = self.centroid_ids[start:end]
        return self.codec.centroids[centroid_ids]

    def quantize(self, bits: int = 8, codec: ResidualCodec | None = None) -> Self:
        """Return the vectors in few bits.

        With 8 bits, which take a quarter of the memory, each vector has a factor of its own, so
        that its largest component is 127. With 4 or 2 bits, which take an eighth or a fifteenth, a
        vector is the nearest of some centroids and the rest in these bits.

        Args:
            bits: the bits of a component: 8, 4 or 2.
            codec: the centroids for 4 or 2 bits; None learns them from these vectors.

        Raises:
            InputError: the vectors are not float32, or the bits do not fit them.
        """
        if bits not in (_INT8_BITS, *RESIDUAL_BITS):
            raise InputError(f"bits={bits}: must be 8, 4 or 2")
        if self.values.dtype != np.float32:
            raise InputError("quantize: the vectors have few bits already; encode the texts again")
        if bits in RESIDUAL_BITS and len(self.values):
            codec = codec or ResidualCodec.learn(self.values, bits)
            centroid_ids, codes = codec.encode(self.values)
            return type(self)(
                codes,
                self.starts,
                codec=codec,
                centroid_ids=centroid_ids,
            )
        sizes = np.abs(self.values)
        largest = sizes.max(axis=1, initial=_SMALLEST)
        scales = largest / _LARGEST
        rounded = np.rint(self.values / scales[:, None])
        return type(self)(
            rounded.astype(np.int8),
            self.starts,
            scales.astype(np.float32),
        )

    def save(self, path: str) -> None:
        """Write the vectors to a file .npz.

        Args:
            path: the path of the file.
        """
        with writing.replacing(path, "wb") as file:
            np.savez(file, **self.arrays())

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the file of `save` by name."""
        arrays = {
            "values": self.values,
            "starts": self.starts,
            "scales": self.scales,
            "centroid_ids": self.centroid_ids,
        }
        if self.codec is not None:
            arrays |= vars(self.codec)
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the vectors of all texts of some parts.

        Args:
            parts: at least one, all of `quantize` with the same bits and codec.
        """
        first = parts[0]
        starts = [first.starts[:1]]
        end = 0
        for part in parts:
            starts.append(end + part.starts[1:])
            end += len(part.values)

        def join_arrays(name: str) -> np.ndarray | None:
            if getattr(first, name) is None:
                return None
            return np.concatenate([getattr(part, name) for part in parts])

        return dataclasses.replace(
            first,
            values=np.concatenate([part.values for part in parts]),
            starts=np.concatenate(starts),
            scales=join_arrays("scales"),
            centroid_ids=join_arrays("centroid_ids"),
        )

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
            loaded = cls._from_arrays(contents)
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path}: is no file of TokenVectors.save ({error}); write it again"
            ) from None
        if not loaded._is_consistent():
            raise InputError(f"{path}: its vectors and texts do not fit; write it again")
        return loaded

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Returns the vectors of `arrays`; raises KeyError for one that is missing."""
        codec = None
        if "centroid_ids" in arrays:
            names = [field.name for field in dataclasses.fields(ResidualCodec)]
            codec = ResidualCodec(*[arrays[name] for name in names])
        return cls(
            arrays["values"],
            arrays["starts"],
            arrays.get("scales"),
            codec,
            arrays.get("centroid_ids"),
        )

    def _is_consistent(self) -> bool:
        """Returns whether the arrays have the right types and fit together."""
        kinds = "fi" if self.codec is None else "u"
        if self.values.ndim != 2 or self.values.dtype.kind not in kinds:
            return False
        if self.codec is not None and not self._fits_codec(self.codec):
            return False
        if self.starts.ndim != 1 or self.starts.dtype.kind != "i" or not len(self.starts):
            return False
        if self.scales is not None and self.scales.shape != self.values.shape[:1]:
            return False
        is_complete = self.starts[0] == 0 and self.starts[-1] == len(self.values)
        return bool(is_complete and (np.diff(self.starts) >= 0).all())

    def _fits_codec(self, codec: ResidualCodec) -> bool:
        """Returns whether centroids and residuals fit together."""
        ids = self.centroid_ids
        assert ids is not None  # A file with a codec has them.
        if not codec.is_consistent():
            return False
        if self.values.dtype != np.uint8 or ids.dtype != np.uint16 or ids.ndim != 1:
            return False
        num_bytes = codec.width * codec.bits // 8
        has_shape = self.values.shape == (len(ids), num_bytes)
        return has_shape and ids.max(initial=0) < len(codec.centroids)


def score_texts(queries: TokenVectors, documents: TokenVectors, rows: Iterable[int]) -> np.ndarray:
    """Return the MaxSim scores of all queries with some documents, float32[q, rows].

    Args:
        queries: the vectors of q queries.
        documents: the vectors of documents.
        rows: the rows of the documents that are scored.
    """
    query_rows = range(len(queries))
    query_vectors, is_query_token = queries.padded(query_rows)
    vectors, is_token = documents.padded(rows)
    width = vectors.shape[-1]
    flat_queries = query_vectors.reshape(-1, width)
    flat_vectors = vectors.reshape(-1, width)
    products = flat_queries @ flat_vectors.T
    products = products.reshape(
        *is_query_token.shape,
        *is_token.shape,
    )
    products = np.where(is_token, products, -np.inf)
    largest = products.max(axis=-1, initial=-np.inf)
    # A document without tokens scores 0.
    largest = np.where(np.isfinite(largest), largest, 0)
    counted = largest * is_query_token[..., None]
    return counted.sum(axis=1, dtype=np.float32)


def score_blocks(queries: TokenVectors, documents: TokenVectors) -> Iterator[np.ndarray]:
    """Yield the MaxSim scores of all documents with some queries at a time.

    Args:
        queries: the vectors of queries.
        documents: the vectors of n documents.

    Yields:
        float32[queries in the block, n].
    """
    all_rows = np.arange(len(documents))
    for first in range(0, len(queries), _QUERY_ROWS):
        block = queries_in(queries, first, first + _QUERY_ROWS)
        yield _score_rows(block, documents, all_rows)


def _score_rows(queries: TokenVectors, documents: TokenVectors, rows: np.ndarray) -> np.ndarray:
    """Returns what `score_texts` does, in blocks of documents."""
    scores = [np.empty((len(queries), 0), np.float32)]
    for start in range(0, len(rows), _DOCUMENT_ROWS):
        block = rows[start : start + _DOCUMENT_ROWS]
        block_scores = score_texts(queries, documents, block)
        scores.append(block_scores)
    return np.concatenate(scores, axis=1)


def queries_in(queries: TokenVectors, first: int, last: int) -> TokenVectors:
    """Return some of the texts.

    Args:
        queries: the vectors of texts.
        first: the row of the first one.
        last: the row behind the last one.
    """
    last = min(last, len(queries))
    texts = [queries.text(row) for row in range(first, last)]
    return TokenVectors.pack(texts, queries.width)


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
    num_documents = len(documents)
    num_candidates = max(num_candidates, k)
    means = unit_vectors(documents.means(), np.float32)
    query_means = unit_vectors(queries.means(), np.float32)
    results = []
    for row, query_mean in enumerate(query_means):
        rows = np.arange(num_documents)
        if num_candidates < num_documents:
            nearness = means @ query_mean
            order = np.argpartition(-nearness, num_candidates)
            rows = np.sort(order[:num_candidates])
        query = queries_in(queries, row, row + 1)
        scores = _score_rows(query, documents, rows)[0]
        best = np.argsort(-scores, kind="stable")[:k]
        hits = zip(
            rows[best].tolist(),
            scores[best].tolist(),
            strict=True,
        )
        results.append(list(hits))
    return results

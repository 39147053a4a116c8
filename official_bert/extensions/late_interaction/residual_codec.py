"""Vectors as the nearest of some centroids and the rest, the residual, in few bits.

Santhanam et al. (2022), ColBERTv2, section 3.3. A component of a residual is the number of one of
2^bits buckets, which have equal shares of a sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

import numpy as np

from official_bert.io.errors import InputError
from official_bert.metrics.cosines import unit_vectors

RESIDUAL_BITS = (2, 4)
_BYTE = 8
MOST_SAMPLES = 1 << 16  # The vectors from which centroids and buckets are learned.
_NUM_ITERATIONS = 4
_MOST_PRODUCTS = 1 << 24  # The products with centroids in memory at a time: 64 MiB.
_MOST_CENTROIDS = 1 << 16  # Their numbers fit into 16 bits.


@dataclasses.dataclass(frozen=True)
class ResidualCodec:
    """The centroids and the buckets.

    Attributes:
        centroids: float32[C, D].
        cutoffs: the bounds between the buckets in ascending order, float32[2^bits - 1].
        bucket_values: the median of each bucket, float32[2^bits].
    """

    centroids: np.ndarray
    cutoffs: np.ndarray
    bucket_values: np.ndarray

    @classmethod
    def learn(cls, vectors: np.ndarray, bits: int, seed: int = 0) -> Self:
        """Learn centroids and buckets.

        Args:
            vectors: float32[n, D] of norm 1, n at least 1. Of many vectors, some are read.
            bits: the bits of a component, 2 or 4.
            seed: the seed of the choice of vectors.

        Raises:
            InputError: D components do not fill whole bytes.
        """
        width = vectors.shape[1]
        if width * bits % _BYTE:
            raise InputError(
                f"bits={bits}: the vectors have {width} components, which do not fill whole bytes; "
                "give 8 bits, or train a model with another --token_width"
            )
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(vectors))
        sample = vectors[order[:MOST_SAMPLES]]
        count = _choose_count(len(sample))
        centroids = _find_centroids(sample, count)
        nearest = _find_nearest(sample, centroids)
        residuals = sample - centroids[nearest]
        num_buckets = 1 << bits
        numbers = np.arange(num_buckets)
        cutoffs = np.quantile(residuals, numbers[1:] / num_buckets)
        medians = np.quantile(residuals, (numbers + 0.5) / num_buckets)
        return cls(
            centroids,
            cutoffs.astype(np.float32),
            medians.astype(np.float32),
        )

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return self.centroids.shape[1]

    @property
    def bits(self) -> int:
        """The bits of a component of a residual."""
        return (len(self.bucket_values) - 1).bit_length()

    def encode(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the nearest centroids, and the packed residuals.

        Args:
            vectors: float32[n, D].

        Returns:
            uint16[n] and uint8[n, D * bits / 8]. The first component has the lowest bits of a byte.
        """
        centroid_ids = _find_nearest(vectors, self.centroids)
        buckets = np.empty(vectors.shape, np.uint8)
        for block in _blocks(len(vectors), self.width):
            nearest = self.centroids[centroid_ids[block]]
            residuals = vectors[block] - nearest
            buckets[block] = np.searchsorted(
                self.cutoffs,
                residuals,
                side="right",
            )
        per_byte = _BYTE // self.bits
        shape = (len(vectors), self.width // per_byte)
        codes = np.zeros(shape, np.uint8)
        for place in range(per_byte):
            shift = place * self.bits
            codes |= buckets[:, place::per_byte] << shift
        return centroid_ids.astype(np.uint16), codes

    def decode(self, centroid_ids: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return vectors of norm 1, float32[n, D].

        Args:
            centroid_ids: the numbers of the nearest centroids, uint16[n].
            codes: the packed residuals, uint8[n, D * bits / 8].
        """
        per_byte = _BYTE // self.bits
        vectors = self.centroids[centroid_ids]
        for place in range(per_byte):
            shift = place * self.bits
            buckets = (codes >> shift) & len(self.cutoffs)
            vectors[:, place::per_byte] += self.bucket_values[buckets]
        return unit_vectors(vectors, np.float32)

    def is_consistent(self) -> bool:
        """Return whether the arrays have the right types and fit together."""
        num_dimensions = {"centroids": 2, "cutoffs": 1, "bucket_values": 1}
        for name, number in num_dimensions.items():
            array = getattr(self, name)
            if array.ndim != number or array.dtype != np.float32:
                return False
            if not array.size or not np.isfinite(array).all():
                return False
        num_buckets = len(self.bucket_values)
        if num_buckets not in [1 << bits for bits in RESIDUAL_BITS]:
            return False
        fills_bytes = self.width * self.bits % _BYTE == 0
        return fills_bytes and len(self.cutoffs) == num_buckets - 1


def _choose_count(num_vectors: int) -> int:
    """Returns the number of centroids for a sample, as ColBERTv2 chooses it."""
    count = 1 << int(np.log2(16 * np.sqrt(num_vectors)))
    return min(count, num_vectors, _MOST_CENTROIDS)


def _find_centroids(vectors: np.ndarray, count: int) -> np.ndarray:
    """Returns centroids, float32[count, D]: k-means from the first vectors, which are random."""
    centroids = vectors[:count].astype(np.float32)
    for _ in range(_NUM_ITERATIONS):
        nearest = _find_nearest(vectors, centroids)
        order = np.argsort(nearest, kind="stable")
        # The clusters that have vectors, one after the other; the others keep their centroids.
        clusters, starts, sizes = np.unique(
            nearest[order],
            return_index=True,
            return_counts=True,
        )
        sums = np.add.reduceat(
            vectors[order],
            starts,
            axis=0,
        )
        centroids[clusters] = sums / sizes[:, None]
    return centroids


def _find_nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Returns the number of the nearest centroid of each vector, int64[n]."""
    half_squares = np.square(centroids).sum(axis=1) / 2
    nearest = np.empty(len(vectors), np.int64)
    for block in _blocks(len(vectors), len(centroids)):
        nearness = vectors[block] @ centroids.T
        nearness -= half_squares
        nearest[block] = nearness.argmax(axis=1)
    return nearest


def _blocks(num_rows: int, row_size: int) -> Iterator[slice]:
    """Yields the rows of an array in blocks of a bounded size."""
    block_rows = max(_MOST_PRODUCTS // row_size, 1)
    for start in range(0, num_rows, block_rows):
        yield slice(start, start + block_rows)

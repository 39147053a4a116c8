"""The cosines of vectors, float[..., width] of any norm; the cosine of a vector of zeros is 0.
Also a map of vectors.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from official_bert.io.errors import Diverged

_SMALLEST_NORM = 1e-12
# Of a map: the largest numbers of texts and of their characters, and the decimals of places.
_MOST_POINTS = 1000
_LONGEST_TEXT = 400
_DIGITS = 5


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector of `a` and the vector at the same place of `b`.

    Args:
        a: float32[..., width].
        b: the same shape.

    Returns:
        float64[...].
    """
    return np.einsum("...d,...d->...", unit_vectors(a), unit_vectors(b))


def all_cosines(queries: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """Returns the cosines of all pairs of a query and a vector of the corpus.

    Equal rows have equal cosines, wherever the rows are.

    Args:
        queries: float[q, width].
        corpus: float[n, width].

    Returns:
        float32[q, n].
    """
    return (unit_vectors(queries) @ unit_vectors(corpus).T).astype(np.float32)


def rank_rows(
    query: np.ndarray,
    corpus: np.ndarray,
    rows: np.ndarray,
    most: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks rows of a corpus by their cosine with a query; equal cosines keep their order.

    Args:
        query: float[width].
        corpus: float[n, width].
        rows: the rows to rank, int[k].
        most: the number of rows to return; None for all.

    Returns:
        The cosines of the best rows, the highest first, and these rows.
    """
    scores = all_cosines(query[None], corpus[rows])[0]
    order = np.argsort(-scores, kind="stable")[:most]
    return scores[order], rows[order]


def unit_vectors(vectors: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """Returns vectors divided by their norms.

    Args:
        vectors: float[..., width].
        dtype: the type of the result.

    Raises:
        Diverged: a number is not finite.
    """
    vectors = np.asarray(vectors, dtype)
    return vectors / find_norms(vectors, dtype)[..., None]


def find_norms(vectors: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """Returns the norms of vectors, at least 1e-12 each.

    Args:
        vectors: float32[..., width].
        dtype: the type of the result.

    Raises:
        Diverged: a number is not finite.
    """
    norms = np.linalg.norm(np.asarray(vectors, dtype), axis=-1)
    # No number is lower than NaN, which would rank first.
    if not np.isfinite(norms).all():
        raise Diverged(
            "the vectors have numbers that are not finite; use a model whose training did not "
            "diverge"
        )
    return np.maximum(norms, dtype(_SMALLEST_NORM))


def map_texts(texts: Sequence[str], vectors: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yields texts with their places on the plane on which their vectors differ most.

    The axes are the two largest principal components. Of many texts, some are left out.

    Args:
        texts: the texts.
        vectors: their vectors, float[n, D].
    """
    last = len(vectors) - 1
    spread = np.linspace(0, last, _MOST_POINTS)
    chosen = np.unique(spread.astype(int))
    rows = vectors[chosen].astype(np.float64)
    centered = rows - rows.mean(axis=0)
    _, _, components = np.linalg.svd(
        centered,
        full_matrices=False,
    )
    projected = centered @ components[:2].T
    # A single text, or vectors of one component, have no second axis.
    places = np.zeros((len(rows), 2))
    num_axes = projected.shape[1]
    places[:, :num_axes] = projected
    rounded = places.round(_DIGITS)
    for row, (x, y) in zip(
        chosen,
        rounded.tolist(),
        strict=True,
    ):
        text = texts[row]
        yield {
            "text": text[:_LONGEST_TEXT],
            "x": x,
            "y": y,
        }

"""The cosines of vectors, float[..., width] of any norm; the cosine of a vector of zeros is 0."""

import numpy as np

from official_bert.io.errors import Diverged

_SMALLEST_NORM = 1e-12


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector of `a`, float32[..., width], and its partner in `b`:
    float64[...].
    """
    return np.einsum("...d,...d->...", unit_vectors(a), unit_vectors(b))


def all_cosines(queries: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """Returns the cosines of all pairs, float32[q, n]; equal rows have equal ones, wherever they
    stand in a block.
    """
    return (unit_vectors(queries) @ unit_vectors(corpus).T).astype(np.float32)


def unit_vectors(vectors: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """Divides vectors, float[..., width], by their norms; raises Diverged if a number is not
    finite.
    """
    vectors = np.asarray(vectors, dtype)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(norms).all():  # no number is below NaN: it would rank first
        raise Diverged(
            "the vectors have numbers that are not finite; take a model whose training did not "
            "diverge"
        )
    return vectors / np.maximum(norms, _SMALLEST_NORM)

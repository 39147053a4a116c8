"""Vectors, an encoder that returns them, and their cosines by numpy."""

import numpy as np

from official_bert.serving.extensible import Extensible

WIDTH = 48
_GENERATOR = np.random.default_rng(3)

# Rows 3, 7, 19 and 33 have the same direction, so that their cosines are equal. Row 40 is zero.
CORPUS = np.zeros((41, WIDTH), np.float32)
CORPUS[:40] = _GENERATOR.normal(size=(40, WIDTH))
CORPUS[7] = CORPUS[3]
CORPUS[19] = 4 * CORPUS[3]
CORPUS[33] = 0.5 * CORPUS[3]

# The last query is row 19 of the corpus.
QUERIES = np.zeros((6, WIDTH), np.float32)
QUERIES[:5] = _GENERATOR.normal(size=(5, WIDTH))
QUERIES[5] = CORPUS[19]

TEXTS = [
    "the cat",
    "",
    "naïve\u2028猫!",
    "two\nlines",
    "the cat",
]


def cosine_table(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute all cosines, rounded to float32 like those of the package."""
    a = a.astype(float)
    b = b.astype(float)
    a_norms = np.linalg.norm(a, axis=1)
    b_norms = np.linalg.norm(b, axis=1)
    norms = np.outer(a_norms, b_norms)
    cosines = a @ b.T / np.maximum(norms, 1e-12)
    return cosines.astype(np.float32)


class Table(Extensible):
    """An encoder that encodes a text as the row of `CORPUS` with the number of its length."""

    methods_hook = "encoder_methods"

    def encode(self, texts):
        if isinstance(texts, str):
            texts = [texts]
        if not texts:
            return np.empty((0, 0), np.float32)
        rows = [len(text) for text in texts]
        return CORPUS[rows]

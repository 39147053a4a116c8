"""The metrics of sparse embeddings: retrieval, and how many words have a weight."""

from __future__ import annotations

import numpy as np

from official_bert.data.retrieval_sets import EncodedTexts
from official_bert.extensions.sparse.vectors import build_matrix, measure_sparsity, score_blocks


def measure(
    encoded: EncodedTexts, indices: np.ndarray, weights: np.ndarray, vocab_size: int
) -> dict[str, float]:
    """Return the metrics of retrieval, and how sparse the texts are.

    Args:
        encoded: the set, n queries and documents.
        indices: the words of each text, int32[n, K].
        weights: their weights, float32[n, K].
        vocab_size: the size of the vocabulary.
    """
    assert encoded.retrieval is not None  # A set that is only predicted has no evaluation.
    matrix = build_matrix(indices, weights, vocab_size)
    queries = matrix[: encoded.num_queries]
    documents = matrix[encoded.num_queries :]
    metrics = encoded.retrieval.measure(score_blocks(queries, documents))
    metrics |= measure_sparsity(queries, documents)
    return {f"eval_{name}": value for name, value in metrics.items()}

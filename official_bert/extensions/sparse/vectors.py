"""Sparse vectors as matrices of SciPy: made, searched and measured in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.io.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_QUERY_ROWS = 64
_CORPUS_ROWS = 1 << 14


def import_scipy() -> Any:
    """Return the module scipy.sparse.

    Raises:
        InputError: SciPy cannot be imported.
    """
    try:
        import scipy.sparse
    except ImportError as error:
        raise InputError(
            "sparse embeddings need SciPy, which cannot be imported "
            f"({error}); pip install 'official-bert[sparse]'"
        ) from None
    return scipy.sparse


def build_matrix(indices: np.ndarray, weights: np.ndarray, vocab_size: int) -> csr_matrix:
    """Build the matrix of the weights of texts.

    Args:
        indices: the words of each text, int[n, K].
        weights: their weights, float32[n, K]; a word of weight 0 is left out.
        vocab_size: the number of columns.

    Returns:
        float32[n, vocab_size], with sorted indices.
    """
    is_active = weights != 0
    ends = np.cumsum(is_active.sum(axis=1))
    starts = np.concatenate([[0], ends])
    matrix = import_scipy().csr_matrix(
        (weights[is_active], indices[is_active].astype(np.int32), starts),
        shape=(len(weights), vocab_size),
    )
    matrix.sort_indices()
    return matrix


def score_blocks(
    queries: csr_matrix, corpus: csr_matrix, query_rows: int = _QUERY_ROWS
) -> Iterator[np.ndarray]:
    """Yield the dot products of all documents with some queries at a time.

    Args:
        queries: float32[q, V].
        corpus: float32[n, V].
        query_rows: the number of queries in a block.

    Yields:
        float32[query_rows, n]. Equal documents have equal scores.
    """
    word_rows = corpus.T.tocsr()
    for start in range(0, queries.shape[0], query_rows):
        yield (queries[start : start + query_rows] @ word_rows).toarray()


def search(
    queries: csr_matrix,
    corpus: csr_matrix,
    k: int,
    corpus_rows: int = _CORPUS_ROWS,
    query_rows: int = _QUERY_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the documents with the largest dot products with each query, best first.

    Memory does not grow with the number of documents, apart from the corpus itself. Of equal scores
    the lower row comes first.

    Args:
        queries: float32[q, V].
        corpus: float32[n, V].
        k: the number of documents for a query; n if it is larger.
        corpus_rows: the documents in a block, which change no result.
        query_rows: the queries in a block, which change no result.

    Returns:
        The scores, float32[q, k], and the rows, int64[q, k].
    """
    num_queries, num_documents = queries.shape[0], corpus.shape[0]
    k = min(k, num_documents)
    best_scores = np.full((num_queries, k), -np.inf, np.float32)
    best_rows = np.full((num_queries, k), num_documents, np.int64)
    for start in range(0, num_documents, corpus_rows):
        block = corpus[start : start + corpus_rows]
        for first in range(0, num_queries, query_rows):
            last = first + query_rows
            (scores,) = score_blocks(queries[first:last], block, query_rows)
            rows = np.arange(start, start + scores.shape[1])
            all_scores = np.concatenate([best_scores[first:last], scores], axis=1)
            all_rows = np.concatenate(
                [best_rows[first:last], np.broadcast_to(rows, scores.shape)], axis=1
            )
            # Rows of earlier blocks stand first, so a stable order prefers lower rows.
            order = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
            best_scores[first:last] = np.take_along_axis(all_scores, order, axis=1)
            best_rows[first:last] = np.take_along_axis(all_rows, order, axis=1)
    return best_scores, best_rows


def measure_sparsity(queries: csr_matrix, documents: csr_matrix) -> dict[str, float]:
    """Return how many words have a weight.

    Args:
        queries: float32[q, V].
        documents: float32[n, V].

    Returns:
        The mean numbers of words, `query_terms` and `document_terms`, and `flops`, the mean number
        of words that a query and a document share.
    """
    query_shares = queries.getnnz(axis=0) / queries.shape[0]
    document_shares = documents.getnnz(axis=0) / documents.shape[0]
    return {
        "query_terms": queries.nnz / queries.shape[0],
        "document_terms": documents.nnz / documents.shape[0],
        "flops": float(query_shares @ document_shares),
    }

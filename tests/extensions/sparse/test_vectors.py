"""Search over sparse matrices gives what products of dense matrices give, in any blocks."""

import numpy as np
import pytest
import scipy.sparse

from official_bert.extensions.sparse.vectors import (
    build_matrix,
    measure_sparsity,
    score_blocks,
    search,
)

GENERATOR = np.random.default_rng(1)
DENSE = np.float32(GENERATOR.random((70, 20)) * (GENERATOR.random((70, 20)) < 0.2))
QUERIES = np.float32(GENERATOR.random((9, 20)) * (GENERATOR.random((9, 20)) < 0.3))


def matrix(values):
    return scipy.sparse.csr_matrix(values)


@pytest.mark.parametrize(("corpus_rows", "query_rows"), [(1000, 1000), (7, 2), (1, 1), (3, 9)])
def test_a_search_finds_the_largest_products_of_dense_matrices(corpus_rows, query_rows):
    scores, rows = search(matrix(QUERIES), matrix(DENSE), 5, corpus_rows, query_rows)
    products = QUERIES @ DENSE.T
    order = np.argsort(-products.round(5), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, np.take_along_axis(products, order, axis=1), atol=1e-5)
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)


def test_of_equal_documents_the_first_comes_first():
    corpus = matrix(np.repeat(DENSE[:1], 8, axis=0))
    _, rows = search(corpus[:1], corpus, 5, corpus_rows=3)
    np.testing.assert_array_equal(rows, [[0, 1, 2, 3, 4]])
    scores, rows = search(corpus[:1], corpus[:2], 5)
    assert scores.shape == rows.shape == (1, 2)
    no_scores, _ = search(corpus[:0], corpus, 5)
    assert no_scores.shape == (0, 5)


def test_score_blocks_are_products():
    blocks = list(score_blocks(matrix(QUERIES), matrix(DENSE), query_rows=4))
    assert [len(block) for block in blocks] == [4, 4, 1]
    np.testing.assert_allclose(np.concatenate(blocks), QUERIES @ DENSE.T, atol=1e-5)


def test_a_matrix_leaves_out_words_of_weight_0():
    indices = np.array([[4, 1], [0, 0], [3, 0]])
    weights = np.float32([[2, 1], [0, 0], [-5, 0]])
    built = build_matrix(indices, weights, 6)
    expected = np.zeros((3, 6), np.float32)
    expected[0, [4, 1]] = 2, 1
    expected[2, 3] = -5
    np.testing.assert_array_equal(built.toarray(), expected)
    assert built.nnz == 3
    assert built[0].indices.tolist() == [1, 4]


def test_sparsity_counts_words():
    sparsity = measure_sparsity(matrix(QUERIES), matrix(DENSE))
    query_words, document_words = QUERIES != 0, DENSE != 0
    shared = query_words.astype(int) @ document_words.T.astype(int)
    assert sparsity["query_terms"] == pytest.approx(query_words.sum(axis=1).mean())
    assert sparsity["document_terms"] == pytest.approx(document_words.sum(axis=1).mean())
    assert sparsity["flops"] == pytest.approx(shared.mean())

"""Tests of search and of pairs of similar vectors against numpy's sorting."""

import itertools

import numpy as np
import pytest

from official_bert.extensions.retrieval.vector_search import paraphrases, search
from official_bert.io.errors import InputError
from tests.extensions.retrieval.known_vectors import CORPUS, QUERIES, cosine_table

NO_VECTORS = CORPUS[:0]


def sort_rows(table: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the k greatest values of each row; of equal ones the first."""
    order = np.argsort(-table, axis=1, kind="stable")
    return order[:, :k]


@pytest.mark.parametrize("k", [1, 4, 41, 100])
def test_search_returns_numpys_neighbours_for_all_block_sizes(k):
    table = cosine_table(QUERIES, CORPUS)
    expected_rows = sort_rows(table, k)
    expected_scores = np.take_along_axis(table, expected_rows, axis=1)
    for corpus_rows in range(1, len(CORPUS) + 2):
        query_rows = 1 + corpus_rows % 7
        scores, rows = search(QUERIES, CORPUS, k, corpus_rows, query_rows)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_array_equal(scores, expected_scores)
    assert scores.dtype == np.float32
    assert rows.dtype == np.int64
    equal_rows = [3, 7, 19, 33]
    nearest = rows[-1, :4].tolist()
    assert nearest == equal_rows[:k]


def test_search_ranks_cosines_that_float32_products_confuse():
    """The cosines of these rows differ by less than the error of a product in float32."""
    num_rows = 500
    corpus = np.ones((num_rows, 1024), np.float32)
    diagonal = np.arange(num_rows)
    differences = np.linspace(0.02, 0, num_rows, dtype=np.float32)
    corpus[diagonal, diagonal] += differences
    query = corpus[-1:]

    _, rows = search(query, corpus, 20, corpus_rows=64)

    table = cosine_table(query, corpus)
    np.testing.assert_array_equal(rows, sort_rows(table, 20))


class CountingCorpus:
    """A corpus that counts the rows of each read."""

    def __init__(self, rows: np.ndarray):
        self.shape = rows.shape
        self.block_lengths = []
        self._rows = rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, rows: slice):
        block = self._rows[rows]
        self.block_lengths.append(len(block))
        return block


def test_search_reads_a_corpus_once_in_blocks():
    corpus = CountingCorpus(CORPUS)
    search(QUERIES, corpus, 3, corpus_rows=16, query_rows=2)
    assert corpus.block_lengths == [16, 16, 9]


def test_paraphrases_reads_a_corpus_in_blocks():
    corpus = CountingCorpus(CORPUS)
    paraphrases(corpus, 3, block_rows=16)
    assert max(corpus.block_lengths) == 16


def list_similar_pairs(table: np.ndarray, threshold: float) -> list[tuple[int, int]]:
    """List the pairs of rows from a cosine on, the most similar ones first, then by number."""
    rows = range(len(table))
    all_pairs = itertools.combinations(rows, 2)
    pairs = [pair for pair in all_pairs if table[pair] >= threshold]
    return sorted(pairs, key=lambda pair: -table[pair])


@pytest.mark.parametrize(
    ("limit", "threshold"),
    [
        pytest.param(3, -1.0, id="3 pairs"),
        pytest.param(7, -1.0, id="7 pairs"),
        pytest.param(1000, 0.1, id="pairs from a cosine on"),
        pytest.param(1000, -1.0, id="all pairs"),
    ],
)
def test_paraphrases_returns_numpys_pairs_for_all_block_sizes(limit, threshold):
    table = cosine_table(CORPUS, CORPUS)
    similar_pairs = list_similar_pairs(table, threshold)
    pairs = similar_pairs[:limit]
    expected_scores = [table[pair] for pair in pairs]
    assert len(pairs) == limit or limit == 1000
    for block_rows in (1, 2, 7, 40, 41, 100):
        scores, rows = paraphrases(CORPUS, limit, threshold, block_rows)
        np.testing.assert_array_equal(rows, pairs)
        np.testing.assert_array_equal(scores, expected_scores)


def test_an_empty_corpus_has_no_neighbours():
    scores, rows = search(QUERIES, NO_VECTORS, 3)
    num_queries = len(QUERIES)
    assert scores.shape == (num_queries, 0)
    assert rows.shape == (num_queries, 0)


def test_no_query_has_no_neighbours():
    _, rows = search(NO_VECTORS, CORPUS, 3)
    assert rows.shape == (0, 3)


@pytest.mark.parametrize("num_vectors", [0, 1])
def test_fewer_than_two_vectors_have_no_pairs(num_vectors):
    corpus = CORPUS[:num_vectors]
    _, rows = paraphrases(corpus, 3)
    assert rows.shape == (0, 2)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(number):
    broken = CORPUS.copy()
    broken[5, 5] = number
    message = "not finite; use a model whose training"
    with pytest.raises(InputError, match=message):
        search(QUERIES, broken, 3)
    with pytest.raises(InputError, match=message):
        search(broken, CORPUS, 3)
    with pytest.raises(InputError, match=message):
        paraphrases(broken, 3)

"""Search and pairs of similar vectors against numpy's sorting; blocks change nothing."""

import numpy as np
import pytest

from official_bert.extensions.retrieval.vector_search import paraphrases, search
from official_bert.io.errors import InputError
from tests.extensions.retrieval.known_vectors import CORPUS, QUERIES, cosine_table


@pytest.mark.parametrize("k", [1, 4, 41, 100])
def test_the_nearest_are_those_of_numpy_whatever_the_blocks(k):
    table = cosine_table(QUERIES, CORPUS)
    # Of equal ones the lower row comes first.
    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    for corpus_rows in range(1, len(CORPUS) + 2):
        scores, rows = search(QUERIES, CORPUS, k, corpus_rows, query_rows=1 + corpus_rows % 7)
        np.testing.assert_array_equal(rows, order)
        np.testing.assert_array_equal(scores, np.take_along_axis(table, order, axis=1))
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)
    assert rows[-1, :4].tolist() == [3, 7, 19, 33][:k]


def test_what_float32_cannot_tell_apart_is_told_apart():
    """The cosines of these rows differ by less than what a product in float32 is wrong by."""
    corpus = np.ones((500, 1024), np.float32)
    corpus[np.arange(500), np.arange(500)] += np.linspace(0.02, 0, 500, dtype=np.float32)
    table = cosine_table(corpus[-1:], corpus)
    _, rows = search(corpus[-1:], corpus, 20, corpus_rows=64)
    np.testing.assert_array_equal(rows, np.argsort(-table, axis=1, kind="stable")[:, :20])


class Counted:
    """A corpus that is longer than what is read of it at once."""

    def __init__(self, rows: np.ndarray):
        self.shape, self._rows, self.lengths = rows.shape, rows, []

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, rows: slice):
        self.lengths.append(len(self._rows[rows]))
        return self._rows[rows]


def test_a_corpus_is_read_once_in_blocks():
    corpus = Counted(CORPUS)
    search(QUERIES, corpus, 3, corpus_rows=16, query_rows=2)
    assert corpus.lengths == [16, 16, 9]
    corpus.lengths.clear()
    paraphrases(corpus, 3, block_rows=16)
    assert max(corpus.lengths) == 16


@pytest.mark.parametrize(("limit", "threshold"), [(3, -1.0), (7, -1.0), (1000, 0.1), (1000, -1.0)])
def test_pairs_are_those_of_numpy_whatever_the_blocks(limit, threshold):
    table = cosine_table(CORPUS, CORPUS)
    pairs = [
        (i, j)
        for i in range(len(CORPUS))
        for j in range(i + 1, len(CORPUS))
        if table[i, j] >= threshold
    ]
    pairs = sorted(pairs, key=lambda pair: (-table[pair], pair))[:limit]
    assert len(pairs) == limit or limit == 1000
    for block_rows in (1, 2, 7, 40, 41, 100):
        scores, rows = paraphrases(CORPUS, limit, threshold, block_rows)
        assert list(map(tuple, rows.tolist())) == pairs
        np.testing.assert_array_equal(scores, [table[pair] for pair in pairs])


def test_nothing_has_no_neighbours():
    scores, rows = search(QUERIES, CORPUS[:0], 3)
    assert scores.shape == rows.shape == (len(QUERIES), 0)
    assert search(QUERIES[:0], CORPUS, 3)[1].shape == (0, 3)
    assert paraphrases(CORPUS[:1], 3)[1].shape == paraphrases(CORPUS[:0], 3)[1].shape == (0, 2)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(number):
    broken = CORPUS.copy()
    broken[5, 5] = number
    for call in (
        lambda: search(QUERIES, broken, 3),
        lambda: search(broken, CORPUS, 3),
        lambda: paraphrases(broken, 3),
    ):
        with pytest.raises(InputError, match="not finite; take a model whose training"):
            call()

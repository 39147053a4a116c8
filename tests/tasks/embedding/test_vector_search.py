"""Search and pairs of like texts against numpy's sorting; blocks change nothing; what an index
holds is checked.
"""

import concurrent.futures
import os
import zipfile

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.embedding.vector_search import (
    Index,
    TextComparisons,
    paraphrases,
    search,
    write_index,
)

DRAWS = np.random.default_rng(3)
# Rows of equal direction, whose cosines are equal, among others, and one of zeros.
CORPUS = np.concatenate([DRAWS.normal(size=(40, 48)), np.zeros((1, 48))]).astype(np.float32)
CORPUS[[7, 19, 33]] = CORPUS[3] * np.float32([[1], [4], [0.5]])
QUERIES = np.concatenate([DRAWS.normal(size=(5, 48)).astype(np.float32), CORPUS[19:20]])


def cosine_table(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All cosines, rounded to float32 like those that are returned."""
    norms = np.linalg.norm(a.astype(float), axis=1)[:, None] * np.linalg.norm(
        b.astype(float), axis=1
    )
    return (a.astype(float) @ b.astype(float).T / np.maximum(norms, 1e-12)).astype(np.float32)


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


TEXTS = ["the cat", "", "naïve\u2028猫!", "two\nlines", "the cat"]


class Table(TextComparisons):
    """An encoder of known vectors."""

    def encode(self, texts):
        texts = [texts] if isinstance(texts, str) else texts
        return (
            np.stack([CORPUS[len(text)] for text in texts])
            if texts
            else np.empty((0, 0), np.float32)
        )


def test_an_index_has_what_was_written(tmp_path):
    path, vectors = str(tmp_path / "corpus.npz"), Table().encode(TEXTS)
    write_index(path, TEXTS, [vectors[:2], vectors[2:]])
    index = Index.read(path)
    assert index.texts == TEXTS
    np.testing.assert_array_equal(index.vectors, vectors)
    with np.load(path, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["vectors"], vectors)
    queries = ["the cat", "two lines"]
    order = np.argsort(-cosine_table(Table().encode(queries), vectors), axis=1, kind="stable")[
        :, :2
    ].tolist()
    for corpus in (path, tmp_path / "corpus.npz", index, tuple(TEXTS)):
        found = Table().search(queries, corpus, k=2)
        assert [[hit["row"] for hit in hits] for hits in found] == order
        assert all(hit["text"] == TEXTS[hit["row"]] for hits in found for hit in hits)
        assert found[0] == Table().search("the cat", corpus, k=2)
        assert found[0][0]["score"] == 1.0


def test_a_list_is_encoded_once_for_any_number_of_searches():
    table, encoded = Table(), []
    table.encode = lambda texts: encoded.append(texts) or Table().encode(texts)
    corpus = table.index_of(TEXTS)
    found = [table.search(query, corpus, k=2) for query in ("the cat", "two lines")]
    assert encoded == [TEXTS, "the cat", "two lines"]
    assert found == Table().search(["the cat", "two lines"], TEXTS, k=2)


def damaged(change):
    """A function that writes an index of which some arrays are others."""

    def write(path):
        arrays = {
            "texts": np.frombuffer(b"ab", np.uint8),
            "ends": np.int64([1, 2]),
            "vectors": CORPUS[:2],
        }
        np.savez(
            path, **{name: value for name, value in (arrays | change).items() if value is not None}
        )

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read as a .zip file"),
        (lambda path: path.write_text("the cat\n"), "cannot be read as a .zip file"),
        (
            lambda path: path.write_bytes(zipfile.ZipFile.__doc__.encode()),
            "cannot be read as a .zip file",
        ),
        (lambda path: np.save(path.open("wb"), CORPUS), "cannot be read as a .zip file"),
        (damaged({"ends": None}), "lacks the array ends; make it anew with predict.py --index="),
        (
            damaged({"ends": np.float64([1, 2])}),
            "is no index (the ends of its texts are no list of int64)",
        ),
        (
            damaged({"ends": np.int64([[1, 2]])}),
            "is no index (the ends of its texts are no list of int64)",
        ),
        (
            damaged({"texts": np.empty(0, np.uint8), "ends": np.int64([]), "vectors": CORPUS[:0]}),
            "it has no text",
        ),
        (damaged({"vectors": CORPUS[:2, :0]}), "vectors without a component"),
        (damaged({"texts": np.frombuffer(b"a\xff", np.uint8)}), "can't decode byte 0xff"),
        (
            damaged({"texts": np.array(["a", None])}),
            "its array texts cannot be read (it has Python objects",
        ),
        (damaged({"ends": np.int64([3, 2])}), "do not belong together"),
        (damaged({"ends": np.int64([1, 3])}), "do not belong together"),
        (damaged({"vectors": CORPUS[:3]}), "do not belong together"),
        (damaged({"vectors": CORPUS[:2].astype(float)}), "no finite numbers of float32"),
        (damaged({"vectors": np.full((2, 4), np.nan, np.float32)}), "no finite numbers of float32"),
        (damaged({}), "was made by another model; name that one, or make the index anew"),
        (damaged({"vectors": CORPUS[1:3, :9]}), "was made by another model"),
    ],
)
def test_a_file_that_is_no_index_is_named(tmp_path, write, message):
    path = tmp_path / "corpus.npz"
    write(path)
    with pytest.raises(InputError) as error:
        Table().search("the cat", path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_an_index_may_be_written_to_nothing_or_through_a_pipe(tmp_path):
    write_index("/dev/null", ["a"], [CORPUS[:1]])
    os.mkfifo(tmp_path / "pipe")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        content = pool.submit((tmp_path / "pipe").read_bytes)
        write_index(str(tmp_path / "pipe"), ["a"], [CORPUS[:1]])
    (tmp_path / "copy").write_bytes(content.result())
    assert Index.read(str(tmp_path / "copy")).texts == ["a"]


def test_similarity_is_the_cosine():
    table = cosine_table(Table().encode(TEXTS[:2]), Table().encode(TEXTS))
    found = Table().similarity(TEXTS[:2], TEXTS)
    np.testing.assert_array_equal(np.float32(found), table)
    assert Table().similarity("the cat", "") == found[0][1]
    assert Table().similarity("the cat", ["", "the cat"]) == [[found[0][1], 1.0]]


def test_paraphrases_are_pairs_of_texts():
    first, *others = Table().paraphrases(TEXTS, limit=3, threshold=-1)
    assert first == {"text_a": "the cat", "text_b": "the cat", "row_a": 0, "row_b": 4, "score": 1.0}
    assert [one["score"] for one in others] == [
        Table().similarity(one["text_a"], one["text_b"]) for one in others
    ]
    assert len(others) == 2
    assert len(Table().paraphrases(TEXTS, threshold=0.999)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: table.search("a", TEXTS, k=0), "k=0: must be a whole number from 1"),
        (lambda table: table.search("a", TEXTS, k=1.5), "k=1.5: must be a whole number from 1"),
        (lambda table: table.search("a", 7), "corpus: must be a text or a list of texts, got int"),
        (lambda table: table.search("a", ["b", 7]), "corpus: number 1"),
        (lambda table: table.search("a", "absent.npz"), "absent.npz: no such file"),
        (lambda table: table.paraphrases(TEXTS, limit=0), "limit=0: must be a whole number from 1"),
        (
            lambda table: table.paraphrases(TEXTS, threshold="high"),
            "threshold='high': must be a number from -1",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(InputError) as error:
        call(Table())
    assert message in str(error.value)

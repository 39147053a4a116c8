"""Tests of the file of an index: its content, and errors that name a damaged one."""

import concurrent.futures
import os
import zipfile

import numpy as np
import pytest

from official_bert.extensions.retrieval.index import Index, write_index
from official_bert.io.errors import InputError
from tests.extensions.retrieval.known_vectors import CORPUS, TEXTS, Table, cosine_table


def test_an_index_has_what_was_written(tmp_path):
    path = str(tmp_path / "corpus.npz")
    vectors = Table().encode(TEXTS)
    write_index(path, TEXTS, [vectors[:2], vectors[2:]])

    index = Index.read(path)
    assert index.texts == TEXTS
    np.testing.assert_array_equal(index.vectors, vectors)
    with np.load(path, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["vectors"], vectors)


def test_search_reads_a_path_an_index_and_texts_alike(tmp_path):
    path = tmp_path / "corpus.npz"
    vectors = Table().encode(TEXTS)
    write_index(str(path), TEXTS, [vectors])
    queries = ["the cat", "two lines"]
    cosines = cosine_table(Table().encode(queries), vectors)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :2]

    for corpus in (str(path), path, Index.read(str(path)), tuple(TEXTS)):
        hits = Table().search(queries, corpus, k=2)
        for query_hits, rows in zip(hits, order, strict=True):
            assert [hit["row"] for hit in query_hits] == rows.tolist()
            assert [hit["text"] for hit in query_hits] == [TEXTS[row] for row in rows]
        assert hits[0] == Table().search("the cat", corpus, k=2)
        assert hits[0][0]["score"] == 1.0


def write_damaged(**changes):
    """Return a function that writes an index with other arrays; one that is None is left out."""
    arrays = {
        "texts": np.frombuffer(b"ab", np.uint8),
        "ends": np.int64([1, 2]),
        "vectors": CORPUS[:2],
    }
    arrays |= changes
    arrays = {name: value for name, value in arrays.items() if value is not None}

    def write(path):
        np.savez(path, **arrays)

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        pytest.param(
            lambda path: path.write_bytes(b""),
            "cannot be read as a .zip file",
            id="empty file",
        ),
        pytest.param(
            lambda path: path.write_text("the cat\n"),
            "cannot be read as a .zip file",
            id="text",
        ),
        pytest.param(
            lambda path: path.write_bytes(zipfile.ZipFile.__doc__.encode()),
            "cannot be read as a .zip file",
            id="bytes of no zip file",
        ),
        pytest.param(
            lambda path: np.save(path.open("wb"), CORPUS),
            "cannot be read as a .zip file",
            id="npy file",
        ),
        pytest.param(
            write_damaged(ends=None),
            "lacks the array ends; make it anew with official-bert predict --index=",
            id="no ends",
        ),
        pytest.param(
            write_damaged(ends=np.float64([1, 2])),
            "is no index (the ends of its texts are no list of int64)",
            id="float ends",
        ),
        pytest.param(
            write_damaged(ends=np.int64([[1, 2]])),
            "is no index (the ends of its texts are no list of int64)",
            id="matrix of ends",
        ),
        pytest.param(
            write_damaged(texts=np.empty(0, np.uint8), ends=np.int64([]), vectors=CORPUS[:0]),
            "it has no text",
            id="no text",
        ),
        pytest.param(
            write_damaged(vectors=CORPUS[:2, :0]),
            "vectors without a component",
            id="no component",
        ),
        pytest.param(
            write_damaged(texts=np.frombuffer(b"a\xff", np.uint8)),
            "can't decode byte 0xff",
            id="no UTF-8",
        ),
        pytest.param(
            write_damaged(texts=np.array(["a", None])),
            "its array texts cannot be read (it has Python objects",
            id="Python objects",
        ),
        pytest.param(
            write_damaged(ends=np.int64([3, 2])),
            "do not belong together",
            id="decreasing ends",
        ),
        pytest.param(
            write_damaged(ends=np.int64([1, 3])),
            "do not belong together",
            id="end after the last text",
        ),
        pytest.param(
            write_damaged(vectors=CORPUS[:3]),
            "do not belong together",
            id="more vectors than texts",
        ),
        pytest.param(
            write_damaged(vectors=CORPUS[:2].astype(float)),
            "no finite numbers of float32",
            id="float64 vectors",
        ),
        pytest.param(
            write_damaged(vectors=np.full((2, 4), np.nan, np.float32)),
            "no finite numbers of float32",
            id="NaN",
        ),
        pytest.param(
            write_damaged(),
            "was made by another model; name that one, or make the index anew",
            id="vectors of another model",
        ),
        pytest.param(
            write_damaged(vectors=np.ones((2, 60), np.float32)),
            "was made by another model",
            id="wider vectors",
        ),
        pytest.param(
            write_damaged(vectors=CORPUS[2:4, :9]),
            "was made by another model",
            id="narrower vectors of another model",
        ),
        pytest.param(
            write_damaged(vectors=np.zeros((2, 48), np.int8)),
            "nor int8 with ranges, nor binary",
            id="int8 without ranges",
        ),
        pytest.param(
            write_damaged(vectors=np.zeros((2, 48), np.int8), ranges=np.zeros((2, 47), np.float32)),
            "its ranges are not the lowest and highest value of each component",
            id="ranges of other vectors",
        ),
        pytest.param(
            write_damaged(vectors=np.zeros((2, 48), np.int8), ranges=np.zeros((2, 48), np.float32)),
            "was made by another model",
            id="int8 of another model",
        ),
        pytest.param(
            write_damaged(vectors=np.zeros((2, 6), np.uint8)),
            "was made by another model",
            id="signs of another model",
        ),
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

"""The file of an index has what was written, and a damaged one is named."""

import concurrent.futures
import os
import zipfile

import numpy as np
import pytest

from official_bert.extensions.retrieval.index import Index, write_index
from official_bert.io.errors import InputError
from tests.extensions.retrieval.known_vectors import CORPUS, TEXTS, Table, cosine_table


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
        (
            damaged({"ends": None}),
            "lacks the array ends; make it anew with official-bert predict --index=",
        ),
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

"""Vectors of 8 bits and of 1 bit: their codes, their search, and their indexes."""

import json
import os

import numpy as np
import pytest

from official_bert import InputError
from official_bert.extensions.retrieval import binary_search, rows, small_vectors
from official_bert.extensions.retrieval.binary_search import search_binary
from official_bert.extensions.retrieval.index import Index
from official_bert.extensions.retrieval.rows import Int8Rows
from official_bert.extensions.retrieval.small_vectors import BlockEncoder
from official_bert.extensions.retrieval.vector_search import search
from tests import toy
from tests.extensions.retrieval.known_vectors import CORPUS, QUERIES, Table, cosine_table
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

RANGES = np.stack([CORPUS.min(0), CORPUS.max(0)])
STEPS = (RANGES[1] - RANGES[0]) / 255


def decode_int8(codes: np.ndarray) -> np.ndarray:
    """The middles of the steps that codes name."""
    return RANGES[0] + (codes.astype(float) + 128.5) * STEPS


def test_int8_counts_steps_between_the_lowest_and_the_highest_value():
    codes = small_vectors.encode_int8(CORPUS, small_vectors.find_ranges(CORPUS))
    assert codes.dtype == np.int8
    assert codes.min() == -128
    assert codes.max() == 127
    assert np.abs(decode_int8(codes) - CORPUS).max() < 0.51 * STEPS.max()
    # Values beyond the ranges get the first and the last step; a constant component has one.
    ranges = np.float32([[0, 0, 1], [1, 1, 1]])
    codes = small_vectors.encode_int8(np.float32([[-1, 2, 1]]), ranges)
    assert codes.tolist() == [[-128, 127, -128]]


def test_binary_packs_the_signs():
    codes = small_vectors.encode_binary(CORPUS)
    assert codes.shape == (41, 6)
    signs = np.where(CORPUS > 0, 1, -1)
    np.testing.assert_array_equal(small_vectors.decode_binary(codes), signs)
    assert codes[0, 0] == int("".join("1" if x > 0 else "0" for x in CORPUS[0, :8]), 2)


@pytest.mark.needs_extra("sentence_transformers")
def test_the_codes_are_those_of_sentence_transformers():
    from sentence_transformers.util.quantization import quantize_embeddings

    codes = small_vectors.encode_int8(CORPUS, small_vectors.find_ranges(CORPUS))
    np.testing.assert_array_equal(codes, quantize_embeddings(CORPUS, "int8"))
    codes = small_vectors.encode_binary(CORPUS)
    np.testing.assert_array_equal(codes, quantize_embeddings(CORPUS, "ubinary"))


@pytest.mark.parametrize("corpus_rows", [4, 100])
@pytest.mark.parametrize("k", [1, 7, 50])
def test_int8_is_searched_as_its_decoded_vectors(k, corpus_rows):
    codes = small_vectors.encode_int8(CORPUS, RANGES)
    cosines = cosine_table(QUERIES, decode_int8(codes))
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    scores, places = search(QUERIES, Int8Rows(codes, RANGES), k, corpus_rows, query_rows=4)
    np.testing.assert_allclose(scores, np.take_along_axis(cosines, order, axis=1), atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(cosines, places, axis=1), scores, atol=1e-5)


@pytest.mark.parametrize("is_writable", [True, False])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_compiled_products_of_few_queries_are_those_of_numpy(monkeypatch, num_queries, is_writable):
    monkeypatch.setattr(rows, "WINDOW_ROWS", 8)
    codes = small_vectors.encode_int8(CORPUS, RANGES)
    codes.flags.writeable = is_writable
    queries = QUERIES[:num_queries]
    corpus = Int8Rows(codes, RANGES)
    expected = queries.astype(float) @ decode_int8(codes).T
    for start in range(0, 41, 8):  # The last block is shorter.
        block = corpus.block(start, start + 8)
        np.testing.assert_allclose(
            block.products(queries), expected[:, start : start + 8], atol=1e-5
        )
    scores, places = search(queries, corpus, 5, corpus_rows=8)
    whole_scores, whole_places = search(queries, corpus, 5)
    np.testing.assert_array_equal(scores, whole_scores)
    np.testing.assert_array_equal(places, whole_places)


def test_pieces_of_int8_vectors_change_no_product(monkeypatch):
    monkeypatch.setattr(rows, "_PIECE_ROWS", 7)
    codes = small_vectors.encode_int8(CORPUS, RANGES)
    products = Int8Rows(codes, RANGES).products(QUERIES[:2])
    expected = QUERIES[:2].astype(float) @ decode_int8(codes).T
    np.testing.assert_allclose(products, expected, atol=1e-5)


@pytest.mark.parametrize("block_rows", [3, 1 << 13])
@pytest.mark.parametrize(("k", "rescore"), [(1, 4), (3, 2), (50, 1), (5, 100)])
def test_the_nearest_signs_are_ordered_by_the_query(monkeypatch, k, rescore, block_rows):
    monkeypatch.setattr(binary_search, "_BLOCK_ROWS", block_rows)
    monkeypatch.setattr(binary_search, "_SPARE", 1)
    codes = small_vectors.encode_binary(CORPUS)
    signs = np.where(CORPUS > 0, 1, -1)
    scores, all_places = search_binary(QUERIES, codes, k, rescore)
    for number, query in enumerate(QUERIES):
        distances = ((query > 0) != (CORPUS > 0)).sum(axis=1)
        nearest = np.sort(np.argsort(distances, kind="stable")[: k * rescore])
        cosines = cosine_table(query[None], signs[nearest])[0]
        order = np.argsort(-cosines, kind="stable")[:k]
        assert all_places[number].tolist() == nearest[order].tolist()
        np.testing.assert_allclose(scores[number], cosines[order], atol=1e-6)


def test_ranges_are_those_of_the_first_vectors(monkeypatch):
    monkeypatch.setattr(small_vectors, "_CALIBRATION_ROWS", 20)
    encoded = BlockEncoder("int8")
    for block in np.split(CORPUS, [8, 22, 30]):
        encoded.add(block)
    codes = np.concatenate(encoded.finish())
    first = CORPUS[:22]
    np.testing.assert_array_equal(encoded.ranges, [first.min(0), first.max(0)])
    np.testing.assert_array_equal(codes, small_vectors.encode_int8(CORPUS, encoded.ranges))


def test_an_index_in_python_may_be_small():
    texts = ["a" * row for row in range(40)]
    whole = Table().index_of(texts)
    for vector_type, size in (("int8", 4), ("binary", 32)):
        index = Table().index_of(texts, vector_type=vector_type)
        assert index.vectors.nbytes * size == whole.vectors.nbytes
        assert index.width == 48
        hits = Table().search(["a" * 5, "a" * 9], index, k=3)
        assert [each[0]["row"] for each in hits] == [5, 9]
    cut = Table().index_of(texts, width=8)
    np.testing.assert_allclose(np.linalg.norm(cut.vectors, axis=1), 1, atol=1e-6)
    cosines = cosine_table(CORPUS[5:6, :8], CORPUS[:40, :8])[0]
    hits = Table().search("a" * 5, cut, k=40)
    np.testing.assert_allclose([hit["score"] for hit in hits], -np.sort(-cosines), atol=1e-6)
    for arguments, message in (
        ({"vector_type": "int4"}, "vector_type='int4': must be one of float32, int8, binary"),
        ({"width": 49}, "--width=49: the vectors of the model have 48 components"),
        ({"width": 0}, "width=0: must be a whole number from 1"),
        ({"width": 9, "vector_type": "binary"}, "the vectors have 9 components, and 8 share a"),
    ):
        with pytest.raises(InputError, match=message):
            Table().index_of(texts, **arguments)


CORPUS_TEXTS = ["A train left.", "Nobody was on board.", "Rain", "The cat sat on the mat.", "a day"]


@pytest.mark.parametrize(
    ("vector_type", "dtype", "shape"),
    [
        pytest.param("float32", np.float32, (5, 8), id="float32"),
        pytest.param("int8", np.int8, (5, 8), id="int8"),
        pytest.param("binary", np.uint8, (5, 1), id="binary"),
    ],
)
def test_the_command_writes_small_indexes_and_searches_them(tmp_path, vector_type, dtype, shape):
    model = toy.make_bert_base_dir(tmp_path / "model")
    toy.write_sentence_modules(model)
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS_TEXTS))
    path = tmp_path / "index.npz"
    flags = {"model": model, "input_file": tmp_path / "corpus.txt"}
    with exported.models_loaded_once():
        run_here("predict", *flag_list(**flags, index=path, vector_type=vector_type, width=8))
        index = Index.read(str(path))
        assert index.vectors.dtype == dtype
        assert index.vectors.shape == shape
        output = tmp_path / "hits.jsonl"
        run_here("predict", *flag_list(**flags, search=path, output_file=output, top_k=5))
        for row, line in enumerate(output.read_text().splitlines()):
            hits = json.loads(line)["hits"]
            assert hits[0]["score"] > 0.6
            best = [hit["row"] for hit in hits if hit["score"] >= hits[0]["score"] - 1e-6]
            assert row in best
        wide = flag_list(**flags, index=tmp_path / "wide.npz", width=17)
        ended = end_of("predict", *wide)
    assert ended.status == 1
    assert "--width=17: the vectors of the model have 16 components" in ended.sentence
    assert not os.path.exists(tmp_path / "wide.npz")

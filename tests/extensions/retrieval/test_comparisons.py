"""Tests of the methods that search and compare texts, against numpy's cosines."""

import itertools

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.extensions.retrieval.index import write_index
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from tests.extensions.retrieval.known_vectors import TEXTS, Table, cosine_table

SENTENCES = ["the cat sat on the mat .", "", "a train left the station at noon", "rain"]


def test_an_index_encodes_a_list_once_for_many_searches():
    encoded = []

    class RecordingTable(Table):
        def encode(self, texts):
            encoded.append(texts)
            return super().encode(texts)

    table = RecordingTable()
    index = table.index_of(TEXTS)
    hits = [
        table.search("the cat", index, k=2),
        table.search("two lines", index, k=2),
    ]
    assert encoded == [TEXTS, "the cat", "two lines"]
    assert hits == Table().search(["the cat", "two lines"], TEXTS, k=2)


def test_similarity_is_the_cosine():
    table = Table()
    expected = cosine_table(table.encode(TEXTS[:2]), table.encode(TEXTS))
    similarities = table.similarity(TEXTS[:2], TEXTS)
    np.testing.assert_array_equal(np.float32(similarities), expected)

    similarity = table.similarity("the cat", "")
    assert similarity == similarities[0][1]
    assert table.similarity("the cat", ["", "the cat"]) == [[similarity, 1.0]]


def test_paraphrases_are_pairs_of_texts():
    table = Table()
    first, *others = table.paraphrases(TEXTS, limit=3, threshold=-1)
    assert first == {
        "text_a": "the cat",
        "text_b": "the cat",
        "row_a": 0,
        "row_b": 4,
        "score": 1.0,
    }
    assert len(others) == 2
    for pair in others:
        assert pair["score"] == table.similarity(pair["text_a"], pair["text_b"])


def test_paraphrases_are_above_the_threshold():
    assert len(Table().paraphrases(TEXTS, threshold=0.999)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda table: table.search("a", TEXTS, k=0),
            "k=0: must be a whole number from 1",
            id="k=0",
        ),
        pytest.param(
            lambda table: table.search("a", TEXTS, k=1.5),
            "k=1.5: must be a whole number from 1",
            id="k=1.5",
        ),
        pytest.param(
            lambda table: table.search("a", 7),
            "corpus: must be a text or a list of texts, got int",
            id="number as corpus",
        ),
        pytest.param(
            lambda table: table.search("a", ["b", 7]),
            "corpus: number 1",
            id="number as text",
        ),
        pytest.param(
            lambda table: table.search("a", "absent.npz"),
            "absent.npz: no such file",
            id="absent index",
        ),
        pytest.param(
            lambda table: table.paraphrases(TEXTS, limit=0),
            "limit=0: must be a whole number from 1",
            id="limit=0",
        ),
        pytest.param(
            lambda table: table.paraphrases(TEXTS, threshold="high"),
            "threshold='high': must be a number from -1",
            id="threshold='high'",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(InputError) as error:
        call(Table())
    assert message in str(error.value)


def select_rows(hits: list[dict]) -> list[int]:
    return [hit["row"] for hit in hits]


def test_an_encoder_and_an_export_compare_texts_alike(base, tmp_path):
    """By the cosines of numpy, though the vectors are not divided by their norms."""
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    flags = {"task_name": "embedding", "pooling": "cls", "normalize": False}
    options_class = catalog.options_class("export_saved_model")
    serving_model.export(options_class(model=str(base), export_dir=str(tmp_path / "e"), **flags))
    predictor = Predictor(tmp_path / "e", batch_size=3)
    encoder = embeddings.SentenceEncoder(str(base), "cls", normalize=False)
    index = tmp_path / "c.npz"
    write_index(str(index), SENTENCES, [encoder.encode(SENTENCES)])

    vectors = encoder.encode(SENTENCES)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = vectors @ vectors.T
    order = np.argsort(-table, axis=1, kind="stable")[:, :3].tolist()
    all_pairs = itertools.combinations(range(4), 2)
    pairs = sorted(all_pairs, key=lambda pair: -table[pair])
    pair_scores = [table[pair] for pair in pairs]

    for model in (encoder, predictor):
        similarities = model.similarity(SENTENCES, SENTENCES)
        np.testing.assert_allclose(similarities, table, atol=2e-6)
        for corpus in (SENTENCES, index):
            hits = model.search(SENTENCES, corpus, k=3)
            assert [select_rows(query_hits) for query_hits in hits] == order
            query_hits = model.search(SENTENCES[1], corpus, k=3)
            assert select_rows(query_hits) == order[1]
        results = model.paraphrases(SENTENCES, threshold=-1)
        assert [(result["row_a"], result["row_b"]) for result in results] == pairs
        scores = [result["score"] for result in results]
        np.testing.assert_allclose(scores, pair_scores, atol=2e-6)

    query = SENTENCES[2]
    assert predictor.rank(query, SENTENCES) == predictor.search(query, SENTENCES)
    assert predictor.rank(query, []) == []

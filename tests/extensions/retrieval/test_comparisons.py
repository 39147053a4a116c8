"""Methods that search and compare texts, against numpy's cosines of the same vectors."""

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.extensions.retrieval.index import write_index
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from tests.extensions.retrieval.known_vectors import TEXTS, Table, cosine_table

SENTENCES = ["the cat sat on the mat .", "", "a train left the station at noon", "rain"]


def test_a_list_is_encoded_once_for_any_number_of_searches():
    table, encoded = Table(), []
    table.encode = lambda texts: encoded.append(texts) or Table().encode(texts)
    corpus = table.index_of(TEXTS)
    found = [table.search(query, corpus, k=2) for query in ("the cat", "two lines")]
    assert encoded == [TEXTS, "the cat", "two lines"]
    assert found == Table().search(["the cat", "two lines"], TEXTS, k=2)


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


def test_an_encoder_and_an_export_compare_texts_alike(base, tmp_path):
    """By the cosines of numpy, though the vectors are not divided by their norms."""
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    flags = {"task_name": "embedding", "pooling": "cls", "normalize": False}
    options_class = catalog.options_class("export_saved_model")
    serving_model.export(options_class(model=str(base), export_dir=str(tmp_path / "e"), **flags))
    predictor = Predictor(tmp_path / "e", batch_size=3)
    encoder = embeddings.SentenceEncoder(str(base), "cls", normalize=False)
    index = tmp_path / "c.npz"
    vectors = encoder.encode(SENTENCES)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = vectors @ vectors.T
    order = np.argsort(-table, axis=1, kind="stable")
    pairs = sorted(
        ((i, j) for i in range(4) for j in range(i + 1, 4)), key=lambda pair: -table[pair]
    )
    write_index(str(index), SENTENCES, [encoder.encode(SENTENCES)])
    for one in (encoder, predictor):
        np.testing.assert_allclose(one.similarity(SENTENCES, SENTENCES), table, atol=2e-6)
        for corpus in (SENTENCES, index):
            hits = one.search(SENTENCES, corpus, k=3)
            assert [[hit["row"] for hit in query_hits] for query_hits in hits] == order[
                :, :3
            ].tolist()
            assert [hit["row"] for hit in one.search(SENTENCES[1], corpus, k=3)] == order[
                1, :3
            ].tolist()
        results = one.paraphrases(SENTENCES, threshold=-1)
        assert [(result["row_a"], result["row_b"]) for result in results] == pairs
        np.testing.assert_allclose(
            [result["score"] for result in results], [table[pair] for pair in pairs], atol=2e-6
        )
    assert predictor.rank(SENTENCES[2], SENTENCES) == predictor.search(SENTENCES[2], SENTENCES)
    assert predictor.rank(SENTENCES[2], []) == []

"""An exported sentence encoder gives the vectors of SentenceEncoder, from ids and from text."""

import pathlib

import numpy as np
import pytest

from official_bert import Predictor, SentenceEncoder
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.embedding.task import EmbeddingTask
from official_bert.tasks.embedding.vector_search import write_index

TEXTS = ["the cat sat on the mat .", "", "a train left the station at noon", "rain"]


def export(
    base: pathlib.Path, folder: pathlib.Path, pooling: str, normalize: bool, exports_text: bool
):
    """Exports an encoder; returns its predictor and the encoder of the model."""
    flags = {
        "model": str(base),
        "task_name": "embedding",
        "export_dir": str(folder),
        "export_text": exports_text,
    }
    serving_model.export(ExportOptions(**flags, pooling=pooling, normalize=normalize))
    return Predictor(folder, batch_size=3), SentenceEncoder(str(base), pooling, normalize)


@pytest.fixture(scope="module")
def unnormalized(base, tmp_path_factory):
    return export(
        base, tmp_path_factory.mktemp("exports"), pooling="cls", normalize=False, exports_text=False
    )


@pytest.mark.parametrize("normalize", [True, False])
def test_the_vectors_are_those_of_the_sentence_encoder(base, unnormalized, tmp_path, normalize):
    predictor, encoder = unnormalized
    if normalize:
        predictor, encoder = export(
            base, tmp_path, pooling="mean", normalize=True, exports_text=True
        )
    found, wanted = predictor.embed(TEXTS), encoder.encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert predictor(TEXTS[0]) == {"embedding": predictor.embed(TEXTS[0])}
    np.testing.assert_array_equal(np.float32(found), predictor.encode(TEXTS))
    # Several windows.
    np.testing.assert_allclose(predictor.encode(TEXTS * 30), np.tile(found, (30, 1)), atol=1e-6)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)


def test_texts_are_compared_as_by_the_sentence_encoder(unnormalized, tmp_path):
    """By the cosines of numpy, though the vectors are not divided by their norms."""
    index, (predictor, encoder) = tmp_path / "c.npz", unnormalized
    vectors = encoder.encode(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = vectors @ vectors.T
    order = np.argsort(-table, axis=1, kind="stable")
    pairs = sorted(
        ((i, j) for i in range(4) for j in range(i + 1, 4)), key=lambda pair: -table[pair]
    )
    write_index(str(index), TEXTS, [encoder.encode(TEXTS)])
    for asked in (encoder, predictor):
        np.testing.assert_allclose(asked.similarity(TEXTS, TEXTS), table, atol=2e-6)
        for corpus in (TEXTS, index):
            hits = asked.search(TEXTS, corpus, k=3)
            assert [[hit["row"] for hit in of_query] for of_query in hits] == order[:, :3].tolist()
            assert [hit["row"] for hit in asked.search(TEXTS[1], corpus, k=3)] == order[
                1, :3
            ].tolist()
        found = asked.paraphrases(TEXTS, threshold=-1)
        assert [(one["row_a"], one["row_b"]) for one in found] == pairs
        np.testing.assert_allclose(
            [one["score"] for one in found], [table[pair] for pair in pairs], atol=2e-6
        )
    assert predictor.rank(TEXTS[2], TEXTS) == predictor.search(TEXTS[2], TEXTS)
    assert predictor.rank(TEXTS[2], []) == []


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="--pooling=median: must be one of mean, cls, max"):
        EmbeddingTask("median")

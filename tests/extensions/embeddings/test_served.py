"""An exported sentence encoder gives the vectors of SentenceEncoder, from ids and from text."""

import pathlib

import numpy as np
import pytest

from official_bert import Predictor, SentenceEncoder, catalog
from official_bert.extensions.embeddings.task import EmbeddingTask
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model

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
    options_class = catalog.options_class("export_saved_model")
    serving_model.export(options_class(**flags, pooling=pooling, normalize=normalize))
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


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="--pooling=median: must be one of mean, cls, max"):
        EmbeddingTask("median")

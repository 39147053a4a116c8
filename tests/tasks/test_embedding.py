"""Tests that an exported sentence encoder gives the vectors of SentenceEncoder, from ids and from text."""

import numpy as np
import pytest

from official_bert import Predictor, SentenceEncoder
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.embedding import EmbeddingTask
from tests import toy
from tests.serving.answers import call, signatures_of

TEXTS = ["the cat sat on the mat .", "", "a train left the station at noon", "rain"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return toy.make_bert_base_dir(tmp_path_factory.mktemp("toy") / "base")


def export(base, folder, **flags) -> Predictor:
    serving_model.export(ExportOptions(model=str(base), task_name="embedding", export_dir=str(folder), **flags))
    return Predictor(str(folder), batch_size=3)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", True), ("max", False)])
def test_the_vectors_are_those_of_the_sentence_encoder(base, tmp_path, pooling, normalize):
    wanted = SentenceEncoder(str(base), pooling, normalize).encode(TEXTS)
    tensors = export(base, tmp_path / "tensors", pooling=pooling, normalize=normalize)
    text = export(base, tmp_path / "text", pooling=pooling, normalize=normalize, export_text=True)
    for predictor in (tensors, text):
        np.testing.assert_allclose(predictor.embed(TEXTS), wanted, atol=2e-6)
    assert tensors(TEXTS[0]) == {"embedding": tensors.embed(TEXTS[0])}
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(tensors.embed(TEXTS), axis=1), 1.0, atol=1e-6)


def test_padding_and_its_length_change_no_vector(base, tmp_path):
    export(base, tmp_path)
    signature = signatures_of(tmp_path / "1")["serving_ids"]
    ids = np.array([[2, 5, 6, 7, 3]], np.int32)
    padded = np.pad(ids, ((0, 0), (0, 40)))
    np.testing.assert_allclose(
        call(signature, {"input_ids": ids})["embedding"], call(signature, {"input_ids": padded})["embedding"], atol=1e-6
    )


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="--pooling=median: must be one of mean, cls, max"):
        EmbeddingTask("median")

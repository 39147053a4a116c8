"""An exported sentence encoder gives the vectors of SentenceEncoder, from ids and from text."""

import numpy as np
import pytest

from official_bert import Predictor, SentenceEncoder
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.embedding.task import EmbeddingTask
from tests import toy

TEXTS = ["the cat sat on the mat .", "", "a train left the station at noon", "rain"]


@pytest.mark.parametrize(("pooling", "normalize", "exports_text"), [("mean", True, True), ("cls", False, False)])
def test_the_vectors_are_those_of_the_sentence_encoder(tmp_path, pooling, normalize, exports_text):
    base, folder = str(toy.make_bert_base_dir(tmp_path / "base")), str(tmp_path / "exports")
    flags = {"model": base, "task_name": "embedding", "export_dir": folder, "export_text": exports_text}
    serving_model.export(ExportOptions(**flags, pooling=pooling, normalize=normalize))
    predictor, wanted = Predictor(folder, batch_size=3), SentenceEncoder(base, pooling, normalize).encode(TEXTS)
    found = predictor.embed(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert predictor(TEXTS[0]) == {"embedding": predictor.embed(TEXTS[0])}
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="--pooling=median: must be one of mean, cls, max"):
        EmbeddingTask("median")

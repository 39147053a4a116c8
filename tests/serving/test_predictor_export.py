"""`Predictor.export`: the SavedModel answers raw text as the model does."""

import pathlib

import numpy as np
import pytest

from official_bert import InputError, Predictor
from tests import toy


def test_an_export_accepts_raw_text_and_answers_as_the_model(tmp_path, caplog):
    predictor = Predictor(toy.make_bert_base_dir(tmp_path / "model"))
    texts = ["the cat sat on the mat", "a train left"]
    paths = [predictor.export(tmp_path / "exports") for _ in range(2)]
    assert paths == [str(tmp_path / "exports" / version) for version in "12"]
    assert "Assets written" not in caplog.text

    exported = Predictor(paths[0])
    expected = [answer["pooled_output"] for answer in predictor(texts)]
    answers = [answer["pooled_output"] for answer in exported(texts)]
    np.testing.assert_allclose(answers, expected, atol=1e-5)
    assert exported.model.record.settings["export_text"]

    with pytest.raises(InputError, match=r"^/.*exports/1: is an export; open the folder of its"):
        exported.export(tmp_path / "again")
    assert not pathlib.Path(tmp_path / "again").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    predictor = Predictor(toy.make_bert_base_dir(tmp_path / "model"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^export_dir=.*file: is a file"):
        predictor.export(tmp_path / "file")

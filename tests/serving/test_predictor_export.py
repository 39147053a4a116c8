"""`Predictor.export`: the SavedModel answers raw text as the model does."""

import pytest

from official_bert import BertClassifier, FullTokenizer, InputError, Predictor
from tests import toy


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """A predictor of a classifier with random weights."""
    folder = tmp_path_factory.mktemp("models")
    bert = str(toy.make_bert_base_dir(folder / "bert"))
    model = BertClassifier.from_pretrained(bert, num_outputs=2)
    tokenizer = FullTokenizer.from_pretrained(bert)
    model.save_pretrained(str(folder / "classifier"), tokenizer=tokenizer, labels=["no", "yes"])
    return Predictor(folder / "classifier")


def test_an_export_accepts_raw_text_and_answers_as_the_model(predictor, tmp_path, caplog):
    path = predictor.export(tmp_path / "exports")
    assert path == str(tmp_path / "exports" / "1")
    assert "Assets written" not in caplog.text

    exported = Predictor(path)
    assert exported.model.record.settings["export_text"]
    for text in ("the cat sat on the mat", "a train left"):
        expected = predictor(text)["probabilities"]
        assert exported(text)["probabilities"] == pytest.approx(expected, abs=1e-5)

    with pytest.raises(InputError, match=r"^/.*exports/1: is an export; open the folder of its"):
        exported.export(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_file_in_place_of_the_folder_is_refused(predictor, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^export_dir='.*/file': is a file"):
        predictor.export(tmp_path / "file")

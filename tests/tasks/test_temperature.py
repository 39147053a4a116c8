"""--calibrate and --abstain_below from the training to predictions and exports, beside numpy."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import scipy.special

from official_bert import Predictor
from official_bert.data.tables import read_conll
from official_bert.io.errors import InputError
from official_bert.metrics.calibration import best_temperature, reliability
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks import temperature
from official_bert.tasks.classification.glue import ColaProcessor
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.tagging.windows import encoded_words
from tests import fine_tuning_runs
from tests.fine_tuning_runs import MAX_LENGTH, figures
from tests.serving import exported
from tests.shared import in_test_long

THRESHOLD = 0.6


@pytest.fixture(autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def run_of(tmp_path, family: str, **changes):
    """A run's options and folder, a model of it whose outputs are not calibrated, and the
    temperature.

    The development set is the training set, which the model has learnt by heart, with other labels
    in some lines.
    """
    options = fine_tuning_runs.prepared(tmp_path, family)
    options = dataclasses.replace(options, num_train_epochs=8.0)
    ending = ".conll" if family == "tagging" else ".tsv"
    lines = (tmp_path / "train").with_suffix(ending).read_text().splitlines(keepends=True)
    changed = [
        line.replace("\ta", "\tb").replace(" O", " B-X") if n % 3 == 1 else line
        for n, line in enumerate(lines)
    ]
    for name in ("dev", "test"):
        (tmp_path / name).with_suffix(ending).write_text(
            "".join(changed if name == "dev" else lines)
        )
    if "abstain_below" in changes:
        dev = tmp_path / "dev.tsv"
        dev.write_text(
            dev.read_text() + "the cat was rain\tunheard of\nthe day in the park\tunheard of\n"
        )
    trained = tmp_path / "trained"
    steps = {"do_train": True, "do_eval": True, "do_predict": True}
    fine_tuning_runs.run(family, options, trained, calibrate=True, **steps, **changes)
    record = json.loads((trained / "task.json").read_text())
    found = record["settings"].pop("temperature")
    bare = shutil.copytree(trained, tmp_path / "bare")
    (bare / "task.json").write_text(
        json.dumps({**record, "settings": {**record["settings"], "abstain_below": None}})
    )
    assert 0.1 < found < 10
    return options, trained, serving_model.CheckpointModel(str(bare)), found


def split_rows(path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


def logits_of(model, texts: list[str]) -> np.ndarray:
    cls, sep = model.tokenizer.vocab["[CLS]"], model.tokenizer.vocab["[SEP]"]
    ids = [
        np.int32([[cls, *model.tokenizer.encode(text)[: MAX_LENGTH - 2], sep]]) for text in texts
    ]
    return np.concatenate([model("serving_ids", {"input_ids": row})["logits"] for row in ids])


@pytest.mark.parametrize(
    ("family", "changes"),
    [("classification", {"abstain_below": THRESHOLD}), *in_test_long(("multi-label", {}))],
)
def test_a_calibrated_classifier(tmp_path, family, changes):
    options, trained, model, found = run_of(tmp_path, family, **changes)
    activation = (
        scipy.special.expit
        if family == "multi-label"
        else lambda logits: scipy.special.softmax(logits, -1)
    )
    rows = split_rows(tmp_path / "dev.tsv")
    is_known = np.array([label != "unheard of" for _, label in rows])
    logits = logits_of(model, [text for text, _ in rows])
    hot = np.array([[name in label.split(",") for name in "abc"] for _, label in rows])[
        is_known
    ].astype(int)
    targets = hot if family == "multi-label" else hot.argmax(1)
    assert found == pytest.approx(best_temperature(logits[is_known], targets), rel=1e-3)
    results = figures(trained)
    assert results["eval_ece"] == pytest.approx(
        reliability(logits[is_known], targets).error, abs=1e-4
    )
    calibrated = reliability(logits[is_known] / found, targets)
    assert results["eval_ece_calibrated"] == pytest.approx(calibrated.error, abs=1e-4)
    table = np.loadtxt(trained / "reliability.tsv", skiprows=1)
    np.testing.assert_allclose(table[:, 3:], np.array(calibrated).T, atol=1e-4)
    if changes:
        assert results["eval_accuracy"] == pytest.approx(
            np.mean(logits[is_known].argmax(1) == targets)
        )
        is_answered = activation(logits / found).max(1) >= THRESHOLD
        assert results["eval_coverage"] == pytest.approx(is_answered.mean())
        assert results["eval_out_of_scope_recall"] == pytest.approx(
            1 - is_answered[~is_known].mean()
        )

    texts = [text for text, *_ in split_rows(tmp_path / "test.tsv")]
    chances = activation(logits_of(model, texts) / found)
    np.testing.assert_allclose(np.loadtxt(trained / "test_results.tsv"), chances, atol=1e-5)
    if changes:
        wanted = ["abc"[row.argmax()] if row.max() >= THRESHOLD else None for row in chances]
        assert None in wanted
        assert {*wanted} != {None}
    serving_model.export(
        ExportOptions(model=str(trained), export_dir=str(tmp_path / "text"), export_text=True)
    )
    folders = [trained, tmp_path / "text"]
    if family == "multi-label":
        folders.append(tmp_path / "tensors")
        serving_model.export(ExportOptions(model=str(trained), export_dir=str(folders[-1])))
    for folder in folders:
        predictor = Predictor(folder)
        answers = predictor(texts)
        np.testing.assert_allclose(
            [[*one["probabilities"].values()] for one in answers], chances, atol=1e-5
        )
        if changes:
            assert [one["label"] for one in answers] == wanted
            short = predictor.classify(texts)
            assert [one["label"] for one in short] == wanted
            assert [one["score"] for one in short] == pytest.approx(chances.max(1), abs=1e-5)
            threshold = 0.95 if folder == trained else 0.0
            labels = ["abc"[row.argmax()] if row.max() >= threshold else None for row in chances]
            assert [
                one["label"] for one in Predictor(folder, abstain_below=threshold)(texts)
            ] == labels
            assert labels != wanted
        else:
            with pytest.raises(
                InputError, match=r"^abstain_below=0.5: .* has no single label for a text; leave it"
            ):
                Predictor(folder, abstain_below=0.5)
    again = {"init_checkpoint": str(trained), "do_eval": True, "do_predict": True}
    fine_tuning_runs.run(
        family, dataclasses.replace(options, max_seq_length=None), tmp_path / "again", **again
    )
    assert (
        figures(tmp_path / "again").items()
        >= {n: v for n, v in results.items() if "ece" in n}.items()
    )
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "again" / "test_results.tsv"), chances, atol=1e-5
    )
    if family == "multi-label":
        # A training without the flag forgets the temperature, which was of other weights.
        fine_tuning_runs.run(family, options, trained, do_train=True, num_train_epochs=8.2)
        assert "temperature" not in json.loads((trained / "task.json").read_text())["settings"]


def test_a_calibrated_tagger(tmp_path):
    _, trained, model, found = run_of(tmp_path, "tagging")
    source = read_conll(str(tmp_path / "dev.conll"))
    words = encoded_words(source, model.labels, MAX_LENGTH, model.tokenizer)
    logits = words.select_words(model.run(words)["logits"])
    targets = np.array(
        [model.labels.index(tag) for sentence in source.sentences for tag in sentence.tags]
    )
    assert found == pytest.approx(best_temperature(logits, targets), rel=1e-3)
    results = figures(trained)
    assert results["eval_ece"] == pytest.approx(reliability(logits, targets).error, abs=1e-4)
    assert results["eval_ece_calibrated"] == pytest.approx(
        reliability(logits / found, targets).error, abs=1e-4
    )
    served = words.select_words(
        serving_model.CheckpointModel(str(trained)).run(words)["probabilities"]
    )
    np.testing.assert_allclose(served, scipy.special.softmax(logits / found, -1), atol=1e-5)
    assert len((trained / "reliability.tsv").read_text().splitlines()) == 16


@pytest.mark.parametrize("value", [0.0, -1.0, 0.049, 20.1, "2", True, float("nan")])
def test_a_temperature_that_no_training_wrote_is_refused(value):
    with pytest.raises(
        InputError, match=f"^the model's record has temperature {value!r}, which no training wrote"
    ):
        temperature.check_temperature(value)
    settings = ClassificationSettings(temperature=value, do_train=True)
    assert ClassificationTask.from_settings(ColaProcessor, settings).temperature is None


@pytest.mark.parametrize("targets", [[0, 1, 2], [1, 2, 0]])
def test_a_temperature_at_its_bound_is_warned_of_and_read(caplog, targets):
    found = temperature.fitted(np.eye(3), np.array(targets))
    assert "The temperature is at its bound" in caplog.text
    assert temperature.check_temperature(found) == found

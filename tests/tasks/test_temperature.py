"""--calibrate and --abstain_below from the training to predictions and exports, beside numpy."""

import dataclasses
import json
import pathlib
import shutil
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special

from official_bert import Predictor
from official_bert.data.tables import read_conll
from official_bert.io.errors import InputError
from official_bert.metrics.calibration import best_temperature, reliability
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.classification.glue import ColaProcessor
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.tagging.windows import encoded_words
from official_bert.tasks.temperature import check_temperature, fitted
from tests import fine_tuning_runs
from tests.fine_tuning_runs import MAX_LENGTH, figures
from tests.serving import exported
from tests.shared import in_test_long

THRESHOLD = 0.6


@pytest.fixture(autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def assert_figures(results: dict[str, float], expected: dict[str, float], **tolerance):
    """Compares some figures of an evaluation, within a tolerance of pytest.approx."""
    actual = {name: results[name] for name in expected}
    assert actual == pytest.approx(expected, **tolerance)


def read_json(path) -> dict:
    return json.loads(path.read_text())


def write_json(path, content: dict):
    path.write_text(json.dumps(content))


def export(trained, export_dir, **flags):
    """Exports a trained model."""
    options = ExportOptions(model=str(trained), export_dir=str(export_dir), **flags)
    serving_model.export(options)


class Run(NamedTuple):
    """A training with --calibrate: its options, its folder and its temperature.

    `uncalibrated` has the same weights, and its outputs are not calibrated.
    """

    options: Any
    output_dir: pathlib.Path
    uncalibrated: serving_model.CheckpointModel
    temperature: float


UNKNOWN_LABEL = "unheard of"


def run_of(tmp_path, family: str, **changes) -> Run:
    """Trains a model and evaluates it with the same examples.

    The model has learnt the training set by heart. In the development set, some lines of it have
    other labels.
    """
    options = fine_tuning_runs.prepared(tmp_path, family)
    options = dataclasses.replace(options, num_train_epochs=8.0)
    ending = ".conll" if family == "tagging" else ".tsv"
    train_file = (tmp_path / "train").with_suffix(ending)
    dev_file = train_file.with_stem("dev")
    lines = train_file.read_text().splitlines(keepends=True)
    train_file.with_stem("test").write_text("".join(lines))
    for number in range(1, len(lines), 3):
        lines[number] = lines[number].replace("\ta", "\tb").replace(" O", " B-X")
    if "abstain_below" in changes:
        lines.append(f"the cat was rain\t{UNKNOWN_LABEL}\n")
        lines.append(f"the day in the park\t{UNKNOWN_LABEL}\n")
    dev_file.write_text("".join(lines))
    trained = tmp_path / "trained"
    fine_tuning_runs.run(
        family,
        options,
        trained,
        calibrate=True,
        do_train=True,
        do_eval=True,
        do_predict=True,
        **changes,
    )
    record = read_json(trained / "task.json")
    settings = record["settings"]
    temperature = settings.pop("temperature")
    assert 0.1 < temperature < 10
    settings["abstain_below"] = None
    uncalibrated_dir = shutil.copytree(trained, tmp_path / "bare")
    write_json(uncalibrated_dir / "task.json", record)
    uncalibrated = serving_model.CheckpointModel(str(uncalibrated_dir))
    return Run(options, trained, uncalibrated, temperature)


def split_rows(path) -> list[list[str]]:
    lines = path.read_text().splitlines()
    return [line.split("\t") for line in lines[1:]]


def logits_of(model, texts: list[str]) -> np.ndarray:
    tokenizer = model.tokenizer
    cls_id = tokenizer.vocab["[CLS]"]
    sep_id = tokenizer.vocab["[SEP]"]
    logits = []
    for text in texts:
        ids = tokenizer.encode(text)[: MAX_LENGTH - 2]
        row = np.int32([[cls_id, *ids, sep_id]])
        outputs = model("serving_ids", {"input_ids": row})
        logits.append(outputs["logits"])
    return np.concatenate(logits)


LABELS = "abc"


def label_ids_of(labels: list[str], family: str) -> np.ndarray:
    """The targets of the labels in a file: int[n], with several labels a text int[n, labels]."""
    rows = []
    for label in labels:
        names = label.split(",")
        rows.append([int(name in names) for name in LABELS])
    hot = np.array(rows)
    return hot if family == "multi-label" else hot.argmax(1)


def best_labels(probabilities: np.ndarray, threshold: float) -> list[str | None]:
    """The most probable label of each text, None where it is less probable than the threshold."""
    labels = []
    for row in probabilities:
        label = LABELS[row.argmax()]
        labels.append(label if row.max() >= threshold else None)
    return labels


def check_abstaining(folder, texts: list[str], probabilities: np.ndarray, threshold: float):
    """Compares the answers of a model with one label a text, and with another threshold."""
    predictor = Predictor(folder)
    labels = best_labels(probabilities, THRESHOLD)
    assert set(labels) > {None}
    answers = predictor(texts)
    assert [answer["label"] for answer in answers] == labels
    short_answers = predictor.classify(texts)
    assert [answer["label"] for answer in short_answers] == labels
    scores = [answer["score"] for answer in short_answers]
    assert scores == pytest.approx(probabilities.max(1), abs=1e-5)

    other_labels = best_labels(probabilities, threshold)
    assert other_labels != labels
    other_answers = Predictor(folder, abstain_below=threshold)(texts)
    assert [answer["label"] for answer in other_answers] == other_labels


def check_evaluation(run: Run, family: str, dev_file) -> dict[str, float]:
    """Compares the temperature, the figures and the table of an evaluation, and returns the
    figures.

    Examples with an unknown label count for the coverage alone.
    """
    texts, labels = zip(*split_rows(dev_file), strict=True)
    logits = logits_of(run.uncalibrated, texts)
    is_known = np.array(labels) != UNKNOWN_LABEL
    known_logits = logits[is_known]
    targets = label_ids_of(labels, family)[is_known]
    temperature = best_temperature(known_logits, targets)
    assert run.temperature == pytest.approx(temperature, rel=1e-3)

    results = figures(run.output_dir)
    calibrated = reliability(known_logits / run.temperature, targets)
    errors = {
        "eval_ece": reliability(known_logits, targets).error,
        "eval_ece_calibrated": calibrated.error,
    }
    assert_figures(results, errors, abs=1e-4)
    header = (run.output_dir / "reliability.tsv").read_text().splitlines()[0]
    assert header == (
        "from\tto\tcount\tprobability\taccuracy\tcount_calibrated\tprobability_calibrated\t"
        "accuracy_calibrated"
    )
    table = np.loadtxt(run.output_dir / "reliability.tsv", skiprows=1)
    np.testing.assert_allclose(table[:, 0], np.arange(15) / 15, atol=1e-6)
    np.testing.assert_allclose(table[:, 1], np.arange(1, 16) / 15, atol=1e-6)
    expected_columns = np.array(calibrated).T
    np.testing.assert_allclose(table[:, 5:], expected_columns, atol=1e-4)
    if not is_known.all():
        is_right = known_logits.argmax(1) == targets
        probabilities = activate(logits / run.temperature, family)
        is_answered = probabilities.max(1) >= THRESHOLD
        answered_unknown = is_answered[~is_known]
        expected = {
            "eval_accuracy": is_right.mean(),
            "eval_coverage": is_answered.mean(),
            "eval_out_of_scope_recall": 1 - answered_unknown.mean(),
        }
        assert_figures(results, expected)
    return results


def activate(logits: np.ndarray, family: str) -> np.ndarray:
    """The probabilities for some logits."""
    if family == "multi-label":
        return scipy.special.expit(logits)
    return scipy.special.softmax(logits, -1)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        pytest.param(
            "classification",
            {"abstain_below": THRESHOLD},
            id="one label or none",
        ),
        *in_test_long(("multi-label", {})),
    ],
)
def test_a_calibrated_classifier(tmp_path, family, changes):
    run = run_of(tmp_path, family, **changes)
    trained = run.output_dir
    results = check_evaluation(run, family, tmp_path / "dev.tsv")

    texts = [row[0] for row in split_rows(tmp_path / "test.tsv")]
    logits = logits_of(run.uncalibrated, texts)
    probabilities = activate(logits / run.temperature, family)
    assert_close(np.loadtxt(trained / "test_results.tsv"), probabilities)

    text_export = tmp_path / "text"
    export(trained, text_export, export_text=True)
    folders = [trained, text_export]
    if family == "multi-label":
        tensor_export = tmp_path / "tensors"
        export(trained, tensor_export)
        folders.append(tensor_export)
    for folder in folders:
        answers = Predictor(folder)(texts)
        values = [list(answer["probabilities"].values()) for answer in answers]
        assert_close(values, probabilities)
        if family == "multi-label":
            message = r"^abstain_below=0.5: .* has no single label for a text; leave it"
            with pytest.raises(InputError, match=message):
                Predictor(folder, abstain_below=0.5)
        else:
            other_threshold = 0.95 if folder == trained else 0.0
            check_abstaining(folder, texts, probabilities, other_threshold)

    again = tmp_path / "again"
    fine_tuning_runs.run(
        family,
        dataclasses.replace(run.options, max_seq_length=None),
        again,
        init_checkpoint=str(trained),
        do_eval=True,
        do_predict=True,
    )
    calibration_errors = {name: results[name] for name in results if "ece" in name}
    assert figures(again).items() >= calibration_errors.items()
    assert_close(np.loadtxt(again / "test_results.tsv"), probabilities)
    if family == "multi-label":
        # A training without the flag forgets the temperature, which was of other weights.
        fine_tuning_runs.run(family, run.options, trained, do_train=True, num_train_epochs=8.2)
        record = read_json(trained / "task.json")
        assert "temperature" not in record["settings"]


def test_a_calibrated_tagger(tmp_path):
    run = run_of(tmp_path, "tagging")
    model = run.uncalibrated
    source = read_conll(str(tmp_path / "dev.conll"))
    words = encoded_words(source, model.labels, MAX_LENGTH, model.tokenizer)
    logits = words.select_words(model.run(words)["logits"])
    label_ids = []
    for sentence in source.sentences:
        label_ids += [model.labels.index(tag) for tag in sentence.tags]
    targets = np.array(label_ids)
    temperature = best_temperature(logits, targets)
    assert run.temperature == pytest.approx(temperature, rel=1e-3)

    calibrated_logits = logits / run.temperature
    errors = {
        "eval_ece": reliability(logits, targets).error,
        "eval_ece_calibrated": reliability(calibrated_logits, targets).error,
    }
    assert_figures(figures(run.output_dir), errors, abs=1e-4)
    calibrated_model = serving_model.CheckpointModel(str(run.output_dir))
    outputs = calibrated_model.run(words)
    probabilities = words.select_words(outputs["probabilities"])
    assert_close(probabilities, scipy.special.softmax(calibrated_logits, -1))
    table = (run.output_dir / "reliability.tsv").read_text()
    assert len(table.splitlines()) == 16


@pytest.mark.parametrize("value", [0.0, -1.0, 0.049, 20.1, "2", True, float("nan")])
def test_a_temperature_that_no_training_wrote_is_refused(value):
    message = rf"^the model's record \(task.json or export.json\) has temperature {value!r}, which no training wrote"
    with pytest.raises(InputError, match=message):
        check_temperature(value)
    settings = ClassificationSettings(temperature=value, do_train=True)
    task = ClassificationTask.from_settings(ColaProcessor, settings)
    assert task.temperature is None


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param([0, 1, 2], id="all are right"),
        pytest.param([1, 2, 0], id="none is right"),
    ],
)
def test_a_temperature_at_its_bound_is_warned_of_and_read(caplog, targets):
    bound = fitted(np.eye(3), np.array(targets))
    assert "The temperature is at its bound" in caplog.text
    assert check_temperature(bound) == bound

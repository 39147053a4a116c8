"""Long texts in windows: their features, their pooling, and equal results of evaluations,
predictions and exports.
"""

import dataclasses
import json

import numpy as np
import pytest

from official_bert import Predictor
from official_bert.data.records.framing import read_examples
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.classification.examples import (
    InputExample,
    PaddingInputExample,
    encode_examples,
)
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.windows import LongTexts
from tests import fine_tuning_runs
from tests.fine_tuning_runs import figures
from tests.serving import exported
from tests.shared import in_test_long

LENGTH = 16
STRIDE = 5
SETTINGS = {
    "long_texts": "windows",
    "doc_stride": STRIDE,
    "max_seq_length": LENGTH,
}
ALL_STEPS = {
    "do_train": True,
    "do_eval": True,
    "do_predict": True,
}
LABELS = "abc"


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


def encode_in_windows(examples, tokenizer):
    """The examples in windows of 5 pieces that begin at every second one."""
    long_texts = LongTexts(2, "mean")
    return encode_examples(examples, ["yes", "no"], 5, tokenizer, long_texts=long_texts)


def test_windows_share_the_label_and_the_weight_of_their_text(tokenizer):
    examples = [
        # 7 pieces: the windows start at 0, 2 and 4.
        InputExample("a", "the cat sat on the mat in", None, "yes"),
        InputExample("b", "", None, "no"),
        PaddingInputExample(),
        InputExample("c", "rain", "", "no"),
    ]
    encoded = encode_in_windows(examples, tokenizer)
    batch = encoded.features(np.arange(6), 5)
    rows = batch["input_ids"].tolist()
    pieces = [" ".join(tokenizer.convert_ids_to_tokens(row)) for row in rows]
    assert pieces == [
        "[CLS] the cat sat [SEP]",
        "[CLS] sat on the [SEP]",
        "[CLS] the mat in [SEP]",
        "[CLS] [SEP] [PAD] [PAD] [PAD]",
        "[PAD] [PAD] [PAD] [PAD] [PAD]",
        "[CLS] rain [SEP] [PAD] [PAD]",
    ]
    assert batch["label_ids"].tolist() == [0, 0, 0, 1, 0, 1]
    assert batch["is_real_example"].tolist() == [1, 1, 1, 1, 0, 1]
    weights = np.float32([1 / 3] * 3 + [1.0] * 3)
    np.testing.assert_array_equal(batch["example_weight"], weights)
    assert encoded.counts == {"window ": 6, "text ": 4}


def test_pairs_have_no_windows(tokenizer):
    pair = InputExample("dev-3", "rain", "the cat", "no")
    message = r"^--long_texts=windows: is for single texts, and example dev-3 is a pair"
    with refusal(message):
        encode_in_windows([pair], tokenizer)


def pool(pooling: str, rows: np.ndarray) -> np.ndarray:
    """Pools the values of one text's windows, [windows, ...]."""
    if pooling == "first":
        return rows[0]
    if pooling == "max":
        return rows.max(axis=0)
    return rows.mean(axis=0)


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_pooling_in_numpy_and_in_the_graph(pooling):
    draws = np.random.default_rng(1)
    values = draws.normal(size=(6, 3)).astype(np.float32)
    num_windows = np.array([1, 3, 2])
    text_numbers = np.int32([0, 1, 1, 1, 2, 2])
    expected = [
        pool(pooling, values[:1]),
        pool(pooling, values[1:4]),
        pool(pooling, values[4:]),
    ]
    long_texts = LongTexts(2, pooling)
    pooled = long_texts.pool(values, num_windows)
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)
    np.testing.assert_array_equal(pooled[0], values[0])
    pooled_in_graph = long_texts.pool_in_graph(values, text_numbers)
    np.testing.assert_allclose(pooled_in_graph, expected, rtol=1e-6)


@pytest.fixture(autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def pool_single_windows(folder, texts: list[str], pooling: str) -> np.ndarray:
    """Pools the logits or scores of a trained model, which runs on each window alone: float[texts,
    outputs].
    """
    model = serving_model.CheckpointModel(str(folder), 3)
    tokenizer = model.tokenizer
    cls_id = tokenizer.vocab["[CLS]"]
    sep_id = tokenizer.vocab["[SEP]"]
    window_size = LENGTH - 2
    pooled = []
    for text in texts:
        ids = tokenizer.encode(text)
        end = max(1, len(ids) - window_size + STRIDE)
        rows = []
        for start in range(0, end, STRIDE):
            window = ids[start : start + window_size]
            batch = np.int32([[cls_id, *window, sep_id]])
            outputs = model("serving_ids", {"input_ids": batch})
            logits = outputs.get("logits", outputs.get("score"))
            rows.append(np.atleast_1d(logits[0]))
        pooled.append(pool(pooling, np.array(rows)))
    return np.array(pooled)


def probabilities(logits: np.ndarray, family: str) -> np.ndarray:
    exponents = np.exp(logits)
    if family == "multi-label":
        return exponents / (1 + exponents)
    return exponents / exponents.sum(-1, keepdims=True)


def expected_losses(logits: np.ndarray, labels: list[str], family: str) -> np.ndarray:
    """The losses of pooled logits or scores, float[n], for the labels as they are in the file."""
    if family == "regression":
        scores = np.array(labels, float)
        return (logits[:, 0] - scores) ** 2
    rows = []
    for label in labels:
        names = label.split(",")
        rows.append([name in names for name in LABELS])
    targets = np.array(rows)
    chances = probabilities(logits, family)
    target_chances = np.where(targets, chances, 1 - chances)
    losses = -np.log(target_chances)
    return losses.mean(-1) if family == "multi-label" else losses[targets]


def expected_answer(row: np.ndarray, family: str) -> str | list[str]:
    """The label or the labels for probabilities, float[labels]."""
    if family == "multi-label":
        chances = zip(LABELS, row, strict=True)
        return [label for label, chance in chances if chance > 0.5]
    return LABELS[row.argmax()]


def check_answers(folder, texts: list[str], expected: np.ndarray, family: str):
    """Compares the answers of a trained model or of an export with pooled scores or probabilities,
    float[texts, outputs].
    """
    predictor = Predictor(folder, batch_size=3)
    assert not predictor.is_cut((texts[0] * 9,))
    answers = predictor(texts)
    if family == "regression":
        values = [[answer["score"]] for answer in answers]
    else:
        values = [list(answer["probabilities"].values()) for answer in answers]
        labels = [answer.get("label", answer.get("labels")) for answer in answers]
        assert labels == [expected_answer(row, family) for row in expected]
    np.testing.assert_allclose(values, expected, atol=1e-5)
    if family == "classification":
        predictor = Predictor(folder, batch_size=3, abstain_below=0.4)
        for answer, row in zip(predictor(texts), expected, strict=True):
            label = LABELS[row.argmax()]
            assert answer["label"] == (label if row.max() >= 0.4 else None)
    message = r"^pooling='none': .*, a model of tsv, has no such setting; leave it out"
    with refusal(message):
        Predictor(folder, batch_size=3, pooling="none")


def load_results(folder) -> np.ndarray:
    return np.loadtxt(folder / "test_results.tsv", ndmin=2)


@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        pytest.param("classification", "mean", id="the mean of one label's logits"),
        *in_test_long(("regression", "max"), ("multi-label", "first")),
    ],
)
def test_evaluations_predictions_and_exports_pool_alike(tmp_path, family, pooling):
    options = fine_tuning_runs.prepared(tmp_path, family)
    options = dataclasses.replace(options, **SETTINGS, pooling=pooling)
    trained = tmp_path / "trained"
    fine_tuning_runs.run(family, options, trained, **ALL_STEPS)
    dev_texts, dev_labels = zip(*read_rows(tmp_path / "dev.tsv"), strict=True)
    test_texts = [row[0] for row in read_rows(tmp_path / "test.tsv")]
    test_logits = pool_single_windows(trained, test_texts, pooling)
    expected = test_logits if family == "regression" else probabilities(test_logits, family)
    np.testing.assert_allclose(load_results(trained), expected, atol=1e-5)

    export_dir = tmp_path / "text"
    export_options = ExportOptions(
        model=str(trained),
        export_dir=str(export_dir),
        export_text=True,
    )
    serving_model.export(export_options)
    check_answers(trained, test_texts, expected, family)
    check_answers(export_dir, test_texts, expected, family)

    dev_logits = pool_single_windows(trained, dev_texts, pooling)
    losses = expected_losses(dev_logits, dev_labels, family)
    mean_loss = pytest.approx(losses.mean(), rel=1e-4)
    assert figures(trained)["eval_loss"] == mean_loss
    records = read_examples(str(trained / "train.tf_record"))
    weights = [record["example_weight"][0] for _, record in records]
    assert len(weights) > 20
    assert sum(weights) == pytest.approx(20)  # There are 20 texts.
    recorded = json.loads((trained / "task.json").read_text())["settings"]
    expected_settings = SETTINGS | {"pooling": pooling, "num_texts": 1}
    assert recorded.items() >= expected_settings.items()

    # A run without the flags reads them from the record of the model.
    options = dataclasses.replace(
        options,
        long_texts=None,
        doc_stride=None,
        pooling=None,
        max_seq_length=None,
    )
    again = tmp_path / "again"
    fine_tuning_runs.run(
        family,
        options,
        again,
        init_checkpoint=str(trained),
        do_predict=True,
        predict_batch_size=3,
    )
    np.testing.assert_allclose(load_results(again), expected, atol=1e-5)


def read_rows(path) -> list[list[str]]:
    """The fields of the rows below the header of a TSV file."""
    lines = path.read_text().splitlines()
    return [line.split("\t") for line in lines[1:]]


def test_short_texts_have_the_same_results_in_windows(tmp_path_factory, tmp_path):
    truncated = fine_tuning_runs.shared_run(tmp_path_factory, "classification", do_eval=True)
    fine_tuning_runs.run(
        "classification",
        truncated.options,
        tmp_path,
        long_texts="windows",
        **ALL_STEPS,
    )
    for name in ("eval_results.txt", "test_results.tsv"):
        expected = (truncated.output_dir / name).read_bytes()
        assert (tmp_path / name).read_bytes() == expected


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"long_texts": "all"}, id="long_texts"),
        pytest.param({"doc_stride": 0}, id="doc_stride"),
        pytest.param({"pooling": "cls"}, id="pooling"),
    ],
)
def test_a_record_that_no_training_wrote_is_rejected(setting):
    values = SETTINGS | {"pooling": "mean"} | setting
    settings = ClassificationSettings.from_values(values)
    message = r"^--long_texts=.*, --doc_stride=.*, --pooling=.*: give windows, a positive"
    with refusal(message):
        LongTexts.from_settings(settings)

"""Long texts in windows: what they are, how they are pooled, and that every way to a prediction
pools alike.
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

LENGTH, STRIDE = 16, 5  # of the windows of a run
SETTINGS = {"long_texts": "windows", "doc_stride": STRIDE, "max_seq_length": LENGTH}


def test_windows_share_the_label_and_the_weight_of_their_text(tokenizer):
    examples = [
        # 7 pieces: windows from 0, 2 and 4.
        InputExample("a", "the cat sat on the mat in", None, "yes"),
        InputExample("b", "", None, "no"),
        PaddingInputExample(),
        InputExample("c", "rain", "", "no"),
    ]
    encoded = encode_examples(
        examples, ["yes", "no"], 5, tokenizer, long_texts=LongTexts(2, "mean")
    )
    batch = encoded.features(np.arange(6), 5)
    pieces = [" ".join(tokenizer.convert_ids_to_tokens(row)) for row in batch["input_ids"].tolist()]
    assert pieces == [
        "[CLS] the cat sat [SEP]", "[CLS] sat on the [SEP]", "[CLS] the mat in [SEP]", "[CLS] [SEP] [PAD] [PAD] [PAD]",
        "[PAD] [PAD] [PAD] [PAD] [PAD]", "[CLS] rain [SEP] [PAD] [PAD]",
    ]  # fmt: skip
    assert batch["label_ids"].tolist() == [0, 0, 0, 1, 0, 1]
    assert batch["is_real_example"].tolist() == [1, 1, 1, 1, 0, 1]
    np.testing.assert_array_equal(batch["example_weight"], np.float32([1 / 3] * 3 + [1.0] * 3))
    assert encoded.counts == {"window ": 6, "text ": 4}
    pair = [InputExample("dev-3", "rain", "the cat", "no")]
    with pytest.raises(
        InputError, match=r"^--long_texts=windows: is for single texts, and example dev-3 is a pair"
    ):
        encode_examples(pair, ["yes", "no"], 5, tokenizer, long_texts=LongTexts(2, "mean"))


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_pooling_in_numpy_and_in_the_graph(pooling):
    values = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    counts = np.array([1, 3, 2])
    rows = values[:1], values[1:4], values[4:]
    pool = {"mean": np.mean, "max": np.max, "first": lambda window, axis: window[0]}[pooling]
    wanted = [pool(row, axis=0) for row in rows]
    rules = LongTexts(2, pooling)
    np.testing.assert_allclose(rules.pool(values, counts), wanted, rtol=1e-6)
    np.testing.assert_array_equal(rules.pool(values, counts)[0], values[0])
    np.testing.assert_allclose(
        rules.pool_in_graph(values, np.int32([0, 1, 1, 1, 2, 2])), wanted, rtol=1e-6
    )


@pytest.fixture(autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def outputs_by_hand(folder, texts: list[str], pooling: str) -> np.ndarray:
    """Pools the logits or scores of a trained model, which is given each window alone:
    float[texts, outputs].
    """
    model = serving_model.CheckpointModel(str(folder), 3)
    vocab, pool = (
        model.tokenizer.vocab,
        {"mean": np.mean, "max": np.max, "first": lambda rows, axis: rows[0]}[pooling],
    )
    found = []
    for text in texts:
        ids = model.tokenizer.encode(text)
        starts = range(0, max(1, len(ids) - (LENGTH - 2) + STRIDE), STRIDE)
        rows = []
        for start in starts:
            window = [vocab["[CLS]"], *ids[start : start + LENGTH - 2], vocab["[SEP]"]]
            outputs = model("serving_ids", {"input_ids": np.int32([window])})
            rows.append(np.atleast_1d(outputs.get("logits", outputs.get("score"))[0]))
        found.append(pool(np.array(rows), axis=0))
    return np.array(found)


@pytest.mark.parametrize(
    ("family", "pooling"),
    [("classification", "mean"), *in_test_long(("regression", "max"), ("multi-label", "first"))],
)
def test_evaluations_predictions_and_exports_pool_alike(tmp_path, family, pooling):
    options = dataclasses.replace(
        fine_tuning_runs.prepared(tmp_path, family), **SETTINGS, pooling=pooling
    )
    trained = tmp_path / "trained"
    fine_tuning_runs.run(family, options, trained, do_train=True, do_eval=True, do_predict=True)
    rows = {
        name: (tmp_path / f"{name}.tsv").read_text().splitlines()[1:] for name in ("dev", "test")
    }
    texts = {name: [row.split("\t")[0] for row in rows[name]] for name in rows}
    values = {name: outputs_by_hand(trained, texts[name], pooling) for name in rows}

    def probabilities(logits):
        exponents = np.exp(logits)
        return exponents / (
            1 + exponents if family == "multi-label" else exponents.sum(-1, keepdims=True)
        )

    wanted = values["test"] if family == "regression" else probabilities(values["test"])
    np.testing.assert_allclose(np.loadtxt(trained / "test_results.tsv", ndmin=2), wanted, atol=1e-5)
    serving_model.export(
        ExportOptions(model=str(trained), export_dir=str(tmp_path / "text"), export_text=True)
    )
    for folder in (trained, tmp_path / "text"):
        predictor = Predictor(folder, batch_size=3)
        assert not predictor.is_cut((texts["test"][0] * 9,))
        answers = predictor(texts["test"])
        if family == "regression":
            found = [[answer["score"]] for answer in answers]
        else:
            found = [list(answer["probabilities"].values()) for answer in answers]
            chosen = [answer.get("label", answer.get("labels")) for answer in answers]
            likely = [
                [label for label, chance in zip("abc", row, strict=True) if chance > 0.5]
                for row in wanted
            ]
            assert chosen == (
                likely if family == "multi-label" else ["abc"[row.argmax()] for row in wanted]
            )
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        if family == "classification":
            chosen = [
                answer["label"]
                for answer in Predictor(folder, batch_size=3, abstain_below=0.4)(texts["test"])
            ]
            assert chosen == ["abc"[row.argmax()] if row.max() >= 0.4 else None for row in wanted]
        with pytest.raises(
            InputError,
            match=r"^pooling='none': .*, a model of tsv, has no such setting; leave it out",
        ):
            Predictor(folder, batch_size=3, pooling="none")

    labels = [row.split("\t")[1] for row in rows["dev"]]
    if family == "regression":
        losses = (values["dev"][:, 0] - np.array(labels, float)) ** 2
    else:
        targets = np.array([[name in label.split(",") for name in "abc"] for label in labels])
        chances = probabilities(values["dev"])
        losses = -np.log(np.where(targets, chances, 1 - chances))
        losses = losses.mean(-1) if family == "multi-label" else losses[targets]
    assert figures(trained)["eval_loss"] == pytest.approx(losses.mean(), rel=1e-4)
    weights = [
        example["example_weight"][0]
        for _, example in read_examples(str(trained / "train.tf_record"))
    ]
    assert len(weights) > 20
    assert sum(weights) == pytest.approx(20)  # the texts
    recorded = json.loads((trained / "task.json").read_text())["settings"]
    assert recorded.items() >= (SETTINGS | {"pooling": pooling, "num_texts": 1}).items()

    again = dataclasses.replace(
        options, long_texts=None, doc_stride=None, pooling=None, max_seq_length=None
    )
    changes = {"init_checkpoint": str(trained), "do_predict": True, "predict_batch_size": 3}
    fine_tuning_runs.run(family, again, tmp_path / "again", **changes)
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "again" / "test_results.tsv", ndmin=2), wanted, atol=1e-5
    )


def test_texts_that_fit_give_the_same_numbers_in_windows(tmp_path_factory, tmp_path):
    cut = fine_tuning_runs.shared_run(tmp_path_factory, "classification", do_eval=True)
    steps = {"do_train": True, "do_eval": True, "do_predict": True}
    fine_tuning_runs.run("classification", cut.options, tmp_path, long_texts="windows", **steps)
    for name in ("eval_results.txt", "test_results.tsv"):
        assert (tmp_path / name).read_bytes() == (cut.output_dir / name).read_bytes()


@pytest.mark.parametrize("field", [{"long_texts": "all"}, {"doc_stride": 0}, {"pooling": "cls"}])
def test_a_record_that_no_training_wrote_is_refused(field):
    with pytest.raises(
        InputError,
        match=r"^--long_texts=.*, --doc_stride=.*, --pooling=.*: give windows, a positive",
    ):
        LongTexts.from_settings(
            ClassificationSettings.from_values(SETTINGS | {"pooling": "mean"} | field)
        )

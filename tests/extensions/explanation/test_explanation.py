"""`Predictor.explain` beside finite differences and forward passes of changed models, and the
snippets of the page.
"""

import contextlib
import functools
import json
import re
import sys
import types

import numpy as np
import pytest

from official_bert import BertClassifier, BertConfig, FullTokenizer, Predictor
from official_bert.io.errors import InputError
from tests import toy
from tests.hostile.rows import edit_json
from tests.serving import exported
from tests.shared import ROOT

LABELS = ["no", "yes", "perhaps"]
TEXT, PAIR = "The sunny Cat, was a park", " on the\tmat"


def made(
    folder, num_outputs: int, problem: str | None = None
) -> tuple[Predictor, BertClassifier, FullTokenizer]:
    """A trained model: its predictor, and itself."""
    tokenizer = FullTokenizer(toy.write_vocabulary(folder))
    model = BertClassifier(BertConfig.from_dict(toy.BERT_CONFIG), num_outputs)
    draws = np.random.default_rng(7)
    for weight in model.weights:
        if "LayerNorm" not in weight.path:
            weight.assign(draws.normal(scale=0.25, size=weight.shape))
    model.save_pretrained(
        str(folder / "model"), "huggingface", tokenizer, LABELS if num_outputs == 3 else None
    )
    if problem:
        (folder / "model" / "task.json").unlink()
        config = json.loads((folder / "model" / "config.json").read_text())
        (folder / "model" / "config.json").write_text(
            json.dumps(config | {"problem_type": problem})
        )
    return Predictor(folder / "model", batch_size=50), model, tokenizer


def logit(model, inputs, index: int, kind: str | None) -> float:
    """The logit of a label's probability, or the score, by numpy."""
    (logits,) = np.float64(model(inputs))
    if len(logits) == 1:
        return logits[0]
    chances = 1 / (1 + np.exp(-logits)) if kind else np.exp(logits) / np.exp(logits).sum()
    return np.log(chances[index] / (1 - chances[index]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A function that makes a model once for all tests; a test that assigns weights puts them
    back.
    """
    return functools.cache(
        lambda num_outputs, problem=None: made(
            tmp_path_factory.mktemp("kept"), num_outputs, problem
        )
    )


@contextlib.contextmanager
def put_back(variable):
    """The value of a variable after a block is that before it."""
    before = variable.numpy()
    yield before
    variable.assign(before)


KINDS = [(3, None), (3, "multi_label_classification"), (1, None)]


@pytest.mark.parametrize(("num_outputs", "problem"), KINDS)
def test_gradient_times_input_is_the_slope_along_the_vectors_of_a_word(kept, num_outputs, problem):
    predictor, model, tokenizer = kept(num_outputs, problem)
    label = "yes" if num_outputs == 3 else None
    found = predictor.explain(TEXT, PAIR, method="gradient_x_input", label=label)
    answer = predictor(TEXT, PAIR)
    assert found["label"] == label
    assert found["score"] == (answer["probabilities"]["yes"] if label else answer["score"])
    words = [(word["text"], word["word"], word["start"], word["end"]) for word in found["words"]]
    assert words[:3] == [
        ("text_a", "The", 0, 3),
        ("text_a", "sunny", 4, 9),
        ("text_a", "Cat,", 10, 14),
    ]
    assert words[-3:] == [("text_b", "on", 1, 3), ("text_b", "the", 4, 7), ("text_b", "mat", 8, 11)]
    inputs, table = tokenizer(TEXT, PAIR), model.bert.embedding_table
    for number, word in ((1, "sunny"), (3, "was"), (8, "mat")):
        values = []
        for factor in (1.01, 0.99):
            with put_back(table) as before:
                changed = before.copy()
                changed[tokenizer.encode(word)] *= factor  # pieces of no other word of the text
                table.assign(changed)
                values.append(logit(model, inputs, 1 if label else 0, problem))
        slope = (values[0] - values[1]) / 0.02
        assert found["words"][number]["attribution"] == pytest.approx(slope, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize(("num_outputs", "problem"), KINDS)
@pytest.mark.parametrize("baseline", ["pad", "zero"])
def test_integrated_gradients_sum_to_what_the_words_change(kept, num_outputs, problem, baseline):
    predictor, model, tokenizer = kept(num_outputs, problem)
    inputs, table = tokenizer(TEXT, PAIR), model.bert.embedding_table
    found = {
        steps: predictor.explain(TEXT, PAIR, baseline=baseline, steps=steps)
        for steps in (2, 16, 128)
    }
    index = LABELS.index(found[2]["label"]) if num_outputs == 3 else 0
    change = logit(model, inputs, index, problem)
    frame = np.isin(inputs["input_ids"], tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"]))
    with put_back(table):
        if baseline == "zero":
            table.assign(np.where(np.arange(len(toy.VOCABULARY))[:, None] == 0, 0, table))
        change -= logit(
            model, inputs | {"input_ids": np.where(frame, inputs["input_ids"], 0)}, index, problem
        )
    assert abs(change) > 0.01
    for explanation in found.values():
        total = sum(word["attribution"] for word in explanation["words"])
        assert explanation["completeness"] == pytest.approx(total - change, abs=1e-5)
    few, more, most = (abs(found[steps]["completeness"]) for steps in found)
    assert few > 20 * more  # eight times as many steps, and an error of 1/64 in theory
    assert most < 1e-5


def test_what_is_explained_is_the_calibrated_probability(tmp_path):
    """It is that of a model whose head has a third of the weights; a withheld label is explained
    all the same.
    """
    predictor, model, tokenizer = made(tmp_path, 3)
    edit_json(tmp_path / "model" / "task.json", settings={"temperature": 3.0, "abstain_below": 1.0})
    for weight in (model.output_weights, model.output_bias):
        weight.assign(weight / 3)
    model.save_pretrained(str(tmp_path / "third"), "huggingface", tokenizer, LABELS)
    calibrated, third = Predictor(tmp_path / "model"), Predictor(tmp_path / "third")
    assert calibrated(TEXT, PAIR)["label"] is None
    for method, steps in (("gradient_x_input", 1), ("integrated_gradients", 9)):
        found, wanted = (
            each.explain(TEXT, PAIR, method=method, steps=steps) for each in (calibrated, third)
        )
        assert found["score"] == max(calibrated(TEXT, PAIR)["probabilities"].values())
        uncalibrated = predictor.explain(TEXT, PAIR, method=method, steps=1)
        assert found["score"] != pytest.approx(uncalibrated["score"], abs=0.01)
        shares = [[word["attribution"] for word in one["words"]] for one in (found, wanted)]
        assert shares[0] == pytest.approx(shares[1], abs=1e-5)
        assert (found["label"], found["score"]) == (
            wanted["label"],
            pytest.approx(wanted["score"], abs=1e-6),
        )


def test_what_is_cut_has_no_share_and_what_cannot_be_explained_is_said(tmp_path, tmp_path_factory):
    predictor, _, _ = made(tmp_path, 3)
    one, empty = predictor.explain(["the cat " * 70, ""], steps=1)
    shares = [word["attribution"] for word in one["words"]]
    assert 0 not in shares[:126]
    assert shares[126:] == [0] * 14
    assert (empty["words"], empty["completeness"]) == ([], 0)
    for chosen, says in (
        ({"label": "maybe"}, "label='maybe': is no label of .*, which has no, yes, perhaps"),
        (
            {"method": "lime"},
            "method='lime': must be one of integrated_gradients, gradient_x_input",
        ),
        ({"baseline": "mask"}, "baseline='mask': must be one of pad, zero"),
        ({"steps": 0}, "steps=0: must be a whole number, and at least 1"),
        ({"steps": 1.5}, "steps=1.5: must be a whole number"),
    ):
        with pytest.raises(InputError, match=says):
            predictor.explain(TEXT, **chosen)
    said = tmp_path / "model" / "task.json"
    edit_json(
        said,
        settings={
            "label_type": "single",
            "long_texts": "windows",
            "doc_stride": 3,
            "pooling": "mean",
        },
    )
    with pytest.raises(
        InputError, match=r"model: pools the windows of a text \(--long_texts=windows\), which"
    ):
        Predictor(tmp_path / "model").explain(TEXT)
    export = Predictor(exported.shared_export(tmp_path_factory, "mrpc").options.export_dir)
    with pytest.raises(
        InputError, match="1: is an export, which has no gradients; give the folder of the trained"
    ):
        export.explain(TEXT, PAIR)
    exported.make_checkpoint(tmp_path / "other", "pretraining")
    with pytest.raises(
        InputError, match=r"task pretraining, which has no explain\(\); call fill_mask"
    ):
        Predictor(tmp_path / "other").explain(TEXT)


def test_the_code_of_the_page_runs_and_fits_the_types_of_lit_and_bertviz(tmp_path, monkeypatch):
    """Which need not be installed: the types are as in lit-nlp 1.3.1 and bertviz 1.4.1."""
    drawn, simple = [], types.SimpleNamespace
    api = {
        "types": simple(TextSegment=dict, MulticlassPreds=dict, TokenSalience=dict),
        "dtypes": simple(TokenSalience=lambda tokens, salience: (tokens, salience)),
        "model": simple(Model=object),
        "components": simple(Interpreter=object),
    }
    bertviz = simple(head_view=lambda *given: drawn.extend(given))
    modules = {
        "lit_nlp": simple(),
        "lit_nlp.api": simple(**api),
        "torch": simple(tensor=np.array),
        "bertviz": bertviz,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    made(tmp_path, 3)
    page = (ROOT / "docs" / "explaining.md").read_text(encoding="utf-8")
    names = {"folder": str(tmp_path / "model")}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    attentions, tokens = drawn
    assert [layer.shape for layer in attentions] == [(1, 2, len(tokens), len(tokens))]
    assert tokens == ["[CLS]", "the", "[UNK]", "[UNK]", ".", "[SEP]"]

    lit = names["LitClassifier"](names["predictor"], LABELS)
    inputs = [{"text_a": "the cat"}, {"text_a": "a park, rain"}]
    assert (lit.input_spec(), lit.output_spec()) == ({"text_a": {}}, {"probas": {"vocab": LABELS}})
    assert [sum(output["probas"]) for output in lit.predict(inputs)] == pytest.approx(
        [1, 1], abs=1e-5
    )
    found = [one["text_a"] for one in names["Attributions"]().run(inputs, lit, dataset=None)]
    assert [tokens for tokens, _ in found] == [["the", "cat"], ["a", "park,", "rain"]]
    assert all(isinstance(share, float) for _, salience in found for share in salience)

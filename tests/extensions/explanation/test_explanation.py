"""Tests of `Predictor.explain` and of the snippets of its guide.

The references are finite differences and forward passes of changed models.
"""

import contextlib
import functools
import operator
import re
import sys
import types

import numpy as np
import pytest

from official_bert import BertClassifier, BertConfig, FullTokenizer, Predictor
from official_bert.io.errors import InputError
from tests import fine_tuning_runs, toy
from tests.hostile.rows import edit_json
from tests.serving import exported
from tests.shared import ROOT

LABELS = ["no", "yes", "perhaps"]
TEXT = "The sunny Cat, was a park"
PAIR = " on the\tmat"


def make_model(
    folder,
    num_outputs: int,
    problem: str | None = None,
) -> tuple[Predictor, BertClassifier, FullTokenizer]:
    """Write a model with random weights.

    Args:
        folder: The folder of the vocabulary, in which the folder of the model is made.
        num_outputs: 3 for a classifier, 1 for a regression.
        problem: The type of the problem in the configuration of transformers.

    Returns:
        Its predictor, the model and its tokenizer.
    """
    tokenizer = FullTokenizer(toy.write_vocabulary(folder))
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    model = BertClassifier(config, num_outputs)
    generator = np.random.default_rng(7)
    for weight in model.weights:
        if "LayerNorm" not in weight.path:
            value = generator.normal(scale=0.25, size=weight.shape)
            weight.assign(value)

    model_dir = folder / "model"
    labels = LABELS if num_outputs == 3 else None
    model.save_pretrained(str(model_dir), "huggingface", tokenizer, labels)
    if problem:
        (model_dir / "task.json").unlink()
        edit_json(model_dir / "config.json", problem_type=problem)
    predictor = Predictor(model_dir, batch_size=50)
    return predictor, model, tokenizer


def compute_logit(model, inputs, index: int, problem: str | None) -> float:
    """Compute the logit of a label's probability, or the score, with numpy."""
    (logits,) = np.float64(model(inputs))
    if len(logits) == 1:
        return logits[0]
    if problem:
        probabilities = 1 / (1 + np.exp(-logits))
    else:
        exponentials = np.exp(logits)
        probabilities = exponentials / exponentials.sum()
    probability = probabilities[index]
    odds = probability / (1 - probability)
    return np.log(odds)


@pytest.fixture(scope="module")
def load_model(tmp_path_factory):
    """A function that makes a model once for all tests.

    A test that assigns weights restores them.
    """

    @functools.cache
    def load_model(num_outputs, problem=None):
        folder = tmp_path_factory.mktemp("models")
        return make_model(folder, num_outputs, problem)

    return load_model


@contextlib.contextmanager
def restored(variable):
    """Restore the value of a variable after a block."""
    before = variable.numpy()
    yield before
    variable.assign(before)


EACH_KIND = pytest.mark.parametrize(
    ("num_outputs", "problem"),
    [
        pytest.param(3, None, id="classifier"),
        pytest.param(3, "multi_label_classification", id="several labels"),
        pytest.param(1, None, id="regression"),
    ],
)


@EACH_KIND
def test_gradient_times_input_explains_the_answer_by_words(load_model, num_outputs, problem):
    predictor, _, _ = load_model(num_outputs, problem)
    label = "yes" if num_outputs == 3 else None

    explanation = predictor.explain(TEXT, PAIR, method="gradient_x_input", label=label)

    answer = predictor(TEXT, PAIR)
    score = answer["probabilities"]["yes"] if label else answer["score"]
    assert explanation["label"] == label
    assert explanation["score"] == score

    get_fields = operator.itemgetter("text", "word", "start", "end")
    words = [get_fields(word) for word in explanation["words"]]
    assert words[:3] == [
        ("text_a", "The", 0, 3),
        ("text_a", "sunny", 4, 9),
        ("text_a", "Cat,", 10, 14),
    ]
    assert words[-3:] == [
        ("text_b", "on", 1, 3),
        ("text_b", "the", 4, 7),
        ("text_b", "mat", 8, 11),
    ]


@EACH_KIND
def test_gradient_times_input_is_the_slope_along_a_word(load_model, num_outputs, problem):
    predictor, model, tokenizer = load_model(num_outputs, problem)
    label = None
    index = 0
    if num_outputs == 3:
        label = "yes"
        index = LABELS.index(label)
    explanation = predictor.explain(TEXT, PAIR, method="gradient_x_input", label=label)
    inputs = tokenizer(TEXT, PAIR)
    table = model.bert.embedding_table

    def compute_scaled_logit(word: str, factor: float) -> float:
        with restored(table) as before:
            changed = before.copy()
            changed[tokenizer.encode(word)] *= factor  # pieces of no other word of the text
            table.assign(changed)
            return compute_logit(model, inputs, index, problem)

    for number, word in ((1, "sunny"), (3, "was"), (8, "mat")):
        upper = compute_scaled_logit(word, 1.01)
        lower = compute_scaled_logit(word, 0.99)
        slope = (upper - lower) / 0.02
        attribution = explanation["words"][number]["attribution"]
        assert attribution == pytest.approx(slope, rel=1e-2, abs=1e-4)


@EACH_KIND
@pytest.mark.parametrize("baseline", ["pad", "zero"])
def test_integrated_gradients_sum_to_what_the_words_change(
    load_model, num_outputs, problem, baseline
):
    predictor, model, tokenizer = load_model(num_outputs, problem)
    inputs = tokenizer(TEXT, PAIR)
    few = predictor.explain(TEXT, PAIR, baseline=baseline, steps=2)
    more = predictor.explain(TEXT, PAIR, baseline=baseline, steps=16)
    most = predictor.explain(TEXT, PAIR, baseline=baseline, steps=128)

    # The logit of the text less that of padding between [CLS] and [SEP].
    index = LABELS.index(few["label"]) if num_outputs == 3 else 0
    input_ids = inputs["input_ids"]
    frame_ids = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    is_frame = np.isin(input_ids, frame_ids)
    padding = inputs | {"input_ids": np.where(is_frame, input_ids, 0)}
    change = compute_logit(model, inputs, index, problem)
    table = model.bert.embedding_table
    with restored(table) as before:
        if baseline == "zero":
            changed = before.copy()
            changed[0] = 0
            table.assign(changed)
        change -= compute_logit(model, padding, index, problem)
    assert abs(change) > 0.01

    for explanation in (few, more, most):
        total = sum(list_attributions(explanation))
        expected = total - change
        assert explanation["completeness"] == pytest.approx(expected, abs=1e-5)
    # Eight times as many steps have 1/64 of the error in theory.
    assert abs(few["completeness"]) > 20 * abs(more["completeness"])
    assert abs(most["completeness"]) < 1e-5


def list_attributions(explanation: dict) -> list[float]:
    return [word["attribution"] for word in explanation["words"]]


def test_explanations_are_of_the_calibrated_probability(tmp_path):
    """A temperature of 3 explains as a head with a third of the weights.

    A label that the model withholds is explained, too.
    """
    predictor, model, tokenizer = make_model(tmp_path, 3)
    settings = {"temperature": 3.0, "abstain_below": 1.0}
    edit_json(tmp_path / "model" / "task.json", settings=settings)
    calibrated = Predictor(tmp_path / "model")
    for weight in (model.output_weights, model.output_bias):
        weight.assign(weight / 3)
    third_dir = tmp_path / "third"
    model.save_pretrained(str(third_dir), "huggingface", tokenizer, LABELS)
    third = Predictor(third_dir)
    answer = calibrated(TEXT, PAIR)
    assert answer["label"] is None
    probabilities = answer["probabilities"].values()

    steps_by_method = {"gradient_x_input": 1, "integrated_gradients": 9}
    for method, steps in steps_by_method.items():
        explanation = calibrated.explain(TEXT, PAIR, method=method, steps=steps)
        score = explanation["score"]
        assert score == max(probabilities)
        uncalibrated = predictor.explain(TEXT, PAIR, method=method, steps=1)
        assert score != pytest.approx(uncalibrated["score"], abs=0.01)

        expected = third.explain(TEXT, PAIR, method=method, steps=steps)
        assert explanation["label"] == expected["label"]
        assert score == pytest.approx(expected["score"], abs=1e-6)
        attributions = list_attributions(explanation)
        expected_attributions = list_attributions(expected)
        assert attributions == pytest.approx(expected_attributions, abs=1e-5)


def test_words_that_are_truncated_have_no_attribution(load_model):
    predictor, _, _ = load_model(3)
    long, empty = predictor.explain(["the cat " * 70, ""], steps=1)
    attributions = list_attributions(long)
    assert 0 not in attributions[:126]
    assert attributions[126:] == [0] * 14
    assert empty["words"] == []
    assert empty["completeness"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"label": "maybe"},
            "label='maybe': is no label of .*, which has no, yes, perhaps",
            id="unknown label",
        ),
        pytest.param(
            {"method": "lime"},
            "method='lime': must be one of integrated_gradients, gradient_x_input",
            id="unknown method",
        ),
        pytest.param(
            {"baseline": "mask"},
            "baseline='mask': must be one of pad, zero",
            id="unknown baseline",
        ),
        pytest.param(
            {"steps": 0},
            "steps=0: must be a whole number, and at least 1",
            id="no step",
        ),
        pytest.param(
            {"steps": 1.5},
            "steps=1.5: must be a whole number",
            id="half a step",
        ),
    ],
)
def test_wrong_arguments_are_named(load_model, arguments, message):
    predictor, _, _ = load_model(3)
    with pytest.raises(InputError, match=message):
        predictor.explain(TEXT, **arguments)


def test_models_that_cannot_explain_are_refused(tmp_path, tmp_path_factory):
    make_model(tmp_path, 3)
    settings = {
        "label_type": "single",
        "long_texts": "windows",
        "doc_stride": 3,
        "pooling": "mean",
    }
    edit_json(tmp_path / "model" / "task.json", settings=settings)
    windows = Predictor(tmp_path / "model")
    message = r"model: pools the windows of a text \(--long_texts=windows\), which"
    with pytest.raises(InputError, match=message):
        windows.explain(TEXT)

    mrpc = exported.shared_export(tmp_path_factory, "mrpc")
    export = Predictor(mrpc.options.export_dir)
    message = "1: is an export, which has no gradients; give the folder of the trained"
    with pytest.raises(InputError, match=message):
        export.explain(TEXT, PAIR)

    exported.make_checkpoint(tmp_path / "other", "pretraining")
    pretrained = Predictor(tmp_path / "other")
    message = r"task pretraining, which has no explain\(\); call fill_mask"
    with pytest.raises(InputError, match=message):
        pretrained.explain(TEXT)


@pytest.fixture
def heads_shown(monkeypatch) -> list:
    """The arguments of bertviz's head_view.

    lit-nlp and bertviz need not be installed: the types here are those of lit-nlp 1.3.1 and
    bertviz 1.4.1.
    """
    shown = []

    def head_view(*arguments):
        shown.extend(arguments)

    def pair_with_tokens(tokens, salience):
        return tokens, salience

    module = types.SimpleNamespace
    lit_types = module(
        TextSegment=dict,
        MulticlassPreds=dict,
        TokenSalience=dict,
    )
    lit_api = module(
        types=lit_types,
        dtypes=module(TokenSalience=pair_with_tokens),
        model=module(Model=object),
        components=module(Interpreter=object),
    )
    modules = {
        "lit_nlp": module(),
        "lit_nlp.api": lit_api,
        "torch": module(tensor=np.array),
        "bertviz": module(head_view=head_view),
    }
    for name, stub in modules.items():
        monkeypatch.setitem(sys.modules, name, stub)
    return shown


def test_the_code_of_the_guide_runs_and_fits_the_types_of_lit_and_bertviz(
    tmp_path, tmp_path_factory, heads_shown
):
    make_model(tmp_path, 3)
    tagger_folder = fine_tuning_runs.shared_run(tmp_path_factory, "tagging").output_dir
    page = (ROOT / "docs" / "explaining.md").read_text(encoding="utf-8")
    names = {"folder": str(tmp_path / "model"), "tagger_folder": str(tagger_folder)}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)

    assert names["page"].startswith("<div style=")
    attentions, tokens = heads_shown
    (layer,) = attentions
    assert tokens == ["[CLS]", "the", "[UNK]", "[UNK]", ".", "[SEP]"]
    assert layer.shape == (1, 2, 6, 6)

    lit_classifier = names["LitClassifier"]
    lit = lit_classifier(names["predictor"], LABELS)
    assert lit.input_spec() == {"text_a": {}}
    assert lit.output_spec() == {"probas": {"vocab": LABELS}}
    inputs = [
        {"text_a": "the cat"},
        {"text_a": "a park, rain"},
    ]
    totals = [sum(output["probas"]) for output in lit.predict(inputs)]
    assert totals == pytest.approx([1, 1], abs=1e-5)

    interpreter = names["Attributions"]()
    outputs = interpreter.run(inputs, lit, dataset=None)
    words = []
    for output in outputs:
        text_words, salience = output["text_a"]
        words.append(text_words)
        assert all(isinstance(value, float) for value in salience)
    assert words == [
        ["the", "cat"],
        ["a", "park,", "rain"],
    ]

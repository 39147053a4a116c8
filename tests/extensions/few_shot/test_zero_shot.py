"""Tests of zero-shot classification, with models whose outputs are known."""

import types

import numpy as np
import pytest

from official_bert import InputError
from official_bert.extensions.few_shot.zero_shot import zero_shot

NAMES = ["Contradiction", "neutral", "ENTAILMENT"]
# The logits of these labels for each pair of a text and a hypothesis.
LOGITS = {
    ("late train", "This example is travel."): [-1.0, 0.5, 2.0],
    ("late train", "This example is food."): [1.5, 0.5, -1.0],
    ("rain", "This example is travel."): [0.0, 3.0, 0.5],
    ("rain", "This example is food."): [0.25, 0.0, 1.0],
}


def make_inference_model(names=NAMES, **changes):
    def rows(requests):
        return [{"logits": np.float32(LOGITS[request][: len(names)])} for request in requests]

    values = {
        "client": types.SimpleNamespace(rows=rows),
        "model": types.SimpleNamespace(labels=names, outputs=("logits", "label")),
        "method": "classify",
        "columns": ("text_a", "text_b"),
        "path": "nli",
        "task_name": "MNLI",
    }
    return types.SimpleNamespace(**values | changes)


def make_embedder():
    directions = {"late train": [1, 2], "travel": [2, 4], "food": [2, -1], "a travel b": [0, 3]}

    def vectors(requests):
        return np.float32([directions[text] for (text,) in requests])

    return types.SimpleNamespace(client=types.SimpleNamespace(vectors=vectors), path="vectors")


def test_the_entailments_of_all_labels_are_compared():
    """The values of a pipeline of transformers: a softmax of the logits of entailment."""
    first, second = zero_shot(make_inference_model(), ["late train", "rain"], ["food", "travel"])
    expected = np.exp([2.0, -1.0]) / np.sum(np.exp([2.0, -1.0]))
    assert first["sequence"] == "late train"
    assert first["labels"] == ["travel", "food"]
    assert first["scores"] == pytest.approx(expected, rel=1e-6)
    assert second["labels"] == ["food", "travel"]
    assert second["scores"][0] == pytest.approx(1 / (1 + np.exp(-0.5)), rel=1e-6)


def test_several_labels_are_compared_with_their_contradictions():
    answer = zero_shot(make_inference_model(), "late train", ["food", "travel"], multi_label=True)
    expected = [1 / (1 + np.exp(-3.0)), 1 / (1 + np.exp(2.5))]
    assert answer["labels"] == ["travel", "food"]
    assert answer["scores"] == pytest.approx(expected, rel=1e-6)


def test_without_a_contradiction_all_other_labels_count():
    model = make_inference_model(["entailment", "not_entailment"])
    answer = zero_shot(model, "late train", ["food"], multi_label=True)
    assert answer["scores"] == pytest.approx([1 / (1 + np.exp(-1.0))], rel=1e-6)


def test_embeddings_are_compared_by_cosine():
    answer = zero_shot(make_embedder(), "late train", ["food", "travel"])
    assert answer["labels"] == ["travel", "food"]
    assert answer["scores"] == pytest.approx([1.0, 0.0], abs=1e-6)
    answer = zero_shot(make_embedder(), "late train", ["travel"], hypothesis="a {} b")
    assert answer["scores"] == pytest.approx([2 / np.sqrt(5)], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"labels": []}, r"labels=\[\]: must be a list of different texts, at least one"),
        ({"labels": ["a", "a"]}, "must be a list of different texts"),
        ({"labels": "travel"}, "labels='travel': must be a list"),
        ({"labels": [1]}, "labels"),
        ({"hypothesis": "is it?"}, r"hypothesis='is it\?': has no {} for the label"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        zero_shot(make_inference_model(), "rain", **{"labels": ["travel"], **arguments})


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "tag"},
        {"columns": ("text_a",)},
        {"model": types.SimpleNamespace(labels=["0", "1"], outputs=("logits",))},
        {"model": types.SimpleNamespace(labels=None, outputs=("score",))},
        {"model": types.SimpleNamespace(labels=NAMES, outputs=("logits", "labels"))},
    ],
)
def test_other_models_are_refused(changes):
    with pytest.raises(InputError, match=r"has no zero_shot\(\); use an embedding model, or a"):
        zero_shot(make_inference_model(**changes), "rain", ["travel"])


def test_cosines_do_not_depend_on_other_labels():
    with pytest.raises(InputError, match="multi_label: is for models of pairs"):
        zero_shot(make_embedder(), "late train", ["food"], multi_label=True)

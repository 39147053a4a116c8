"""Predictor.rank with models of pairs; other models are refused."""

import functools

import numpy as np
import pytest

from official_bert import InputError, Predictor
from tests.serving import exported

QUERY = "the cat sat"
TEXTS = ["the cat sat on the mat .", "a train left", "rain", "", "the day was sunny", "a train"]


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.fixture
def open_predictor(tmp_path_factory):
    """A function from a kind of task to the Predictor of its export."""
    make = functools.partial(exported.shared_export, tmp_path_factory)
    return lambda kind: Predictor(make(kind).path)


@pytest.mark.parametrize("kind", ["mrpc", "sts-b"])
def test_texts_are_ranked_by_a_model_of_pairs(open_predictor, kind):
    """By the probability of the last label, or by the score."""
    predictor = open_predictor(kind)
    pairs = [(QUERY, text) for text in TEXTS]
    scores = []
    for answer in predictor(pairs):
        score = answer["score"] if kind == "sts-b" else answer["probabilities"]["1"]
        scores.append(score)

    hits = predictor.rank(QUERY, TEXTS)

    expected = []
    for row in np.argsort(np.negative(scores), kind="stable"):
        hit = {"text": TEXTS[row], "row": row, "score": scores[row]}
        expected.append(hit)
    assert hits == expected
    assert predictor.rank(QUERY, []) == []


@pytest.mark.parametrize("kind", ["tsv", "swag", "ner"])
def test_other_models_do_not_rank_and_search(open_predictor, kind):
    predictor = open_predictor(kind)
    sentence = rf"model of the task {predictor.task_name}, which has no rank\(\); use an embedding"
    with pytest.raises(InputError, match=sentence):
        predictor.rank("the cat", ["a train"])
    message = "gives no vectors of texts; name an export of"
    with pytest.raises(InputError, match=message):
        predictor.search("the cat", ["a"])
    with pytest.raises(InputError, match=message):
        predictor.similarity("a", "b")
    with pytest.raises(InputError, match=message):
        predictor.paraphrases(["a", "b"])

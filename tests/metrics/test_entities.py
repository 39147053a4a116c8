"""The entities of tags and their scores equal those of seqeval."""

import itertools
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from seqeval.metrics import accuracy_score
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from official_bert.metrics.entities import entity_scores, find_entities

TAGS = [
    "O",
    "B-PER",
    "B-LOC-X",
    "I-PER",
    "I-LOC-X",
    "E-PER",
    "E-LOC-X",
    "S-PER",
    "S-LOC-X",
]
TAG = st.sampled_from(TAGS)
# Pairs of a target and a prediction.
SEQUENCE = st.lists(st.tuples(TAG, TAG), max_size=12)


def test_every_short_sequence_has_seqevals_entities():
    triples = itertools.product(TAGS, repeat=3)
    for tags in (["B"], ["B", "I", "O", "I"], *triples):
        expected = get_entities(list(tags))
        assert list(find_entities(tags)) == expected, tags


@settings(deadline=None)
@given(st.lists(SEQUENCE, min_size=1, max_size=6).filter(any))
def test_equals_seqeval(sequences):
    targets = [[target for target, _ in sequence] for sequence in sequences]
    predictions = [[predicted for _, predicted in sequence] for sequence in sequences]
    score_names = ("precision", "recall", "f1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns of zero divisions
        overall = precision_recall_fscore_support(
            targets,
            predictions,
            average="micro",
        )
        each = precision_recall_fscore_support(
            targets,
            predictions,
            average=None,
        )
    entities = get_entities(targets) + get_entities(predictions)
    types = sorted({entity[0] for entity in entities})
    expected = dict(zip(score_names, overall[:3], strict=True))
    expected["accuracy"] = accuracy_score(targets, predictions)
    for number, type_ in enumerate(types):
        for name, values in zip(score_names, each[:3], strict=True):
            expected[f"{name}_{type_}"] = values[number]
    scores = entity_scores(targets, predictions)
    assert list(scores) == list(expected)
    assert_allclose(
        list(scores.values()),
        list(expected.values()),
        rtol=0,
        atol=1e-12,
    )


def test_a_tag_of_no_scheme_is_refused():
    with pytest.raises(ValueError, match="the tag 'PER' is neither"):
        entity_scores([["PER"]], [["O"]])

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from official_bert.metrics.entities import entities_of, entity_scores

TAGS = ["O", *(f"{mark}-{type_}" for mark in "BIES" for type_ in ("PER", "LOC-X"))]
SEQUENCE = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=12)


def split(tags: str) -> list[str]:
    return tags.split()


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
        # IOB1: I begins an entity, B only after one of its type.
        ("I-PER I-PER B-PER O I-LOC I-PER", [("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 4), ("PER", 5, 5)]),
        # A type that changes within.
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("B-PER I-PER E-PER S-PER B-LOC E-LOC", [("PER", 0, 2), ("PER", 3, 3), ("LOC", 4, 5)]),
        # What no scheme allows: E and I after an end.
        ("E-PER E-PER I-PER S-PER I-PER", [("PER", 0, 0), ("PER", 1, 1), ("PER", 2, 2), ("PER", 3, 3), ("PER", 4, 4)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 1)]),
        ("B I O I", [("_", 0, 1), ("_", 3, 3)]),
    ],
)
def test_entities_by_hand(tags, expected):
    assert list(entities_of(split(tags))) == expected


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_short_sequence_has_seqevals_entities(length):
    for tags in itertools.product(TAGS, repeat=length):
        assert list(entities_of(tags)) == get_entities(list(tags)), tags


def test_scores_by_hand():
    targets = [split("B-PER I-PER O B-LOC"), split("O B-PER O"), split("B-LOC")]
    predictions = [split("B-PER I-PER O B-ORG"), split("O B-PER I-PER"), split("B-LOC")]
    # Right: a PER and a LOC. Wrong: the ORG for its type, a PER for its end.
    assert entity_scores(targets, predictions) == pytest.approx(
        {
            "precision": 2 / 4,
            "recall": 2 / 4,
            "f1": 2 / 4,
            "accuracy": 6 / 8,
            "precision_LOC": 1.0,
            "recall_LOC": 1 / 2,
            "f1_LOC": 2 / 3,
            "precision_ORG": 0.0,
            "recall_ORG": 0.0,
            "f1_ORG": 0.0,
            "precision_PER": 1 / 2,
            "recall_PER": 1 / 2,
            "f1_PER": 1 / 2,
        }
    )


def test_entities_end_with_their_sentence():
    scores = entity_scores([split("B-PER"), split("I-PER")], [split("B-PER"), split("I-PER")])
    assert scores["f1"] == 1.0
    assert entity_scores([split("B-PER I-PER")], [split("B-PER B-PER")])["f1"] == 0.0


def test_both_schemes_have_the_same_entities():
    iob1, iob2 = split("I-PER I-PER B-PER O I-LOC"), split("B-PER I-PER B-PER O B-LOC")
    scores = entity_scores([iob1], [iob2])
    assert (scores["f1"], scores["accuracy"]) == (1.0, 3 / 5)  # tags are compared as they are written


def test_nothing_found_is_zero():
    assert entity_scores([split("O O")], [split("O O")]) == {
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        "accuracy": 1.0,
    }
    assert entity_scores([split("O")], [split("B-PER")])["recall"] == 0.0


@settings(deadline=None)
@given(st.lists(SEQUENCE, min_size=1, max_size=6).filter(any))
def test_equals_seqeval(sequences):
    targets = [[target for target, _ in sequence] for sequence in sequences]
    predictions = [[predicted for _, predicted in sequence] for sequence in sequences]
    scores = ("precision", "recall", "f1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of zero divisions
        overall = precision_recall_fscore_support(targets, predictions, average="micro")
        each = precision_recall_fscore_support(targets, predictions, average=None)
    types = sorted({entity[0] for entity in get_entities(targets) + get_entities(predictions)})
    expected = dict(zip(scores, overall[:3], strict=True)) | {"accuracy": accuracy_score(targets, predictions)}
    for number, type_ in enumerate(types):
        expected |= {f"{name}_{type_}": values[number] for name, values in zip(scores, each[:3], strict=True)}
    found = entity_scores(targets, predictions)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("targets", "predictions", "error"),
    [
        ([["O"]], [["O", "O"]], "longer"),
        ([["O"]], [["O"], ["O"]], "longer"),
        ([["O"]], [["U-PER"]], "the tag 'U-PER' is neither"),
        ([["PER"]], [["O"]], "the tag 'PER' is neither"),
    ],
)
def test_what_does_not_fit_is_refused(targets, predictions, error):
    with pytest.raises(ValueError, match=error):
        entity_scores(targets, predictions)

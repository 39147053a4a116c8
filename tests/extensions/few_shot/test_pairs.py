"""Tests of the pairs that few-shot training draws."""

import collections
import itertools

import pytest

from official_bert.extensions.few_shot import pairs
from official_bert.io.errors import InputError

TEXTS = [*"abcdefg"]
LABELS = ["x", "x", "x", "y", "y", "z", "z"]
LABEL_BY_TEXT = dict(zip(TEXTS, LABELS, strict=True))


def draw(seed=1, num_pairs=6, has_negatives=True):
    return [*pairs.draw_pairs(TEXTS, LABELS, num_pairs, seed, has_negatives)]


def test_each_text_begins_as_many_pairs_of_one_label_as_of_two():
    all_pairs = draw()
    counts = collections.Counter((pair.first, pair.has_same_label) for pair in all_pairs)
    assert counts == dict.fromkeys(itertools.product(TEXTS, [True, False]), 6)
    for first, second, has_same_label in all_pairs:
        assert first != second
        assert (LABEL_BY_TEXT[first] == LABEL_BY_TEXT[second]) == has_same_label
    assert len({pair[:2] for pair in all_pairs if pair.first == "a"}) > 4  # of 6 that are possible


def test_without_negatives_the_pairs_of_one_label_remain():
    all_pairs = draw(has_negatives=False)
    assert len(all_pairs) == 6 * len(TEXTS)
    assert all(LABEL_BY_TEXT[first] == LABEL_BY_TEXT[second] for first, second, _ in all_pairs)


def test_the_seed_decides():
    assert draw() == draw()
    assert draw() != draw(seed=2)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["x", "x"], "few.tsv: has one label only; a classifier needs two"),
        (["x", "x", "y"], "few.tsv: the label 'y' has one text only; give each label two or more"),
    ],
)
def test_labels_that_make_no_pairs_are_refused(labels, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        pairs.check_labels(labels, "few.tsv")

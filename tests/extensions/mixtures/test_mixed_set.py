"""Several sets as one: the features of their examples, and the order of batches."""

import itertools
import re

import numpy as np
import pytest

from official_bert.extensions.mixtures.mixed_set import SET_NUMBER, MixedSet, MixedTrainingSet
from official_bert.extensions.mixtures.options import PROPORTIONAL, ROUND_ROBIN
from official_bert.features import content_digest
from official_bert.io.errors import InputError


class NumberSet:
    """Examples with `num_texts` texts, whose ids start from a number."""

    def __init__(self, first: int, size: int, num_texts: int = 2, **further: np.ndarray):
        self.lengths = np.arange(1, size + 1)
        self._ids = first + np.arange(size * num_texts).reshape(size, num_texts)
        self._further = further

    def features(self, rows, length):
        ids = np.repeat(self._ids[rows][..., None], length, axis=2)
        return {"input_ids": ids} | {name: values[rows] for name, values in self._further.items()}


def test_examples_of_several_sets_come_in_the_order_of_their_rows():
    joined = MixedSet({"a": NumberSet(0, 3), "b": NumberSet(100, 2)})
    assert joined.lengths.tolist() == [1, 2, 3, 1, 2]
    assert joined.slices == {"a": slice(0, 3), "b": slice(3, 5)}
    ids = joined.features(np.array([4, 0, 3, 2]), length=3)["input_ids"]
    assert ids[:, :, 0].tolist() == [[102, 103], [0, 1], [100, 101], [4, 5]]
    assert ids.shape == (4, 2, 3)


def test_a_smaller_example_is_filled_up_with_zeros():
    joined = MixedSet({"a": NumberSet(1, 2), "b": NumberSet(100, 1, num_texts=3)})
    ids = joined.features(np.array([1, 2]), length=1)["input_ids"]
    assert ids[..., 0].tolist() == [[3, 4, 0], [100, 101, 102]]


def test_a_batch_has_the_features_of_all_sets():
    scores = np.float32([0.5, 0.25])
    margins = np.float32([[1.0, 2.0]])
    mixed = MixedTrainingSet(
        {"a": NumberSet(0, 2, scores=scores), "b": NumberSet(9, 1, 3, margins=margins)},
        PROPORTIONAL,
        batch_size=1,
    )
    batch = mixed.features(np.array([1, 0]), length=4)
    assert batch[SET_NUMBER].tolist() == [0, 0]
    assert batch["scores"].tolist() == [0.25, 0.5]
    assert batch["input_ids"].shape == (2, 2, 4)
    assert batch["margins"].shape == (2, 0)
    assert batch["margins"].dtype == np.float32
    batch = mixed.features(np.array([1, 2]), length=4)
    assert batch[SET_NUMBER].tolist() == [0, 1]
    assert batch["scores"].tolist() == [0.25, 0.0]
    assert batch["margins"].tolist() == [[0.0, 0.0], [1.0, 2.0]]
    batch = mixed.features(np.array([2]), length=4)
    assert batch[SET_NUMBER].tolist() == [1]
    assert batch["margins"].tolist() == [[1.0, 2.0]]
    assert batch["scores"].tolist() == [0.0]
    assert batch["input_ids"].shape == (1, 3, 4)


def test_the_digest_tells_sets_apart():
    def digest(*members):
        names = "abc"[: len(members)]
        return content_digest(
            MixedTrainingSet(dict(zip(names, members, strict=True)), PROPORTIONAL, batch_size=2)
        )

    one = digest(NumberSet(0, 3), NumberSet(100, 2, num_texts=3))
    assert one == digest(NumberSet(0, 3), NumberSet(100, 2, num_texts=3))
    assert one != digest(NumberSet(0, 3), NumberSet(101, 2, num_texts=3))
    assert one != digest(NumberSet(0, 4), NumberSet(100, 2, num_texts=3))


def batches(sampling: str, sizes, batch_size: int, count: int) -> list[list[int]]:
    members = {name: NumberSet(0, size) for name, size in zip("abc", sizes, strict=False)}
    mixed = MixedTrainingSet(members, sampling, batch_size)
    order = mixed.example_order(7, batch_size, buffer_size=0)
    return [list(itertools.islice(order, batch_size)) for _ in range(count)]


@pytest.mark.parametrize(
    ("sampling", "shares"), [(PROPORTIONAL, [3, 1, 2]), (ROUND_ROBIN, [2, 2, 2])]
)
def test_each_batch_is_of_one_set(sampling, shares):
    sizes = [12, 4, 8]
    ends = np.cumsum(sizes)
    sets_by_batch = []
    rows = []
    for batch in batches(sampling, sizes, batch_size=4, count=6):
        numbers = np.searchsorted(ends, batch, side="right")
        assert len(set(numbers.tolist())) == 1
        sets_by_batch.append(int(numbers[0]))
        rows += batch
    assert [sets_by_batch.count(number) for number in range(3)] == shares
    if sampling == PROPORTIONAL:  # six batches are one pass over all sets
        assert sorted(rows) == list(range(24))
        assert rows[:4] != sorted(rows[:4])


def test_the_order_depends_on_the_seed():
    members = {"a": NumberSet(0, 8), "b": NumberSet(0, 8)}
    mixed = MixedTrainingSet(members, PROPORTIONAL, batch_size=3)
    first, again, other = (
        list(itertools.islice(mixed.example_order(seed, 4, 0), 16)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_set_smaller_than_a_batch_is_refused():
    sentence = (
        "--data_sets: [b] has 3 training examples, fewer than a batch of 4; lower "
        "--train_batch_size"
    )
    with pytest.raises(InputError, match=re.escape(sentence)):
        batches(PROPORTIONAL, [8, 3], batch_size=4, count=1)


def test_single_texts_beside_anchors_with_a_length_of_their_own_are_refused():
    anchors = np.zeros((3, 1, 2), np.int32)
    members = {"a": NumberSet(0, 3, query_input_ids=anchors), "b": NumberSet(0, 3)}
    with pytest.raises(InputError, match=re.escape("[b] has single texts, which --max_query_seq")):
        MixedTrainingSet(members, PROPORTIONAL, batch_size=3)

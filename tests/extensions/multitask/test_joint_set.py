"""Several sets as one: their features in a batch, and which tasks batches are of."""

import itertools

import numpy as np
import pytest

from official_bert.extensions.multitask.joint_set import (
    TASK_NUMBER,
    JointEvaluationSet,
    JointTrainingSet,
    Member,
    select_features,
)
from official_bert.extensions.multitask.options import ANNEALED, POWER, PROPORTIONAL, ROUND_ROBIN
from official_bert.extensions.multitask.sampling import Sampling

PLAIN = Sampling(PROPORTIONAL, exponent=0.5, num_epochs=3.0, buffer_size=None)


class NumberSet:
    """Examples whose ids are all one number; `shape` is that of the ids of an example."""

    def __init__(self, first: int, size: int, num_texts: int = 0, **further: np.ndarray):
        self.lengths = np.arange(1, size + 1)
        self._first = first
        self._num_texts = num_texts
        self._further = further

    def features(self, rows, length):
        shape = (self._num_texts, length) if self._num_texts else (length,)
        ids = np.zeros((len(rows), *shape), np.int32)
        ids += (self._first + rows).reshape(-1, *[1] * len(shape)).astype(np.int32)
        return {"input_ids": ids} | {name: values[rows] for name, values in self._further.items()}


def join(sampling=PLAIN, **sets) -> JointTrainingSet:
    return JointTrainingSet({name: Member(name, one) for name, one in sets.items()}, sampling)


def test_a_batch_has_the_features_of_its_task_and_empty_ones_of_the_others():
    labels = np.int32([[1, 0], [0, 1], [1, 1]])
    joint = join(a=NumberSet(1, 2), b=NumberSet(10, 3, labels=labels), c=NumberSet(50, 1, 2))
    batch = joint.features(np.array([4, 2]), length=3)
    assert batch[TASK_NUMBER].tolist() == [1, 1]
    assert batch["input_ids"].tolist() == [[12] * 3, [10] * 3]
    assert select_features("b", batch)["labels"].tolist() == [[1, 1], [1, 0]]
    assert batch["a/input_ids"].shape == (2, 0)
    assert batch["c/input_ids"].shape == (2, 0, 0)
    assert joint.features(np.array([5]), length=2)["input_ids"].tolist() == [[50] * 4]
    assert joint.features(np.array([5]), length=2)["b/labels"].shape == (1, 0)
    mixed = joint.features(np.array([0, 5]), length=2)
    assert mixed["input_ids"].tolist() == [[1, 1, 0, 0], [50] * 4]
    assert joint.counts == {"": 6, "a ": 2, "b ": 3, "c ": 1}


def test_an_evaluation_has_the_features_of_all_tasks_that_have_a_set():
    scores, labels = np.float32([0.5, 0.25]), np.int32([[1, 2, 3]])
    template = NumberSet(0, 1, labels=labels)
    sets = {"a": Member("a", NumberSet(1, 2, scores=scores)), "a_mm": Member("a", NumberSet(9, 1))}
    joint = JointEvaluationSet(sets, {"a": sets["a"].encoded, "b": template})
    batch = joint.features(np.array([2, 0, 1]), length=2)
    assert batch["input_ids"].tolist() == [[9, 9], [1, 1], [2, 2]]
    assert batch["a/scores"].tolist() == [0.0, 0.5, 0.25]
    assert batch["b/labels"].shape == (3, 3)
    assert joint.slices == {"a": slice(0, 2), "a_mm": slice(2, 3)}


def count_turns(sampling: Sampling, num_turns: int, batch_size: int = 4) -> list[int]:
    joint = join(sampling, a=NumberSet(0, 64), b=NumberSet(0, 16))
    order = joint.example_order(5, batch_size, 0)
    counts = [0, 0]
    for _ in range(num_turns):
        rows = np.array(list(itertools.islice(order, batch_size)))
        (number,) = set(joint.find_sets(rows).tolist())
        counts[number] += 1
    return counts


@pytest.mark.parametrize(
    ("kind", "counts"), [(PROPORTIONAL, [16, 4]), (ROUND_ROBIN, [10, 10]), (POWER, [13, 7])]
)
def test_each_batch_is_of_one_task(kind, counts):
    # 64 to 16 is 4 to 1, and its root 2 to 1.
    assert count_turns(PLAIN._replace(kind=kind), 20) == counts


def test_an_annealed_exponent_falls_with_the_epochs():
    sampling = PLAIN._replace(kind=ANNEALED, num_epochs=5.0)
    exponents = []
    for epoch in range(7):
        large, small = sampling.compute_weights([100, 10], epoch)
        exponents.append(np.log(large / small) / np.log(10))
    np.testing.assert_allclose(exponents, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2], atol=1e-12)
    # 20 batches are an epoch: 16 to 4 in the first one, and 4 ** 0.6 to 1 in the third.
    first, third = (
        count_turns(sampling, 20),
        np.subtract(*map(np.array, (count_turns(sampling, 60), count_turns(sampling, 40)))),
    )
    assert first == [16, 4]
    assert third.tolist() == [14, 6]


def test_the_order_of_one_set_is_that_of_its_script():
    from official_bert.training.batches import example_order

    one = NumberSet(0, 9)
    one.shuffle_buffer_size = 4
    order = join(a=one).example_order(3, batch_size=2, buffer_size=0)
    assert list(itertools.islice(order, 30)) == list(itertools.islice(example_order(9, 3, 4), 30))
    whole = join(PLAIN._replace(buffer_size=0), a=one).example_order(3, 2, 0)
    assert list(itertools.islice(whole, 30)) == list(itertools.islice(example_order(9, 3, 0), 30))

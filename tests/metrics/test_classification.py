import warnings

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import example, given, settings
from hypothesis import strategies as st

from official_bert.metrics.classification import (
    accuracy,
    confusion_matrix,
    f1,
    matthews,
    per_label,
    precision_recall_f1,
)

CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
ROW = st.tuples(*[st.integers(0, 1)] * 6)  # three labels: targets, then predictions


def assert_close(found: dict[str, float], expected: dict[str, float]):
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-12)
    assert {type(value) for value in found.values()} == {float}


def test_two_classes_by_hand():
    targets, predictions = [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0]
    assert_close(accuracy(targets, predictions), {"accuracy": 6 / 8})
    assert_close(f1(targets, predictions), {"f1": 2 * 2 / (3 + 3)})
    assert_close(f1(targets, predictions, positive_class=0), {"f1": 2 * 4 / (5 + 5)})
    # Two true and four true negative, one false of each kind.
    assert_close(matthews(targets, predictions), {"matthews": (2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5})


def test_three_classes_by_hand():
    targets, predictions = [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 0]
    # Four of six right; two targets of each class; 2, 3, 1 predictions.
    covariance, variances = 6 * 4 - 2 * (2 + 3 + 1), (36 - 3 * 4, 36 - (4 + 9 + 1))
    assert_close(matthews(targets, predictions), {"matthews": covariance / (variances[0] * variances[1]) ** 0.5})


def test_one_label_an_example_by_hand():
    found = per_label([0, 0, 1, 1], [0, 1, 1, 1], ["bad", "good", "never"])
    assert_close(
        found,
        {
            "precision": 3 / 4,
            "recall": 3 / 4,
            "f1": 3 / 4,
            "macro_precision": (1 + 2 / 3 + 0) / 3,
            "macro_recall": (1 / 2 + 1 + 0) / 3,
            "macro_f1": (2 / 3 + 4 / 5 + 0) / 3,
            "precision_bad": 1.0,
            "recall_bad": 1 / 2,
            "f1_bad": 2 / 3,
            "precision_good": 2 / 3,
            "recall_good": 1.0,
            "f1_good": 4 / 5,
            "precision_never": 0.0,
            "recall_never": 0.0,
            "f1_never": 0.0,
        },
    )


def test_several_labels_an_example_by_hand():
    found = per_label([[1, 1], [0, 1], [0, 0]], [[1, 0], [1, 1], [0, 0]], ["a", "b"])
    assert_close(
        found,
        {
            "precision": 2 / 3,
            "recall": 2 / 3,
            "f1": 2 / 3,
            "macro_precision": (1 / 2 + 1) / 2,
            "macro_recall": (1 + 1 / 2) / 2,
            "macro_f1": 2 / 3,
            "precision_a": 1 / 2,
            "recall_a": 1.0,
            "f1_a": 2 / 3,
            "precision_b": 1.0,
            "recall_b": 1 / 2,
            "f1_b": 2 / 3,
        },
    )


@pytest.mark.parametrize(
    ("targets", "predictions", "expected"),
    [
        ([0, 1], [0, 0], 0.0),  # a constant correlates with nothing
        ([0, 0], [0, 1], 0.0),
        ([1, 1], [1, 1], 0.0),
        ([0, 1, 2], [0, 1, 2], 1.0),
        ([0, 1], [1, 0], -1.0),
    ],
)
def test_the_ends_of_matthews(targets, predictions, expected):
    assert matthews(targets, predictions) == {"matthews": expected}


def test_matthews_of_many_examples_stays_exact():
    targets = np.arange(200_000) % 2
    predictions = np.where(np.arange(200_000) < 50_000, 1 - targets, targets)
    assert matthews(targets, predictions) == {"matthews": 0.5}  # three quarters right, one quarter wrong


@settings(deadline=None)
@given(CLASSES)
@example([(0, 0)])
@example([(1, 0), (1, 0)])
def test_equals_scikit_learn(pairs):
    targets, predictions = np.array(pairs).T
    assert accuracy(targets, predictions)["accuracy"] == pytest.approx(
        sklearn.metrics.accuracy_score(targets, predictions), abs=1e-12
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of single classes
        expected = sklearn.metrics.matthews_corrcoef(targets, predictions)
    assert matthews(targets, predictions)["matthews"] == pytest.approx(expected, abs=1e-12)
    for positive_class in range(4):
        expected = sklearn.metrics.f1_score(targets == positive_class, predictions == positive_class, zero_division=0)
        assert f1(targets, predictions, positive_class)["f1"] == pytest.approx(expected, abs=1e-12)
    assert_equals_scikit_learn(targets, predictions, range(4))


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_several_labels_equal_scikit_learn(rows):
    rows = np.array(rows)
    assert_equals_scikit_learn(rows[:, :3], rows[:, 3:], range(3))


def assert_equals_scikit_learn(targets, predictions, labels):
    expected = {}
    names = ("precision", "recall", "f1")
    for prefix, average in (("", "micro"), ("macro_", "macro")):
        scores = sklearn.metrics.precision_recall_fscore_support(
            targets, predictions, labels=labels, average=average, zero_division=0
        )
        expected |= {f"{prefix}{name}": score for name, score in zip(names, scores[:3], strict=True)}
    each = sklearn.metrics.precision_recall_fscore_support(targets, predictions, labels=labels, zero_division=0)
    for label in labels:
        for name, scores in zip(names, each[:3], strict=True):
            expected[f"{name}_L{label}"] = scores[label]
    assert_close(per_label(targets, predictions, [f"L{label}" for label in labels]), expected)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((0, 0, 0), (0.0, 0.0, 0.0)),
        ((0, 3, 0), (0.0, 0.0, 0.0)),
        ((0, 0, 3), (0.0, 0.0, 0.0)),
        ((2, 4, 2), (1 / 2, 1.0, 2 / 3)),
    ],
)
def test_nothing_counted_is_zero(counts, expected):
    assert tuple(precision_recall_f1(*counts).values()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "targets", "predictions"),
    [
        (accuracy, [0, 1], [0]),
        (accuracy, [], []),
        (f1, [[0], [1]], [[0], [1]]),
        (matthews, [0, 1], [[0, 1]]),
        (lambda *both: per_label(*both, ["a", "b"]), [0, 1], [[0, 1], [1, 0]]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(metric, targets, predictions):
    with pytest.raises(ValueError, match="of shape"):
        metric(targets, predictions)


def test_a_class_without_a_name_is_refused():
    with pytest.raises(ValueError, match="longer"):
        per_label([0, 2], [0, 2], ["a", "b"])


def test_a_confusion_matrix_has_a_row_for_each_true_label():
    random = np.random.default_rng(1)
    targets, predictions = random.integers(0, 4, 50), random.integers(0, 4, 50)
    expected = [[sum((targets == i) & (predictions == j)) for j in range(5)] for i in range(5)]
    np.testing.assert_array_equal(confusion_matrix(targets, predictions, 5), expected)
    np.testing.assert_array_equal(
        confusion_matrix(targets, predictions, 4), sklearn.metrics.confusion_matrix(targets, predictions)
    )

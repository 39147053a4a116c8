import math
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import example, given, settings
from hypothesis import strategies as st

from official_bert.metrics.classification import (
    abstaining,
    accuracy,
    confusion_matrix,
    f1,
    matthews,
    pearson,
    per_label,
    spearman,
)

CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
ROW = st.tuples(*[st.integers(0, 1)] * 6)  # three labels: targets, then predictions
# Quarters of these are scores, so that there are ties and no values that are nearly equal.
SCORES = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=2, max_size=30)


def test_matthews_of_many_examples_stays_exact():
    targets = np.arange(200_000) % 2
    predictions = np.where(np.arange(200_000) < 50_000, 1 - targets, targets)
    # Three quarters right, one quarter wrong.
    assert matthews(targets, predictions) == {"matthews": 0.5}


@settings(deadline=None, max_examples=40)
@given(CLASSES)
@example([(0, 0)])
@example([(1, 0), (1, 0)])  # a constant correlates with nothing
@example([(0, 1), (1, 0)])
def test_equals_scikit_learn(pairs):
    targets, predictions = np.array(pairs).T
    assert accuracy(targets, predictions)["accuracy"] == pytest.approx(
        sklearn.metrics.accuracy_score(targets, predictions),
        abs=1e-12,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of single classes
        expected = sklearn.metrics.matthews_corrcoef(targets, predictions)
    assert matthews(targets, predictions)["matthews"] == pytest.approx(expected, abs=1e-12)
    expected = sklearn.metrics.f1_score(targets == 1, predictions == 1, zero_division=0)
    assert f1(targets, predictions)["f1"] == pytest.approx(expected, abs=1e-12)
    assert_equals_scikit_learn(targets, predictions, range(4))
    assert_equals_scikit_learn(targets % 2, predictions % 2, range(2), "binary")
    np.testing.assert_array_equal(
        confusion_matrix(targets, predictions, 4),
        sklearn.metrics.confusion_matrix(targets, predictions, labels=range(4)),
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_several_labels_equal_scikit_learn(rows):
    rows = np.array(rows)
    assert_equals_scikit_learn(rows[:, :3], rows[:, 3:], range(3))


def assert_equals_scikit_learn(targets, predictions, labels, overall="micro"):
    expected = {}
    names = ("precision", "recall", "f1")
    for prefix, average in (
        ("" if overall == "binary" else "micro_", overall),
        ("macro_", "macro"),
    ):
        scores = sklearn.metrics.precision_recall_fscore_support(
            targets,
            predictions,
            labels=labels,
            average=average,
            zero_division=0,
        )
        expected |= {
            f"{prefix}{name}": score for name, score in zip(names, scores[:3], strict=True)
        }
    each = sklearn.metrics.precision_recall_fscore_support(
        targets,
        predictions,
        labels=labels,
        zero_division=0,
    )
    for label in labels:
        for name, scores in zip(names, each[:3], strict=True):
            expected[f"{name}_L{label}"] = scores[label]
    found = per_label(targets, predictions, [f"L{label}" for label in labels])
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-12)
    assert {type(value) for value in found.values()} == {float}


@settings(deadline=None)
@given(SCORES)
def test_equals_scipy(pairs):
    targets, predictions = np.array(pairs).T / 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of constants
        expected = (
            scipy.stats.pearsonr(targets, predictions)[0],
            scipy.stats.spearmanr(targets, predictions)[0],
        )
    found = pearson(targets, predictions)["pearson"], spearman(targets, predictions)["spearman"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)  # nan equals nan


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lines_correlate_wholly(sign):
    values = np.linspace(0.1, 0.7, 1000)
    assert pearson(values, sign * 3 * values + 0.1)["pearson"] == pytest.approx(sign, abs=1e-15)
    assert abs(pearson(values, sign * 3 * values + 0.1)["pearson"]) <= 1.0


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float64", 1e-200), ("float64", 1e200), ("float32", 1.0)],
)
def test_no_scale_is_too_large_or_too_small_and_float32_is_computed_with_in_float64(dtype, scale):
    random = np.random.default_rng(1)
    targets = random.normal(size=3000)
    predictions = (targets + random.normal(size=3000)).astype(dtype)
    expected = scipy.stats.pearsonr(targets, predictions.astype(np.float64))[0]
    assert pearson(targets, predictions * predictions.dtype.type(scale))[
        "pearson"
    ] == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("predictions", [[0.1, 0.1, 0.1], [0.0, 0.0, 0.0], [1.0, math.nan, 2.0]])
def test_constants_and_nan_correlate_with_nothing(predictions):
    targets = [1.0, 2.0, 4.0]
    for first, second in ((targets, predictions), (predictions, targets)):
        assert math.isnan(pearson(first, second)["pearson"])
        assert math.isnan(spearman(first, second)["spearman"])


@pytest.mark.filterwarnings("error")
def test_infinity_has_a_rank_only():
    assert math.isnan(pearson([1, 2, 3], [1, 2, math.inf])["pearson"])
    assert spearman([1, 2, 3], [1, 2, math.inf]) == {"spearman": pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("targets", "predictions"),
    [([0, 1], [0]), ([], []), ([[0], [1]], [[0], [1]])],
)
def test_shapes_that_do_not_fit_are_refused(targets, predictions):
    with pytest.raises(ValueError, match="of shape"):
        pearson(targets, predictions)


def test_answers_that_are_not_given():
    targets, predictions = np.array([0, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 0])
    answered, none = np.array([True, True, False, True, False]), np.zeros(5, bool)
    found = abstaining(targets, predictions, answered, none)
    assert found == {"coverage": 3 / 5, "answered_accuracy": 1 / 3}
    found = abstaining(targets, predictions, answered, np.array([False, False, False, True, True]))
    assert found == {
        "coverage": 3 / 5, "answered_accuracy": 1 / 3, "in_scope_accuracy": 1 / 3, "out_of_scope_recall": 1 / 2,
    }  # fmt: skip
    assert abstaining(targets, predictions, none, none)["answered_accuracy"] == 0.0

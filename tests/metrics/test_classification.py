import math
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

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

# Pairs of a target and a prediction.
CLASS = st.integers(0, 3)
CLASSES = st.lists(
    st.tuples(CLASS, CLASS),
    min_size=1,
    max_size=30,
)
# Quarters of these are scores, so that there are ties and no values that are nearly equal.
QUARTERS = st.integers(-20, 20)
SCORES = st.lists(
    st.tuples(QUARTERS, QUARTERS),
    min_size=2,
    max_size=30,
)
ROW = st.tuples(*[st.integers(0, 1)] * 6)  # three labels: targets, then predictions


def test_matthews_of_many_examples_stays_exact():
    numbers = np.arange(200_000)
    targets = numbers % 2
    is_wrong = numbers < 50_000
    predictions = np.where(is_wrong, 1 - targets, targets)
    # Three quarters right, one quarter wrong.
    assert matthews(targets, predictions) == {"matthews": 0.5}


@settings(deadline=None, max_examples=40)
@given(CLASSES)
@example([(0, 0)])
@example([(1, 0), (1, 0)])  # a constant correlates with nothing
@example([(0, 1), (1, 0)])
def test_equals_scikit_learn(pairs):
    targets, predictions = np.array(pairs).T
    scores = accuracy(targets, predictions)
    expected = sklearn.metrics.accuracy_score(targets, predictions)
    assert scores["accuracy"] == pytest.approx(expected, abs=1e-12)

    scores = matthews(targets, predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of single classes
        expected = sklearn.metrics.matthews_corrcoef(targets, predictions)
    assert scores["matthews"] == pytest.approx(expected, abs=1e-12)

    scores = f1(targets, predictions)
    expected = sklearn.metrics.f1_score(
        targets == 1,
        predictions == 1,
        zero_division=0,
    )
    assert scores["f1"] == pytest.approx(expected, abs=1e-12)

    matrix = confusion_matrix(targets, predictions, 4)
    expected_matrix = sklearn.metrics.confusion_matrix(
        targets,
        predictions,
        labels=range(4),
    )
    assert_array_equal(matrix, expected_matrix)


@settings(deadline=None, max_examples=40)
@given(CLASSES)
@example([(0, 0)])
@example([(1, 0), (1, 0)])
@example([(0, 1), (1, 0)])
def test_scores_of_classes_equal_scikit_learn(pairs):
    targets, predictions = np.array(pairs).T
    assert_equals_scikit_learn(
        targets,
        predictions,
        num_labels=4,
        averages={"micro_": "micro", "macro_": "macro"},
    )
    assert_equals_scikit_learn(
        targets % 2,
        predictions % 2,
        num_labels=2,
        averages={"": "binary", "macro_": "macro"},
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_several_labels_equal_scikit_learn(rows):
    rows = np.array(rows)
    assert_equals_scikit_learn(
        targets=rows[:, :3],
        predictions=rows[:, 3:],
        num_labels=3,
        averages={"micro_": "micro", "macro_": "macro"},
    )


def assert_equals_scikit_learn(targets, predictions, num_labels: int, averages):
    """Compares the scores over all labels, by the prefixes of their averages, and of each label."""
    labels = range(num_labels)
    score_names = ("precision", "recall", "f1")

    def compute_expected(average):
        scores = sklearn.metrics.precision_recall_fscore_support(
            targets,
            predictions,
            labels=labels,
            average=average,
            zero_division=0,
        )
        return dict(zip(score_names, scores[:3], strict=True))

    expected = {}
    for prefix, average in averages.items():
        for name, score in compute_expected(average).items():
            expected[prefix + name] = score
    scores_of_labels = compute_expected(average=None)
    for label in labels:
        for name, scores in scores_of_labels.items():
            expected[f"{name}_L{label}"] = scores[label]

    label_names = [f"L{label}" for label in labels]
    scores = per_label(targets, predictions, label_names)
    assert list(scores) == list(expected)
    assert_allclose(
        list(scores.values()),
        list(expected.values()),
        rtol=0,
        atol=1e-12,
    )
    assert {type(score) for score in scores.values()} == {float}


@settings(deadline=None)
@given(SCORES)
def test_equals_scipy(pairs):
    targets, predictions = np.array(pairs).T / 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of constants
        expected_pearson, _ = scipy.stats.pearsonr(targets, predictions)
        expected_spearman, _ = scipy.stats.spearmanr(targets, predictions)
    pearson_scores = pearson(targets, predictions)
    spearman_scores = spearman(targets, predictions)
    # nan equals nan
    assert_allclose(
        pearson_scores["pearson"],
        expected_pearson,
        rtol=0,
        atol=1e-12,
    )
    assert_allclose(
        spearman_scores["spearman"],
        expected_spearman,
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lines_correlate_wholly(sign):
    values = np.linspace(0.1, 0.7, 1000)
    line = sign * 3 * values + 0.1
    correlation = pearson(values, line)["pearson"]
    assert correlation == pytest.approx(sign, abs=1e-15)
    assert abs(correlation) <= 1.0


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        pytest.param("float64", 1e-200, id="small scale"),
        pytest.param("float64", 1e200, id="large scale"),
        pytest.param("float32", 1.0, id="float32"),
    ],
)
def test_no_scale_is_too_large_or_too_small_and_float32_is_computed_with_in_float64(dtype, scale):
    rng = np.random.default_rng(1)
    targets = rng.normal(size=3000)
    noise = rng.normal(size=3000)
    predictions = (targets + noise).astype(dtype)
    scaled = predictions * predictions.dtype.type(scale)
    scores = pearson(targets, scaled)
    exact_predictions = predictions.astype(np.float64)
    expected, _ = scipy.stats.pearsonr(targets, exact_predictions)
    assert scores["pearson"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "predictions",
    [
        pytest.param([0.1, 0.1, 0.1], id="constant"),
        pytest.param([0.0, 0.0, 0.0], id="zeros"),
        pytest.param([1.0, math.nan, 2.0], id="nan"),
    ],
)
def test_constants_and_nan_correlate_with_nothing(predictions):
    targets = [1.0, 2.0, 4.0]
    for first, second in ((targets, predictions), (predictions, targets)):
        assert math.isnan(pearson(first, second)["pearson"])
        assert math.isnan(spearman(first, second)["spearman"])


@pytest.mark.filterwarnings("error")
def test_infinity_has_a_rank_only():
    targets = [1, 2, 3]
    predictions = [1, 2, math.inf]
    assert math.isnan(pearson(targets, predictions)["pearson"])
    assert spearman(targets, predictions) == {"spearman": pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("targets", "predictions"),
    [
        pytest.param([0, 1], [0], id="other lengths"),
        pytest.param([], [], id="empty"),
        pytest.param([[0], [1]], [[0], [1]], id="two dimensions"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(targets, predictions):
    with pytest.raises(ValueError, match="of shape"):
        pearson(targets, predictions)


def test_answers_that_are_not_given():
    targets = np.array([0, 1, 1, 0, 0])
    predictions = np.array([0, 0, 1, 1, 0])
    is_answered = np.array([True, True, False, True, False])
    is_out_of_scope = np.array([False, False, False, True, True])
    none = np.zeros(5, bool)

    scores = abstaining(targets, predictions, is_answered, none)
    assert scores == {
        "coverage": 3 / 5,
        "answered_accuracy": 1 / 3,
    }
    scores = abstaining(targets, predictions, is_answered, is_out_of_scope)
    assert scores == {
        "coverage": 3 / 5,
        "answered_accuracy": 1 / 3,
        "in_scope_accuracy": 1 / 3,
        "out_of_scope_recall": 1 / 2,
    }
    scores = abstaining(targets, predictions, none, none)
    assert scores["answered_accuracy"] == 0.0

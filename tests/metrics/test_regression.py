import math
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert.metrics.classification import pearson, spearman

# Quarters, so that there are ties and no values that are nearly equal.
PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=2, max_size=30)


def test_pearson_by_hand():
    # Deviations -1, 0, 1 and -2, -1, 3.
    assert pearson([1, 2, 3], [1, 2, 6]) == {"pearson": pytest.approx((2 + 0 + 3) / (2 * 14) ** 0.5, abs=1e-15)}


def test_spearman_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 2, 1, 3, 4 have deviations -1.5, 0, 0, 1.5 and -0.5, -1.5, 0.5, 1.5.
    found = spearman([1, 7, 7, 9], [0.2, 0.1, 0.3, 4.0])
    assert found == {"spearman": pytest.approx((0.75 + 2.25) / (4.5 * 5) ** 0.5, abs=1e-15)}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lines_correlate_wholly(sign):
    values = np.linspace(0.1, 0.7, 1000)
    assert pearson(values, sign * 3 * values + 0.1)["pearson"] == pytest.approx(sign, abs=1e-15)
    assert spearman(values, sign * values**3) == {"spearman": pytest.approx(sign, abs=1e-15)}
    assert abs(pearson(values, sign * 3 * values + 0.1)["pearson"]) <= 1.0


@settings(deadline=None)
@given(PAIRS)
def test_equals_scipy(pairs):
    targets, predictions = np.array(pairs).T / 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of constants
        expected = (scipy.stats.pearsonr(targets, predictions)[0], scipy.stats.spearmanr(targets, predictions)[0])
    found = pearson(targets, predictions)["pearson"], spearman(targets, predictions)["spearman"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)  # nan equals nan


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_no_scale_is_too_large_or_too_small(scale):
    random = np.random.default_rng(1)
    targets = random.normal(size=50)
    predictions = targets + random.normal(size=50)
    expected = scipy.stats.pearsonr(targets, predictions)[0]
    assert pearson(targets, scale * predictions)["pearson"] == pytest.approx(expected, abs=1e-12)


def test_float32_predictions_are_computed_with_in_float64():
    random = np.random.default_rng(2)
    targets = random.integers(0, 26, size=3000) / 5
    predictions = (targets + random.normal(size=3000)).astype(np.float32)
    exact = predictions.astype(np.float64)
    assert pearson(targets, predictions)["pearson"] == pytest.approx(scipy.stats.pearsonr(targets, exact)[0], abs=1e-12)
    assert spearman(targets, predictions)["spearman"] == pytest.approx(
        scipy.stats.spearmanr(targets, exact)[0], abs=1e-12
    )


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


@pytest.mark.parametrize(("targets", "predictions"), [([1, 2], [1]), ([], []), ([[1, 2]], [[1, 2]])])
@pytest.mark.parametrize("metric", [pearson, spearman])
def test_shapes_that_do_not_fit_are_refused(metric, targets, predictions):
    with pytest.raises(ValueError, match="of shape"):
        metric(targets, predictions)

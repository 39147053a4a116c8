"""Probabilities, losses, the temperature and the bins equal those of SciPy and scikit-learn."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from numpy.testing import assert_allclose
from sklearn.calibration import calibration_curve

from official_bert.metrics.calibration import best_temperature, losses, probabilities, reliability

DRAWS = np.random.default_rng(1)
LOGITS = DRAWS.normal(scale=4.0, size=(4000, 5))
# The targets are drawn by the probabilities of logits that are a third as large, so that the best
# temperature is near 3.
TRUE_LOGITS = LOGITS / 3
TRUE_SOFTMAX = scipy.special.softmax(TRUE_LOGITS, axis=1)
IS_BELOW_DRAW = DRAWS.random((4000, 1)) > TRUE_SOFTMAX.cumsum(axis=1)
ONE = IS_BELOW_DRAW.sum(axis=1)
TRUE_PROBABILITIES = scipy.special.expit(TRUE_LOGITS)
IS_LABEL = DRAWS.random(LOGITS.shape) < TRUE_PROBABILITIES
SEVERAL = IS_LABEL.astype(np.int32)
BOTH = pytest.mark.parametrize(
    "targets",
    [
        pytest.param(ONE, id="one label"),
        pytest.param(SEVERAL, id="several labels"),
    ],
)


def loss(logits, targets) -> np.ndarray:
    if targets.ndim == 1:
        log_probabilities = scipy.special.log_softmax(logits, axis=1)
        rows = np.arange(len(targets))
        return -log_probabilities[rows, targets]
    signed_logits = np.where(targets == 1, logits, -logits)
    log_probabilities = scipy.special.log_expit(signed_logits)
    return -log_probabilities.mean(axis=1)


@BOTH
def test_probabilities_and_losses(targets):
    is_multi_label = targets.ndim == 2
    if is_multi_label:
        expected = scipy.special.expit(LOGITS)
    else:
        expected = scipy.special.softmax(LOGITS, axis=1)
    computed = probabilities(LOGITS, is_multi_label)
    assert_allclose(computed, expected, rtol=1e-9)
    assert_allclose(
        losses(LOGITS, targets),
        loss(LOGITS, targets),
        rtol=1e-9,
        atol=1e-12,
    )

    extreme_logits = np.float32([[1e4, -1e4, 0, 0, 0]])
    extreme_losses = losses(extreme_logits, targets[:1])
    assert np.isfinite(extreme_losses).all()
    computed = probabilities(extreme_logits, is_multi_label)
    assert computed.dtype == np.float32


@BOTH
def test_the_temperature_is_scipys(targets):
    def mean_loss(divisor):
        return loss(LOGITS / divisor, targets).mean()

    temperature = best_temperature(LOGITS, targets)
    expected = scipy.optimize.minimize_scalar(
        mean_loss,
        bounds=(0.05, 20),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert temperature == pytest.approx(expected.x, rel=1e-5)
    assert 2.8 < temperature < 3.2


@pytest.mark.parametrize(
    ("targets", "bound"),
    [
        pytest.param([0, 1, 2], 0.05, id="all right"),
        pytest.param([1, 2, 0], 20, id="all wrong"),
    ],
)
def test_the_temperature_stays_within_its_bounds(targets, bound):
    logits = np.eye(3)
    temperature = best_temperature(logits, np.array(targets))
    assert temperature == pytest.approx(bound)


@BOTH
def test_the_bins_are_scikit_learns(targets):
    is_multi_label = targets.ndim == 2
    chances = probabilities(LOGITS, is_multi_label)
    if is_multi_label:
        confidences = chances.ravel()
        is_correct = targets.ravel()
    else:
        confidences = chances.max(axis=1)
        is_correct = chances.argmax(axis=1) == targets
    shares, means = calibration_curve(is_correct, confidences, n_bins=15)
    bins = reliability(LOGITS, targets)
    is_used = bins.counts > 0
    assert_allclose(bins.shares[is_used], shares)
    assert_allclose(bins.confidences[is_used], means)

    bin_numbers = np.ceil(confidences * 15)
    expected_error = 0.0
    for bin_number in np.unique(bin_numbers):
        is_in_bin = bin_numbers == bin_number
        share = is_correct[is_in_bin].mean()
        confidence = confidences[is_in_bin].mean()
        gap = abs(share - confidence)
        expected_error += np.mean(is_in_bin) * gap
    assert bins.error == pytest.approx(expected_error)
    calibrated = reliability(TRUE_LOGITS, targets)
    assert calibrated.error < 0.03 < bins.error


@pytest.mark.parametrize(
    ("logits", "targets"),
    [
        # The higher of two probabilities is 0.5, 0.5, 0.9 and 1.
        pytest.param(
            [
                [0, 0],
                [0, 0],
                [0, np.log(9)],
                [0, 1000],
            ],
            [0, 1, 1, 1],
            id="one label",
        ),
        # The probabilities of single labels are the same numbers.
        pytest.param(
            [
                [0, 0],
                [np.log(9), 1000],
            ],
            [
                [1, 0],
                [1, 1],
            ],
            id="several labels",
        ),
    ],
)
def test_a_probability_on_the_bound_of_two_bins_is_in_the_lower_bin(logits, targets):
    bins = reliability(
        np.array(logits, np.float64),
        np.array(targets),
        num_bins=2,
    )
    assert bins.counts.tolist() == [2, 2]
    expected_confidences = [0.5, (0.9 + 1.0) / 2]
    expected_shares = [1 / 2, 2 / 2]
    assert_allclose(bins.confidences, expected_confidences)
    assert_allclose(bins.shares, expected_shares)
    # The lower bin's share is its probability. The upper bin's is 0.05 higher, for half of all.
    assert bins.error == pytest.approx(0.025)

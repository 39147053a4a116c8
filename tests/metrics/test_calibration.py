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
CUMULATIVE = scipy.special.softmax(LOGITS / 3, axis=1).cumsum(axis=1)
ONE = (DRAWS.random((4000, 1)) > CUMULATIVE).sum(axis=1)
IS_LABEL = DRAWS.random(LOGITS.shape) < scipy.special.expit(LOGITS / 3)
SEVERAL = IS_LABEL.astype(np.int32)
BOTH = pytest.mark.parametrize("targets", [ONE, SEVERAL], ids=["one label", "several labels"])


def loss(logits, targets) -> np.ndarray:
    if targets.ndim == 1:
        log_probabilities = scipy.special.log_softmax(logits, axis=1)
        return -log_probabilities[np.arange(len(targets)), targets]
    signed_logits = np.where(targets == 1, logits, -logits)
    return -scipy.special.log_expit(signed_logits).mean(axis=1)


@BOTH
def test_probabilities_and_losses(targets):
    is_multi_label = targets.ndim == 2
    softmax = scipy.special.softmax(LOGITS, axis=1)
    expected = scipy.special.expit(LOGITS) if is_multi_label else softmax
    assert_allclose(probabilities(LOGITS, is_multi_label), expected, rtol=1e-9)
    assert_allclose(
        losses(LOGITS, targets),
        loss(LOGITS, targets),
        rtol=1e-9,
        atol=1e-12,
    )
    extreme = np.float32([[1e4, -1e4, 0, 0, 0]])
    assert np.isfinite(losses(extreme, targets[:1])).all()
    assert probabilities(extreme, is_multi_label).dtype == np.float32


@BOTH
def test_the_temperature_is_scipys(targets):
    temperature = best_temperature(LOGITS, targets)
    expected = scipy.optimize.minimize_scalar(
        lambda divisor: loss(LOGITS / divisor, targets).mean(),
        bounds=(0.05, 20),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert temperature == pytest.approx(expected.x, rel=1e-5)
    assert 2.8 < temperature < 3.2


def test_a_model_without_errors_stays_within_the_bounds():
    assert best_temperature(np.eye(3), np.arange(3)) == pytest.approx(0.05)
    assert best_temperature(np.eye(3), np.array([1, 2, 0])) == pytest.approx(20)


@BOTH
def test_the_bins_are_scikit_learns(targets):
    chances = probabilities(LOGITS, targets.ndim == 2)
    if targets.ndim == 1:
        confidences = chances.max(axis=1)
        is_correct = chances.argmax(axis=1) == targets
    else:
        confidences = chances.ravel()
        is_correct = targets.ravel()
    shares, means = calibration_curve(is_correct, confidences, n_bins=15)
    bins = reliability(LOGITS, targets)
    is_used = bins.counts > 0
    assert_allclose(bins.shares[is_used], shares)
    assert_allclose(bins.confidences[is_used], means)
    bin_numbers = np.ceil(confidences * 15)
    expected_error = 0.0
    for bin_number in np.unique(bin_numbers):
        is_in_bin = bin_numbers == bin_number
        gap = abs(is_correct[is_in_bin].mean() - confidences[is_in_bin].mean())
        expected_error += np.mean(is_in_bin) * gap
    assert bins.error == pytest.approx(expected_error)
    calibrated = reliability(LOGITS / 3, targets)
    assert calibrated.error < 0.03 < bins.error


@pytest.mark.parametrize(
    ("logits", "targets"),
    [
        # The higher of two probabilities is 0.5, 0.5, 0.9 and 1.
        ([[0, 0], [0, 0], [0, np.log(9)], [0, 1000]], [0, 1, 1, 1]),
        # The probabilities of single labels are the same numbers.
        ([[0, 0], [np.log(9), 1000]], [[1, 0], [1, 1]]),
    ],
    ids=["one label", "several labels"],
)
def test_a_probability_on_the_bound_of_two_bins_is_in_the_lower_bin(logits, targets):
    bins = reliability(np.array(logits, np.float64), np.array(targets), num_bins=2)
    assert bins.counts.tolist() == [2, 2]
    assert_allclose(bins.confidences, [0.5, (0.9 + 1.0) / 2])
    assert_allclose(bins.shares, [1 / 2, 2 / 2])
    # The lower bin's share is its probability. The upper bin's is 0.05 higher, for half of all.
    assert bins.error == pytest.approx(0.025)

"""Means and deviations of runs, and differences in standard errors, beside numpy."""

import numpy as np

from official_bert.metrics.summaries import Summary, difference, summarize

FIRST = [80.0, 81.0, 83.0]
SECOND = [78.0, 77.0, 79.5]


def test_a_summary_has_the_mean_and_the_deviation():
    summary = summarize(FIRST)
    np.testing.assert_allclose(summary.mean, np.mean(FIRST))
    np.testing.assert_allclose(summary.deviation, np.std(FIRST, ddof=1))


def test_a_difference_is_in_standard_errors():
    first = summarize(FIRST)
    second = summarize(SECOND)
    gap, num_errors = difference(first, second)
    expected_gap = np.mean(SECOND) - np.mean(FIRST)
    np.testing.assert_allclose(gap, expected_gap)
    first_variance = np.var(FIRST, ddof=1)
    second_variance = np.var(SECOND, ddof=1)
    standard_error = np.sqrt(first_variance / 3 + second_variance / 3)
    np.testing.assert_allclose(num_errors, gap / standard_error)


def test_the_error_of_one_run_and_of_equal_runs_is_unknown():
    one_run = Summary(1.0, None, 1)
    three_runs = Summary(3.0, 0.1, 3)
    assert difference(one_run, three_runs) == (2.0, None)

    equal_runs = Summary(1.0, 0.0, 2)
    other_equal_runs = Summary(3.0, 0.0, 2)
    assert difference(equal_runs, other_equal_runs) == (2.0, None)


def test_a_difference_of_values_with_huge_squares_is_finite():
    small = summarize([1.0, 2.0])
    huge = summarize([1e300, 3e300])  # float64 cannot represent the squares
    _, num_errors = difference(small, huge)
    deviation = np.sqrt(2) * 1e300
    standard_error = deviation / np.sqrt(2)
    np.testing.assert_allclose(num_errors, 2e300 / standard_error)

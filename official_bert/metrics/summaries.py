"""The mean and the deviation of the same metric in several runs, and the difference of two means.

In: a value for each run. Out: a summary of them, and how many standard errors lie between two.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Summary(NamedTuple):
    """The values of several runs.

    Attributes:
        mean: the mean.
        deviation: the standard deviation of the sample; None for a single value.
        count: the number of runs.
    """

    mean: float
    deviation: float | None
    count: int


def summarize(values: Sequence[float]) -> Summary:
    """Return the summary of the values of several runs.

    Args:
        values: at least one value.

    Returns:
        Mean, deviation and number of the values.
    """
    count = len(values)
    mean = sum(values) / count
    if count < 2 or not all(map(math.isfinite, values)):
        return Summary(mean, None, count)
    deviation = statistics.stdev(values)
    return Summary(mean, deviation, count)


def difference(first: Summary, other: Summary) -> tuple[float, float | None]:
    """Return the difference between two means.

    Args:
        first: the summary of the runs to compare with.
        other: the summary of other runs.

    Returns:
        The difference of the means, and the same in standard errors (Welch's); None for the latter
        if the values of one of them do not vary.
    """
    value = other.mean - first.mean
    if first.deviation is None or other.deviation is None:
        return value, None
    first_error = first.deviation / math.sqrt(first.count)
    other_error = other.deviation / math.sqrt(other.count)
    error = math.hypot(first_error, other_error)
    if error == 0:
        return value, None
    return value, value / error

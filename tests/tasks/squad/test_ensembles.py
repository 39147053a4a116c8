import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.answers import RawResult
from official_bert.tasks.squad.logits import average_results


def test_logits_are_averaged_window_by_window():
    first = [RawResult(7, [0.0, 1.0], [2.0, 3.0]), RawResult(5, [4.0, 4.0], [0.0, 0.0])]
    second = [
        RawResult(5, np.float32([1, 2]), np.float32([1, 1])),
        RawResult(7, np.float32([2, 2]), np.float32([0, 0])),
    ]
    averaged = average_results([first, second])
    assert [result.unique_id for result in averaged] == [7, 5]
    np.testing.assert_array_equal(averaged[0].start_logits, [1.0, 1.5])
    np.testing.assert_array_equal(averaged[0].end_logits, [1.0, 1.5])
    np.testing.assert_array_equal(averaged[1].start_logits, [2.5, 3.0])
    np.testing.assert_array_equal(averaged[1].end_logits, [0.5, 0.5])


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "at least one run"),
        ([[RawResult(1, [0], [0])], [RawResult(2, [0], [0])]], "run 2 of the ensemble has results for other windows"),
        ([[RawResult(1, [0], [0])], [RawResult(1, [0, 0], [0, 0])]], r"window 1 are of lengths \[1, 2\]"),
    ],
)
def test_runs_that_do_not_fit_are_refused(runs, message):
    with pytest.raises(InputError, match=message):
        average_results(runs)

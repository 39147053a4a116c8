"""Tests files of logits and their means; tests/hostile/test_json.py has valid and corrupt files."""

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.answers import RawResult, average_results, read_logits, write_logits


def test_what_differs_is_named(tmp_path):
    path, made_from = str(tmp_path / "logits.npz"), {"file": "abc", "strip_accents": None, "max_seq_length": 3}
    write_logits(path, [], made_from)
    with pytest.raises(InputError, match="logits are of another file and another max_seq_length;"):
        read_logits(path, made_from | {"file": "abd", "max_seq_length": 4})


def test_logits_are_averaged_window_by_window():
    first = [RawResult(7, [0.0, 1.0], [2.0, 3.0]), RawResult(5, [4.0, 4.0], [0.0, 0.0])]
    second = [RawResult(number, np.float32([2, 2]), np.float32([0, 0])) for number in (7, 5)]
    averaged = average_results([first, second])
    assert [result.unique_id for result in averaged] == [7, 5]
    logits = [logits for result in averaged for logits in result[1:]]
    np.testing.assert_array_equal(logits, [[1.0, 1.5], [1.0, 1.5], [3.0, 3.0], [0.0, 0.0]])

"""Tests files of logits: they are read back unchanged, and only for the inputs and settings they belong to."""

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.answers import RawResult
from official_bert.tasks.squad.logits import read_logits, write_logits

MADE_FROM = {"file": "abc", "strip_accents": None, "max_seq_length": 3}


def written(folder) -> tuple[str, list[RawResult]]:
    path = str(folder / "logits.npz")
    logits = np.random.default_rng(1).normal(size=(2, 2, 3)).astype(np.float32)
    results = [RawResult(1000000000 + row, *pair) for row, pair in enumerate(logits)]
    write_logits(path, results, MADE_FROM)
    return path, results


def test_logits_come_back(tmp_path):
    path, results = written(tmp_path)
    found = read_logits(path, MADE_FROM)
    assert [result.unique_id for result in found] == [1000000000, 1000000001]
    for before, after in zip(results, found, strict=True):
        np.testing.assert_array_equal(before.start_logits, after.start_logits)
        np.testing.assert_array_equal(before.end_logits, after.end_logits)


def test_no_windows_are_no_results(tmp_path):
    path = str(tmp_path / "logits.npz")
    write_logits(path, [], MADE_FROM)
    assert read_logits(path, MADE_FROM) == []


def test_what_differs_is_named(tmp_path):
    path, _ = written(tmp_path)
    with pytest.raises(InputError, match="logits are of another file and another max_seq_length;"):
        read_logits(path, MADE_FROM | {"file": "abd", "max_seq_length": 4})


@pytest.mark.parametrize("content", [b"", b"no logits", b"PK\x03\x04"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "logits.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="no file of logits"):
        read_logits(str(path), MADE_FROM)
    with pytest.raises(InputError, match="no such file"):
        read_logits(str(tmp_path / "absent.npz"), MADE_FROM)

"""Compares the batches and records of encoded windows with the windows themselves."""

import numpy as np
import pytest

from official_bert.compat.feature_writer import record_arrays
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import encode_questions, encode_training
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.tasks.squad.sample import LENGTHS, toy_windows

RULES = SquadRules(**LENGTHS)


@pytest.fixture
def tokenizer(tmp_path):
    return FullTokenizer(toy.write_vocabulary(tmp_path))


def test_batches_and_records_are_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=True)
    encoded = encode_training(examples, tokenizer, RULES)
    rows = np.array([5, 0, 7, 7])
    expected = record_arrays([windows[row] for row in rows], is_training=True)
    batch, record = encoded.features(rows, 14), encoded.record(rows, 14)
    for name in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[name], expected[name])
        np.testing.assert_array_equal(encoded.features(rows[1:2], 12)[name], expected[name][1:2, :12])
    for name in ("start_positions", "end_positions"):
        np.testing.assert_array_equal(batch[name], expected[name][:, 0])
    assert {value.dtype for value in batch.values()} == {np.dtype(np.int32)}
    assert record.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(record[name].reshape(values.shape), values)


def test_prediction_has_no_positions_and_keeps_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=False)
    encoded = encode_questions(examples, tokenizer, RULES)
    assert sorted(encoded.features(np.array([0]), 14)) == ["input_ids", "input_mask", "segment_ids"]
    expected = record_arrays(windows, is_training=False)
    record = encoded.record(np.arange(len(windows)), 14)
    assert record.keys() == expected.keys()
    np.testing.assert_array_equal(record["unique_ids"], expected["unique_ids"][:, 0])
    assert [window.tokens for window in encoded.windows] == [window.tokens for window in windows]

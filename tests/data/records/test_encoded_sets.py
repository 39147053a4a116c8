"""An encoded set as a record file, read back by our reader and by TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records import encoded_sets
from official_bert.data.records.framing import read_examples


def test_every_example_comes_back_in_order(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(encoded_sets, "_EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(encoded_sets, "_EXAMPLES_BETWEEN_LINES", 8)
    caplog.set_level("INFO", logger="absl")
    values = {
        "ids": np.arange(30, dtype=np.int32).reshape(10, 3),
        "score": np.arange(10, dtype=np.float32) / 4,
    }
    path = str(tmp_path / "train.tf_record")
    encoded_sets.write_encoded_set(
        path, 10, lambda rows: {name: value[rows] for name, value in values.items()}
    )

    found = [record for _, record in read_examples(path)]
    np.testing.assert_array_equal([record["ids"] for record in found], values["ids"])
    np.testing.assert_array_equal([record["score"] for record in found], values["score"][:, None])
    spec = {"ids": tf.io.FixedLenFeature([3], tf.int64), "score": tf.io.FixedLenFeature([], tf.float32)}
    parsed = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(path)]
    np.testing.assert_array_equal([one["ids"] for one in parsed], values["ids"])
    np.testing.assert_array_equal([one["score"] for one in parsed], values["score"])
    assert [line for line in caplog.messages if line.startswith("Writing")] == [
        "Writing example 0 of 10",
        "Writing example 8 of 10",
    ]


def test_a_failure_leaves_no_file(tmp_path):
    def fail(rows):
        raise ValueError("no such row")

    with pytest.raises(ValueError, match="no such row"):
        encoded_sets.write_encoded_set(str(tmp_path / "train.tf_record"), 1, fail)
    assert not list(tmp_path.iterdir())

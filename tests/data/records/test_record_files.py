"""An encoded set as a record file, read back by our reader and by TensorFlow's; which files a glob means."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records import record_files
from official_bert.data.records.framing import read_examples
from official_bert.data.records.record_files import expand_records
from official_bert.io.errors import InputError


def test_every_example_comes_back_in_order(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(record_files, "_EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(record_files, "_EXAMPLES_BETWEEN_LINES", 8)
    caplog.set_level("INFO", logger="absl")
    values = {"ids": np.arange(30, dtype=np.int32).reshape(10, 3), "score": np.arange(10, dtype=np.float32) / 4}
    path = str(tmp_path / "train.tf_record")
    record_files.write_encoded_set(path, 10, lambda rows: {name: value[rows] for name, value in values.items()})

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


def test_a_glob_skips_the_manifest(tmp_path):
    for name in ("a-00000-of-00002", "a-00001-of-00002", "a.manifest.json"):
        (tmp_path / name).touch()
    shards = [str(tmp_path / f"a-0000{number}-of-00002") for number in range(2)]
    assert expand_records([f"{tmp_path}/a*"], "input_file") == shards
    assert expand_records([f"{tmp_path}/a-?????-of-?????"], "input_file") == shards
    manifest = f"{tmp_path}/a.manifest.json"
    assert expand_records([manifest], "input_file") == [manifest]  # who names it hears that it holds no records
    with pytest.raises(InputError, match="--input_file: no file of records matches"):
        expand_records([f"{tmp_path}/a.*"], "input_file")

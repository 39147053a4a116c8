"""The expected bytes and values come from TensorFlow's protobuf classes."""

import numpy as np
import pytest

from official_bert.data.records.framing import encode_examples, frame, read_examples

ROWS = {
    "small": np.array([[0, 1, 127], [5, 0, 3]]),
    "mixed": np.array([[0, 127, 128], [16383, 16384, 30521]], np.int32),
    "wide": np.array([[2**31, 0], [2**63 - 1, 1]]),
    "negative": np.array([[-1], [-(2**63)]]),
    "unsigned": np.array([[2**32 - 1, 7], [2**28, 2**28 - 1]], np.uint32),
    "weights": np.array([[1.0, 0.5], [0.0, -3.25e-7]], np.float32),
    "doubles": np.array([[0.1], [2.0]]),
    "none": np.zeros((2, 0), np.int64),
    "no_floats": np.zeros((2, 0), np.float32),
    "é": np.arange(400).reshape(2, 200),  # a message of more than 127 bytes
}


@pytest.fixture(scope="module")
def train():
    return pytest.importorskip("tensorflow").train


def tf_example(train, row):
    def feature(values):
        if values.dtype.kind == "f":
            return train.Feature(float_list=train.FloatList(value=values.tolist()))
        return train.Feature(int64_list=train.Int64List(value=values.tolist()))

    features = {name: feature(values[row]) for name, values in ROWS.items()}
    return train.Example(features=train.Features(feature=features))


def test_encodes_as_tensorflow_with_sorted_keys(train):
    expected = [tf_example(train, row).SerializeToString(deterministic=True) for row in range(2)]
    assert encode_examples(ROWS) == expected


def test_decodes_what_tensorflow_wrote(train, tmp_path):
    example = tf_example(train, 1)
    example.features.feature["text"].bytes_list.value.extend([b"a", b"", b"long" * 60])
    example.features.feature["unset"].SetInParent()
    (tmp_path / "one").write_bytes(frame(example.SerializeToString()))
    ((number, decoded),) = read_examples(str(tmp_path / "one"))
    assert number == 0
    assert decoded.keys() == {*ROWS, "text", "unset"}
    assert decoded.pop("text").tolist() == [b"a", b"", b"long" * 60]
    assert decoded.pop("unset").tolist() == []
    for name, values in decoded.items():
        is_float = ROWS[name].dtype.kind == "f"
        assert values.dtype == (np.float32 if is_float else np.int64), name
        np.testing.assert_array_equal(values, ROWS[name][1].astype(values.dtype), err_msg=name)

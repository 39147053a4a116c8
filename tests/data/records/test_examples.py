"""The expected bytes and values come from TensorFlow's protobuf classes."""

import numpy as np
import pytest

from official_bert.data.records.framing import encode_examples, frame, read_examples

ROWS = {
    "small": np.array(
        [
            [0, 1, 127],
            [5, 0, 3],
        ]
    ),
    "mixed": np.array(
        [
            [0, 127, 128],
            [16383, 16384, 30521],
        ],
        np.int32,
    ),
    "wide": np.array(
        [
            [2**31, 0],
            [2**63 - 1, 1],
        ]
    ),
    "negative": np.array(
        [
            [-1],
            [-(2**63)],
        ]
    ),
    "unsigned": np.array(
        [
            [2**32 - 1, 7],
            [2**28, 2**28 - 1],
        ],
        np.uint32,
    ),
    "weights": np.array(
        [
            [1.0, 0.5],
            [0.0, -3.25e-7],
        ],
        np.float32,
    ),
    "doubles": np.array(
        [
            [0.1],
            [2.0],
        ]
    ),
    "none": np.zeros((2, 0), np.int64),
    "no_floats": np.zeros((2, 0), np.float32),
    # A message of more than 127 bytes.
    "é": np.arange(400).reshape(2, 200),
}


@pytest.fixture(scope="module")
def train():
    return pytest.importorskip("tensorflow").train


def make_feature(train, values):
    if values.dtype.kind == "f":
        float_list = train.FloatList(value=values.tolist())
        return train.Feature(float_list=float_list)
    int64_list = train.Int64List(value=values.tolist())
    return train.Feature(int64_list=int64_list)


def make_example(train, row):
    feature = {name: make_feature(train, values[row]) for name, values in ROWS.items()}
    features = train.Features(feature=feature)
    return train.Example(features=features)


def test_encodes_as_tensorflow_with_sorted_keys(train):
    examples = [make_example(train, row) for row in range(2)]
    expected = [example.SerializeToString(deterministic=True) for example in examples]
    assert encode_examples(ROWS) == expected


def test_decodes_what_tensorflow_wrote(train, tmp_path):
    texts = [b"a", b"", b"long" * 60]
    example = make_example(train, 1)
    example.features.feature["text"].bytes_list.value.extend(texts)
    example.features.feature["unset"].SetInParent()
    path = tmp_path / "one"
    path.write_bytes(frame(example.SerializeToString()))
    ((number, decoded),) = read_examples(str(path))
    assert number == 0
    assert decoded.keys() == {*ROWS, "text", "unset"}
    assert decoded.pop("text").tolist() == texts
    assert decoded.pop("unset").tolist() == []
    for name, values in decoded.items():
        original = ROWS[name][1]
        dtype = np.float32 if original.dtype.kind == "f" else np.int64
        assert values.dtype == dtype, name
        np.testing.assert_array_equal(values, original.astype(dtype), err_msg=name)

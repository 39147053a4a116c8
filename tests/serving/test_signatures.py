"""Tests how signatures parse their inputs, and which inputs they refuse."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig
from official_bert.data.records.framing import encode_examples
from official_bert.serving.signatures import parsed, tensor_signatures

CONFIG = BertConfig(vocab_size=10, max_position_embeddings=6, type_vocab_size=2)
IDS = np.int32([[3, 4, 5], [6, 0, 0]])
MASK = np.int32([[1, 1, 1], [1, 0, 0]])
SEGMENTS = np.int32([[0, 1, 1], [0, 0, 0]])


def signatures(num_choices=None):
    """Signatures that answer with what the model would be given."""
    return tensor_signatures(dict, CONFIG, num_choices)


def records(ids, mask, segments):
    """Serialized examples of rows that need not be of one length."""
    columns = zip(ids, mask, segments, strict=True)
    names = ("input_ids", "input_mask", "segment_ids")
    rows = [{name: np.array([row], np.int64) for name, row in zip(names, rows, strict=True)} for rows in columns]
    return tf.constant([example for row in rows for example in encode_examples(row)])


def assert_answer(answer, ids, mask, segments):
    np.testing.assert_array_equal(answer["input_ids"], ids)
    np.testing.assert_array_equal(answer["input_mask"], mask)
    np.testing.assert_array_equal(answer["segment_ids"], segments)


def test_the_model_gets_what_the_request_has():
    found = signatures()
    assert_answer(found["serving_default"](IDS, MASK, SEGMENTS), IDS, MASK, SEGMENTS)
    assert_answer(found["serving_ids"](IDS), IDS, MASK, np.zeros_like(IDS))
    assert_answer(found["serving_examples"](records(IDS, MASK, SEGMENTS)), IDS, MASK, SEGMENTS)


def test_records_are_padded_to_the_longest_of_the_request():
    ragged = records([[3, 4, 5], [6]], [[1, 1, 1], [1]], [[0, 1, 1], [0]])
    assert_answer(parsed(ragged), IDS, MASK, SEGMENTS)
    choices = records([[1, 2, 3, 4], [5, 6]], [[1, 1, 1, 1], [1, 1]], [[0, 1, 0, 1], [0, 0]])
    assert_answer(
        signatures(num_choices=2)["serving_examples"](choices),
        [[[1, 2], [3, 4]], [[5, 0], [6, 0]]],
        [[[1, 1], [1, 1]], [[1, 0], [1, 0]]],
        [[[0, 1], [0, 1]], [[0, 0], [0, 0]]],
    )


@pytest.mark.parametrize(
    ("ids", "mask", "segments", "sentence"),
    [
        (IDS + 5, MASK, SEGMENTS, r"input_ids must be at least 0 and below 10, .*\[5\] \[11\]"),
        (IDS, MASK + 1, SEGMENTS, r"input_mask must be at least 0 and below 2, .*\[1\] \[2\]"),
        (IDS, MASK, SEGMENTS - 1, r"segment_ids must be at least 0 and below 2, .*\[-1\] \[0\]"),
        (IDS, MASK[:, :2], SEGMENTS, "input_mask must have the shape of input_ids"),
        (IDS, MASK, SEGMENTS[:1], "segment_ids must have the shape of input_ids"),
        (*[np.ones((1, 7), np.int32)] * 3, r"the model takes sequences of 1 to 6 tokens, these have\] \[7\]"),
        (*[np.ones((1, 0), np.int32)] * 3, r"the model takes sequences of 1 to 6 tokens, these have\] \[0\]"),
    ],
)
def test_what_the_model_cannot_take_is_refused(ids, mask, segments, sentence):
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        signatures()["serving_default"](ids, mask, segments)


@pytest.mark.parametrize(
    ("examples", "num_choices", "sentence"),
    [
        ([b"no example"], None, "Could not parse example input"),
        (records([[3, 4]], [[1]], [[0, 0]]), None, "every example must have as many input_mask as input_ids"),
        (records([[3, 4]], [[1, 1]], [[]]), None, "every example must have as many segment_ids as input_ids"),
        (records([[3, 2**32 + 4]], [[1, 1]], [[0, 0]]), None, "input_ids must be at least 0 and below 10"),
        (records([[3, 4, 5]], [[1, 1, 1]], [[0, 0, 0]]), 2, "must have input_ids of 2 choices"),
    ],
)
def test_records_that_are_no_input_are_refused(examples, num_choices, sentence):
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        signatures(num_choices)["serving_examples"](tf.constant(examples))

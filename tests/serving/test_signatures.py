"""How signatures parse their inputs, which they refuse, and the requests that warm them up."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig
from official_bert.data.records.framing import encode_examples
from official_bert.serving.signatures import (
    make_free_signature,
    make_tensor_signatures,
    make_warmup_records,
    parse_examples,
)
from official_bert.tasks.base import FreeSignature
from tests.serving import exported
from tests.serving.answers import call, signatures_of

CONFIG = BertConfig(vocab_size=10, max_position_embeddings=6, type_vocab_size=2)
IDS = np.int32([[3, 4, 5], [6, 0, 0]])
MASK = np.int32([[1, 1, 1], [1, 0, 0]])
SEGMENTS = np.int32([[0, 1, 1], [0, 0, 0]])
SEVEN_TOKENS = np.ones((1, 7), np.int32)
NO_TOKENS = np.ones((1, 0), np.int32)


def signatures(num_choices=None, separator=None):
    """Signatures that answer with what the model would be given."""
    return make_tensor_signatures(dict, CONFIG, num_choices, separator)


def records(ids, mask, segments):
    """Serialized examples of rows that need not be of one length."""
    examples = []
    for id_row, mask_row, segment_row in zip(ids, mask, segments, strict=True):
        features = {
            "input_ids": np.array([id_row], np.int64),
            "input_mask": np.array([mask_row], np.int64),
            "segment_ids": np.array([segment_row], np.int64),
        }
        examples += encode_examples(features)
    return tf.constant(examples)


def assert_answer(answer, ids, mask, segments):
    np.testing.assert_array_equal(answer["input_ids"], ids)
    np.testing.assert_array_equal(answer["input_mask"], mask)
    np.testing.assert_array_equal(answer["segment_ids"], segments)


def test_the_model_gets_what_the_request_has():
    served = signatures()
    answer = served["serving_default"](IDS, MASK, SEGMENTS)
    assert_answer(answer, IDS, MASK, SEGMENTS)
    answer = served["serving_ids"](IDS)
    assert_answer(answer, IDS, MASK, np.zeros_like(IDS))
    answer = served["serving_examples"](records(IDS, MASK, SEGMENTS))
    assert_answer(answer, IDS, MASK, SEGMENTS)


@pytest.mark.parametrize(
    ("ids", "segments"),
    [
        pytest.param(
            [[3, 4, 5], [6, 0, 0]],
            [[0, 0, 0], [0, 0, 0]],
            id="single texts",
        ),
        pytest.param(
            [[3, 9, 5, 9, 0], [9, 9, 9, 0, 0]],
            [[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]],
            id="pairs",
        ),
        pytest.param(
            [[[3, 9, 5], [9, 4, 0]]],
            [[[0, 0, 1], [0, 1, 0]]],
            id="choices",
        ),
    ],
)
def test_the_segments_of_a_pair_follow_from_its_ids(ids, segments):
    ids = np.int32(ids)
    num_choices = 2 if ids.ndim == 3 else None
    answer = signatures(num_choices, separator=9)["serving_ids"](ids)
    mask = (ids != 0).astype(np.int32)
    assert_answer(answer, ids, mask, segments)


def test_records_are_padded_to_the_longest_of_the_request():
    ragged = records([[3, 4, 5], [6]], [[1, 1, 1], [1]], [[0, 1, 1], [0]])
    assert_answer(parse_examples(ragged), IDS, MASK, SEGMENTS)
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
        pytest.param(
            IDS + 5,
            MASK,
            SEGMENTS,
            r"input_ids must be at least 0 and below 10, .*\[5\] \[11\]",
            id="ids outside the vocabulary",
        ),
        pytest.param(
            IDS,
            MASK + 1,
            SEGMENTS,
            r"input_mask must be at least 0 and below 2, .*\[1\] \[2\]",
            id="a mask of 2",
        ),
        pytest.param(
            IDS,
            MASK,
            SEGMENTS - 1,
            r"segment_ids must be at least 0 and below 2, .*\[-1\] \[0\]",
            id="negative segments",
        ),
        pytest.param(
            IDS,
            MASK[:, :2],
            SEGMENTS,
            "input_mask must have the shape of input_ids",
            id="a shorter mask",
        ),
        pytest.param(
            IDS,
            MASK,
            SEGMENTS[:1],
            "segment_ids must have the shape of input_ids",
            id="fewer rows of segments",
        ),
        pytest.param(
            SEVEN_TOKENS,
            SEVEN_TOKENS,
            SEVEN_TOKENS,
            r"the model takes sequences of 1 to 6 tokens, these have\] \[7\]",
            id="too many tokens",
        ),
        pytest.param(
            NO_TOKENS,
            NO_TOKENS,
            NO_TOKENS,
            r"the model takes sequences of 1 to 6 tokens, these have\] \[0\]",
            id="no tokens",
        ),
    ],
)
def test_what_the_model_cannot_take_is_refused(ids, mask, segments, sentence):
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        signatures()["serving_default"](ids, mask, segments)


@pytest.mark.parametrize(
    ("examples", "num_choices", "sentence"),
    [
        pytest.param(
            [b"no example"],
            None,
            "Could not parse example input",
            id="not an example",
        ),
        pytest.param(
            records([[3, 4]], [[1]], [[0, 0]]),
            None,
            "every example must have as many input_mask as input_ids",
            id="a shorter mask",
        ),
        pytest.param(
            records([[3, 4]], [[1, 1]], [[]]),
            None,
            "every example must have as many segment_ids as input_ids",
            id="no segments",
        ),
        pytest.param(
            records([[3, 2**32 + 4]], [[1, 1]], [[0, 0]]),
            None,
            "input_ids must be at least 0 and below 10",
            id="an id of 33 bits",
        ),
        pytest.param(
            records([[3, 4, 5]], [[1, 1, 1]], [[0, 0, 0]]),
            2,
            "must have input_ids of 2 choices",
            id="3 tokens for 2 choices",
        ),
    ],
)
def test_records_that_are_no_input_are_refused(examples, num_choices, sentence):
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        signatures(num_choices)["serving_examples"](tf.constant(examples))


def requests_of(path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Signature and inputs of every record, by TensorFlow's reader and TensorFlow Serving's
    protos.
    """
    from tensorflow_serving.apis import prediction_log_pb2 as logs

    found = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = logs.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert log.SerializeToString(deterministic=True) == record
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        found.append((request.model_spec.signature_name, inputs))
    return found


@pytest.mark.needs_extra("tensorflow_serving")
def test_requests_come_back_as_they_were_given(tmp_path):
    long_name = "a signature of a name that takes more than one byte to say how long it is " * 3
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    text = np.array([b"caf\xc3\xa9", b""], object)
    requests = [
        ("serving_default", {"input_ids": ids, "segment_ids": ids * 0}),
        (long_name, {"text": text}),
    ]
    path = tmp_path / "requests"
    path.write_bytes(make_warmup_records(requests))
    (first_name, first_inputs), (second_name, second_inputs) = requests_of(path)
    assert first_name == "serving_default"
    assert second_name == long_name
    np.testing.assert_array_equal(first_inputs["input_ids"], ids)
    np.testing.assert_array_equal(first_inputs["segment_ids"], ids * 0)
    np.testing.assert_array_equal(second_inputs["text"], text)


@pytest.mark.needs_extra("tensorflow_serving")
def test_the_signatures_take_the_requests_of_their_export(tmp_path_factory):
    for kind, flags in (
        ("pretraining", {}),
        ("pretraining", {"export_text": True}),
        ("swag", {}),
    ):
        made = exported.shared_export(tmp_path_factory, kind, **flags)
        served = signatures_of(made.path)
        requests = requests_of(made.path / "assets.extra" / "tf_serving_warmup_requests")
        assert sorted(name for name, _ in requests) == sorted(served)
        for name, inputs in requests:
            answer = call(served[name], inputs)
            for value in answer.values():
                assert value.dtype != np.float32 or np.isfinite(value).all()
            if "input_ids" in inputs:
                length = inputs["input_ids"].shape[-1]
                assert length == made.options.max_seq_length, "the script's length"


def test_a_task_chooses_the_inputs_of_a_signature(tmp_path):
    """One text and several numbers, as a server without this package sees them."""
    free = FreeSignature(
        inputs={
            "text": tf.TensorSpec([], tf.string, "text"),
            "numbers": tf.TensorSpec([None], tf.float32, "numbers"),
        },
        answer=lambda inputs: {"sums": inputs["numbers"] + tf.strings.to_number(inputs["text"])},
        request={},
    )
    signature = make_free_signature(free)
    module = tf.Module()
    signatures = {"add": signature.get_concrete_function()}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    add = tf.saved_model.load(str(tmp_path)).signatures["add"]
    sums = add(text=tf.constant("3"), numbers=tf.constant([1.0, 2.0, 4.0]))["sums"]
    np.testing.assert_array_equal(sums, [4, 5, 7])

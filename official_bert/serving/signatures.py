"""The signatures of an export: of token ids, of serialized tf.Examples, and of raw text; and its
warm-up requests.

The file of warm-up requests has TensorFlow Serving's PredictionLog records, encoded without its
package.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.data.records.framing import encode_examples, frame, varint
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.options.serving import TENSORS
from official_bert.serving.exported_model import TENSOR_SIGNATURE

PADDING_ID = 0

# Names of the strings of a request, and their shapes: ("question", [None]), ("endings", [None, 4]).
TextInputs = Mapping[str, Sequence[int | None]]
Features = dict[str, tf.Tensor]
Outputs = Callable[[Features], dict[str, tf.Tensor]]

# A model contains nothing for AutoGraph to convert, and the conversion takes a third of the time of
# a trace.
_graph_function = functools.partial(tf.function, autograph=False)


def make_text_signature(inputs: TextInputs, answer: Outputs) -> Callable:
    """Returns a tf.function of strings, whose inputs have these names and shapes; the first
    dimension is the batch.
    """
    specs = {name: tf.TensorSpec(shape, tf.string, name) for name, shape in inputs.items()}

    @_graph_function(input_signature=[specs])
    def serving_text(texts):
        first = next(iter(inputs))
        num_rows = tf.shape(texts[first])[0]
        checks = [tf.debugging.Assert(num_rows > 0, ["a request must have at least one text"])]
        for name, strings in texts.items():
            same = tf.shape(strings)[0] == num_rows
            checks.append(tf.debugging.Assert(same, [f"{name} must have as many rows as {first}"]))
        with tf.control_dependencies(checks):
            return answer({name: tf.identity(strings) for name, strings in texts.items()})

    return serving_text


def make_text_request(inputs: TextInputs, length: int) -> dict[str, np.ndarray]:
    """Makes the strings for the warm-up: one example whose texts have `length` words, of which
    one is [MASK].
    """
    text = b"[MASK]" + b" a" * (length - 1)
    return {name: np.full((1, *shape[1:]), text, object) for name, shape in inputs.items()}


def make_tensor_signatures(
    outputs: Outputs,
    config: BertConfig,
    num_choices: int | None = None,
    separator: int | None = None,
) -> dict[str, Callable]:
    """Returns the signatures that every export of tensors has, all with the same outputs, by name.

    - `serving_default`: `input_ids`, `input_mask`, `segment_ids`, int32[batch, length], with
      `num_choices` int32[batch, choices, length].
    - `serving_ids`: `input_ids` alone; id 0 is padding, and the tokens behind the first
      `separator`, the id of [SEP], are in segment 1; without one all tokens are in segment 0.
    - `serving_examples`: `examples`, string[batch], records in the form of the training files, of
      any length; only the three encoder features are read, which contain the choices one after
      another.
    """
    shape = [None, None] if num_choices is None else [None, None, None]
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name in ENCODER_INPUTS}

    @_graph_function(input_signature=[specs])
    def answer(features):  # traced once, called by every signature
        return outputs(checked(features, config))

    @_graph_function(input_signature=list(specs.values()))
    def serving_default(input_ids, input_mask, segment_ids):
        return answer(
            {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        )

    @_graph_function(input_signature=[specs["input_ids"]])
    def serving_ids(input_ids):
        mask = tf.cast(input_ids != PADDING_ID, tf.int32)
        segments = tf.zeros_like(input_ids)
        if separator is not None:
            num_before = tf.cumsum(
                tf.cast(input_ids == separator, tf.int32), axis=-1, exclusive=True
            )
            segments = mask * tf.minimum(num_before, 1)
        return answer({"input_ids": input_ids, "input_mask": mask, "segment_ids": segments})

    @_graph_function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serving_examples(examples):
        return answer(parsed(examples, num_choices))

    return {
        "serving_default": serving_default,
        "serving_ids": serving_ids,
        "serving_examples": serving_examples,
    }


def estimator_signatures(found: dict[str, Callable], default: str) -> dict[str, Callable]:
    """Returns signatures whose `serving_default`, now `serving_tensors`, is that of an Estimator's
    export.

    It has the output `probabilities` alone, which REST sends without its name, and the inputs
    `examples`, or those that it had and `label_ids`, int32[batch], which is not read.
    """
    tensors, of_records = found["serving_default"], found["serving_examples"]
    label_ids = tf.TensorSpec([None], tf.int32, "label_ids")

    @_graph_function(input_signature=[label_ids, *tensors.input_signature])
    def with_labels(label_ids, input_ids, input_mask, segment_ids):
        return {"probabilities": tensors(input_ids, input_mask, segment_ids)["probabilities"]}

    @_graph_function(input_signature=of_records.input_signature)
    def of_examples(examples):
        return {"probabilities": of_records(examples)["probabilities"]}

    return found | {
        "serving_default": with_labels if default == TENSORS else of_examples,
        TENSOR_SIGNATURE: tensors,
    }


def make_position_signature(outputs: Outputs, config: BertConfig) -> Callable:
    """Returns a signature of the three encoder features and `masked_lm_positions`, int32[batch,
    predictions].
    """
    specs = [
        tf.TensorSpec([None, None], tf.int32, name)
        for name in (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    ]

    @_graph_function(input_signature=specs)
    def with_positions(input_ids, input_mask, segment_ids, masked_lm_positions):
        features = checked(
            {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}, config
        )
        inside = _within(
            MASKED_LM_POSITIONS,
            masked_lm_positions,
            tf.shape(input_ids)[-1],
            "the length of input_ids",
        )
        with tf.control_dependencies([inside]):
            return outputs(features | {MASKED_LM_POSITIONS: tf.identity(masked_lm_positions)})

    return with_positions


def checked(features: Features, config: BertConfig) -> Features:
    """Returns the encoder features with assertions that all of them are within the model's limits."""
    shape = tf.shape(features["input_ids"])
    length, longest = shape[-1], config.max_position_embeddings
    limits = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }
    checks = [
        tf.debugging.Assert(
            (length >= 1) & (length <= longest),
            [f"the model takes sequences of 1 to {longest} tokens, these have", length],
        )
    ]
    for name, limit in limits.items():
        checks.append(_within(name, features[name], limit))
        if name != "input_ids":
            same = tf.reduce_all(tf.shape(features[name]) == shape)
            checks.append(tf.debugging.Assert(same, [f"{name} must have the shape of input_ids"]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(features[name]) for name in limits}


def parsed(examples: tf.Tensor, num_choices: int | None = None) -> Features:
    """Parses serialized tf.Examples, string[batch], to padded encoder features, int32[batch,
    (choices,) length].
    """
    table = {name: tf.io.RaggedFeature(tf.int64) for name in ENCODER_INPUTS}
    ragged = tf.io.parse_example(examples, table)
    lengths = ragged["input_ids"].row_lengths()
    fits = [
        tf.debugging.Assert(
            tf.reduce_all(ragged[name].row_lengths() == lengths),
            [f"every example must have as many {name} as input_ids"],
        )
        for name in ENCODER_INPUTS[1:]
    ]
    if num_choices is not None:
        fits.append(
            tf.debugging.Assert(
                tf.reduce_all(lengths % num_choices == 0),
                [f"every example must have input_ids of {num_choices} choices, all of one length"],
            )
        )
        lengths = tf.repeat(lengths // num_choices, num_choices)
    features = {}
    with tf.control_dependencies(fits):
        for name, rows in ragged.items():
            # Larger values stay outside the limits.
            values = tf.saturate_cast(rows.flat_values, tf.int32)
            dense = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False).to_tensor()
            if num_choices is not None:
                dense = tf.reshape(dense, [tf.shape(examples)[0], num_choices, tf.shape(dense)[1]])
            features[name] = dense
    return features


def _within(
    name: str, values: tf.Tensor, limit: int | tf.Tensor, limit_name: str = ""
) -> tf.Operation:
    """Returns an assertion that all int32 values lie in [0, limit)."""
    lowest, highest = tf.reduce_min(values), tf.reduce_max(values)
    sentence = (
        f"{name} must be at least 0 and below {limit_name or limit}, the lowest and the highest are"
    )
    return tf.debugging.Assert((lowest >= 0) & (highest < limit), [sentence, lowest, highest])


WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
Request = tuple[str, Mapping[str, np.ndarray]]

# Field numbers: PredictionLog.predict_log, PredictLog.request, PredictRequest.model_spec and
# .inputs, ModelSpec.signature_name, key and value of a map's entry.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE_NAME, _KEY, _VALUE = 6, 1, 1, 2, 3, 1, 2


def make_warmup_records(requests: Iterable[Request]) -> bytes:
    return b"".join(frame(_prediction_log(signature, inputs)) for signature, inputs in requests)


def make_position_request(signature: str, length: int) -> Request:
    """Makes a request for a signature that reads positions: one example of `length` tokens, with
    one position.
    """
    return signature, _features_of_ones((1, length)) | {
        MASKED_LM_POSITIONS: np.zeros((1, 1), np.int32)
    }


def make_tensor_requests(length: int, num_choices: int | None = None) -> list[Request]:
    """Makes a request for each signature of `make_tensor_signatures`: a single example of `length`
    tokens.
    """
    features = _features_of_ones((1, length) if num_choices is None else (1, num_choices, length))
    flat = {name: values.reshape(1, -1) for name, values in features.items()}
    return [
        ("serving_default", features),
        ("serving_ids", {"input_ids": features["input_ids"]}),
        ("serving_examples", {"examples": np.array(encode_examples(flat), object)}),
    ]


def _features_of_ones(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    ones = np.ones(shape, np.int32)
    return dict(zip(ENCODER_INPUTS, (ones, ones, np.zeros_like(ones)), strict=True))


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    request = _field(_MODEL_SPEC, _field(_SIGNATURE_NAME, signature.encode()))
    for name, values in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(values).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of protobuf's wire type 2: a message or a string."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content

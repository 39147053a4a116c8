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
from official_bert.tasks.base import FreeSignature

PADDING_ID = 0

# The name of each text of a request -> its shape, of which the first dimension is the batch:
# "question" -> [None], "endings" -> [None, 4].
TextInputs = Mapping[str, Sequence[int | None]]
Features = dict[str, tf.Tensor]
Outputs = Callable[[Features], Features]
Signature = tf.types.experimental.PolymorphicFunction

# A model contains nothing for AutoGraph to convert, and the conversion takes a third of the time of
# a trace.
_graph_function = functools.partial(tf.function, autograph=False)


def make_text_signature(inputs: TextInputs, answer: Outputs) -> Signature:
    """Makes the signature of an export that reads raw text.

    Args:
        inputs: name -> shape of each string tensor.
        answer: a function from these tensors by name to the outputs by name.

    Returns:
        A tf.function of the string tensors. Its assertions refuse an empty batch, and inputs with
        different numbers of rows.
    """
    specs = {}
    for name, shape in inputs.items():
        specs[name] = tf.TensorSpec(shape, tf.string, name)

    @_graph_function(input_signature=[specs])
    def serving_text(texts: Features) -> Features:
        first = next(iter(inputs))
        num_rows = tf.shape(texts[first])[0]
        checks = [_assert(num_rows > 0, "a request must have at least one text")]
        for name, strings in texts.items():
            has_same_rows = tf.shape(strings)[0] == num_rows
            message = f"{name} must have as many rows as {first}"
            checks.append(_assert(has_same_rows, message))
        with tf.control_dependencies(checks):
            checked_texts = {name: tf.identity(strings) for name, strings in texts.items()}
            return answer(checked_texts)

    return serving_text


def make_free_signature(free: FreeSignature) -> Signature:
    """Makes a signature whose inputs the task chooses.

    Args:
        free: the inputs and the function of the signature.
    """

    @_graph_function(input_signature=[dict(free.inputs)])
    def serving_free(tensors: Features) -> Features:
        return free.answer(tensors)

    return serving_free


def make_text_request(inputs: TextInputs, length: int) -> dict[str, np.ndarray]:
    """Makes the warm-up request of a text signature: one example.

    Args:
        inputs: name -> shape of each string tensor.
        length: the number of words of each text, of which one is [MASK].

    Returns:
        The string arrays by name.
    """
    text = b"[MASK]" + b" a" * (length - 1)
    request = {}
    for name, shape in inputs.items():
        sizes = [size or 1 for size in shape]  # 1 where the size is open, as that of the batch is
        request[name] = np.full(sizes, text, object)
    return request


def make_tensor_signatures(
    outputs: Outputs,
    config: BertConfig,
    num_choices: int | None = None,
    separator: int | None = None,
) -> dict[str, Signature]:
    """Makes the signatures of every export that reads tensors. All have the same outputs.

    - `serving_default` reads `input_ids`, `input_mask` and `segment_ids`, int32[batch, length], or
      int32[batch, choices, length] for a model with choices.
    - `serving_ids` reads `input_ids` alone. Id 0 is padding.
    - `serving_examples` reads `examples`, string[batch]: records in the form of the training files,
      of any length. Of each record it reads the three encoder features, in which the choices follow
      one another.

    Args:
        outputs: a function from the encoder features to the outputs by name.
        config: the configuration of the model, which limits the features.
        num_choices: the number of choices of an example; None for a model without choices.
        separator: the id of [SEP]: in `serving_ids`, tokens behind the first one are in segment 1.
            With None, all tokens are in segment 0.

    Returns:
        The tf.functions by name.
    """
    rank = 2 if num_choices is None else 3
    shape = [None] * rank
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name in ENCODER_INPUTS}

    # It is traced once, and every signature calls it.
    @_graph_function(input_signature=[specs])
    def answer(features: Features) -> Features:
        return outputs(check_features(features, config))

    @_graph_function(input_signature=list(specs.values()))
    def serving_default(
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> Features:
        return answer(_name_inputs(input_ids, input_mask, segment_ids))

    @_graph_function(input_signature=[specs["input_ids"]])
    def serving_ids(input_ids: tf.Tensor) -> Features:
        mask = tf.cast(input_ids != PADDING_ID, tf.int32)
        segments = tf.zeros_like(input_ids)
        if separator is not None:
            is_separator = tf.cast(input_ids == separator, tf.int32)
            num_separators_before = tf.cumsum(is_separator, axis=-1, exclusive=True)
            segments = mask * tf.minimum(num_separators_before, 1)
        return answer(_name_inputs(input_ids, mask, segments))

    @_graph_function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serving_examples(examples: tf.Tensor) -> Features:
        return answer(parse_examples(examples, num_choices))

    return {
        "serving_default": serving_default,
        "serving_ids": serving_ids,
        "serving_examples": serving_examples,
    }


def replace_default_signature(
    signatures: dict[str, Signature],
    default: str,
) -> dict[str, Signature]:
    """Makes `serving_default` the signature that an Estimator's export had.

    Its only output is `probabilities`, which REST sends without its name.

    Args:
        signatures: what `make_tensor_signatures` returns. Its `serving_default` stays available as
            `serving_tensors`.
        default: the inputs of the new `serving_default`. "examples" is serialized records.
            "tensors" is the three encoder features and `label_ids`, int32[batch], which is ignored.

    Returns:
        The tf.functions by name.
    """
    answer_tensors = signatures["serving_default"]
    answer_records = signatures["serving_examples"]
    label_spec = tf.TensorSpec([None], tf.int32, "label_ids")

    @_graph_function(input_signature=[label_spec, *answer_tensors.input_signature])
    def answer_tensors_with_labels(
        label_ids: tf.Tensor,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> Features:
        outputs = answer_tensors(input_ids, input_mask, segment_ids)
        return {"probabilities": outputs["probabilities"]}

    @_graph_function(input_signature=answer_records.input_signature)
    def answer_examples(examples: tf.Tensor) -> Features:
        outputs = answer_records(examples)
        return {"probabilities": outputs["probabilities"]}

    return signatures | {
        "serving_default": answer_tensors_with_labels if default == TENSORS else answer_examples,
        TENSOR_SIGNATURE: answer_tensors,
    }


def make_feature_signature(outputs: Outputs, config: BertConfig) -> Signature:
    """Makes a further signature that reads the three encoder features.

    Args:
        outputs: a function from the encoder features to the outputs by name.
        config: the configuration of the model, which limits the features.

    Returns:
        A tf.function of the features, int32[batch, length].
    """
    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in ENCODER_INPUTS]

    @_graph_function(input_signature=specs)
    def answer_features(
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> Features:
        features = _name_inputs(input_ids, input_mask, segment_ids)
        return outputs(check_features(features, config))

    return answer_features


def make_position_signature(outputs: Outputs, config: BertConfig) -> Signature:
    """Makes a signature that also reads positions, such as those of masked tokens.

    Args:
        outputs: a function from the encoder features and the positions to the outputs by name.
        config: the configuration of the model, which limits the features.

    Returns:
        A tf.function of the three encoder features, int32[batch, length], and
        `masked_lm_positions`, int32[batch, predictions].
    """
    shape = [None, None]
    names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    specs = [tf.TensorSpec(shape, tf.int32, name) for name in names]

    @_graph_function(input_signature=specs)
    def answer_positions(
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        masked_lm_positions: tf.Tensor,
    ) -> Features:
        features = check_features(_name_inputs(input_ids, input_mask, segment_ids), config)
        limit_check = _assert_limit(
            MASKED_LM_POSITIONS,
            masked_lm_positions,
            limit=tf.shape(input_ids)[-1],
            limit_name="the length of input_ids",
        )
        with tf.control_dependencies([limit_check]):
            return outputs(features | {MASKED_LM_POSITIONS: tf.identity(masked_lm_positions)})

    return answer_positions


def _name_inputs(
    input_ids: tf.Tensor,
    input_mask: tf.Tensor,
    segment_ids: tf.Tensor,
) -> Features:
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": segment_ids,
    }


def check_features(features: Features, config: BertConfig) -> Features:
    """Adds assertions to the encoder features that all values are within the model's limits.

    Args:
        features: the encoder features, int32[batch, (choices,) length].
        config: the configuration of the model.

    Returns:
        The same values, which the graph computes only if the assertions hold.
    """
    shape = tf.shape(features["input_ids"])
    length = shape[-1]
    longest = config.max_position_embeddings
    limits = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }
    length_message = f"the model takes sequences of 1 to {longest} tokens, these have"
    has_valid_length = (length >= 1) & (length <= longest)
    checks = [_assert(has_valid_length, length_message, length)]
    for name, limit in limits.items():
        checks.append(_assert_limit(name, features[name], limit))
        if name != "input_ids":
            other_shape = tf.shape(features[name])
            has_same_shape = tf.reduce_all(other_shape == shape)
            message = f"{name} must have the shape of input_ids"
            checks.append(_assert(has_same_shape, message))
    with tf.control_dependencies(checks):
        return {name: tf.identity(features[name]) for name in limits}


def parse_examples(examples: tf.Tensor, num_choices: int | None = None) -> Features:
    """Parses serialized records to padded encoder features.

    Args:
        examples: tf.Examples, string[batch].
        num_choices: the number of choices of an example; None for a model without choices.

    Returns:
        The encoder features, int32[batch, length] or int32[batch, choices, length].
    """
    table = {name: tf.io.RaggedFeature(tf.int64) for name in ENCODER_INPUTS}
    ragged = tf.io.parse_example(examples, table)
    lengths = ragged["input_ids"].row_lengths()
    checks = []
    for name in ENCODER_INPUTS[1:]:
        has_same_length = ragged[name].row_lengths() == lengths
        message = f"every example must have as many {name} as input_ids"
        checks.append(_assert(tf.reduce_all(has_same_length), message))
    if num_choices is not None:
        is_divisible = tf.reduce_all(lengths % num_choices == 0)
        message = f"every example must have input_ids of {num_choices} choices, all of one length"
        checks.append(_assert(is_divisible, message))
        lengths = tf.repeat(lengths // num_choices, num_choices)
    features = {}
    with tf.control_dependencies(checks):
        for name, rows in ragged.items():
            # A value that int32 cannot represent stays outside the limits, and is refused.
            values = tf.saturate_cast(rows.flat_values, tf.int32)
            rows = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
            dense = rows.to_tensor()
            if num_choices is not None:
                num_examples = tf.shape(examples)[0]
                longest = tf.shape(dense)[1]
                dense = tf.reshape(dense, [num_examples, num_choices, longest])
            features[name] = dense
    return features


def _assert(condition: tf.Tensor, *message: str | tf.Tensor) -> tf.Operation:
    """Returns an assertion; the parts of its message are texts and tensors."""
    return tf.debugging.Assert(condition, list(message))


def _assert_limit(
    name: str,
    values: tf.Tensor,
    limit: int | tf.Tensor,
    limit_name: str = "",
) -> tf.Operation:
    """Returns an assertion that all int32 values are in [0, limit)."""
    lowest = tf.reduce_min(values)
    highest = tf.reduce_max(values)
    limit_text = limit_name or limit
    message = f"{name} must be at least 0 and below {limit_text}, the lowest and the highest are"
    is_valid = (lowest >= 0) & (highest < limit)
    return _assert(is_valid, message, lowest, highest)


WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
Request = tuple[str, Mapping[str, np.ndarray]]

# The numbers of the fields of TensorFlow Serving's messages.
_PREDICT_LOG = 6  # of PredictionLog
_REQUEST = 1  # of PredictLog
_MODEL_SPEC, _INPUTS = 1, 2  # of PredictRequest
_SIGNATURE_NAME = 3  # of ModelSpec
_KEY, _VALUE = 1, 2  # of an entry of a map


def make_warmup_records(requests: Iterable[Request]) -> bytes:
    """Makes the content of a file of warm-up requests.

    Args:
        requests: the name of a signature and its inputs by name, for each request.
    """
    content = b""
    for signature, inputs in requests:
        content += frame(_encode_request(signature, inputs))
    return content


def make_position_request(signature: str, length: int) -> Request:
    """Makes the warm-up request of a signature that reads positions.

    Args:
        signature: the name of the signature.
        length: the number of tokens of the only example, which has one position.
    """
    inputs = _make_sample_features((1, length))
    inputs[MASKED_LM_POSITIONS] = np.zeros((1, 1), np.int32)
    return signature, inputs


def make_feature_request(signature: str, length: int) -> Request:
    """Makes the warm-up request of a signature that reads the encoder features.

    Args:
        signature: the name of the signature.
        length: the number of tokens of the only example.
    """
    return signature, _make_sample_features((1, length))


def make_tensor_requests(length: int, num_choices: int | None = None) -> list[Request]:
    """Makes a warm-up request for each signature of `make_tensor_signatures`.

    Args:
        length: the number of tokens of the only example of a request.
        num_choices: the number of choices of an example; None for a model without choices.
    """
    shape = (1, length)
    if num_choices is not None:
        shape = (1, num_choices, length)
    features = _make_sample_features(shape)
    flat_features = {name: values.reshape(1, -1) for name, values in features.items()}
    examples = np.array(encode_examples(flat_features), object)
    return [
        ("serving_default", features),
        ("serving_ids", {"input_ids": features["input_ids"]}),
        ("serving_examples", {"examples": examples}),
    ]


def _make_sample_features(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        "input_ids": np.ones(shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
    }


def _encode_request(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Encodes a request as a message PredictionLog."""
    model_spec = _encode_field(_SIGNATURE_NAME, signature.encode())
    request = _encode_field(_MODEL_SPEC, model_spec)
    for name, values in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(values).SerializeToString()
        key = _encode_field(_KEY, name.encode())
        value = _encode_field(_VALUE, tensor)
        request += _encode_field(_INPUTS, key + value)
    return _encode_field(_PREDICT_LOG, _encode_field(_REQUEST, request))


def _encode_field(number: int, content: bytes) -> bytes:
    """Encodes a field of protobuf's wire type 2: a message or a string."""
    tag = bytes((number << 3 | 2,))
    return tag + varint(len(content)) + content

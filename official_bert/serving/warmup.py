"""Writes warm-up requests, which a server runs before it accepts requests, because the first ones are slow.

In: signatures with inputs. Out: the file assets.extra/tf_serving_warmup_requests of TensorFlow Serving's PredictionLog
records, encoded without its package.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from official_bert.data.records.examples import encode_examples, varint
from official_bert.data.records.framing import frame
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS

FILE = "assets.extra/tf_serving_warmup_requests"
Request = tuple[str, Mapping[str, np.ndarray]]

# Field numbers: PredictionLog.predict_log, PredictLog.request, PredictRequest.model_spec and .inputs,
# ModelSpec.signature_name, key and value of a map's entry.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE_NAME, _KEY, _VALUE = 6, 1, 1, 2, 3, 1, 2


def warmup_records(requests: Iterable[Request]) -> bytes:
    """Returns the content of the file."""
    return b"".join(frame(_prediction_log(signature, inputs)) for signature, inputs in requests)


def position_request(signature: str, length: int) -> Request:
    """Makes a request for a signature that reads positions: one example of `length` tokens, with one position."""
    ones, zeros = np.ones((1, length), np.int32), np.zeros((1, length), np.int32)
    features = dict(zip(ENCODER_INPUTS, (ones, ones, zeros), strict=True))
    return signature, features | {MASKED_LM_POSITIONS: zeros[:, :1]}


def tensor_requests(length: int, num_choices: int | None = None) -> list[Request]:
    """Makes a request for each signature of `tensor_signatures`: a single example of `length` tokens."""
    shape = (1, length) if num_choices is None else (1, num_choices, length)
    ones, zeros = np.ones(shape, np.int32), np.zeros(shape, np.int32)
    features = dict(zip(ENCODER_INPUTS, (ones, ones, zeros), strict=True))
    flat = {name: values.reshape(1, -1) for name, values in features.items()}
    return [
        ("serving_default", features),
        ("serving_ids", {"input_ids": ones}),
        ("serving_examples", {"examples": np.array(encode_examples(flat), object)}),
    ]


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    request = _field(_MODEL_SPEC, _field(_SIGNATURE_NAME, signature.encode()))
    for name, values in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(values).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of protobuf's wire type 2: a message or a string."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content

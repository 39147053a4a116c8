"""Reads the warm-up file with TensorFlow Serving's own definitions, and sends its requests to their signatures."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.serving import signatures
from tests.serving import exported
from tests.serving.answers import signatures_of

pytestmark = pytest.mark.needs_extra("tensorflow_serving")


def requests_of(path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Signature and inputs of every record, by TensorFlow's reader and TensorFlow Serving's protos."""
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


def test_requests_come_back_as_they_were_given(tmp_path):
    long_name = "a signature of a name that takes more than one byte to say how long it is " * 3
    ids, text = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([b"caf\xc3\xa9", b""], object)
    given = [("serving_default", {"input_ids": ids, "segment_ids": ids * 0}), (long_name, {"text": text})]
    path = tmp_path / "requests"
    path.write_bytes(signatures.warmup_records(given))
    found = requests_of(path)
    assert [name for name, _ in found] == ["serving_default", long_name]
    np.testing.assert_array_equal(found[0][1]["input_ids"], ids)
    np.testing.assert_array_equal(found[0][1]["segment_ids"], ids * 0)
    np.testing.assert_array_equal(found[1][1]["text"], text)


def test_the_signatures_take_the_requests_of_their_export(tmp_path_factory):
    for kind in ("pretraining", "swag"):
        made = exported.shared_export(tmp_path_factory, kind)
        served = signatures_of(made.path)
        requests = requests_of(made.path / "assets.extra" / "tf_serving_warmup_requests")
        assert sorted(name for name, _ in requests) == sorted(served)
        for name, inputs in requests:
            answer = served[name](**{key: tf.constant(value) for key, value in inputs.items()})
            assert all(np.isfinite(value).all() for value in answer.values() if value.dtype == tf.float32)
            lengths = [value.shape[-1] for key, value in inputs.items() if key == "input_ids"]
            assert lengths in ([made.options.max_seq_length], []), "the script's length"

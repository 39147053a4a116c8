"""The example client gets the outputs of a direct call over gRPC, and makes the inputs of every
signature. tests/extensions/serve sends its REST requests to a server.

TensorFlow Serving's protocol classes also read the files of examples/tf_serving.
"""

import concurrent.futures
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from official_bert import FullTokenizer
from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.shared import ROOT, example

pytestmark = pytest.mark.needs_extra("grpc", "tensorflow_serving")


@pytest.fixture(scope="module")
def client():
    return example("serving_client")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return exported.shared_export(tmp_path_factory, "mrpc").path


@pytest.fixture(scope="module")
def address(made):
    """The address of a gRPC server in this process, which serves the model `mrpc`."""
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Predictions(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            spec = request.model_spec
            if spec.name != "mrpc":
                context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found")
            tensors = {
                name: tf.constant(tf.make_ndarray(proto)) for name, proto in request.inputs.items()
            }
            try:
                outputs = signatures_of(made)[spec.signature_name](**tensors)
            except tf.errors.InvalidArgumentError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            answer = predict_pb2.PredictResponse()
            for name, value in outputs.items():
                answer.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
            return answer

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Predictions(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait(60)


@pytest.mark.parametrize("signature_name", ["serving_default", "serving_ids", "serving_examples"])
def test_grpc_gives_what_a_direct_call_gives(client, made, address, signature_name):
    tokenizer = FullTokenizer(str(made / "assets" / "vocab.txt"))
    inputs = client.make_inputs(signature_name, ("the cat sat", "a cat"), tokenizer, 24)
    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    expected = signatures_of(made)[signature_name](**tensors)

    outputs = client.grpc_predict(address, "mrpc", signature_name, inputs)

    assert outputs.keys() == expected.keys()
    for name in ("logits", "probabilities"):
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-6)
    np.testing.assert_array_equal(outputs["label"], expected["label"])


def test_a_refusal_over_grpc_is_an_error(client, address):
    ids = {"input_ids": np.int32([[99]])}
    sentence = r"INVALID_ARGUMENT: .*\[input_ids must be at least 0 and below 50"
    with pytest.raises(client.RefusedError, match=f"(?s){sentence}"):
        client.grpc_predict(address, "mrpc", "serving_ids", ids)
    with pytest.raises(client.RefusedError, match="NOT_FOUND: Servable not found"):
        client.grpc_predict(address, "other", "serving_ids", ids)


def test_the_inputs_of_texts_of_choices_and_of_masked_words(client, tokenizer):
    masked_words = ("The [MASK] sat", "a [MASK].")
    inputs = client.make_inputs("serving_masked", masked_words, tokenizer, 24)
    assert inputs["masked_lm_positions"].tolist() == [[2, 6]]

    choices = ("the cat", "sat", "was", "here")
    inputs = client.make_inputs("serving_default", choices, tokenizer, 24)
    assert inputs["input_ids"].shape == (1, 3, 6)

    inputs = client.make_inputs("serving_text", ("a", "b"), None, 24)
    assert inputs == {
        "text_a": np.array([b"a"], object),
        "text_b": np.array([b"b"], object),
    }

    inputs = client.make_inputs(
        "serving_text",
        ("the cat", "sat", "was"),
        None,
        24,
        ("context", "endings"),
    )
    assert inputs["endings"].tolist() == [[b"sat", b"was"]]


KIT = ROOT / "examples" / "tf_serving"
# Types of FieldDescriptorProto.
INT64 = 3
BOOL = 8
STRING = 9
MESSAGE = 11
# Labels of FieldDescriptorProto.
OPTIONAL = 1
REPEATED = 3
# TensorFlow Serving's messages that tensorflow-serving-api lacks: name, number, type and label of
# their fields, as its session_bundle_config.proto and monitoring_config.proto have them.
WRAPPED = ".google.protobuf.Int64Value"
MESSAGES = {
    "BatchingParameters": [
        ("max_batch_size", 1, WRAPPED, OPTIONAL),
        ("batch_timeout_micros", 2, WRAPPED, OPTIONAL),
        ("max_enqueued_batches", 3, WRAPPED, OPTIONAL),
        ("num_batch_threads", 4, WRAPPED, OPTIONAL),
        ("allowed_batch_sizes", 6, INT64, REPEATED),
        ("pad_variable_length_inputs", 7, BOOL, OPTIONAL),
    ],
    "PrometheusConfig": [
        ("enable", 1, BOOL, OPTIONAL),
        ("path", 2, STRING, OPTIONAL),
    ],
    "MonitoringConfig": [
        ("prometheus_config", 1, ".PrometheusConfig", OPTIONAL),
    ],
}


def make_message(name: str):
    """Make an empty message of one of these types."""
    file = descriptor_pb2.FileDescriptorProto(name="kit.proto", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    for kind, fields in MESSAGES.items():
        message = file.message_type.add(name=kind)
        for field_name, number, field_type, label in fields:
            field = message.field.add(name=field_name, number=number, label=label)
            if isinstance(field_type, str):
                field.type = MESSAGE
                field.type_name = field_type
            else:
                field.type = field_type
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName(name)
    message_class = message_factory.GetMessageClass(descriptor)
    return message_class()


def test_the_kit_is_what_tensorflow_serving_reads():
    from tensorflow_serving.config import model_server_config_pb2 as server_config

    def read(name, message):
        text = (KIT / name).read_text()
        return text_format.Parse(text, message)

    server = read("models.config", server_config.ModelServerConfig())
    (model,) = server.model_config_list.config
    served_versions = model.model_version_policy.specific.versions
    assert set(model.version_labels.values()) <= set(served_versions)
    assert model.version_labels.keys() == {"stable", "canary"}

    batching = read("batching.config", make_message("BatchingParameters"))
    sizes = batching.allowed_batch_sizes
    assert sizes == sorted(sizes)
    assert sizes[-1] == batching.max_batch_size.value

    monitoring = read("monitoring.config", make_message("MonitoringConfig"))
    metrics = monitoring.prometheus_config
    assert metrics.enable

    # The other files name the same model, ports and files.
    docker = (KIT / "Dockerfile").read_text()
    pods = (KIT / "kubernetes.yaml").read_text()
    flags = dict(re.findall(r'"--(\w+)=([^"]*)"', docker))
    copied = re.search("^COPY (.*) /config/$", docker, re.MULTILINE)
    for value in flags.values():
        if value.startswith("/config/"):
            file = value.removeprefix("/config/")
            assert (KIT / file).exists()
            assert file in copied.group(1)
    ports = dict(re.findall(r"name: (\w+), containerPort: (\d+)", pods))
    assert ports == {"grpc": flags["port"], "rest": flags["rest_api_port"]}
    assert f"prometheus.io/path: {metrics.path}\n" in pods
    assert f"mountPath: {model.base_path}," in pods
    probes = re.findall(r"httpGet: \{path: (\S+), port: rest\}", pods)
    path = f"/v1/models/{model.name}"
    assert probes == [path, f"{path}/labels/stable"]

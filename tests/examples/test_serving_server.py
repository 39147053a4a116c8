"""The example client gets the outputs of a direct call from the example server, a process, over
REST and gRPC.
"""

import json
import re
import subprocess
import urllib.error
import urllib.request

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
from tests.scripts import forked_python, run_script
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
def server(made):
    """The addresses of a server for REST and for gRPC."""
    command = [
        forked_python(),
        ROOT / "examples" / "serving_server.py",
        "--model_name=mrpc",
        "--rest_api_port=0",
        f"--model_base_path={made.parent}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            pattern = r"mrpc, version 1, at (http://\S+) and grpc://(\S+)$"
            yield re.search(pattern, line).groups()
        finally:
            process.kill()


@pytest.mark.parametrize("signature_name", ["serving_default", "serving_ids", "serving_examples"])
def test_both_protocols_give_what_a_direct_call_gives(client, made, server, signature_name):
    rest, grpc = server
    tokenizer = FullTokenizer(str(made / "assets" / "vocab.txt"))
    texts = ("the cat sat", "a cat")
    inputs = client.make_inputs(signature_name, texts, tokenizer, 24)

    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    serve = signatures_of(made)[signature_name]
    expected = serve(**tensors)
    (expected_label,) = expected["label"].numpy()

    instance = {name: client.plain(values)[0] for name, values in inputs.items()}
    request = {"signature_name": signature_name, "instances": [instance]}
    response = client.rest_call(f"{rest}/v1/models/mrpc:predict", request)
    (row,) = response["predictions"]
    row_outputs = {name: [value] for name, value in row.items()}

    for outputs in (
        client.rest_predict(rest, "mrpc", signature_name, inputs),
        client.grpc_predict(grpc, "mrpc", signature_name, inputs),
        row_outputs,
    ):
        assert outputs.keys() == expected.keys()
        for name in ("logits", "probabilities"):
            np.testing.assert_allclose(outputs[name], expected[name], atol=1e-6)
        (label,) = outputs["label"]
        text = label if isinstance(label, str) else label.decode()
        assert text == expected_label.decode()


def test_a_refusal_is_told(client, server):
    rest, grpc = server
    status = client.rest_call(f"{rest}/v1/models/mrpc", None)
    (version, *_) = status["model_version_status"]
    assert version["state"] == "AVAILABLE"

    ids = {"input_ids": np.int32([[99]])}
    sentence = r"assertion failed: \[input_ids must be at least 0 and below 50"
    for predict, address, invalid, absent in (
        (client.rest_predict, rest, "400", "404"),
        (client.grpc_predict, grpc, "INVALID_ARGUMENT", "NOT_FOUND"),
    ):
        with pytest.raises(client.RefusedError, match=f"{invalid}: {sentence}"):
            predict(address, "mrpc", "serving_ids", ids)
        with pytest.raises(client.RefusedError, match=f"{absent}: Servable not found"):
            predict(address, "other", "serving_ids", ids)

    with pytest.raises(client.RefusedError, match="400: missing input: input_mask, segment_ids"):
        client.rest_predict(rest, "mrpc", "serving_default", ids)
    labels = {"label_ids": np.int32([0])}
    with pytest.raises(client.RefusedError, match="400: unknown input: label_ids"):
        client.rest_predict(rest, "mrpc", "serving_ids", ids | labels)


@pytest.mark.parametrize(
    ("path", "headers", "status", "field"),
    [
        pytest.param(
            "mrpc:predict",
            {},
            200,
            "predictions",
            id="type of curl",
        ),
        pytest.param(
            "mrpc/versions/1:predict",
            {},
            200,
            "predictions",
            id="version",
        ),
        pytest.param(
            "mrpc/versions/2:predict",
            {},
            404,
            "error",
            id="absent version",
        ),
        pytest.param(
            "mrpc/labels/stable:predict",
            {},
            404,
            "error",
            id="absent label",
        ),
        pytest.param(
            "mrpc:predict",
            {"Origin": "https://page.example"},
            403,
            "error",
            id="web page",
        ),
    ],
)
def test_requests_of_curl_and_of_web_pages(server, path, headers, status, field):
    rest, _ = server
    request = {"signature_name": "serving_ids", "instances": [[1, 2]]}
    body = json.dumps(request).encode()
    request = urllib.request.Request(f"{rest}/v1/models/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            response_status = response.status
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        response_status = error.code
        answer = json.load(error)
    assert response_status == status
    assert list(answer) == [field]


def test_the_client_as_a_process(made, server):
    rest, _ = server
    ended = run_script(
        "examples/serving_client.py",
        f"--rest={rest}",
        "--model_name=mrpc",
        f"--vocab_file={made}/assets/vocab.txt",
        "the cat sat",
        "a cat",
    )
    names = [line.split(": ")[0] for line in ended.stdout.splitlines()]
    assert names == ["label", "logits", "probabilities"]


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

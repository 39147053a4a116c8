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
    ]
    with subprocess.Popen(
        [*command, f"--model_base_path={made.parent}"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            yield re.search(r"mrpc, version 1, at (http://\S+) and grpc://(\S+)$", line).groups()
        finally:
            process.kill()


@pytest.mark.parametrize("signature_name", ["serving_default", "serving_ids", "serving_examples"])
def test_both_protocols_give_what_a_direct_call_gives(client, made, server, signature_name):
    rest, grpc = server
    tokenizer = FullTokenizer(str(made / "assets" / "vocab.txt"))
    inputs = client.make_inputs(signature_name, ("the cat sat", "a cat"), tokenizer, 24)
    serve = signatures_of(made)[signature_name]
    wanted = serve(**{name: tf.constant(values) for name, values in inputs.items()})
    by_row = {name: client.plain(values)[0] for name, values in inputs.items()}
    url = f"{rest}/v1/models/mrpc:predict"
    (row,) = client.rest_call(url, {"signature_name": signature_name, "instances": [by_row]})[
        "predictions"
    ]
    for outputs in (
        client.rest_predict(rest, "mrpc", signature_name, inputs),
        client.grpc_predict(grpc, "mrpc", signature_name, inputs),
        {name: [value] for name, value in row.items()},
    ):
        assert outputs.keys() == wanted.keys()
        for name in ("logits", "probabilities"):
            np.testing.assert_allclose(outputs[name], wanted[name], atol=1e-6)
        (label,) = outputs["label"]
        assert (label if isinstance(label, str) else label.decode()) == wanted["label"].numpy()[
            0
        ].decode()


def test_a_refusal_is_told(client, server):
    rest, grpc = server
    assert (
        client.rest_call(f"{rest}/v1/models/mrpc", None)["model_version_status"][0]["state"]
        == "AVAILABLE"
    )
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
    with pytest.raises(client.RefusedError, match="400: unknown input: label_ids"):
        client.rest_predict(rest, "mrpc", "serving_ids", ids | {"label_ids": np.int32([0])})


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("mrpc:predict", {}, 200),  # as curl sends it, of another type
        ("mrpc/versions/1:predict", {}, 200),
        ("mrpc/versions/2:predict", {}, 404),
        ("mrpc/labels/stable:predict", {}, 404),
        ("mrpc:predict", {"Origin": "https://page.example"}, 403),
    ],
)
def test_requests_of_curl_and_of_web_pages(server, path, headers, status):
    body = json.dumps({"signature_name": "serving_ids", "instances": [[1, 2]]}).encode()
    request = urllib.request.Request(f"{server[0]}/v1/models/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            found, answer = response.status, json.load(response)
    except urllib.error.HTTPError as error:
        found, answer = error.code, json.load(error)
    assert (found, list(answer)) == (status, ["predictions" if status == 200 else "error"])


def test_the_client_as_a_process(made, server):
    flags = [f"--rest={server[0]}", "--model_name=mrpc", f"--vocab_file={made}/assets/vocab.txt"]
    out = run_script("examples/serving_client.py", *flags, "the cat sat", "a cat").stdout
    assert [line.split(": ")[0] for line in out.splitlines()] == [
        "label",
        "logits",
        "probabilities",
    ]


def test_the_inputs_of_texts_of_choices_and_of_masked_words(client, tokenizer):
    masked = client.make_inputs("serving_masked", ("The [MASK] sat", "a [MASK]."), tokenizer, 24)
    assert masked["masked_lm_positions"].tolist() == [[2, 6]]
    choice = client.make_inputs("serving_default", ("the cat", "sat", "was", "here"), tokenizer, 24)
    assert choice["input_ids"].shape == (1, 3, 6)
    pair = client.make_inputs("serving_text", ("a", "b"), None, 24)
    assert pair == {"text_a": np.array([b"a"], object), "text_b": np.array([b"b"], object)}
    texts = client.make_inputs(
        "serving_text", ("the cat", "sat", "was"), None, 24, ("context", "endings")
    )
    assert texts["endings"].tolist() == [[b"sat", b"was"]]


KIT = ROOT / "examples" / "tf_serving"
INT64, BOOL, STRING, MESSAGE = 3, 8, 9, 11  # of FieldDescriptorProto
# TensorFlow Serving's messages that tensorflow-serving-api lacks: name, number, type and label of
# their fields, as its session_bundle_config.proto and monitoring_config.proto have them.
WRAPPED = ".google.protobuf.Int64Value"
MESSAGES = {
    "BatchingParameters": [
        ("max_batch_size", 1, WRAPPED, 1),
        ("batch_timeout_micros", 2, WRAPPED, 1),
        ("max_enqueued_batches", 3, WRAPPED, 1),
        ("num_batch_threads", 4, WRAPPED, 1),
        ("allowed_batch_sizes", 6, INT64, 3),
        ("pad_variable_length_inputs", 7, BOOL, 1),
    ],
    "PrometheusConfig": [("enable", 1, BOOL, 1), ("path", 2, STRING, 1)],
    "MonitoringConfig": [("prometheus_config", 1, ".PrometheusConfig", 1)],
}


def message_of(name: str):
    """An empty message of one of these types."""
    file = descriptor_pb2.FileDescriptorProto(name="kit.proto", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    for kind, fields in MESSAGES.items():
        message = file.message_type.add(name=kind)
        for field, number, of_type, label in fields:
            known = (
                {"type_name": of_type, "type": MESSAGE}
                if isinstance(of_type, str)
                else {"type": of_type}
            )
            message.field.add(name=field, number=number, label=label, **known)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def test_the_kit_is_what_tensorflow_serving_reads():
    from tensorflow_serving.config import model_server_config_pb2 as server_config

    def read(name, message):
        return text_format.Parse((KIT / name).read_text(), message)

    (model,) = read("models.config", server_config.ModelServerConfig()).model_config_list.config
    assert set(model.version_labels.values()) <= set(model.model_version_policy.specific.versions)
    assert model.version_labels.keys() == {"stable", "canary"}
    batching = read("batching.config", message_of("BatchingParameters"))
    assert batching.allowed_batch_sizes == sorted(batching.allowed_batch_sizes)
    assert batching.allowed_batch_sizes[-1] == batching.max_batch_size.value
    metrics = read("monitoring.config", message_of("MonitoringConfig")).prometheus_config
    assert metrics.enable

    # The other files name the same model, ports and files.
    docker, pods = ((KIT / name).read_text() for name in ("Dockerfile", "kubernetes.yaml"))
    flags = dict(re.findall(r'"--(\w+)=([^"]*)"', docker))
    for path in (value for value in flags.values() if value.startswith("/config/")):
        assert (KIT / path.removeprefix("/config/")).exists()
        assert path.removeprefix("/config/") in re.search(
            "^COPY (.*) /config/$", docker, re.MULTILINE
        ).group(1)
    ports = dict(re.findall(r"name: (\w+), containerPort: (\d+)", pods))
    assert ports == {"grpc": flags["port"], "rest": flags["rest_api_port"]}
    assert f"prometheus.io/path: {metrics.path}\n" in pods
    assert f"mountPath: {model.base_path}," in pods
    probes = re.findall(r"httpGet: \{path: (\S+), port: rest\}", pods)
    assert probes == [f"/v1/models/{model.name}", f"/v1/models/{model.name}/labels/stable"]

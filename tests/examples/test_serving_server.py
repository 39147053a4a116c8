"""The example server as a process: TensorFlow Serving's request formats, bad requests, and load."""

import base64
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import random
import socket
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records.examples import encode_examples
from tests import toy
from tests.examples.serving import JSON_TYPE, MAX_REQUEST_BYTES, Server, load_example, running_server
from tests.serving import exported
from tests.serving.answers import signatures_of

pytestmark = pytest.mark.needs_extra("grpc", "tensorflow_serving", "tornado")

NUM_CLIENTS = 8
JSON_LINE = "Content-Type: application/json\r\n"
NUM_WARM_UP, NUM_MEASURED = 800, 3200  # requests; in all of them a leak shows more than once
GROWTH_BYTES = 256  # that a request may leave allocated on average: caches that still fill up
IDS, MASK = "input_ids", "input_mask"
ROW = {IDS: [2, 5, 3], MASK: [1, 1, 1], "segment_ids": [0, 0, 0]}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> exported.Exported:
    return exported.shared_export(tmp_path_factory, "mrpc")


@pytest.fixture(scope="module")
def server(made):
    with running_server(made.path.parent, "mrpc") as running:
        yield running


@pytest.fixture(scope="module")
def signatures(made):
    return signatures_of(made.path)


def encoded(request) -> bytes:
    return json.dumps(request).encode()


def plain(outputs: dict) -> dict:
    """Converts the outputs of a signature to JSON values."""
    found = {name: value.numpy().tolist() for name, value in outputs.items()}
    found["label"] = [label.decode() for label in found["label"]]
    return found


def assert_outputs(found: dict, wanted: dict):
    assert found.keys() == wanted.keys()
    assert found["label"] == wanted["label"]
    for name in ("logits", "probabilities"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-6)


def test_rows_and_columns_are_answered_in_their_form(server, signatures):
    rows = [ROW, ROW | {IDS: [2, 7, 3]}]
    columns = {name: [row[name] for row in rows] for name in ROW}
    wanted = plain(signatures["serving_default"](**{name: tf.constant(v) for name, v in columns.items()}))
    status, answer = server.post(encoded({"inputs": columns}))
    assert (status, answer.keys()) == (200, {"outputs"})
    assert_outputs(answer["outputs"], wanted)
    status, answer = server.post(
        encoded({"signature_name": "serving_default", "instances": rows}),
        "/v1/models/mrpc/versions/1:predict",
    )
    assert (status, len(answer["predictions"])) == (200, 2)
    by_row = answer["predictions"]
    assert_outputs({name: [row[name] for row in by_row] for name in by_row[0]}, wanted)


def test_a_single_input_needs_no_name(server, signatures):
    wanted = plain(signatures["serving_ids"](input_ids=tf.constant([ROW[IDS]])))
    _, answer = server.post(encoded({"signature_name": "serving_ids", "inputs": [ROW[IDS]]}))
    assert_outputs(answer["outputs"], wanted)
    (record,) = encode_examples({name: np.int32([values]) for name, values in ROW.items()})
    request = {
        "signature_name": "serving_examples",
        "instances": [{"b64": base64.b64encode(record).decode()}],
    }
    status, answer = server.post(encoded(request))
    assert (status, answer["predictions"][0]["label"]) == (200, wanted["label"][0])


def test_status_and_metadata_are_those_of_tensorflow_serving(server):
    status, answer = server.call("GET", "/v1/models/mrpc")
    (version,) = answer["model_version_status"]
    assert (status, version["version"], version["state"]) == (200, "1", "AVAILABLE")
    status, answer = server.call("GET", "/v1/models/mrpc/versions/1/metadata")
    assert answer["model_spec"] == {"name": "mrpc", "signature_name": "", "version": "1"}
    found = answer["metadata"]["signature_def"]["signature_def"]
    assert {"serving_default", "serving_ids", "serving_examples"} <= found.keys()
    ids = found["serving_default"]["inputs"][IDS]
    assert ids["dtype"] == "DT_INT32"
    assert [axis["size"] for axis in ids["tensor_shape"]["dim"]] == ["-1", "-1"]


BAD_BODIES = [
    (b"", "JSON Parse error: Expecting value"),
    (b'{"instances": [', "JSON Parse error: "),
    (b"[" * 50_000, "JSON Parse error: maximum recursion depth"),
    (b'{"instances": "caf\xe9"}', "the body is no UTF-8 (byte 18)"),
    (b"[1, 2]", "the body must be a JSON object"),
    (b"{}", "the body must have one of 'instances' and 'inputs'"),
    (encoded({"instances": [ROW], "inputs": {}}), "the body must have one of"),
    (encoded({"instances": []}), "'instances' must be a list, and not empty"),
    (encoded({"instances": {"a": 1}}), "'instances' must be a list, and not empty"),
    (encoded({"signature_name": 7, "instances": [ROW]}), "'signature_name' must be a string"),
    (encoded({"signature_name": "no", "instances": [ROW]}), 'Serving signature name: "no" not found'),
    (encoded({"instances": [{IDS: [2]}]}), "missing input: "),
    (encoded({"instances": [ROW | {"more": [1]}]}), "the signature has no input more"),
    (encoded({"instances": [[2, 5, 3]]}), "the signature takes the inputs "),
    (encoded({"instances": [ROW, {IDS: [2]}]}), "instance 1 has other inputs than the first one"),
    (encoded({"instances": [ROW | {IDS: ["2", 5, 3]}]}), 'input input_ids: JSON value "2" is not of the type int32'),
    (encoded({"instances": [ROW | {IDS: [True, 5, 3]}]}), "input input_ids: JSON value true is not of the type"),
    (encoded({"instances": [ROW | {IDS: [2.0, 5, 3]}]}), "input input_ids: JSON value 2.0 is not of the type"),
    (encoded({"instances": [ROW | {IDS: [None, 5, 3]}]}), "input input_ids: JSON value null is not of the type"),
    (encoded({"instances": [ROW | {IDS: [1 << 40, 5, 3]}]}), "input input_ids: has a number that int32 cannot"),
    (encoded({"instances": [ROW | {IDS: 2}]}), "input input_ids: must have the shape (None, None)"),
    (encoded({"instances": [ROW | {IDS: [[2, 5, 3]]}]}), "input input_ids: JSON value [2, 5, 3] is not of the"),
    (encoded({"instances": [ROW, ROW | {IDS: [2]}]}), "input input_ids: has lists of different lengths"),
    (encoded({"instances": [ROW | {IDS: [2, 99, 3]}]}), "assertion failed: [input_ids must be at least 0 and below"),
    (encoded({"instances": [ROW | {MASK: [2, 1, 1]}]}), "assertion failed: [input_mask must be at least 0 and below"),
    (encoded({"inputs": {name: [[]] for name in ROW}}), "assertion failed: [the model takes sequences of 1 to"),
    (encoded({"signature_name": "serving_examples", "instances": [{"b64": "!"}]}), "input examples: "),
    (encoded({"signature_name": "serving_examples", "instances": [{"b46": ""}]}), "missing input: examples"),
    (encoded({"signature_name": "serving_examples", "instances": ["\ud800"]}), "input examples: "),
    (encoded({"signature_name": "serving_examples", "instances": ["no example"]}), "Could not parse example"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "sentence"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_bad_request_is_told_why(server, body, sentence):
    status, answer = server.post(body)
    assert status == 400
    assert answer["error"].startswith(sentence)
    assert "\n" not in answer["error"]


@pytest.mark.parametrize(
    ("method", "url", "status", "sentence"),
    [
        ("POST", "/v1/models/other:predict", 404, "Servable not found for request: Latest(other)"),
        ("POST", "/v1/models/mrpc/versions/7:predict", 404, "Servable not found for request: Specific(mrpc, 7)"),
        ("GET", "/v1/models/other", 404, "Servable not found for request: Latest(other)"),
        ("POST", "/v1/models/mrpc", 404, "Malformed request: POST /v1/models/mrpc"),
        ("GET", "/v1/models/mrpc:predict", 405, "Malformed request: GET /v1/models/mrpc:predict"),
        ("DELETE", "/v1/models/mrpc", 405, "Malformed request: DELETE /v1/models/mrpc"),
        ("GET", "/", 404, "Malformed request: GET /"),
        ("POST", "/v1/models/mrpc:classify", 404, "Malformed request: POST /v1/models/mrpc:classify"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(server, method, url, status, sentence):
    body = encoded({"instances": [ROW]}) if method == "POST" else None
    assert server.call(method, url, body) == (status, {"error": sentence})


@pytest.mark.parametrize("num_bytes", [MAX_REQUEST_BYTES + 1, 20 << 20])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(server, num_bytes, is_chunked):
    before_mib = server.resident_mib()
    body = b" " * num_bytes
    if is_chunked:
        body = iter([body[start : start + 65536] for start in range(0, num_bytes, 65536)])
    status, answer = server.post(body)
    assert (status, answer["error"]) == (
        413,
        f"the body is larger than the {MAX_REQUEST_BYTES} bytes of --max_request_bytes",
    )
    assert server.resident_mib() - before_mib < 10
    largest = encoded({"instances": [ROW]}).ljust(MAX_REQUEST_BYTES)
    assert server.post(largest)[0] == 200


def test_a_body_that_is_too_large_is_not_read(server):
    """The server answers although the client never sends the body."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=30) as connection:
        length = 1 << 40
        connection.sendall(
            f"POST {server.url} HTTP/1.1\r\nHost: localhost\r\n{JSON_LINE}Content-Length: {length}\r\n\r\n".encode()
        )
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def good_requests(signatures) -> list[tuple[bytes, dict]]:
    """Returns request bodies with the outputs of direct calls."""
    draws = np.random.default_rng(1)
    found = []
    for _ in range(20):
        shape = draws.integers(1, 4), draws.integers(1, 40)
        ids = draws.integers(0, len(toy.VOCABULARY), shape).astype(np.int32)
        body = encoded({"signature_name": "serving_ids", "inputs": {IDS: ids.tolist()}})
        found.append((body, plain(signatures["serving_ids"](input_ids=tf.constant(ids)))))
    return found


def bother(server: Server, draws: random.Random):
    """Sends bytes that are not a request, or part of a request, and closes the connection."""
    parts = [
        b"\x16\x03\x01\x00\xff",
        b"GET",
        f"POST {server.url} HTTP/1.1\r\nContent-Length: 900\r\n\r\n{{".encode(),
    ]
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=30) as connection:
        connection.sendall(draws.choice(parts))


def one_client(server: Server, good: list, number: int, end_secs: float) -> int:
    """Sends good and bad requests until the time is over, and returns the number of answered good requests."""
    draws = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    for count in itertools.count():
        if time.monotonic() > end_secs:
            connection.close()
            return count
        body, wanted = draws.choice(good)
        connection.request("POST", server.url, body, JSON_TYPE)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        assert_outputs(answer["outputs"], wanted)
        if count % 3 == 0:
            body, sentence = draws.choice(BAD_BODIES)
            status, answer = server.post(body)
            assert (status, answer["error"][: len(sentence)]) == (400, sentence)
        if count % 10 == 0:
            bother(server, draws)
            assert server.post(b" " * (MAX_REQUEST_BYTES + 1))[0] == 413


@pytest.mark.parametrize("secs", [5, pytest.param(120, marks=pytest.mark.long)])
def test_the_server_stands_load_with_bad_requests_in_it(server, signatures, secs):
    good = good_requests(signatures)
    end_secs = time.monotonic() + secs
    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        clients = [pool.submit(one_client, server, good, number, end_secs) for number in range(NUM_CLIENTS)]
        counts = [client.result() for client in clients]
    assert min(counts) > 0
    assert server.post(good[0][0])[0] == 200


def test_requests_leave_nothing_allocated(server):
    """A leak of 1 KB a request would be four times what is allowed, whatever kind of request leaks."""
    kinds = {
        "answered": [encoded({"instances": [ROW]})],
        "refused": [body for body, _ in BAD_BODIES],
        "too large": [b" " * (MAX_REQUEST_BYTES + 1)],
    }
    for kind, bodies in kinds.items():
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.rest_port)) as connection:

            def send(count, connection=connection, bodies=bodies):
                for body in itertools.islice(itertools.cycle(bodies), count):
                    connection.request("POST", server.url, body, JSON_TYPE)
                    connection.getresponse().read()

            send(NUM_WARM_UP)
            before = server.allocated_bytes()
            send(NUM_MEASURED)
            grown = (server.allocated_bytes() - before) / NUM_MEASURED
        print(f"{kind}: {grown:.0f} bytes a request")
        assert grown < GROWTH_BYTES, kind


def test_what_production_uses_is_said(tmp_path, monkeypatch, capsys):
    server = load_example("serving_server")
    with pytest.raises(SystemExit, match="holds no version; export a model there"):
        server.Model("any", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["serving_server.py", "--help"])
    with pytest.raises(SystemExit) as end:
        server.main()
    assert end.value.code == 0
    assert "for production use TensorFlow Serving" in " ".join(capsys.readouterr().out.split())

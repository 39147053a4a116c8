"""Requests of any form get an answer of the example server: a status and a sentence, and no
traceback in its log.
"""

import http.server
import json
import os
import socket
import sys
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.shared import example

LISTS = 100_000


class Doubler(tf.Module):
    """A model with two signatures."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32, "ids")])
    def double(self, ids):
        return {"double": 2 * ids}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def repeat(self, text):
        return {"text": text, "all": tf.strings.reduce_join(text)[None]}


@pytest.fixture(scope="module")
def module():
    """The program, without the packages of gRPC."""
    stubs = {
        "grpc": types.ModuleType("grpc"),
        "tensorflow_serving.apis": types.SimpleNamespace(
            predict_pb2=None,
            prediction_service_pb2_grpc=types.SimpleNamespace(PredictionServiceServicer=object),
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, stub in stubs.items():
            patch.setitem(sys.modules, name, stub)
        patch.setitem(
            sys.modules,
            "tensorflow_serving",
            types.SimpleNamespace(apis=stubs["tensorflow_serving.apis"]),
        )
        yield example("serving_server")


@pytest.fixture(scope="module")
def address(module, tmp_path_factory):
    """A server in this process."""
    doubler = Doubler()
    folder = tmp_path_factory.mktemp("models")
    signatures = {
        "serving_default": doubler.double,
        "serving_text": doubler.repeat,
    }
    tf.saved_model.save(doubler, str(folder / "1"), signatures=signatures)

    class Handler(module.RestHandler):
        model = module.Model("toy", str(folder))
        timeout = 2

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever,
        kwargs={"poll_interval": 0.01},
    )
    thread.start()
    yield server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def answer_to(address, body: bytes, *headers: str, ends: bool = True) -> tuple[int, dict]:
    """The status and the JSON of the answer to a request of these bytes."""
    lines = [
        "POST /v1/models/toy:predict HTTP/1.1",
        "Host: x",
        *headers,
        "",
        "",
    ]
    head = "\r\n".join(lines)
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(head.encode() + body)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    answer_head, _, content = answer.partition(b"\r\n\r\n")
    _protocol, status, *_ = answer_head.split()
    return int(status), json.loads(content)


def post(address, body: bytes) -> tuple[int, dict]:
    return answer_to(address, body, f"Content-Length: {len(body)}")


def test_messages_of_imports_are_hidden(module, capfd):
    with module.hidden_messages():
        os.write(2, b"failed call to cuInit")
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_a_good_request(address):
    status, answer = post(address, b'{"instances": [[1, 2]]}')
    assert status == 200
    assert answer == {"predictions": [[2, 4]]}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"instances": null}', "'instances' must be a list"),
        (b'{"instances": 7}', "'instances' must be a list"),
        (b'{"instances": "ab"}', "'instances' must be a list"),
        (b'{"instances": {"ids": [1, 2]}}', "'instances' must be a list"),
        (b'{"signature_name": [], "instances": [1]}', "'signature_name' must be a text"),
        (b'{"signature_name": {}, "inputs": [1]}', "'signature_name' must be a text"),
        (b"[" * LISTS, "nested too deep"),
        (b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", ""),
        (b'{"instances": [' + b"9" * 5000 + b"]}", "JSON Parse error"),
        (b'{"instances": [[1, ' + b"9" * 4000 + b"]]}", ""),
        (b'{"instances": [[1, 1e999]]}', ""),
        (b'{"instances": [[1, null]]}', ""),
        (b'{"instances": [[1, {"x": 1}]]}', "an object in a tensor"),
        (b'{"instances": [[1, {"b64": 7}]]}', "an object in a tensor"),
        (b'{"instances": [{"b64": "\xc3\xa9"}]}', ""),
        (b'{"instances": [[1, 2], [3]]}', ""),
        (b'{"instances": []}', ""),
        (b'{"inputs": null}', ""),
        (b'{"signature_name": "serving_text", "instances": ["\\ud800"]}', ""),
        (
            b'{"signature_name": "serving_text", "instances": ["a", "b"]}',
            "no row for each instance",
        ),
        (b"7", "must be a JSON object"),
        (b"", "JSON Parse error"),
        (b"\xff\xfe", "JSON Parse error"),
    ],
)
def test_a_body_of_any_form_gets_a_sentence(address, capfd, body, sentence):
    status, answer = post(address, body)
    assert status == 400
    assert list(answer) == ["error"]
    assert sentence in answer["error"]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("headers", "status", "sentence"),
    [
        ((), 411, "needs a Content-Length"),
        (("Transfer-Encoding: chunked",), 411, "needs a Content-Length"),
        (("Content-Length: 99999999999",), 413, "at most"),
        ((f"Content-Length: {'9' * 5000}",), 413, "at most"),
        (("Content-Length: -1",), 400, "must be a whole number"),
        (("Content-Length: 1_0",), 400, "must be a whole number"),
        (("Content-Length: many",), 400, "must be a whole number"),
        (("Content-Length: ",), 400, "must be a whole number"),
        (("Content-Length: 60000000",), 400, "ends 59999998 bytes before its Content-Length"),
    ],
)
def test_a_length_of_any_form_gets_a_sentence(address, capfd, headers, status, sentence):
    got, answer = answer_to(address, b"{}", *headers)
    assert got == status
    assert sentence in answer["error"]
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_sends_nothing_is_not_waited_for_for_ever(address):
    status, answer = answer_to(address, b"{", "Content-Length: 9", ends=False)
    assert status == 408
    assert "did not come" in answer["error"]


def test_a_client_that_leaves_causes_no_traceback(address, capfd):
    body = b'{"instances": [' + b"[1, 2], " * 100_000 + b"[1, 2]]}"
    with socket.create_connection(address, timeout=30) as connection:
        head = f"POST /v1/models/toy:predict HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        # Ends with a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    status, _ = post(address, b'{"instances": [[1, 2]]}')
    assert status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_no_shape_of_a_tensor_reserves_memory(module):
    proto = tf.make_tensor_proto(np.float32([7]), shape=[3])
    values = module.read_array("x", proto)
    np.testing.assert_array_equal(values, [7, 7, 7])
    for size in (1 << 40, -1):
        proto.tensor_shape.dim[0].size = size
        with pytest.raises(module.RequestError, match="input x: "):
            module.read_array("x", proto)

"""The example server: start-up, requests, connections and load that would fill its memory, its disk or its time."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import pathlib
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.examples.serving import JSON_TYPE, load_example, running_server
from tests.serving import exported

pytestmark = pytest.mark.needs_extra("grpc", "tensorflow_serving", "tornado")

MAX_CONNECTIONS, MAX_REQUESTS, HEADER_SECS = 40, 6, 2
FLAGS = [
    "--max_request_bytes=200000",
    "--max_rows=8",
    "--max_tokens=256",
    "--max_answer_values=30",
    "--num_workers=2",
    f"--max_requests={MAX_REQUESTS}",
    f"--max_connections={MAX_CONNECTIONS}",
    "--deadline_secs=5",
    f"--header_timeout_secs={HEADER_SECS}",
    "--allowed_hosts=model.example",
]
IDS = {"signature_name": "serving_ids", "inputs": [[2, 5, 3]]}
PREDICT = "/v1/models/mrpc:predict"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> pathlib.Path:
    """Returns the folder of the versions of an export."""
    return exported.shared_export(tmp_path_factory, "mrpc").path.parent


@pytest.fixture(scope="module")
def log_file(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("log") / "stderr"


@pytest.fixture(scope="module")
def server(made, log_file):
    with open(log_file, "wb") as log, running_server(made, "mrpc", *FLAGS, log=log) as running:
        yield running


# --- start-up


def damaged(path: str, content: bytes | None):
    """Returns a function that writes a file of the version, or removes it."""

    def damage(folder: pathlib.Path):
        if content is None:
            (folder / "1" / path).unlink()
        else:
            (folder / "1" / path).write_bytes(content)

    return damage


def renamed(name: str):
    return lambda folder: (folder / "1").rename(folder / name)


START = [
    ("port above 65535", ["--rest_api_port=70000"], None, "--rest_api_port: '70000' must be a whole number from 0"),
    ("port of minus one", ["--port=-1"], None, "'-1' must be a whole number from 0 to 65535"),
    ("port in other digits", ["--port=\u0661\u0662"], None, "must be a whole number from 0 to 65535"),
    ("no worker", ["--num_workers=0"], None, "'0' must be a whole number from 1 to 256"),
    ("a million workers", ["--num_workers=1000000"], None, "must be a whole number from 1 to 256"),
    ("bytes of 2^40", [f"--max_request_bytes={1 << 40}"], None, "must be a whole number from 1 to 2147483647"),
    ("deadline of nan", ["--deadline_secs=nan"], None, "'nan' must be a whole number from 1 to 86400"),
    ("unknown flag", ["--ports=3"], None, "unrecognized arguments: --ports=3"),
    ("name with a slash", ["--model_name=a/b"], None, "--model_name=a/b: must be made of letters"),
    ("empty name", ["--model_name="], None, "--model_name=: must be made of letters"),
    ("unknown host", ["--host=no such host"], None, "--host=no such host --rest_api_port=0: cannot listen there"),
    ("host of others", ["--host=192.0.2.1"], None, "cannot listen there"),
    ("no version", [], renamed("one"), "holds no version"),
    ("version with letters", [], renamed("1abc"), "holds no version"),
    ("version in other digits", [], renamed("\u0661"), "holds no version"),
    ("version above int64", [], renamed("9" * 19), "holds no version"),
    ("no graph", [], damaged("saved_model.pb", None), "holds no version"),
    ("empty graph", [], damaged("saved_model.pb", b""), "1: cannot be loaded ("),
    ("graph of noise", [], damaged("saved_model.pb", b"\xff" * 99), "1: cannot be loaded ("),
    ("no weights", [], damaged("variables/variables.index", None), "1: cannot be loaded ("),
    ("weights of noise", [], damaged("variables/variables.index", b"\x00" * 99), "1: cannot be loaded ("),
]  # fmt: skip


def started(monkeypatch, *flags: str) -> str:
    """Runs the server's `main` in this process, which must end, and returns its last sentence."""
    module = load_example("serving_server")
    monkeypatch.setattr(module, "limit_log", lambda: None)
    monkeypatch.setattr(sys, "argv", ["serving_server.py", "--rest_api_port=0", *flags])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return str(ended.value)


@pytest.mark.parametrize(
    ("flags", "damage", "sentence"), [row[1:] for row in START], ids=[row[0] for row in START]
)
def test_a_start_that_fails_says_why_in_one_sentence(flags, damage, sentence, made, tmp_path, monkeypatch):
    base = made
    if damage:
        base = tmp_path / "versions"
        shutil.copytree(made, base)
        damage(base)
    said = started(monkeypatch, f"--model_base_path={base}", *flags)
    assert sentence in said
    assert "\n" not in said


@pytest.mark.parametrize("flag", ["rest_api_port", "port"])
def test_a_port_that_is_taken_is_named(flag, made, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = started(monkeypatch, f"--model_base_path={made}", f"--{flag}={port}")
    assert f"--{flag}" in said
    assert str(port) in said
    assert "\n" not in said


def test_a_folder_that_is_no_version_is_passed_over(made, tmp_path):
    shutil.copytree(made, tmp_path / "all")
    for name in ("2x", "\u0663", "9" * 30):
        shutil.copytree(made / "1", tmp_path / "all" / name)
    assert load_example("serving_server").Model("any", str(tmp_path / "all")).version == 1


# --- REST


class Post(NamedTuple):
    """A request that is refused with a status and a sentence."""

    name: str
    body: bytes
    status: int
    says: str
    headers: dict[str, str] | None = None
    url: str = PREDICT
    method: str = "POST"


def versioned(version: str) -> str:
    return f"/v1/models/mrpc/versions/{version}:predict"


def ids(value) -> bytes:
    return json.dumps(IDS | {"inputs": value}).encode()


GOOD = ids([[2, 5, 3]])
POSTS = [
    Post("5,000 digits", b'{"inputs": %s}' % (b"9" * 5000), 400, "JSON Parse error: Exceeds the limit"),
    Post("5,000 digits of an id", ids([[2]]).replace(b"[[2]]", b"[[%s]]" % (b"9" * 5000)), 400, "JSON Parse error"),
    Post("infinity as an id", ids([[2]]).replace(b"[[2]]", b"[[Infinity]]"), 400, "is not of the type int32"),
    Post("an id of 1e400", ids([[2]]).replace(b"[[2]]", b"[[1e400]]"), 400, "is not of the type int32"),
    Post("nested lists", b'{"inputs": ' + b"[" * 1200 + b"]" * 1200 + b"}", 400, "JSON Parse error"),
    Post("many lists", ids([[]] * 2000), 400, "commas and brackets, more than"),
    Post("many objects", b'{"inputs": [' + b"{}," * 3000 + b"{}]}", 400, "commas and brackets, more than"),
    Post("nine rows", ids([[2]] * 9), 400, "input input_ids: has 9 rows, more than the 8 of --max_rows"),
    Post("300 tokens", ids([[2] * 300]), 400, "has 300 elements, more than the 256 of --max_tokens"),
    Post("9 empty rows", ids([[]] * 9), 400, "has 9 rows, more than"),
    Post(
        "long text",
        json.dumps({"signature_name": "serving_examples", "inputs": ["x" * 2000]}).encode(),
        400,
        "has 2000 bytes of text, more than the 1024 of --max_tokens=256",
    ),
    Post("an answer that is too long", ids([[2, 3]] * 8), 413, "the answer has 40 values, more than the 30"),
    Post("a signature's name of 100 kB", json.dumps({"signature_name": "s" * 100000, "inputs": 1}).encode(), 400, "no"),
    Post("an input's name of 100 kB", json.dumps({"inputs": {"s" * 100000: 1}}).encode(), 400, "missing input"),
    Post("half a surrogate pair", b'{"signature_name": "\\ud800", "inputs": 1}', 400, "Serving signature name"),
    Post("a list as the name", b'{"signature_name": ["a"], "inputs": 1}', 400, "'signature_name' must be a string"),
    Post("base64 of a number", b'{"signature_name": "serving_examples", "inputs": [{"b64": 1}]}', 400, "neither text"),
    Post("base64 in Chinese", b'{"signature_name": "serving_examples", "inputs": [{"b64": "\\u4e2d"}]}', 400, "nei"),
    Post("a form", GOOD, 415, "Content-Type must be application/json", {"Content-Type": "text/plain"}),
    Post("a form's fields", GOOD, 415, "Content-Type", {"Content-Type": "application/x-www-form-urlencoded"}),
    Post("an empty type", GOOD, 415, "Content-Type must be application/json", {"Content-Type": ""}),
    Post("another host", GOOD, 421, "no server is called 'evil.example' here", {"Host": "evil.example"}),
    Post("a host by its end", GOOD, 421, "no server is called", {"Host": "localhost.evil.example"}),
    Post("another host's status", b"", 421, "no server is called", {"Host": "a.b"}, "/v1/models/mrpc", "GET"),
    Post("a version of 5,000 digits", GOOD, 404, "Malformed request", url=versioned("9" * 5000)),
    Post("a version in other digits", GOOD, 404, "Malformed request", url=versioned("%D9%A1")),
    Post("a version of 18 digits", GOOD, 404, "Specific(mrpc, 9", url=versioned("9" * 18)),
    Post("a broken escape", GOOD, 400, "Malformed request", url="/v1/models/%ff%fe:predict"),
    Post("another method", GOOD, 405, "Malformed request", url=PREDICT, method="PUT"),
    Post("an unknown method", GOOD, 405, "Malformed request", url=PREDICT, method="EAT"),
    Post("a length that is no number", b"", 400, "", {"Content-Length": "ten"}),
]  # fmt: skip


@pytest.mark.parametrize("post", POSTS, ids=lambda post: post.name)
def test_a_bad_request_is_the_clients_error(post, server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    with contextlib.closing(connection):
        connection.request(post.method, post.url, post.body, JSON_TYPE | (post.headers or {}))
        response = connection.getresponse()
        body = response.read()
    assert response.status == post.status, body
    if post.says:
        answer = json.loads(body)
        assert post.says in answer["error"]
        assert len(answer["error"]) < 300 or "versions" in post.url
    assert server.post(GOOD)[0] == 200


def test_good_hosts_and_types(server):
    for headers in (
        {"Host": "model.example"},
        {"Host": "LOCALHOST:80"},
        {"Host": "[::1]:8501"},
        {"Host": "10.0.0.7"},
        {"Content-Type": "application/json; charset=utf-8"},
    ):
        assert server.post(GOOD, **headers)[0] == 200, headers


# --- gRPC


def tensor(shape, dtype: int = 3, **values):
    from tensorflow.core.framework import tensor_pb2

    proto = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def request(proto=None, signature: str = "serving_ids", **others) -> bytes:
    from tensorflow_serving.apis import predict_pb2

    message = predict_pb2.PredictRequest(**others)
    message.model_spec.name, message.model_spec.signature_name = "mrpc", signature
    if proto is not None:
        message.inputs["examples" if signature == "serving_examples" else "input_ids"].CopyFrom(proto)
    return message.SerializeToString()


def unknown_rank() -> bytes:
    proto = tensor([], int_val=[2])
    proto.tensor_shape.unknown_rank = True
    return request(proto)


class Call(NamedTuple):
    """A gRPC request that is refused; its bytes are made late because only the extras can make them."""

    name: str
    data: Callable[[], bytes]
    says: str
    code: str = "INVALID_ARGUMENT"


CALLS = [
    Call("300,000,000 rows of 52 bytes", lambda: request(tensor([300_000_000, 1], int_val=[2])), "more than the 8 of"),
    Call("a row of 300,000,000", lambda: request(tensor([1, 300_000_000], int_val=[2])), "more than the 256 of"),
    Call("more elements than bytes", lambda: request(tensor([1, 200], int_val=[2])), "200 elements, more than the "),
    Call("a shape of 2^62 by 2^62", lambda: request(tensor([1 << 62, 1 << 62])), "rows, more than"),
    Call("a shape below 0", lambda: request(tensor([-1, 3], int_val=[2, 5, 3])), "must be int32 of shape"),
    Call("nothing by 2^62", lambda: request(tensor([0, 1 << 62])), "is no tensor"),
    Call("no rank", unknown_rank, "must be int32 of shape"),
    Call("three axes", lambda: request(tensor([1, 1, 1], int_val=[2])), "must be int32 of shape"),
    Call("floats", lambda: request(tensor([1, 1], 1, float_val=[2])), "has another type"),
    Call("an unknown type", lambda: request(tensor([1, 1], 9999, int_val=[2])), "has another type"),
    Call("a resource", lambda: request(tensor([1, 1], 20)), "has another type"),
    Call("too few bytes", lambda: request(tensor([1, 3], tensor_content=b"abc")), "is no tensor"),
    Call("too many bytes", lambda: request(tensor([1, 1], tensor_content=b"abcd" * 9)), "is no tensor"),
    Call(
        "long strings",
        lambda: request(tensor([1], 7, string_val=[b"x" * 5000]), "serving_examples"),
        "has 5000 bytes of text, more than the 1024",
    ),
    Call("no protobuf", lambda: b"\xff" * 40, "the request is no PredictRequest"),
    Call("no input", request, "the signature takes the inputs input_ids, the request has "),
    Call("an unknown signature", lambda: request(tensor([1, 1], int_val=[2]), "s" * 5000), "Serving signature name"),
    Call(
        "an unknown output",
        lambda: request(tensor([1, 1], int_val=[2]), output_filter=["o" * 5000]),
        "output_filter: there is no output ooo",
    ),
    Call("a message that is too long", lambda: b"x" * 300_000, "", "RESOURCE_EXHAUSTED"),
]  # fmt: skip


def called(server, data: bytes, method: str = "Predict"):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        return channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")(data, timeout=60)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_bad_call_is_an_invalid_argument(call, server):
    import grpc

    before_mib = server.resident_mib()
    with pytest.raises(grpc.RpcError) as refused:
        called(server, call.data())
    assert refused.value.code().name == call.code, refused.value.details()
    assert call.says in refused.value.details()
    assert len(refused.value.details()) < 1000
    assert server.resident_mib() - before_mib < 100
    assert called(server, request(tensor([1, 3], int_val=[2, 5, 3])))


# --- connections, the log and load


def test_idle_connections_leave_room(server, log_file):
    """Three times the limit of connections are opened; each is closed when its time for a header is over."""
    log_bytes = log_file.stat().st_size
    with contextlib.ExitStack() as stack:
        for number in range(3 * MAX_CONNECTIONS):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.rest_port)))
            idle.sendall(b"GET /v1/mod" if number % 2 else b"")
        assert server.post(GOOD)[0] == 200
    assert log_file.stat().st_size - log_bytes < 10_000


def test_a_client_that_reads_no_answer_is_cut_off(server):
    """The connections that are never read do not keep the others from being served."""
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            deaf = stack.enter_context(socket.create_connection(("127.0.0.1", server.rest_port)))
            deaf.sendall(b"GET /v1/models/mrpc/metadata HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        assert server.post(GOOD)[0] == 200


def test_the_log_takes_one_line_of_a_kind_a_second(server, log_file):
    before = log_file.read_bytes().count(b"\n")
    started_secs = time.monotonic()
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
            connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            connection.recv(1000)
    num_secs = time.monotonic() - started_secs
    assert log_file.read_bytes().count(b"\n") - before <= 3 * (num_secs + 1)


def slow_client(server, end_secs: float):
    """Sends a request a byte at a time, as long as the server listens."""
    headers = ("Host: localhost", "Content-Type: application/json", "Content-Length: 900")
    text = "\r\n".join([f"POST {PREDICT} HTTP/1.1", *headers, "", "{"])
    while time.monotonic() < end_secs:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", server.rest_port), timeout=10) as connection,
        ):
            for letter in itertools.chain(text, itertools.repeat(" ")):
                connection.sendall(letter.encode())
                time.sleep(0.05)
                if time.monotonic() > end_secs:
                    return


def bomber(server, number: int, end_secs: float):
    """Sends the bad requests of the tables."""
    import grpc

    draws = random.Random(number)
    while time.monotonic() < end_secs:
        post, call = draws.choice(POSTS[:18]), draws.choice(CALLS)
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert server.post(post.body)[0] in (post.status, 503)
        with contextlib.suppress(grpc.RpcError):
            called(server, call.data())


def good_client(server, end_secs: float) -> tuple[int, int]:
    """Sends good requests, and returns how many were answered and how many refused because the server was busy."""
    answered = busy = 0
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    while time.monotonic() < end_secs:
        try:
            connection.request("POST", PREDICT, GOOD, JSON_TYPE)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException):  # closed while it was idle: a client connects again
            connection.close()
            continue
        if response.status == 503:
            busy += 1
            assert "try again later" in answer["error"]
            time.sleep(0.05)
        else:
            assert response.status == 200, answer
            assert answer["outputs"]["label"]
            answered += 1
    connection.close()
    return answered, busy


@pytest.mark.parametrize("secs", [6, pytest.param(120, marks=pytest.mark.long)])
def test_the_server_stands_twice_its_capacity(server, log_file, secs):
    """Good clients at twice the capacity, slow ones and bombs: memory is flat, and every good client is answered."""
    end_secs = time.monotonic() + secs
    before_mib, log_bytes = server.resident_mib(), log_file.stat().st_size
    most_mib, sizes = 0.0, []
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        good = [pool.submit(good_client, server, end_secs) for _ in range(2 * MAX_REQUESTS)]
        others = [pool.submit(slow_client, server, end_secs) for _ in range(10)]
        others += [pool.submit(bomber, server, number, end_secs) for number in range(4)]
        while time.monotonic() < end_secs:
            time.sleep(0.2)
            sizes.append(server.resident_mib())
            most_mib = max(most_mib, sizes[-1])
        counts = [client.result() for client in good]
        for other in others:
            other.result()
    num_answered, num_busy = (sum(numbers) for numbers in zip(*counts, strict=True))
    print(f"answered {num_answered}, busy {num_busy}, {before_mib:.0f} to {most_mib:.0f} MiB")
    assert min(answered for answered, _ in counts) > 0
    assert most_mib - before_mib < 1024
    if secs > 60:
        half = len(sizes) // 2
        assert max(sizes[half:]) - max(sizes[:half]) < 50
    assert log_file.stat().st_size - log_bytes < 1000 * (secs + 1)
    assert server.post(GOOD)[0] == 200

"""Faulty requests, slow clients and clients that leave: each gets a sentence, and the server goes
on to answer others, with the same memory.
"""

import json
import random
import re
import socket

import pytest

pytestmark = pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client")

NUM_REQUESTS = 2000
MAX_GROWTH_MB = 60  # the parser of JSON and the allocator keep some
# Values of every kind of JSON, some of them larger than any request needs.
VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "",
    "the cat sat",
    "\ud800",
    "\0\u202e\U0001f600",
    "x" * 50_000,
    [],
    [None],
    [[]],
    [[[1]]],
    ["a", 1],
    [{"b64": "?"}],
    [{"b64": 7}],
    [{"text_a": "a"}],
    ["a"] * 3000,
    {},
    {"text": []},
    {"b64": "AAAA"},
)
FIELDS = (
    "instances",
    "inputs",
    "signature_name",
    "input",
    "model",
    "encoding_format",
    "dimensions",
    "input_type",
    "query",
    "documents",
    "texts",
    "top_n",
    "return_documents",
)
NAMES = ("mrpc", "text", "multi", "swag", "squad", "ner", "masks", "encoder", "none", "%00", "a/b")
VERBS = (
    ":predict",
    ":run",
    ":classify",
    ":tag",
    ":fill_mask",
    ":x",
    "",
    "/metadata",
    "/versions/7",
)
PATHS = ("/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/health", "/", "/%ff", "//")
METHODS = ("POST",) * 12 + ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
BROKEN_BODIES = (
    b"",
    b"{",
    b'{"instances": ["a"]',
    b'{"instances": ["a"], "instances": ["b"]}',
    b"[" * 50_000,
    b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"input": ' + b"9" * 5000 + b"}",
    b"\xff\xfe\x00",
    b'"text"',
    b"NaN",
    b"null",
    b'{"input": "\xed\xa0\x80"}',
    b"\x1f\x8b\x08",
)


def draw_request(draws: random.Random) -> tuple[str, str, bytes]:
    """A method, a path and a body, of which at least one is faulty as a rule."""
    path = draws.choice(PATHS)
    if draws.random() < 0.6:
        path = f"/v1/models/{draws.choice(NAMES)}{draws.choice(VERBS)}"
    body = draws.choice(BROKEN_BODIES)
    if draws.random() < 0.8:
        fields = draws.sample(FIELDS, draws.randrange(4))
        body = json.dumps({field: draws.choice(VALUES) for field in fields}).encode()
    if draws.random() < 0.05:
        body = body[: draws.randrange(len(body) + 1)]
    return draws.choice(METHODS), path, body


def read_answer(connection: socket.socket) -> bytes:
    """The bytes up to the end of a connection."""
    answer = b""
    while part := connection.recv(1 << 16):
        answer += part
    return answer


def assert_answers(address):
    """The server answers an ordinary request."""
    answer = address.post("/v1/models/mrpc:classify", {"instances": [["the cat", "sat"]]})
    assert answer["predictions"][0]["label"] in ("0", "1")


def resident_mb() -> float:
    with open("/proc/self/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024


@pytest.mark.timeout(300)
def test_two_thousand_faulty_requests_get_a_sentence_each(address, capfd):
    draws = random.Random(1)
    statuses = set()
    sizes = []
    for number in range(NUM_REQUESTS):
        method, path, body = draw_request(draws)
        answer = address.call(method, path, body)
        statuses.add(answer.status)
        assert answer.status in (200, 400, 404, 405, 413), (method, path, body[:200], answer)
        if answer.status != 200 and method != "HEAD":
            error = answer.content["error"]
            sentence = error["message"] if isinstance(error, dict) else error
            assert sentence, (method, path, body[:200])
            assert "\n" not in sentence
            assert "Traceback" not in sentence
        if number % 400 == 399:
            assert_answers(address)
            sizes.append(resident_mb())
    assert statuses == {200, 400, 404, 405, 413}
    assert sizes[-1] - sizes[0] < MAX_GROWTH_MB, sizes
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("head", "status", "sentence"),
    [
        (b"no HTTP at all\r\n\r\n", 400, "the request is no HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, "the request is no HTTP"),
        (b"POST /v1/embeddings HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400, "is no HTTP"),
        (b"POST /v1/embeddings HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "is no HTTP"),
        (
            b"POST /v1/embeddings HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "is no HTTP",
        ),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 70_000, 431, "the headers have more than"),
    ],
)
def test_bytes_that_are_no_http_get_an_answer(address, head, status, sentence):
    with address.open() as connection:
        connection.sendall(head)
        answer = read_answer(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert sentence.encode() in answer
    assert_answers(address)


def test_a_large_body_is_refused(address):
    """The server of these tests reads at most 1 MB."""
    answer = address.call("POST", "/v1/embeddings", b'{"input": "' + b"x" * 1_100_000 + b'"}')
    assert answer.status == 413
    assert "the body has more than 1000000 bytes" in answer.content["error"]["message"]
    sentence = address.refusal("/v1/embeddings", {"input": "x" * 200_000}, 413)
    assert sentence == "a text has more than 100000 characters; shorten it"
    sentence = address.refusal("/v1/embeddings", {"input": ["x"] * 2049}, 413)
    assert sentence == "the request has 2049 texts or rows; send at most 2048 at once"
    assert_answers(address)


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (b"", b"the headers did not arrive within 2 seconds"),
        (b"POST /v1/embeddings HTTP/1.1\r\nHost:", b"the headers did not arrive within 2 seconds"),
        (
            b'POST /v1/embeddings HTTP/1.1\r\nContent-Length: 99\r\n\r\n{"input": ',
            b"the body did not arrive within 2 seconds",
        ),
    ],
)
def test_a_slow_client_is_not_waited_for(address, start, sentence):
    """The server of these tests waits for 2 seconds, and answers others meanwhile."""
    with address.open() as connection:
        connection.sendall(start)
        assert_answers(address)
        answer = read_answer(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert sentence in answer


def test_a_slow_second_request_of_a_connection_is_not_waited_for(address):
    with address.open() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        answer = read_answer(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"the headers did not arrive within 2 seconds" in answer


def test_clients_that_leave_disturb_nobody(address, capfd):
    content = json.dumps({"instances": [["the cat", "sat"]] * 500}).encode()
    head = b"POST /v1/models/mrpc:classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    for number in range(30):
        with address.open() as connection:
            # Some leave in the middle of the body, others before the answer.
            sent = content if number % 2 else content[: len(content) // 2]
            connection.sendall(head % len(content) + sent)
            if number % 3:  # ends with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert_answers(address)
    assert "Traceback" not in capfd.readouterr().err

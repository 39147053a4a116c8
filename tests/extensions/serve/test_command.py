"""official-bert serve as a process: its start, its end by a signal, and its errors."""

import json
import re
import signal
import socket
import subprocess
import threading
import urllib.request

import pytest

from official_bert import InputError
from official_bert.extensions.serve import command
from official_bert.extensions.serve.options import ServeOptions
from tests.extensions.serve.running import START_SECS, TIMEOUT_SECS, running, wait_until
from tests.scripts import command_line, end_of, forked_python

needs_packages = pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client")


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        (["/tmp/sst2"], {"sst2": "/tmp/sst2"}),
        (["/tmp/exports/ner/3/"], {"ner": "/tmp/exports/ner/3/"}),
        (["search=/tmp/a=b", "b"], {"search": "/tmp/a=b", "b": "b"}),
        (["google-bert/bert-base-uncased"], {"bert-base-uncased": "google-bert/bert-base-uncased"}),
    ],
)
@needs_packages
def test_models_have_the_names_of_their_flags_or_folders(values, paths):
    from official_bert.extensions.serve.options import read_model_paths

    assert read_model_paths(values) == paths


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--model=/tmp/a/x", "--model=/tmp/b/x"],
            "--model=/tmp/b/x: there is a model 'x' already; name this one",
        ),
        (["--model="], "--model=: is empty; give a folder, or NAME=FOLDER"),
        (["--model=x", "--max_queue_texts=10"], "--max_queue_texts=10: is less than"),
        (["--model=x", "--host=256.0.0.1", "--port=0"], "--host=256.0.0.1 --port=0: cannot be"),
        (["--model=/tmp/none_such", "--port=0"], "the model 'none_such': "),
    ],
)
@needs_packages
def test_wrong_flags_end_with_a_sentence(flags, sentence):
    ended = end_of("serve", *flags)
    assert ended.status == 1
    assert sentence in ended.sentence


@needs_packages
def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = end_of("serve", "--model=x", f"--port={port}")
    assert ended.status == 1
    assert f"--port={port}: cannot be used (Address already in use)" in ended.sentence


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(command, "_PACKAGES", ("no_such_package",))
    with pytest.raises(InputError, match=r"needs the package no_such_package.*\[serve\]"):
        command.prepare(ServeOptions(model=("x",)))


@needs_packages
def test_sigterm_ends_the_server_after_the_accepted_requests(paths):
    """The texts of the accepted request wait for others for a second, and get their answers."""
    flags = ["--port=0", "--max_wait_ms=1500", f"--model=encoder={paths['encoder']}"]
    with subprocess.Popen(
        [forked_python(), *command_line("serve"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = threading.Timer(START_SECS, process.kill)
        end.start()
        try:
            line = process.stdout.readline()
            pattern = r"Serving encoder \(embedding\) at (http://127.0.0.1:(\d+))$"
            match = re.fullmatch(pattern, line.strip())
            assert match, (line, process.stderr.read() if not line else "")
            answers = []

            def send():
                content = json.dumps({"input": "the cat"}).encode()
                with urllib.request.urlopen(
                    f"{match[1]}/v1/embeddings", content, timeout=TIMEOUT_SECS
                ) as response:
                    answers.append(json.load(response))

            client = threading.Thread(target=send)
            client.start()
            wait_until(lambda: 'rows{model="encoder"} 1.0' in read_metrics(match[1]), "a text")
            process.send_signal(signal.SIGTERM)
            client.join(TIMEOUT_SECS)
            status = process.wait(TIMEOUT_SECS)
            messages = process.stderr.read()
        finally:
            end.cancel()
            process.kill()
    assert status == 0, messages
    assert "Traceback" not in messages
    assert len(answers[0]["data"][0]["embedding"]) == 16
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(match[2])), timeout=TIMEOUT_SECS)


def read_metrics(address: str) -> str:
    with urllib.request.urlopen(f"{address}/metrics", timeout=TIMEOUT_SECS) as response:
        return response.read().decode()


@needs_packages
def test_a_full_queue_and_the_end_refuse_requests(paths):
    """The first text waits for others for longer than the test."""
    flags = {"max_wait_ms": 60_000.0, "max_queue_texts": 2, "max_request_texts": 2}
    with running({"encoder": paths["encoder"]}, **flags) as address:
        answers = []
        client = threading.Thread(
            target=lambda: answers.append(address.post("/v1/embeddings", {"input": "the cat"}))
        )
        client.start()
        waiting = 'official_bert_queue_rows{model="encoder"} 1.0'
        wait_until(lambda: waiting in address.call("GET", "/metrics").content, "a text")

        answer = address.call("POST", "/v1/embeddings", {"input": ["a", "b"]})
        assert answer.status == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "too many texts wait for the model 'encoder'" in answer.content["error"]["message"]

        address.models.is_stopping = True
        for method, path in (("GET", "/ready"), ("POST", "/v1/embeddings")):
            answer = address.call(method, path, {} if method == "POST" else None)
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) >= 1
        assert address.call("GET", "/health").status == 200
        address.models.close()
        client.join(TIMEOUT_SECS)
    assert len(answers) == 1


@needs_packages
def test_requests_during_the_loading_are_refused(paths, monkeypatch):
    from official_bert.extensions.serve import hosted_models

    may_load = threading.Event()

    class SlowModel(hosted_models.HostedModel):
        def __init__(self, *arguments):
            assert may_load.wait(TIMEOUT_SECS)
            super().__init__(*arguments)

    monkeypatch.setattr(hosted_models, "HostedModel", SlowModel)
    statuses = []

    def ask(prepared):
        port = prepared.sock.getsockname()[1]
        for path in ("health", "ready", "v1/models"):
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/{path}", timeout=TIMEOUT_SECS
                ) as response:
                    statuses.append(response.status)
            except urllib.error.HTTPError as error:
                statuses.append(error.code)
        may_load.set()

    prepare = command.prepare

    def prepare_and_ask(options):
        prepared = prepare(options)
        threading.Thread(target=ask, args=(prepared,)).start()
        return prepared

    monkeypatch.setattr(command, "prepare", prepare_and_ask)
    with running({"encoder": paths["encoder"]}) as address:
        assert address.call("GET", "/ready").status == 200
    assert statuses == [200, 503, 503]

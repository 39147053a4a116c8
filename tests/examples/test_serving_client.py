"""For every signature, the example client gets the outputs of a direct call from the example server."""

import ast
import json
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer
from official_bert.data.records.examples import encode_examples
from tests.examples.serving import load_example, running_server
from tests.scripts import run_script
from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.shared import ROOT

pytestmark = pytest.mark.needs_extra("grpc", "tensorflow_serving", "tornado")

CHOICE = ("the cat", "sat on the mat", "was", "a sunny day .", "here")
TEXTS = {
    "pretraining": ("The [MASK] sat", "it was a sunny [MASK]."),
    "swag": CHOICE,
    "mrpc": ("the cat sat", "a cat"),
}
TEXT_KIND = "mrpc_text"  # an export that reads text itself
SIGNATURES = [
    (TEXT_KIND, "serving_text"),
    *((kind, name) for kind in TEXTS for name in ("serving_default", "serving_ids", "serving_examples")),
    ("pretraining", "serving_masked"),
]


@pytest.fixture(scope="module")
def client():
    return load_example("serving_client")


@pytest.fixture(scope="module")
def made(tmp_path_factory, client) -> dict:
    """The folders of the versions of an export of each kind."""
    found = {kind: exported.shared_export(tmp_path_factory, kind).path for kind in TEXTS}
    return found | {TEXT_KIND: exported.shared_export(tmp_path_factory, "mrpc", export_text=True).path}


@pytest.fixture(scope="module")
def servers(made) -> dict:
    """Starts a server for each kind: one in a process of its own, the others in this process."""
    server = load_example("serving_server")
    with running_server(made["pretraining"].parent, "pretraining") as other:
        found = {"pretraining": (other.rest, other.grpc_port)}
        grpc_servers = []
        for kind in ("swag", "mrpc", TEXT_KIND):
            model = server.Model(kind, str(made[kind].parent))
            running, port = server.start_grpc(model, "127.0.0.1:0", server.Workers(server.Limits()))
            grpc_servers.append(running)
            found[kind] = (model, port)
        yield found
        for running in grpc_servers:
            running.stop(None)


def by_hand(kind: str, signature_name: str) -> dict[str, np.ndarray]:
    """Makes the inputs of a signature from WordPieces that are written by hand."""
    if kind == TEXT_KIND:
        return {"text_a": np.array([b"the cat sat"], object), "text_b": np.array([b"a cat"], object)}
    pieces = {
        "mrpc": [["[CLS] the cat sat [SEP] a cat [SEP]"]],
        "pretraining": [["[CLS] the [MASK] sat [SEP] it was a sun ##ny [MASK] . [SEP]"]],
        "swag": [[f"[CLS] the cat [SEP] {end} [SEP]" for end in ("sat on the mat", "was", "a sun ##ny day .", "here")]],
    }[kind]  # fmt: skip
    vocab = exported.toy.VOCABULARY
    rows = [[vocab.index(piece) for piece in text.split()] for text in pieces[0]]
    longest = max(map(len, rows))
    ids = np.int32([row + [0] * (longest - len(row)) for row in rows])
    mask = np.int32(ids != 0)
    first_sep = (ids == vocab.index("[SEP]")).argmax(1)
    segments = np.int32((np.arange(longest) > first_sep[:, None]) & (mask == 1))
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    if kind == "swag":
        features = {name: values[None] for name, values in features.items()}
    if signature_name == "serving_examples":
        flat = {name: values.reshape(1, -1) for name, values in features.items()}
        return {"examples": np.array(encode_examples(flat), object)}
    if signature_name == "serving_ids":
        return {"input_ids": features["input_ids"]}
    if signature_name == "serving_masked":
        features["masked_lm_positions"] = np.int32([[2, 10]])
    return features


@pytest.mark.parametrize(("kind", "signature_name"), SIGNATURES)
def test_both_protocols_give_what_a_direct_call_gives(client, made, servers, kind, signature_name):
    tokenizer = FullTokenizer(str(made[kind] / "assets" / "vocab.txt"))
    texts = TEXTS[kind.removesuffix("_text")]
    inputs = client.inputs_of(signature_name, texts, tokenizer, 24)
    wanted_inputs = by_hand(kind, signature_name)
    assert inputs.keys() == wanted_inputs.keys()
    for name, values in wanted_inputs.items():
        np.testing.assert_array_equal(inputs[name], values, err_msg=name)

    serve = signatures_of(made[kind])[signature_name]
    wanted = serve(**{name: tf.constant(values) for name, values in wanted_inputs.items()})
    rest, grpc_port = servers[kind]
    by_grpc = client.grpc_predict(f"127.0.0.1:{grpc_port}", kind, signature_name, inputs)
    found = [by_grpc]
    if isinstance(rest, str):
        found.append(client.rest_predict(rest, kind, signature_name, inputs))
    else:
        columns = {name: client.plain(values) for name, values in inputs.items()}
        body = json.dumps({"signature_name": signature_name, "inputs": columns}).encode()
        server = load_example("serving_server")
        found.append(server.rest_answer(rest, body, server.Limits())["outputs"])
    for outputs in found:
        assert outputs.keys() == wanted.keys()
        for name, values in wanted.items():
            if values.dtype == tf.string:
                texts = np.array(outputs[name], object)
                texts = np.vectorize(lambda text: text if isinstance(text, str) else text.decode())(texts)
                np.testing.assert_array_equal(texts, values.numpy().astype(str), err_msg=name)
            else:
                np.testing.assert_allclose(outputs[name], values, atol=1e-6, err_msg=name)


def test_strings_go_by_name_to_a_text_model(client):
    pair = client.inputs_of("serving_text", ("a", "b"), None, 24)
    assert pair == {"text_a": np.array([b"a"], object), "text_b": np.array([b"b"], object)}
    choice = client.inputs_of("serving_text", CHOICE, None, 24, ("context", "endings"))
    assert choice["context"].tolist() == [b"the cat"]
    assert choice["endings"].tolist() == [[text.encode() for text in CHOICE[1:]]]


def test_a_refusal_is_told(client, servers):
    address, port = servers["pretraining"]
    ids = {"input_ids": np.int32([[99]])}
    sentence = r"assertion failed: \[input_ids must be at least 0 and below 50"
    with pytest.raises(client.RefusedError, match=f"400: {sentence}"):
        client.rest_predict(address, "pretraining", "serving_ids", ids)
    with pytest.raises(client.RefusedError, match=f"INVALID_ARGUMENT: {sentence}"):
        client.grpc_predict(f"127.0.0.1:{port}", "pretraining", "serving_ids", ids)
    with pytest.raises(client.RefusedError, match="404: Servable not found for request: Latest"):
        client.rest_predict(address, "other", "serving_ids", ids)
    with pytest.raises(client.RefusedError, match="NOT_FOUND: Servable not found for request: Latest"):
        client.grpc_predict(f"127.0.0.1:{port}", "other", "serving_ids", ids)
    with pytest.raises(
        client.RefusedError, match="INVALID_ARGUMENT: input input_ids: must be int32 of shape"
    ):
        client.grpc_predict(f"127.0.0.1:{port}", "pretraining", "serving_ids", {"input_ids": np.ones((1, 2))})


def test_the_client_as_a_process(made, client, servers, monkeypatch):
    address, _ = servers["pretraining"]
    vocab_file = made["pretraining"] / "assets" / "vocab.txt"
    flags = ["--model_name=pretraining", "--signature_name=serving_masked", f"--vocab_file={vocab_file}"]
    out = run_script("examples/serving_client.py", f"--rest={address}", *flags, "the [MASK] sat").stdout
    printed = dict(line.split(": ", 1) for line in out.splitlines())
    assert len(ast.literal_eval(printed["top_k_tokens"])[0][0]) == 10
    flags[0] = "--model_name=other"
    monkeypatch.setattr("sys.argv", ["serving_client.py", f"--rest={address}", *flags, "the cat sat"])
    with pytest.raises(SystemExit) as end:
        client.main()
    assert end.value.code == "refused: 404: Servable not found for request: Latest(other)"


@pytest.mark.parametrize("way", ["rest", "grpc"])
def test_without_a_server_one_sentence_says_so(way):
    with socket.socket() as taken:  # bound but not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        address = f"{'http://' if way == 'rest' else ''}127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, str(ROOT / "examples" / "serving_client.py"), f"--{way}={address}"]
        command += ["--signature_name=serving_text", "a text"]
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    assert finished.returncode == 1
    (sentence,) = finished.stderr.splitlines()
    assert re.match(rf"refused: {address}\S*: gives no answer \(", sentence)

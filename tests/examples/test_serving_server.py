"""The example client gets the outputs of a direct call from the example server, a process, over REST and gRPC."""

import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer
from tests import toy
from tests.scripts import run_script
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
    command = [sys.executable, ROOT / "examples" / "serving_server.py", "--model_name=mrpc", "--rest_api_port=0"]
    with subprocess.Popen([*command, f"--model_base_path={made.parent}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            yield re.search(r"mrpc, version 1, at (http://\S+) and grpc://(\S+)$", line).groups()
        finally:
            process.kill()


@pytest.mark.parametrize("signature_name", ["serving_default", "serving_ids", "serving_examples"])
def test_both_protocols_give_what_a_direct_call_gives(client, made, server, signature_name):
    rest, grpc = server
    tokenizer = FullTokenizer(str(made / "assets" / "vocab.txt"))
    inputs = client.inputs_of(signature_name, ("the cat sat", "a cat"), tokenizer, 24)
    serve = signatures_of(made)[signature_name]
    wanted = serve(**{name: tf.constant(values) for name, values in inputs.items()})
    by_row = {name: client.plain(values)[0] for name, values in inputs.items()}
    url = f"{rest}/v1/models/mrpc:predict"
    (row,) = client.rest_call(url, {"signature_name": signature_name, "instances": [by_row]})["predictions"]
    for outputs in (
        client.rest_predict(rest, "mrpc", signature_name, inputs),
        client.grpc_predict(grpc, "mrpc", signature_name, inputs),
        {name: [value] for name, value in row.items()},
    ):
        assert outputs.keys() == wanted.keys()
        for name in ("logits", "probabilities"):
            np.testing.assert_allclose(outputs[name], wanted[name], atol=1e-6)
        (label,) = outputs["label"]
        assert (label if isinstance(label, str) else label.decode()) == wanted["label"].numpy()[0].decode()


def test_a_refusal_is_told(client, server):
    rest, grpc = server
    assert client.rest_call(f"{rest}/v1/models/mrpc", None)["model_version_status"][0]["state"] == "AVAILABLE"
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


def test_the_client_as_a_process(made, server):
    flags = [f"--rest={server[0]}", "--model_name=mrpc", f"--vocab_file={made}/assets/vocab.txt"]
    out = run_script("examples/serving_client.py", *flags, "the cat sat", "a cat").stdout
    assert [line.split(": ")[0] for line in out.splitlines()] == ["label", "logits", "probabilities"]


def test_the_inputs_of_texts_of_choices_and_of_masked_words(client, tmp_path):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path))
    masked = client.inputs_of("serving_masked", ("The [MASK] sat", "a [MASK]."), tokenizer, 24)
    assert masked["masked_lm_positions"].tolist() == [[2, 6]]
    choice = client.inputs_of("serving_default", ("the cat", "sat", "was", "here"), tokenizer, 24)
    assert choice["input_ids"].shape == (1, 3, 6)
    pair = client.inputs_of("serving_text", ("a", "b"), None, 24)
    assert pair == {"text_a": np.array([b"a"], object), "text_b": np.array([b"b"], object)}
    texts = client.inputs_of("serving_text", ("the cat", "sat", "was"), None, 24, ("context", "endings"))
    assert texts["endings"].tolist() == [[b"sat", b"was"]]

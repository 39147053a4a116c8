"""examples/serving_client.py gets the outputs of a direct call from the server over REST."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer
from tests.scripts import run_script
from tests.serving.answers import signatures_of
from tests.shared import example

pytestmark = pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client")


@pytest.fixture(scope="module")
def client():
    return example("serving_client")


@pytest.fixture(scope="module")
def rest(address):
    return f"http://{address.host}:{address.port}"


@pytest.mark.parametrize("signature_name", ["serving_default", "serving_ids", "serving_examples"])
def test_rest_gives_what_a_direct_call_gives(client, paths, rest, signature_name):
    version = paths["mrpc"]
    tokenizer = FullTokenizer(str(version / "assets" / "vocab.txt"))
    inputs = client.make_inputs(signature_name, ("the cat sat", "a cat"), tokenizer, 24)
    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    expected = signatures_of(version)[signature_name](**tensors)

    outputs = client.rest_predict(rest, "mrpc", signature_name, inputs)

    assert outputs.keys() == expected.keys()
    for name in ("logits", "probabilities"):
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)
    assert outputs["label"] == [label.decode() for label in expected["label"].numpy()]


def test_a_refusal_is_an_error(client, rest):
    ids = {"input_ids": np.int32([[99]])}
    sentence = r"400: assertion failed: \[input_ids must be at least 0 and below 50"
    with pytest.raises(client.RefusedError, match=sentence):
        client.rest_predict(rest, "mrpc", "serving_ids", ids)
    with pytest.raises(client.RefusedError, match="404: there is no model 'other'"):
        client.rest_predict(rest, "other", "serving_ids", ids)
    labels = {"label_ids": np.int32([0])}
    with pytest.raises(client.RefusedError, match="400: unknown input: label_ids"):
        client.rest_predict(rest, "mrpc", "serving_ids", ids | labels)


def test_the_client_as_a_process(paths, rest):
    ended = run_script(
        "examples/serving_client.py",
        f"--rest={rest}",
        "--model_name=mrpc",
        f"--vocab_file={paths['mrpc']}/assets/vocab.txt",
        "the cat sat",
        "a cat",
    )
    names = [line.split(": ")[0] for line in ended.stdout.splitlines()]
    assert names == ["label", "logits", "probabilities"]

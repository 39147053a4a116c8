#!/usr/bin/env python3
"""Sends a prediction request over REST or gRPC to TensorFlow Serving, or over REST to
official-bert serve.

The functions are made to be copied: `rest_predict` needs only numpy, and `grpc_predict` needs the
extra `serving` of pyproject.toml. `make_inputs` makes the inputs of every signature; all
signatures except serving_text need a tokenizer in the client. The command line takes flags, then
the texts of one request:

    python examples/serving_client.py --model_name=mrpc --signature_name=serving_default \\
        --vocab_file=vocab.txt "The cat sat." "A cat was sitting."
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import pathlib
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from official_bert import FullTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Finds official_bert without an installation; signatures that take ids need it.
sys.path.insert(0, str(ROOT))

TEXT_SIGNATURE = "serving_text"
TIMEOUT_SECS = 60


# Without it a server may take a request for a web page's.
JSON_TYPE = {"Content-Type": "application/json"}


class RefusedError(Exception):
    """The server refused a request, or gave no answer that can be read; the message says which."""


def rest_predict(
    address: str, model_name: str, signature_name: str, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Sends a prediction request over REST, and returns the outputs by name, as lists in the shape
    of the tensors.

    Args:
        address: the address of the server, such as http://localhost:8501.
        model_name: the name of the model.
        signature_name: the name of the signature.
        inputs: arrays by name, of int32, or of bytes or str as objects.

    Raises:
        RefusedError: the server refused the request.
    """
    request = {
        "signature_name": signature_name,
        "inputs": {name: plain(np.asarray(values)) for name, values in inputs.items()},
    }
    url = f"{address}/v1/models/{urllib.parse.quote(model_name, safe='')}:predict"
    answer = rest_call(url, request)
    if "outputs" not in answer:
        raise RefusedError(f"{url}: answers without outputs")
    outputs = answer["outputs"]
    # The server sends a single output without its name.
    return outputs if isinstance(outputs, dict) else {"": outputs}


def rest_call(url: str, request: Any) -> dict:
    """Sends a JSON request, or a GET request if it is None, and returns the JSON answer."""
    data = None if request is None else json.dumps(request).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, JSON_TYPE), timeout=TIMEOUT_SECS
        ) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        body = error.read()
        with contextlib.suppress(ValueError, KeyError, TypeError):
            body = json.loads(body)["error"]
        raise RefusedError(f"{error.code}: {body}") from error
    except (OSError, http.client.HTTPException) as error:
        raise RefusedError(
            f"{url}: gives no answer ({getattr(error, 'reason', None) or error})"
        ) from error
    # An address that is none, or an answer that is no JSON.
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"{url}: is no address of a server that answers JSON ({error})"
        ) from error
    if not isinstance(answer, dict):
        raise RefusedError(f"{url}: answers no JSON object")
    return answer


def grpc_predict(
    address: str, model_name: str, signature_name: str, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Sends a prediction request over gRPC, and returns the outputs by name.

    Args:
        address: the address of the server, such as localhost:8500.
        model_name, signature_name, inputs: as for `rest_predict`.

    Raises:
        RefusedError: the server refused the request.
    """
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model_name, signature_name
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    with grpc.insecure_channel(address) as channel:
        try:
            answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(
                request, TIMEOUT_SECS
            )
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise RefusedError(f"{address}: gives no answer ({error.details()})") from error
            raise RefusedError(f"{error.code().name}: {error.details()}") from error
    return {name: tf.make_ndarray(proto) for name, proto in answer.outputs.items()}


def plain(values: np.ndarray) -> Any:
    """Converts an array to JSON values; bytes become {"b64": ...}."""
    if values.dtype.kind not in "OSU":
        return values.tolist()
    texts = [
        {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for value in values.ravel().tolist()
    ]
    shaped = np.empty(len(texts), object)
    shaped[:] = texts
    return shaped.reshape(values.shape).tolist()


def make_inputs(
    signature_name: str,
    texts: Sequence[str],
    tokenizer: FullTokenizer | None,
    max_seq_length: int,
    text_names: Sequence[str] = ("text_a", "text_b"),
) -> dict[str, np.ndarray]:
    """Makes the inputs of a request for one example: a text, a pair, or a context with its possible
    endings.

    Args:
        signature_name: the name of the signature.
        texts: the texts; [MASK] in them is a masked word.
        tokenizer: a tokenizer with the model's vocabulary; None for serving_text.
        max_seq_length: the number of tokens that the texts, or each pair, are truncated to.
        text_names: the names of the inputs of serving_text; the last input takes all remaining
            texts as a list.
    """
    if signature_name == TEXT_SIGNATURE:
        values = [np.array([text.encode()], object) for text in texts]
        if len(texts) > len(text_names):
            last = len(text_names) - 1
            values[last:] = [np.array([[text.encode() for text in texts[last:]]], object)]
        return dict(zip(text_names, values, strict=False))

    from official_bert.data.model_inputs import model_input, padded_features
    from official_bert.data.records.framing import encode_examples

    is_choice = len(texts) > 2
    pairs = [(texts[0], ending) for ending in texts[1:]] if is_choice else [(*texts, None)[:2]]
    inputs = [model_input(_Masked(tokenizer), *pair, max_seq_length) for pair in pairs]
    longest = max(len(tokens) for tokens, _ in inputs)
    features = {
        name: values.astype(np.int32)
        for name, values in padded_features(inputs, tokenizer, longest).items()
    }
    if is_choice:
        features = {name: values[None] for name, values in features.items()}  # [1, choices, length]
    if signature_name == "serving_ids":
        return {"input_ids": features["input_ids"]}
    if signature_name == "serving_examples":
        flat = {name: values.reshape(1, -1) for name, values in features.items()}
        return {"examples": np.array(encode_examples(flat), object)}
    if signature_name == "serving_masked":
        positions = [number for number, token in enumerate(inputs[0].tokens) if token == "[MASK]"]
        return features | {"masked_lm_positions": np.array([positions], np.int32)}
    return features


class _Masked:
    """A tokenizer that keeps [MASK] as one token."""

    def __init__(self, tokenizer: FullTokenizer):
        self._tokenizer = tokenizer

    def tokenize(self, text: str) -> list[str]:
        first, *others = map(self._tokenizer.tokenize, text.split("[MASK]"))
        return first + [token for part in others for token in ("[MASK]", *part)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rest", default="http://localhost:8501", help="address of the REST server"
    )
    parser.add_argument(
        "--grpc", help="address of the gRPC server, such as localhost:8500; asked instead"
    )
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--signature_name", default="serving_default")
    parser.add_argument("--vocab_file", help="the export's assets/vocab.txt; not for serving_text")
    parser.add_argument("--cased", action="store_true", help="the model knows capital letters")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument(
        "--text_names",
        nargs="+",
        default=["text_a", "text_b"],
        help="serving_text: names of the texts",
    )
    parser.add_argument("texts", nargs="+", help="a text, a pair, or a context and its endings")
    arguments = parser.parse_args()
    tokenizer = None
    if arguments.signature_name != TEXT_SIGNATURE:
        if not arguments.vocab_file:
            parser.error("--vocab_file must be given: this signature takes ids")
        from official_bert import FullTokenizer
        from official_bert.data.model_inputs import check_vocabulary
        from official_bert.io.errors import InputError

        try:
            tokenizer = FullTokenizer(arguments.vocab_file, do_lower_case=not arguments.cased)
            # The client does not know the size of the model; the server refuses ids that it does
            # not have.
            check_vocabulary(tokenizer, 1 + max(tokenizer.vocab.values()), arguments.vocab_file)
        except InputError as error:
            raise SystemExit(f"serving_client.py: {error}") from None
    inputs = make_inputs(
        arguments.signature_name,
        arguments.texts,
        tokenizer,
        arguments.max_seq_length,
        arguments.text_names,
    )
    try:
        if arguments.grpc:
            answer = grpc_predict(
                arguments.grpc, arguments.model_name, arguments.signature_name, inputs
            )
        else:
            answer = rest_predict(
                arguments.rest, arguments.model_name, arguments.signature_name, inputs
            )
    except RefusedError as error:
        raise SystemExit(f"refused: {error}") from None
    for name, values in answer.items():
        print(f"{name}: {values}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A small server to try an exported model with; for production use TensorFlow Serving.

It answers TensorFlow Serving's prediction requests, REST and gRPC, for the newest version of a
SavedModel, to programs of this machine. It has no batching, no labels of versions, no `:classify`
and `:regress`, and words of its own for errors. It needs tensorflow-serving-api and nothing of
this project.

    python examples/serving_server.py --model_name=mrpc --model_base_path=/tmp/exports/mrpc --rest_api_port=8501
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import contextlib
import http.server
import json
import math
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def hidden_messages() -> Iterator[None]:
    """Hides what TensorFlow's libraries write to standard error while they are imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(nowhere)
        os.close(stderr)


with hidden_messages():
    import grpc
    import numpy as np
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

DEFAULT_SIGNATURE = "serving_default"
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict)?")
MAX_BODY_BYTES = 1 << 26
PART_BYTES = 1 << 20
MAX_LENGTH_DIGITS = 18
CLIENT_LIMIT_SECS = 60.0  # for a client that sends nothing


class RequestError(Exception):
    """A request that the server refuses: an HTTP status and a message."""


class Model:
    """The newest version of a SavedModel."""

    def __init__(self, name: str, base_path: str):
        model_files = pathlib.Path(base_path).glob("*/saved_model.pb")
        versions = {
            int(path.parent.name): path.parent
            for path in model_files
            if path.parent.name.isdecimal()
        }
        if not versions:
            raise SystemExit(
                f"--model_base_path={base_path}: holds no version; export a model there"
            )
        self.name, self.version = name, max(versions)
        self._signatures = tf.saved_model.load(str(versions[self.version])).signatures

    def specs(self, signature_name: str) -> dict[str, tf.TensorSpec]:
        """The inputs of a signature by name."""
        if signature_name not in self._signatures:
            raise RequestError(
                400, f'Serving signature name: "{signature_name}" not found in signature def'
            )
        return self._signatures[signature_name].structured_input_signature[1]

    def predict(self, signature_name: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Runs a signature, and returns its outputs by name, [batch, ...] each."""
        specs = self.specs(signature_name)
        missing, unknown = (
            sorted(specs.keys() - inputs.keys()),
            sorted(inputs.keys() - specs.keys()),
        )
        for fault, names in (("missing", missing), ("unknown", unknown)):
            if names:
                raise RequestError(400, f"{fault} input: {', '.join(names)}")
        try:
            tensors = {name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()}
            outputs = self._signatures[signature_name](**tensors)
        # No tensor, or the graph refuses it.
        except (ValueError, TypeError, OverflowError, tf.errors.OpError) as error:
            failed = re.search(r"assertion failed: .*", str(error))
            raise RequestError(400, failed.group() if failed else str(error)) from error
        return {name: outputs[name].numpy() for name in sorted(outputs)}


def rest_answer(model: Model, request: dict) -> dict:
    """The answer to a prediction request, which is {"instances": rows} or {"inputs": columns}."""
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise RequestError(
            400, "the body must be a JSON object with one of 'instances' and 'inputs'"
        )
    signature_name = request.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(signature_name, str):
        raise RequestError(400, "'signature_name' must be a text")
    if not isinstance(request.get("instances", []), list):
        raise RequestError(400, "'instances' must be a list, with an element for each example")
    specs = model.specs(signature_name)
    has_columns = "inputs" in request
    if has_columns:
        inputs = _named(request["inputs"], specs)
    else:
        rows = [_named(row, specs) for row in request["instances"]]
        if any(row.keys() != rows[0].keys() for row in rows):
            raise RequestError(400, "all instances must have the same inputs")
        inputs = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    outputs = {
        name: _json(values) for name, values in model.predict(signature_name, inputs).items()
    }
    if len(outputs) == 1:  # it is sent without its name
        return {"outputs" if has_columns else "predictions": next(iter(outputs.values()))}
    if has_columns:
        return {"outputs": outputs}
    if len({len(values) for values in outputs.values()}) > 1:
        raise RequestError(400, "the outputs have no row for each instance: send 'inputs'")
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}


def _named(value: Any, specs: Mapping) -> dict[str, Any]:
    """Tensors by name, in which each {"b64": ...} has become bytes; a single input needs no
    name.
    """
    if not isinstance(value, dict) or value.keys() == {"b64"}:
        if len(specs) > 1:
            raise RequestError(
                400, f"the signature takes the inputs {', '.join(specs)}: give them by name"
            )
        value = dict.fromkeys(specs, value)
    return {name: _decoded(tensor) for name, tensor in value.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        raise RequestError(400, 'an object in a tensor must be {"b64": text}')
    return base64.b64decode(value["b64"])


def _json(values: np.ndarray) -> list:
    """An array as JSON values; a float32 has as few digits as distinguish it from all others."""
    if values.dtype == object:
        values = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])(values)
    return (values.astype(str).astype(float) if values.dtype == np.float32 else values).tolist()


class RestHandler(http.server.BaseHTTPRequestHandler):
    """Answers /v1/models/NAME[/versions/NUMBER][:predict]; an error is {"error": message}."""

    model: Model
    timeout = CLIENT_LIMIT_SECS

    def do_GET(self):
        status = {"version": str(self.model.version), "state": "AVAILABLE"}
        status["status"] = {"error_code": "OK", "error_message": ""}
        self._send(None, lambda: {"model_version_status": [status]})

    def do_POST(self):
        self._send(":predict", self._prediction)

    def log_message(self, *_):
        """A request leaves no line."""

    def _prediction(self) -> dict:
        if "Origin" in self.headers:  # a browser sends it with what a web page asks
            raise RequestError(403, "web pages are not answered")
        body = self._body()
        try:
            return rest_answer(self.model, json.loads(body))
        except ValueError as error:
            raise RequestError(400, f"JSON Parse error: {error}") from error
        except RecursionError as error:
            raise RequestError(400, "JSON Parse error: the body is nested too deep") from error

    def _body(self) -> bytes:
        """The bytes of a request, read in parts: a header may claim more of them than there are."""
        claimed = self.headers.get("Content-Length")
        if claimed is None:
            raise RequestError(411, "the request needs a Content-Length; chunks are not read")
        if not (claimed.isascii() and claimed.isdecimal()):
            raise RequestError(400, "Content-Length must be a whole number")
        if len(claimed) > MAX_LENGTH_DIGITS or int(claimed) > MAX_BODY_BYTES:
            raise RequestError(
                413, f"the body must have at most {MAX_BODY_BYTES} bytes: send fewer instances"
            )
        parts, missing = [], int(claimed)
        while missing:
            part = self.rfile.read(min(missing, PART_BYTES))
            if not part:
                raise RequestError(400, f"the body ends {missing} bytes before its Content-Length")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _send(self, verb: str | None, answer: Callable[[], dict]):
        path = PATH.fullmatch(self.path)
        try:
            name, version, action = path.groups() if path else (None, None, None)
            if (name, action) != (self.model.name, verb) or version not in (
                None,
                str(self.model.version),
            ):
                raise RequestError(
                    404, f"Servable not found for request: {self.command} {self.path}"
                )
            status, content = 200, answer()
        except RequestError as error:
            status, content = error.args
            content = {"error": content}
        except ConnectionError:  # the client has left
            return
        except TimeoutError:
            status, content = (
                408,
                {"error": f"the body did not come within {CLIENT_LIMIT_SECS:g} seconds"},
            )
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())


def read_array(name: str, proto) -> np.ndarray:
    """The array of a tensor, which may have one value for all of its places; its shape may claim
    any number of them.
    """
    if math.prod(max(dim.size, 0) for dim in proto.tensor_shape.dim) > MAX_BODY_BYTES:
        raise RequestError(400, f"input {name}: its shape is too large: send fewer examples")
    try:
        return tf.make_ndarray(proto)
    except (ValueError, TypeError) as error:
        raise RequestError(400, f"input {name}: {error}") from error


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict over gRPC."""

    def __init__(self, model: Model):
        self._model = model

    def Predict(self, request, context):
        spec, answer = request.model_spec, predict_pb2.PredictResponse()
        try:
            if (
                spec.name != self._model.name
                or spec.version.value not in (0, self._model.version)
                or spec.version_label
            ):
                raise RequestError(404, f"Servable not found for request: {spec.name}")
            inputs = {name: read_array(name, proto) for name, proto in request.inputs.items()}
            outputs = self._model.predict(spec.signature_name or DEFAULT_SIGNATURE, inputs)
            if unknown := sorted(set(request.output_filter) - outputs.keys()):
                raise RequestError(400, f"unknown output: {', '.join(unknown)}")
        except RequestError as error:
            status, sentence = error.args
            code = grpc.StatusCode.NOT_FOUND if status == 404 else grpc.StatusCode.INVALID_ARGUMENT
            context.abort(code, sentence)
        for name in request.output_filter or outputs:
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return answer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model_name", default="default", help="name of the model in URLs and requests"
    )
    parser.add_argument(
        "--model_base_path", required=True, help="folder of versions: an --export_dir"
    )
    parser.add_argument(
        "--rest_api_port", type=int, default=8501, help="port for HTTP/REST; 0 means a free one"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port for gRPC; 0, the default, means a free one"
    )
    arguments = parser.parse_args()
    RestHandler.model = model = Model(arguments.model_name, arguments.model_base_path)
    grpc_server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(), options=[("grpc.so_reuseport", 0)]
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(model), grpc_server
    )
    grpc_port = grpc_server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    grpc_server.start()
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.rest_api_port), RestHandler)
    where = f"http://127.0.0.1:{rest.server_port} and grpc://127.0.0.1:{grpc_port}"
    print(f"Serving {model.name}, version {model.version}, at {where}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        rest.serve_forever()


if __name__ == "__main__":
    main()

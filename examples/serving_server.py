#!/usr/bin/env python3
"""A small server to try an exported model with; for production use TensorFlow Serving.

The server understands the same REST and gRPC requests as TensorFlow Serving and gives the same answers, so the same
client works with both. It serves one version of one SavedModel, the newest when it starts, without batching across
requests, reloading or encryption. It needs the packages of requirements-serving.txt and nothing of this project.

    python examples/serving_server.py --model_name=mrpc --model_base_path=/tmp/exports/mrpc --rest_api_port=8501
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import concurrent.futures
import contextlib
import importlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tornado.httpserver
import tornado.netutil
import tornado.web
from absl import logging
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

DEFAULT_SIGNATURE = "serving_default"
TEXT_SIGNATURE = "serving_text"
BYTES_SUFFIX = "_bytes"  # marks outputs that are not text
# After a refusal the server reads and discards at most this much of the body, because many clients read the answer
# only after they have sent the whole body.
DISCARDED_BYTES = 64 << 20
BODY_TIMEOUT_SECS = 60
BAD_REQUEST, NOT_FOUND, TOO_LARGE, SERVER_ERROR = 400, 404, 413, 500
GRPC_CODES = {
    BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    SERVER_ERROR: grpc.StatusCode.INTERNAL,
}


class RequestError(Exception):
    """The server refuses a request with an HTTP status and a message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Model:
    """One version of a SavedModel.

    Attributes:
        name: the name of the model in URLs and requests.
        version: the number of the version.
        signature_defs: the SignatureDefs by name.
    """

    def __init__(self, name: str, base_path: str):
        """Loads the newest version in a folder."""
        found = [path.parent for path in pathlib.Path(base_path).glob("[0-9]*/saved_model.pb")]
        if not found:
            raise SystemExit(f"--model_base_path={base_path}: holds no version; export a model there")
        newest = max(found, key=lambda path: int(path.name))
        self.name, self.version = name, int(newest.name)
        stored = saved_model_pb2.SavedModel.FromString((newest / "saved_model.pb").read_bytes())
        self.signature_defs = dict(stored.meta_graphs[0].signature_def)
        if TEXT_SIGNATURE in self.signature_defs:
            importlib.import_module("tensorflow_text")  # registers the ops
        self._loaded = tf.saved_model.load(str(newest))

    def check(self, name: str, version: int | None):
        """Refuses a request for another model or version."""
        if name != self.name or version not in (None, self.version):
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise RequestError(NOT_FOUND, f"Servable not found for request: {asked}")

    def specs(self, signature_name: str) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a signature by name."""
        if signature_name not in self._loaded.signatures:
            raise RequestError(
                BAD_REQUEST, f'Serving signature name: "{signature_name}" not found in signature def'
            )
        return self._loaded.signatures[signature_name].structured_input_signature[1]

    def predict(self, signature_name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature, and returns its outputs by name, [batch, ...] each."""
        specs = self.specs(signature_name)
        if inputs.keys() != specs.keys():
            wanted, given = (", ".join(sorted(names)) for names in (specs, inputs))
            raise RequestError(
                BAD_REQUEST, f"the signature takes the inputs {wanted}, the request has {given}"
            )
        for name, values in inputs.items():
            spec = specs[name]
            if tf.as_dtype(values.dtype) != spec.dtype or not spec.shape.is_compatible_with(values.shape):
                raise RequestError(
                    BAD_REQUEST,
                    f"input {name}: must be {spec.dtype.name} of shape {spec.shape}, this is "
                    f"{tf.as_dtype(values.dtype).name} of shape {values.shape}",
                )
        tensors = {name: tf.constant(values, specs[name].dtype) for name, values in inputs.items()}
        try:
            outputs = self._loaded.signatures[signature_name](**tensors)
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise RequestError(BAD_REQUEST, _sentence(error)) from error
        except tf.errors.OpError as error:
            raise RequestError(SERVER_ERROR, _sentence(error)) from error

    def metadata(self) -> dict:
        """Returns the answer to GET /v1/models/NAME/metadata."""
        definitions = {
            name: json_format.MessageToDict(
                definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            for name, definition in self.signature_defs.items()
        }
        return {
            "model_spec": {"name": self.name, "signature_name": "", "version": str(self.version)},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }

    def status(self) -> dict:
        """Returns the answer to GET /v1/models/NAME."""
        status = {"error_code": "OK", "error_message": ""}
        state = {"version": str(self.version), "state": "AVAILABLE", "status": status}
        return {"model_version_status": [state]}


def _sentence(error: tf.errors.OpError) -> str:
    """Returns the message of an op's error, without the names of the graph's nodes."""
    failed = re.search(r"assertion failed: .*", error.message)
    if failed:
        return failed.group()
    lines = error.message.split("\n\t [[")[0].strip().splitlines()
    return re.sub(r" \[Op:\w+\]$", "", lines[-1])


def rest_answer(model: Model, body: bytes) -> dict:
    """Returns the answer to a prediction request, which is {"instances": rows} or {"inputs": columns}."""
    try:
        request = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestError(BAD_REQUEST, f"the body is no UTF-8 (byte {error.start})") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise RequestError(BAD_REQUEST, f"JSON Parse error: {error}") from error
    if not isinstance(request, dict):
        raise RequestError(BAD_REQUEST, "the body must be a JSON object")
    signature_name = request.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(signature_name, str):
        raise RequestError(BAD_REQUEST, "'signature_name' must be a string")
    if ("instances" in request) == ("inputs" in request):
        raise RequestError(BAD_REQUEST, "the body must have one of 'instances' and 'inputs'")
    specs = model.specs(signature_name)
    by_row = "instances" in request
    columns = _columns(request["instances"], specs) if by_row else _named(request["inputs"], specs)
    missing = [name for name in specs if name not in columns]
    if missing:
        raise RequestError(BAD_REQUEST, f"missing input: {', '.join(missing)}")
    unknown = [name for name in columns if name not in specs]
    if unknown:
        raise RequestError(BAD_REQUEST, f"the signature has no input {', '.join(unknown)}")
    inputs = {name: _array(name, values, specs[name]) for name, values in columns.items()}
    outputs = {name: _plain(name, values) for name, values in model.predict(signature_name, inputs).items()}
    if not by_row:
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}
    if len(outputs) == 1:
        return {"predictions": next(iter(outputs.values()))}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}


def _named(value: Any, specs: Mapping) -> dict[str, Any]:
    """Returns values by name from a JSON object, or from a single value if the signature has only one input."""
    if isinstance(value, dict) and value.keys() != {"b64"}:
        return value
    if len(specs) != 1:
        raise RequestError(
            BAD_REQUEST, f"the signature takes the inputs {', '.join(specs)}: give them by name"
        )
    return {next(iter(specs)): value}


def _columns(instances: Any, specs: Mapping) -> dict[str, list]:
    if not isinstance(instances, list) or not instances:
        raise RequestError(BAD_REQUEST, "'instances' must be a list, and not empty")
    rows = [_named(instance, specs) for instance in instances]
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise RequestError(BAD_REQUEST, f"instance {number} has other inputs than the first one")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _array(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Converts a JSON value, nested lists of numbers, texts or {"b64": ...}, to an array."""
    shape, level = [], [value]
    while len(shape) < spec.shape.rank:
        if not all(isinstance(part, list) for part in level):
            raise RequestError(BAD_REQUEST, f"input {name}: must have the shape {spec.shape}")
        lengths = {len(part) for part in level}
        if len(lengths) > 1:
            raise RequestError(BAD_REQUEST, f"input {name}: has lists of different lengths; fill them up")
        shape.append(lengths.pop() if lengths else 0)
        level = [item for part in level for item in part]
    leaf = _leaf_reader(name, spec.dtype)
    values = [leaf(item) for item in level]
    try:
        flat = np.array(values, object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
    except OverflowError as error:
        raise RequestError(
            BAD_REQUEST, f"input {name}: has a number that {spec.dtype.name} cannot hold"
        ) from error
    return flat.reshape(shape)


def _leaf_reader(name: str, dtype: tf.DType) -> Callable[[Any], Any]:
    kinds = {str, dict} if dtype == tf.string else {bool} if dtype.is_bool else {int}
    if dtype.is_floating:
        kinds = {int, float}

    def read(item):
        if type(item) not in kinds:
            raise RequestError(
                BAD_REQUEST, f"input {name}: JSON value {_short(item)} is not of the type {dtype.name}"
            )
        if dtype != tf.string:
            return item
        try:
            return item.encode() if isinstance(item, str) else base64.b64decode(item["b64"], validate=True)
        except (KeyError, TypeError, binascii.Error, UnicodeEncodeError) as error:
            raise RequestError(
                BAD_REQUEST, f"input {name}: {_short(item)} is neither text nor base64 ({error})"
            ) from error

    return read


def _short(item: Any) -> str:
    text = json.dumps(item)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _plain(name: str, values: np.ndarray) -> list:
    """Converts an array to JSON values; a float32 has as few digits as distinguish it from all others."""
    if values.dtype == object:
        flat = [_text(name, value) for value in values.ravel()]
    elif values.dtype == np.float32:
        flat = [float(str(value)) for value in values.ravel()]
    else:
        return values.tolist()
    shaped = np.empty(len(flat), object)
    shaped[:] = flat
    return shaped.reshape(values.shape).tolist()


def _text(name: str, value: bytes) -> str | dict:
    if not name.endswith(BYTES_SUFFIX):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}


@tornado.web.stream_request_body
class RestHandler(tornado.web.RequestHandler):
    """Answers /v1/models/NAME[/versions/N][:predict|/metadata]; an error is {"error": message}."""

    def initialize(self, model: Model, workers: concurrent.futures.Executor, max_request_bytes: int):
        self._model, self._workers, self._max_request_bytes = model, workers, max_request_bytes
        self._body, self._is_refused, self._num_discarded = bytearray(), False, 0

    def prepare(self):
        self.request.connection.set_max_body_size(
            1 << 62
        )  # this class checks the limit, to send its own message
        length = self.request.headers.get("Content-Length", "")
        if length.isdigit() and int(length) > self._max_request_bytes:
            self._refuse()

    def data_received(self, chunk: bytes):
        if not self._is_refused and len(self._body) + len(chunk) > self._max_request_bytes:
            self._refuse()
        if not self._is_refused:
            self._body += chunk
            return
        self._num_discarded += len(chunk)
        if self._num_discarded > DISCARDED_BYTES and not self._finished:
            self.finish()

    async def post(self, name: str, version: str | None, verb: str | None):
        if self._is_refused:
            self.finish()
            return
        if verb != ":predict":
            raise tornado.web.HTTPError(NOT_FOUND)
        self._model.check(name, int(version) if version else None)
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._workers, self._predicted)
        self._send(200, answer)

    def get(self, name: str, version: str | None, verb: str | None):
        self._model.check(name, int(version) if version else None)
        if verb == ":predict":
            raise tornado.web.HTTPError(405)
        self._send(200, json.dumps(self._model.metadata() if verb else self._model.status(), indent=1))

    def write_error(self, status_code: int, exc_info=None, **_):
        error = exc_info[1] if exc_info else None
        if isinstance(error, RequestError):
            self._send(error.status, json.dumps({"error": str(error)}))
            return
        sentence = f"Malformed request: {self.request.method} {self.request.path}"
        if status_code >= SERVER_ERROR:
            sentence = "internal error; the server's log says more"
        self._send(status_code, json.dumps({"error": sentence}))

    def log_exception(self, typ, value, tb):
        if not isinstance(value, RequestError):
            super().log_exception(typ, value, tb)

    def _predicted(self) -> str:
        body, self._body = self._body, bytearray()
        return json.dumps(rest_answer(self._model, body))

    def _refuse(self):
        self._is_refused = True
        self._body.clear()
        sentence = f"the body is larger than the {self._max_request_bytes} bytes of --max_request_bytes"
        self._start(TOO_LARGE, json.dumps({"error": sentence}))
        self.flush()

    def _send(self, status: int, content: str):
        self._start(status, content)
        self.finish()

    def _start(self, status: int, content: str):
        data = content.encode()
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", len(data))
        self.write(data)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict and GetModelMetadata over gRPC."""

    def __init__(self, model: Model):
        self._model = model

    def Predict(self, request, context):
        spec = request.model_spec
        signature_name = spec.signature_name or DEFAULT_SIGNATURE
        try:
            self._check(spec)
            inputs = {name: _ndarray(name, proto) for name, proto in request.inputs.items()}
            outputs = self._model.predict(signature_name, inputs)
            wanted = list(request.output_filter) or list(outputs)
            unknown = [name for name in wanted if name not in outputs]
            if unknown:
                raise RequestError(BAD_REQUEST, f"output_filter: there is no output {', '.join(unknown)}")
        except RequestError as error:
            context.abort(GRPC_CODES[error.status], str(error))
        response = predict_pb2.PredictResponse()
        self._fill(response.model_spec, signature_name)
        for name in wanted:
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    def GetModelMetadata(self, request, context):
        try:
            self._check(request.model_spec)
        except RequestError as error:
            context.abort(GRPC_CODES[error.status], str(error))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        self._fill(response.model_spec, "")
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=self._model.signature_defs)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _check(self, spec):
        self._model.check(spec.name, spec.version.value if spec.HasField("version") else None)

    def _fill(self, spec, signature_name: str):
        spec.name, spec.signature_name = self._model.name, signature_name
        spec.version.value = self._model.version


def _ndarray(name: str, proto) -> np.ndarray:
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError, DecodeError) as error:
        raise RequestError(BAD_REQUEST, f"input {name}: is no tensor ({error})") from error


def start_grpc(
    model: Model, address: str, max_request_bytes: int, num_workers: int
) -> tuple[grpc.Server, int]:
    """Starts a gRPC server, and returns it with its port; port 0 in `address` means any free port."""
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(num_workers),
        options=[("grpc.max_receive_message_length", max_request_bytes)],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(model), server)
    port = server.add_insecure_port(address)
    server.start()
    return server, port


def start_rest(model: Model, host: str, port: int, max_request_bytes: int, num_workers: int) -> int:
    """Starts a REST server on the running event loop, and returns its port; port 0 means any free port."""
    settings = {
        "model": model,
        "workers": concurrent.futures.ThreadPoolExecutor(num_workers),
        "max_request_bytes": max_request_bytes,
    }
    path = r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/metadata)?"
    handlers = [(path, RestHandler, settings), (r"()()(.*)", UnknownPath, settings)]
    server = tornado.httpserver.HTTPServer(
        tornado.web.Application(handlers, log_function=lambda handler: None), body_timeout=BODY_TIMEOUT_SECS
    )
    sockets = tornado.netutil.bind_sockets(port, host)
    server.add_sockets(sockets)
    return sockets[0].getsockname()[1]


class UnknownPath(RestHandler):
    """Answers every other path with an error."""

    def prepare(self):
        raise tornado.web.HTTPError(NOT_FOUND)


async def serve(arguments: argparse.Namespace):
    """Loads the model and serves it until the process ends."""
    model = Model(arguments.model_name, arguments.model_base_path)
    limits = arguments.max_request_bytes, arguments.num_workers
    rest_port = start_rest(model, arguments.host, arguments.rest_api_port, *limits)
    where = f"http://{arguments.host}:{rest_port}/v1/models/{model.name}:predict"
    if arguments.port is not None:
        _server, grpc_port = start_grpc(model, f"{arguments.host}:{arguments.port}", *limits)
        where += f" and grpc://{arguments.host}:{grpc_port}"
    print(f"Serving version {model.version} at {where}", flush=True)
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model_name", default="default", help="name of the model in URLs and requests")
    parser.add_argument("--model_base_path", required=True, help="folder of versions: an --export_dir")
    parser.add_argument("--host", default="127.0.0.1", help="address that the server listens on")
    parser.add_argument("--rest_api_port", type=int, default=8501, help="port for HTTP/REST")
    parser.add_argument("--port", type=int, help="port for gRPC; none when not given")
    parser.add_argument("--max_request_bytes", type=int, default=8 << 20, help="larger requests are refused")
    parser.add_argument(
        "--num_workers", type=int, default=4, help="number of requests processed at the same time"
    )
    logging.set_verbosity(logging.ERROR)  # hides TensorFlow's warnings
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

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
import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import ipaddress
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # finds serving_formats
# What the C++ libraries log is not limited in its rate.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

try:
    import grpc
    import numpy as np
    import tensorflow as tf
    import tornado.httpserver
    import tornado.netutil
    import tornado.web
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2
except ImportError as import_error:
    raise SystemExit(
        f"serving_server.py: cannot import {import_error.name}; pip install -r requirements-serving.txt"
    ) from None

import serving_formats
from serving_formats import DEFAULT_SIGNATURE
from serving_limits import (
    BAD_REQUEST,
    BUSY,
    MISDIRECTED,
    NOT_FOUND,
    SERVER_ERROR,
    TOO_LARGE,
    TOO_LATE,
    UNSUPPORTED_TYPE,
    Limits,
    RequestError,
    RestServer,
    Workers,
    limit_log,
)

TEXT_SIGNATURE = "serving_text"
# After a refusal the server reads and discards at most this much of the body, because many clients read the answer
# only after they have sent the whole body.
DISCARDED_BYTES = 64 << 20
GRPC_CODES = {
    BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    SERVER_ERROR: grpc.StatusCode.INTERNAL,
    BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TOO_LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
}
LARGEST_VERSION = (1 << 63) - 1


class Model:
    """One version of a SavedModel.

    Attributes:
        name: the name of the model in URLs and requests.
        version: the number of the version.
        signature_defs: the SignatureDefs by name.
    """

    def __init__(self, name: str, base_path: str):
        """Loads the newest version in a folder.

        Raises:
            SystemExit: there is none, or it cannot be loaded; the message is one sentence.
        """
        if not re.fullmatch(r"[\w.-]+", name):
            raise SystemExit(f"--model_name={name}: must be made of letters, digits, '_', '-' and '.'")
        found = {
            _version(path.parent.name): path.parent
            for path in pathlib.Path(base_path).glob("*/saved_model.pb")
        }
        self.name, self.version = name, max(found, default=-1)
        if self.version < 0:
            raise SystemExit(f"--model_base_path={base_path}: holds no version; export a model there")
        newest = found[self.version]
        try:
            stored = saved_model_pb2.SavedModel.FromString((newest / "saved_model.pb").read_bytes())
            self.signature_defs = dict(stored.meta_graphs[0].signature_def)
            if TEXT_SIGNATURE in self.signature_defs:
                importlib.import_module("tensorflow_text")  # registers the ops
            self._loaded = tf.saved_model.load(str(newest))
            self._specs = {
                signature: function.structured_input_signature[1]
                for signature, function in self._loaded.signatures.items()
            }
        except Exception as error:  # a damaged file can end in any error of the loader
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SystemExit(f"{newest}: cannot be loaded ({reason}); export the model anew") from error
        if not self._specs:
            raise SystemExit(f"{newest}: has no signature; export the model with one")

    def check(self, name: str, version: int | None):
        """Refuses a request for another model or version."""
        if name != self.name or version not in (None, self.version):
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise RequestError(NOT_FOUND, f"Servable not found for request: {asked}")

    def specs(self, signature_name: str) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a signature by name."""
        if signature_name not in self._specs:
            raise RequestError(
                BAD_REQUEST, f'Serving signature name: "{signature_name[:80]}" not found in signature def'
            )
        return self._specs[signature_name]

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], limits: Limits
    ) -> dict[str, np.ndarray]:
        """Runs a signature with inputs of its types and shapes, and returns its outputs by name, [batch, ...] each."""
        specs = self.specs(signature_name)
        tensors = {name: tf.constant(values, specs[name].dtype) for name, values in inputs.items()}
        try:
            outputs = self._loaded.signatures[signature_name](**tensors)
            found = {name: outputs[name].numpy() for name in sorted(outputs)}
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise RequestError(BAD_REQUEST, _sentence(error)) from error
        except tf.errors.ResourceExhaustedError as error:
            raise RequestError(BUSY, _sentence(error)) from error
        except tf.errors.OpError as error:
            raise RequestError(SERVER_ERROR, _sentence(error)) from error
        limits.check_answer(found)
        return found

    @functools.cached_property
    def metadata(self) -> dict:
        """The answer to GET /v1/models/NAME/metadata, which is made once: that takes milliseconds."""
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


def _version(folder: str) -> int:
    """Returns the version that a folder's name stands for; -1 if it is none, as for TensorFlow Serving."""
    is_number = folder.isascii() and folder.isdigit() and len(folder) < 20
    return int(folder) if is_number and int(folder) <= LARGEST_VERSION else -1


def rest_answer(model: Model, body: bytes, limits: Limits) -> dict:
    """Returns the answer to a prediction request, which is {"instances": rows} or {"inputs": columns}."""
    request = serving_formats.parse_json(body, limits)
    signature_name = request.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(signature_name, str):
        raise RequestError(BAD_REQUEST, "'signature_name' must be a string")
    if ("instances" in request) == ("inputs" in request):
        raise RequestError(BAD_REQUEST, "the body must have one of 'instances' and 'inputs'")
    inputs = serving_formats.json_inputs(request, model.specs(signature_name), limits)
    outputs = model.predict(signature_name, inputs, limits)
    return serving_formats.json_answer(outputs, by_row="instances" in request)


@tornado.web.stream_request_body
class RestHandler(tornado.web.RequestHandler):
    """Answers /v1/models/NAME[/versions/N][:predict|/metadata]; an error is {"error": message}."""

    def initialize(self, model: Model, workers: Workers, hosts: frozenset[str]):
        self._model, self._workers, self._hosts = model, workers, hosts
        self._body, self._is_refused, self._num_discarded = bytearray(), False, 0

    def prepare(self):
        self.request.connection.set_max_body_size(
            1 << 62
        )  # this class checks the limit, to send its own message
        # A web page that a browser shows can send requests here, but neither under a name of this server nor as JSON.
        if not _is_named(self.request.host_name, self._hosts):
            self._refuse(
                MISDIRECTED, f"no server is called {self.request.host_name[:80]!r} here; see --allowed_hosts"
            )
        elif self.request.method == "POST" and not _is_json(self.request.headers.get("Content-Type", "")):
            self._refuse(UNSUPPORTED_TYPE, "the header Content-Type must be application/json")
        length = self.request.headers.get("Content-Length", "")
        if length.isdigit() and int(length[:20]) > self._workers.limits.max_request_bytes:
            self._refuse_size()

    def data_received(self, chunk: bytes):
        if len(self._body) + len(chunk) > self._workers.limits.max_request_bytes:
            self._refuse_size()
        if not self._is_refused:
            self._body += chunk
            return
        self._num_discarded += len(chunk)
        if self._num_discarded > DISCARDED_BYTES and not self._finished:
            self._finish()

    async def post(self, name: str, version: str | None, verb: str | None):
        if self._is_refused:
            self._finish()
            return
        if verb != ":predict":
            raise tornado.web.HTTPError(NOT_FOUND)
        self._model.check(name, int(version) if version else None)
        future = asyncio.wrap_future(self._workers.submit(self._predicted))
        try:
            answer = await asyncio.wait_for(future, self._workers.limits.deadline_secs)
        except TimeoutError:
            raise self._workers.too_late() from None
        self._send(200, answer)

    def get(self, name: str, version: str | None, verb: str | None):
        if self._is_refused:
            self._finish()
            return
        self._model.check(name, int(version) if version else None)
        if verb == ":predict":
            raise tornado.web.HTTPError(405)
        self._send(200, json.dumps(self._model.metadata if verb else self._model.status(), indent=1))

    def write_error(self, status_code: int, exc_info=None, **_):
        if self._is_refused:
            self._finish()
            return
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
        return json.dumps(rest_answer(self._model, body, self._workers.limits))

    def _refuse_size(self):
        most = self._workers.limits.max_request_bytes
        self._refuse(TOO_LARGE, f"the body is larger than the {most} bytes of --max_request_bytes")

    def _refuse(self, status: int, sentence: str):
        """Answers at once; the body is discarded."""
        if self._is_refused:
            return
        self._is_refused = True
        self._body.clear()
        self._start(status, json.dumps({"error": sentence}))
        self.flush()

    def _send(self, status: int, content: str):
        self._start(status, content)
        self._finish()

    def _start(self, status: int, content: str):
        data = content.encode()
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", len(data))
        self.write(data)

    def _finish(self):
        """Ends the answer, and closes the connection of a client that does not read it."""
        written, stream = self.finish(), self.request.connection.stream
        if stream.writing():
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._workers.limits.deadline_secs, stream.close)
            written.add_done_callback(lambda _: timer.cancel())


def _is_named(host: str, hosts: frozenset[str]) -> bool:
    """Tells whether a request names an address, this machine, or one of the names that the user allows."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host.strip("[]"))
        return True
    return host.lower() in hosts


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


class PredictionService:
    """Answers Predict and GetModelMetadata over gRPC; a method takes the bytes of a request, and returns a message."""

    def __init__(self, model: Model, workers: Workers):
        self._model, self._workers = model, workers

    def handlers(self) -> grpc.GenericRpcHandler:
        methods = {"Predict": self._predicted, "GetModelMetadata": self._metadata}
        return grpc.method_handlers_generic_handler(
            "tensorflow.serving.PredictionService",
            {
                # Without a deserializer: its errors would be answered as the server's.
                name: grpc.unary_unary_rpc_method_handler(
                    lambda data, context, method=method: self._answered(method, data, context),
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for name, method in methods.items()
            },
        )

    def _answered(self, method: Callable, data: bytes, context: grpc.ServicerContext):
        try:
            future = self._workers.submit(lambda: method(data))
            left_secs = min(context.time_remaining() or 1e9, self._workers.limits.deadline_secs)
            try:
                return future.result(left_secs)
            except concurrent.futures.TimeoutError:
                future.cancel()
                raise self._workers.too_late() from None
        except RequestError as error:
            context.abort(GRPC_CODES[error.status], str(error))

    def _predicted(self, data: bytes):
        request = _parsed(predict_pb2.PredictRequest, data)
        spec, limits = request.model_spec, self._workers.limits
        signature_name = spec.signature_name or DEFAULT_SIGNATURE
        self._check(spec)
        specs = self._model.specs(signature_name)
        if request.inputs.keys() != specs.keys():
            wanted, given = (", ".join(sorted(names)) for names in (specs, request.inputs))
            raise RequestError(
                BAD_REQUEST, f"the signature takes the inputs {wanted}, the request has {given[:80]}"
            )
        inputs = {
            name: serving_formats.tensor_input(name, proto, specs[name], len(data), limits)
            for name, proto in request.inputs.items()
        }
        outputs = self._model.predict(signature_name, inputs, limits)
        wanted = list(request.output_filter) or list(outputs)
        unknown = [name for name in wanted if name not in outputs]
        if unknown:
            raise RequestError(BAD_REQUEST, f"output_filter: there is no output {', '.join(unknown)[:80]}")
        response = predict_pb2.PredictResponse()
        self._fill(response.model_spec, signature_name)
        for name in wanted:
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    def _metadata(self, data: bytes):
        self._check(_parsed(get_model_metadata_pb2.GetModelMetadataRequest, data).model_spec)
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


def _parsed(kind, data: bytes):
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(BAD_REQUEST, f"the request is no {kind.DESCRIPTOR.name} ({error})") from error


def start_grpc(model: Model, address: str, workers: Workers) -> tuple[grpc.Server, int]:
    """Starts a gRPC server, and returns it with its port; port 0 in `address` means any free port.

    Raises:
        SystemExit: the address cannot be used.
    """
    limits = workers.limits
    server = grpc.server(
        # A thread waits for each request, and one more tells that there are too many.
        concurrent.futures.ThreadPoolExecutor(limits.max_requests + 1),
        options=[
            ("grpc.max_receive_message_length", limits.max_request_bytes),
            ("grpc.max_concurrent_streams", limits.max_requests + 1),
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.max_connection_idle_ms", 1000 * limits.header_timeout_secs),
            ("grpc.server_handshake_timeout_ms", 1000 * limits.header_timeout_secs),
            ("grpc.so_reuseport", 0),
        ],
        maximum_concurrent_rpcs=2 * limits.max_requests,
    )
    server.add_generic_rpc_handlers((PredictionService(model, workers).handlers(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise SystemExit(
            f"--port: cannot listen on {address}; give another port, or end the program that has it"
        )
    server.start()
    return server, port


def start_rest(model: Model, host: str, port: int, workers: Workers, allowed_hosts: frozenset[str]) -> int:
    """Starts a REST server on the running event loop, and returns its port; port 0 means any free port.

    Raises:
        SystemExit: the address cannot be used.
    """
    settings = {"model": model, "workers": workers, "hosts": allowed_hosts}
    path = r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,18}))?(:predict|/metadata)?"
    handlers = [(path, RestHandler, settings), (r"()()(.*)", UnknownPath, settings)]
    limits = workers.limits
    server = RestServer(
        tornado.web.Application(handlers, log_function=lambda handler: None),
        body_timeout=limits.deadline_secs,
        idle_connection_timeout=limits.header_timeout_secs,
        max_connections=limits.max_connections,
    )
    try:
        sockets = tornado.netutil.bind_sockets(port, host)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SystemExit(f"--host={host} --rest_api_port={port}: cannot listen there ({reason})") from error
    server.accept(sockets)
    return sockets[0].getsockname()[1]


class UnknownPath(RestHandler):
    """Answers every other path with an error."""

    def prepare(self):
        raise tornado.web.HTTPError(NOT_FOUND)


async def serve(arguments: argparse.Namespace):
    """Loads the model and serves it until the process ends."""
    limits = Limits(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Limits)})
    model, workers = Model(arguments.model_name, arguments.model_base_path), Workers(limits)
    hosts = frozenset({"localhost", arguments.host.lower(), *map(str.lower, arguments.allowed_hosts)})
    rest_port = start_rest(model, arguments.host, arguments.rest_api_port, workers, hosts)
    where = f"http://{arguments.host}:{rest_port}/v1/models/{model.name}:predict"
    if arguments.port is not None:
        _server, grpc_port = start_grpc(model, f"{arguments.host}:{arguments.port}", workers)
        where += f" and grpc://{arguments.host}:{grpc_port}"
    print(f"Serving version {model.version} at {where}", flush=True)
    await asyncio.Event().wait()


class _Parser(argparse.ArgumentParser):
    """Ends with one sentence."""

    def error(self, message):
        raise SystemExit(f"serving_server.py: {message}; see --help")


def _within(lowest: int, highest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} must be a whole number from {lowest} to {highest}"
            )
        return int(text)

    return read


def main():
    parser = _Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    port = _within(0, 65535)
    parser.add_argument("--model_name", default="default", help="name of the model in URLs and requests")
    parser.add_argument("--model_base_path", required=True, help="folder of versions: an --export_dir")
    parser.add_argument("--host", default="127.0.0.1", help="address that the server listens on")
    parser.add_argument(
        "--allowed_hosts", nargs="*", default=[], help="further names of this machine in requests"
    )
    parser.add_argument("--rest_api_port", type=port, default=8501, help="port for HTTP/REST")
    parser.add_argument("--port", type=port, help="port for gRPC; none when not given")
    for field in dataclasses.fields(Limits):
        parser.add_argument(
            f"--{field.name}",
            type=_within(1, field.metadata["most"]),
            default=field.default,
            help=f"{field.metadata['help']} ({field.default})",
        )
    arguments = parser.parse_args()
    limit_log()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()

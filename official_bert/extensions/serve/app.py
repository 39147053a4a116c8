"""The paths of the server, and the answers to faulty requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from absl import logging
from starlette.applications import Starlette  # pyright: ignore[reportMissingImports]
from starlette.exceptions import HTTPException  # pyright: ignore[reportMissingImports]
from starlette.requests import (  # pyright: ignore[reportMissingImports]
    ClientDisconnect,
    Request,
)
from starlette.responses import Response  # pyright: ignore[reportMissingImports]
from starlette.routing import Route  # pyright: ignore[reportMissingImports]

from official_bert.extensions.serve import tensor_requests, text_requests
from official_bert.extensions.serve.bodies import RefusalError, read_json_object
from official_bert.extensions.serve.hosted_models import HostedModel, ModelHost
from official_bert.extensions.serve.metrics import ServerMetrics
from official_bert.extensions.serve.options import ServeOptions
from official_bert.io.errors import InputError

_PATHS = (
    "/v1/models, /v1/models/NAME, /v1/models/NAME:predict, /v1/models/NAME:run, /v1/embeddings, "
    "/v1/rerank, /health, /ready and /metrics"
)
_MODEL_PATH = re.compile(
    r"(?P<name>[^:]+?)(/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?"
    r"(/(?P<metadata>metadata)|:(?P<verb>\w+))?"
)
_VERBS = ("run", "classify", "tag", "answer", "fill_mask", "embed")
_BYTES_PER_MB = 1_000_000
_CLOSING_STATUSES = (408, 413)  # the rest of the body is not read
_NO_CLIENT_STATUS = 499  # for metrics: the client has left without its answer
_OPENAI_PATH = "/v1/embeddings"

# A request -> the status and the JSON values of the answer.
Answer = Callable[[Request], Awaitable[tuple[int, Any]]]


class ModelPath(NamedTuple):
    """The parts of a path below /v1/models.

    Attributes:
        model: the model.
        verb: the part after the colon; None without.
        is_metadata: whether the path ends with /metadata.
    """

    model: HostedModel
    verb: str | None
    is_metadata: bool


def render_json(content: Any) -> bytes:
    """Returns JSON values as text in ASCII, because errors may repeat invalid characters.

    Args:
        content: the values.
    """
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def make_app(
    host: ModelHost, options: ServeOptions, metrics: ServerMetrics, end: Callable[[], None]
) -> Starlette:
    """Makes the application, which opens the models when it starts.

    Args:
        host: the models.
        options: the flags of the command.
        metrics: the metrics of the server.
        end: ends the server; it is called if a model cannot be opened.
    """

    @contextlib.asynccontextmanager
    async def run_host(_app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def load():
            try:
                host.load()
            except BaseException as error:
                host.load_error = error
                loop.call_soon_threadsafe(end)

        # The server answers /health meanwhile.
        threading.Thread(target=load, daemon=True).start()
        yield
        await asyncio.to_thread(host.close)

    paths = _Paths(host, options, metrics)
    post = ["POST"]
    routes = [
        Route("/health", paths.wrap(paths.answer_health)),
        Route("/ready", paths.wrap(paths.answer_ready)),
        Route("/metrics", paths.answer_metrics),
        Route("/v1/models", paths.wrap(paths.list_models)),
        Route("/v1/models/{rest:path}", paths.wrap(paths.answer_model), methods=["GET", *post]),
        Route(_OPENAI_PATH, paths.wrap(paths.answer_embeddings), methods=post),
        Route("/v1/rerank", paths.wrap(paths.answer_rerank), methods=post),
        Route("/v2/rerank", paths.wrap(paths.answer_rerank), methods=post),
        Route("/rerank", paths.wrap(paths.answer_rerank), methods=post),
    ]
    app = Starlette(
        routes=routes,
        lifespan=run_host,
        exception_handlers={HTTPException: _answer_wrong_path},
    )
    app.router.redirect_slashes = False
    return app


async def _answer_wrong_path(request: Request, error: Any) -> Response:
    """Answers a path that the server does not have, or a wrong method: an HTTPException."""
    sentence = f"there is no such path; this server has {_PATHS}"
    if error.status_code == 405:
        sentence = f"{request.method} is not a method of this path; use GET or POST"
    return _make_response(error.status_code, {"error": sentence}, error.headers)


def _make_response(status: int, content: Any, headers: Any = None) -> Response:
    headers = dict(headers or {})
    if status in _CLOSING_STATUSES:
        headers["Connection"] = "close"
    return Response(render_json(content), status, headers, "application/json")


class _Paths:
    """The functions of the paths."""

    def __init__(self, host: ModelHost, options: ServeOptions, metrics: ServerMetrics):
        self._host = host
        self._metrics = metrics
        self._max_bytes = options.max_body_mb * _BYTES_PER_MB
        self._timeout_secs = options.client_timeout_secs

    def wrap(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Returns the function of a path, whose errors become answers, and which is counted.

        Args:
            answer: returns the status and the content of the answer.
        """

        async def respond(request: Request) -> Response:
            start = time.monotonic()
            response = await self._respond(request, answer)
            path = getattr(request.state, "path", request.scope["path"])
            model = getattr(request.state, "model", "")
            num_secs = time.monotonic() - start
            self._metrics.observe_request(path, model, response.status_code, num_secs)
            return response

        return respond

    async def _respond(self, request: Request, answer: Answer) -> Response:
        try:
            if "origin" in request.headers:  # a browser sends it with the requests of a web page
                raise RefusalError(403, "web pages are not answered; put a proxy in front")
            status, content = await answer(request)
            return _make_response(status, content)
        except RefusalError as error:
            headers = {}
            if error.retry_secs is not None:
                headers["Retry-After"] = str(error.retry_secs)
            return self._make_error(request, error.status, str(error), headers)
        except InputError as error:
            return self._make_error(request, 400, str(error))
        except (ClientDisconnect, asyncio.CancelledError):
            return Response(status_code=_NO_CLIENT_STATUS)
        except Exception:
            logging.exception("A request has failed")
            sentence = "an error inside the server, which is described in its log"
            return self._make_error(request, 500, sentence)

    def _make_error(
        self, request: Request, status: int, sentence: str, headers: Any = None
    ) -> Response:
        """Returns the answer to a faulty request, in the form that the clients of a path expect."""
        content: dict[str, Any] = {"error": sentence}
        if request.scope["path"] == _OPENAI_PATH:
            kind = "invalid_request_error" if status < 500 else "server_error"
            content["error"] = {"message": sentence, "type": kind, "param": None, "code": None}
        return _make_response(status, content, headers)

    async def answer_health(self, request: Request) -> tuple[int, Any]:
        """Answers that the process runs.

        Args:
            request: the request.
        """
        return 200, {"status": "ok"}

    async def answer_ready(self, request: Request) -> tuple[int, Any]:
        """Answers whether requests for models are answered.

        Args:
            request: the request.
        """
        self._host.check_ready()
        return 200, {"status": "ready", "models": list(self._host.models)}

    async def answer_metrics(self, request: Request) -> Response:
        """Answers with the metrics.

        Args:
            request: the request.
        """
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4")

    async def list_models(self, request: Request) -> tuple[int, Any]:
        """Answers with the models, as OpenAI's /v1/models does.

        Args:
            request: the request.
        """
        self._host.check_ready()
        models = [_describe(model) for model in self._host.models.values()]
        return 200, {"object": "list", "data": models}

    async def answer_model(self, request: Request) -> tuple[int, Any]:
        """Answers the paths of one model.

        Args:
            request: the request.
        """
        path = self._find_model(request)
        if request.method != "POST":
            return 200, _answer_status(path)
        if path.verb is None:
            raise RefusalError(
                405, f"POST needs a verb, as in {text_requests.suggest_path(path.model)}"
            )
        fields = await self._read(request)
        if path.verb == "predict":
            return 200, await self._predict(request, fields, path.model)
        async with _watch(request) as disconnected:
            caller = text_requests.Caller(self._host, disconnected)
            answer = await text_requests.answer_texts(fields, caller, path.model, path.verb)
            return 200, answer

    async def answer_embeddings(self, request: Request) -> tuple[int, Any]:
        """Answers OpenAI's /v1/embeddings.

        Args:
            request: the request.
        """
        fields = await self._read(request)
        async with _watch(request) as disconnected:
            caller = text_requests.Caller(self._host, disconnected)
            return 200, await text_requests.embed(fields, caller)

    async def answer_rerank(self, request: Request) -> tuple[int, Any]:
        """Answers the paths that order documents.

        Args:
            request: the request.
        """
        fields = await self._read(request)
        async with _watch(request) as disconnected:
            caller = text_requests.Caller(self._host, disconnected)
            return 200, await text_requests.rerank(fields, caller)

    async def _read(self, request: Request) -> Any:
        self._host.check_ready()
        return await read_json_object(request, self._max_bytes, self._timeout_secs)

    async def _predict(self, request: Request, fields: Any, model: HostedModel) -> Any:
        tensors = tensor_requests.read_tensor_request(fields, model)
        async with _watch(request) as disconnected:
            try:
                (outputs,) = await model.compute(tensors.key, [tensors.row], disconnected)
            except InputError as error:
                raise RefusalError(400, tensor_requests.explain_failure(error)) from None
        return tensor_requests.write_predictions(outputs, tensors.has_columns)

    def _find_model(self, request: Request) -> ModelPath:
        """Finds the model of a path, and names both for the metrics."""
        rest = request.path_params["rest"]
        match = _MODEL_PATH.fullmatch(rest)
        request.state.path = "/v1/models/"
        if match is None:
            raise RefusalError(404, f"there is no such path; this server has {_PATHS}")
        verb = match["verb"]
        model = self._host.find(match["name"])
        request.state.model = model.name
        if verb is not None and verb != "predict" and verb not in _VERBS:
            raise RefusalError(
                404, f"there is no path :{verb}; a model has :predict and :{', :'.join(_VERBS)}"
            )
        request.state.path = f"/v1/models/:{verb}" if verb else "/v1/models/"
        if match["label"] is not None:
            raise RefusalError(404, "this server has no labels of versions; leave the label out")
        if match["version"] not in (None, model.version):
            raise RefusalError(
                404, f"there is no version {match['version']}; the server has {model.version}"
            )
        if request.method != "POST" and verb is not None:
            raise RefusalError(405, f"GET is not a method of :{verb}; use POST")
        return ModelPath(model, verb, match["metadata"] is not None)


@contextlib.asynccontextmanager
async def _watch(request: Request) -> AsyncIterator[asyncio.Task]:
    """Yields a task that ends when the client has gone. The body must have been read."""

    async def wait_for_end():
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(wait_for_end())
    try:
        yield task
    finally:
        task.cancel()


def _describe(model: HostedModel) -> dict[str, Any]:
    """Returns a model in the form of OpenAI's list, with its task."""
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "official_bert",
        "task": model.task_name,
        "path": text_requests.suggest_path(model),
        "max_seq_length": model.predictor.model.max_seq_length,
        "labels": model.predictor.model.labels,
    }


def _answer_status(path: ModelPath) -> dict[str, Any]:
    """Returns the state of a model, or its signatures, as TensorFlow Serving does."""
    model = path.model
    if path.is_metadata:
        return {
            "model_spec": {"name": model.name, "signature_name": "", "version": model.version},
            "metadata": tensor_requests.describe_signatures(model),
        }
    status = {
        "version": model.version,
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return {**_describe(model), "model_version_status": [status]}

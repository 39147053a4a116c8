"""The models of a server: their names, their queues, and the computation of a batch."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert import catalog
from official_bert.extensions.serve.batching import (
    BatchLimits,
    BatchQueue,
    Job,
    QueueFullError,
    Row,
)
from official_bert.extensions.serve.bodies import RefusalError
from official_bert.extensions.serve.metrics import ServerMetrics
from official_bert.extensions.serve.options import ServeOptions, naming_model, read_model_paths
from official_bert.io.errors import InputError
from official_bert.serving.predictor import Predictor
from official_bert.tasks.clients import TextClient, Texts

# The kinds of batches. A batch of tensors has the name of its signature, too.
ANSWERS = "answers"
OUTPUTS = "outputs"
VECTORS = "vectors"
TENSORS = "tensors"

# Texts of fewer characters are tokenized in the thread of the connections, which is faster than to
# hand them to another one.
_FEW_CHARACTERS = 20_000
_SHORTEST_ROW = 16  # tokens; a batch of max_batch_tokens has at most so many rows that it is split
_QUICK_RETRY_SECS = 5
_FIRST_VERSION = "1"


class EncodedRequest(NamedTuple):
    """The texts of one request to a model, and their size.

    Attributes:
        texts: the texts.
        num_tokens: the number of tokens that the model reads.
        is_cut: whether the model reads only a part of them.
        row: the row of a batch.
    """

    texts: Texts
    num_tokens: int
    is_cut: bool
    row: Row


class HostedModel:
    """A model of the server, or a head of an export of many heads.

    Attributes:
        name: its name in requests.
        version: the number of the export; "1" for a folder that is no export.
        predictor: the opened model.
        task_name: the task of the model.
        functions: name of a signature -> the function of TensorFlow. It is empty for the files of
            other runtimes.
    """

    def __init__(
        self, name: str, predictor: Predictor, options: ServeOptions, metrics: ServerMetrics
    ):
        """Answers a first request, and starts the threads.

        Args:
            name: its name in requests.
            predictor: the opened model.
            options: the flags of the command.
            metrics: the metrics of the server.

        Raises:
            InputError: the model cannot answer.
        """
        self.name = name
        self._max_text_chars = options.max_text_chars
        self._max_request_texts = options.max_request_texts
        self.predictor = predictor
        self.task_name = self.predictor.task_name
        folder_name = os.path.basename(os.path.normpath(self.predictor.path))
        self.version = folder_name if folder_name.isdecimal() else _FIRST_VERSION
        self.functions: Mapping[str, Any] = self.predictor.model.functions
        self._warm_up()
        limits = BatchLimits(
            max_batch_tokens=options.max_batch_tokens,
            max_wait_secs=options.max_wait_ms / 1000,
            max_queue_rows=options.max_queue_texts,
        )
        observer = metrics.for_model(name)
        self._queue = BatchQueue(self._run_batch, limits, options.num_workers, observer)

    @property
    def method(self) -> str:
        """The method of Predictor for the model, such as "classify"; "" if there is none."""
        return self.predictor.method

    @property
    def has_vectors(self) -> bool:
        """Whether the model computes embeddings of texts."""
        return hasattr(self.predictor.client, "vectors")

    @property
    def ranks_documents(self) -> bool:
        """Whether the model gives a query and a document one score."""
        predictor = self.predictor
        if len(predictor.columns) != 2 or not isinstance(predictor.client, TextClient):
            return False
        outputs = predictor.model.outputs
        labels = predictor.model.labels or ()
        return "score" in outputs or ("label" in outputs and len(labels) == 2)

    def close(self, timeout_secs: float) -> None:
        """Ends the threads of the model.

        Args:
            timeout_secs: the number of seconds to wait for them.
        """
        self._queue.close(timeout_secs)

    async def encode(self, requests: Sequence[Texts]) -> list[EncodedRequest]:
        """Checks requests and counts their tokens.

        Args:
            requests: the texts of each request.

        Raises:
            RefusalError: the model cannot answer a request, or there are too many or too long ones.
        """
        self.check_count(len(requests))
        num_chars = sum(len(text) for texts in requests for text in texts)
        if num_chars <= _FEW_CHARACTERS:
            return self._encode_all(requests)
        return await asyncio.to_thread(self._encode_all, requests)

    def check_count(self, num_rows: int) -> None:
        """Checks the number of texts or rows of a request.

        Args:
            num_rows: the number.

        Raises:
            RefusalError: it is too large.
        """
        if num_rows > self._max_request_texts:
            raise RefusalError(
                413,
                f"the request has {num_rows} texts or rows; send at most "
                f"{self._max_request_texts} at once",
            )

    async def compute(self, key: Hashable, rows: Sequence[Row], disconnected: asyncio.Task) -> list:
        """Returns the results of rows, which share batches with those of other requests.

        Args:
            key: the kind of the rows: `ANSWERS`, `OUTPUTS`, `VECTORS` with a role, or `TENSORS`
                with a signature.
            rows: the rows.
            disconnected: a task that ends when the client has gone.

        Raises:
            RefusalError: the queue is full.
            InputError: the model cannot compute a row.
            CancelledError: the client has gone.
        """
        try:
            job = self._queue.submit(key, rows)
        except QueueFullError as error:
            raise RefusalError(
                429,
                f"too many texts wait for the model {self.name!r}; try again in "
                f"{error.retry_secs} seconds",
                error.retry_secs,
            ) from None
        return await self._wait(job, disconnected)

    async def _wait(self, job: Job, disconnected: asyncio.Task) -> list:
        try:
            await asyncio.wait({job.future, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not job.future.done():
                self._queue.cancel(job)
        return await job.future

    def _encode_all(self, requests: Sequence[Texts]) -> list[EncodedRequest]:
        encoded = []
        for index, texts in enumerate(requests):
            where = f"request {index}: " if len(requests) > 1 else ""
            if any(len(text) > self._max_text_chars for text in texts):
                raise RefusalError(
                    413,
                    f"{where}a text has more than {self._max_text_chars} characters; shorten it",
                )
            try:
                self.predictor.check(texts)
            except InputError as error:
                raise RefusalError(400, f"{where}{error}") from None
            encoded.append(self._encode(texts))
        return encoded

    def _encode(self, texts: Texts) -> EncodedRequest:
        model = self.predictor.model
        num_tokens = 1 + sum(len(model.tokenizer.encode(text)) + 1 for text in texts)
        is_cut = self.predictor.is_cut(texts)
        length = min(num_tokens, model.max_seq_length)
        num_rows = 1 if is_cut else math.ceil(num_tokens / length)
        return EncodedRequest(
            texts=texts,
            num_tokens=length if is_cut else num_tokens,
            is_cut=is_cut,
            row=Row(texts, length, num_rows),
        )

    def _warm_up(self):
        """Answers a request, because the first answer of a model takes longer."""
        texts = ["a"] * len(self.predictor.columns)
        try:
            self.predictor.check(texts)
        except InputError:
            return  # such as a model that only fills masks
        self.predictor.client.answers([texts])

    def _run_batch(self, key: Any, payloads: list) -> Sequence:
        """Returns the result of each payload of a batch."""
        kind, *details = key
        client: Any = self.predictor.client
        if kind == TENSORS:
            return self._run_tensors(details[0], payloads)
        if kind == VECTORS:
            return client.vectors(payloads, role=details[0])
        if kind == OUTPUTS:
            return client.rows(payloads)
        return client.answers(payloads)

    def _run_tensors(self, signature: str, payloads: list) -> list:
        """Runs a signature once on the rows of several requests, and splits its outputs."""
        model = self.predictor.model
        if len(payloads) == 1:
            return [model(signature, payloads[0])]
        names = payloads[0].keys()
        joined = {name: np.concatenate([inputs[name] for inputs in payloads]) for name in names}
        outputs = model(signature, joined)
        results = []
        start = 0
        for inputs in payloads:
            first_input = next(iter(inputs.values()))
            end = start + len(first_input)
            results.append({name: values[start:end] for name, values in outputs.items()})
            start = end
        return results

    def signature_specs(self, signature: str) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a signature by name.

        Args:
            signature: the name of the signature.
        """
        positional, named = self.functions[signature].structured_input_signature
        specs = {spec.name: spec for spec in tf.nest.flatten(positional)} | dict(named)
        return dict(sorted(specs.items()))


class ModelHost:
    """All models of a server.

    Attributes:
        models: the opened models by name, in the order of the flags. It is empty while they are
            loaded.
        is_stopping: whether the server refuses new requests because it ends.
        load_error: the exception of loading; None without one.
    """

    def __init__(self, options: ServeOptions, metrics: ServerMetrics):
        """Checks the names of the models.

        Args:
            options: the flags of the command.
            metrics: the metrics of the server.

        Raises:
            InputError: two models have one name, or a request may be larger than the queue.
        """
        self._options = options
        self._metrics = metrics
        self._paths = read_model_paths(options.model)
        if options.max_queue_texts < options.max_request_texts:
            raise InputError(
                f"--max_queue_texts={options.max_queue_texts}: is less than --max_request_texts="
                f"{options.max_request_texts}, so that the queue refuses large requests for ever; "
                "raise it, or lower the other"
            )
        self.models: dict[str, HostedModel] = {}
        self.is_stopping = False
        self.load_error: BaseException | None = None
        self._is_loaded = False

    @property
    def is_ready(self) -> bool:
        """Whether the server answers requests for models."""
        return self._is_loaded and not self.is_stopping

    def load(self) -> None:
        """Opens all models.

        Raises:
            InputError: a model cannot be opened.
        """
        for hook in ("predictor_methods", "predictor_frame"):
            tuple(catalog.hooks(hook))  # imports the modules here, in one thread
        for name, path in self._paths.items():
            with naming_model(name):
                self._load_model(name, path)
        self._is_loaded = True

    def _load_model(self, name: str, path: str):
        """Opens a model, and hosts it and each of its heads, which is called NAME/HEAD."""
        options = self._options
        batch_size = max(1, options.max_batch_tokens // _SHORTEST_ROW)
        predictor = Predictor(path, batch_size, num_threads=options.num_threads)
        predictors = {name: predictor}
        for head, head_predictor in predictor.heads.items():
            predictors[f"{name}/{head}"] = head_predictor
        for hosted_name, each in predictors.items():
            self.models[hosted_name] = HostedModel(hosted_name, each, options, self._metrics)

    def close(self) -> None:
        """Ends the threads of the models."""
        self.is_stopping = True
        for model in self.models.values():
            model.close(self._options.shutdown_timeout_secs)

    def check_ready(self) -> None:
        """Checks that requests are answered.

        Raises:
            RefusalError: the models are being loaded, or the server ends.
        """
        if self.is_stopping:
            raise RefusalError(503, "the server ends; try another one", _QUICK_RETRY_SECS)
        if not self._is_loaded:
            raise RefusalError(
                503, "the server loads its models; try again soon", _QUICK_RETRY_SECS
            )

    def find(self, name: str) -> HostedModel:
        """Returns a model.

        Args:
            name: its name in a request.

        Raises:
            RefusalError: there is no such model.
        """
        self.check_ready()
        if name not in self.models:
            names = ", ".join(self.models)
            raise RefusalError(404, f"there is no model {name!r}; this server has {names}")
        return self.models[name]

    def find_able(self, name: str | None, attribute: str, purpose: str) -> HostedModel:
        """Returns the model of a request that may leave out its name.

        Args:
            name: the name; None for the only model that can answer.
            attribute: the property of a model that can answer, such as "has_vectors".
            purpose: what such a model does, for errors.

        Raises:
            RefusalError: there is no such model, it cannot answer, or several can.
        """
        self.check_ready()
        able_names = [each.name for each in self.models.values() if getattr(each, attribute)]
        remedy = f"name one of {', '.join(able_names)}"
        if not able_names:
            remedy = "start the server with such a model"
        if name is None:
            if len(able_names) == 1:
                return self.models[able_names[0]]
            subject = "several models" if able_names else "no model of this server"
            raise RefusalError(400, f"model: is missing, and {subject} can {purpose}; {remedy}")
        model = self.find(name)
        if not getattr(model, attribute):
            raise RefusalError(
                400,
                f"the model {name!r} of the task {model.task_name} cannot {purpose}; {remedy}, "
                f"or use {suggest_path(model)}",
            )
        return model


def suggest_path(model: HostedModel) -> str:
    """Returns the path that answers texts with a model.

    Args:
        model: the model.
    """
    return f"/v1/models/{model.name}:{model.method or 'run'}"

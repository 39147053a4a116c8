"""The requests that have texts: the answers of a model, embeddings, and the ranking of documents.

Each function gets the body of a request and a `Caller`, and returns the answer as JSON values.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.commands.predict import read_texts
from official_bert.extensions.serve.bodies import RefusalError, check_texts, read_field
from official_bert.extensions.serve.hosted_models import (
    ANSWERS,
    OUTPUTS,
    VECTORS,
    HostedModel,
    ModelHost,
    suggest_path,
)
from official_bert.io.errors import InputError
from official_bert.tasks.clients import Texts, numbers

# The path that runs every kind of model.
RUN = "run"
FLOAT, BASE64 = "float", "base64"
# The roles of texts in Cohere's and in shorter words -> those of the model's prompts.
_ROLES = {
    None: None,
    "query": "query",
    "document": "document",
    "search_query": "query",
    "search_document": "document",
}


class Caller(NamedTuple):
    """The client of a request.

    Attributes:
        host: the models of the server.
        disconnected: a task that ends when the client has gone.
    """

    host: ModelHost
    disconnected: asyncio.Task


async def answer_texts(
    fields: Mapping[str, Any], caller: Caller, model: HostedModel, verb: str
) -> dict[str, Any]:
    """Answers {"instances": [...]} as official-bert predict does.

    An instance is a text, a list of the texts of a request, or an object with the names of the
    texts.

    Args:
        fields: the body of the request.
        caller: the client.
        model: the model.
        verb: the end of the path: the method of the model, or "run" for any model.

    Raises:
        RefusalError: the path is for another kind of model, or an instance is no request.
    """
    if verb not in (RUN, model.method):
        raise RefusalError(
            400,
            f"the model {model.name!r} of the task {model.task_name} has no {verb}; use "
            f"{suggest_path(model)}",
        )
    instances = read_field(fields, "instances", list)
    if not instances:
        raise RefusalError(400, "instances: is empty; send at least one text")
    model.check_count(len(instances))
    requests = [
        _read_instance(f"instances[{index}]", instance, model)
        for index, instance in enumerate(instances)
    ]
    encoded = await model.encode(requests)
    rows = [request.row for request in encoded]
    answers = await model.compute((ANSWERS,), rows, caller.disconnected)
    predictions = []
    for request, answer in zip(encoded, answers, strict=True):
        predictions.append({**answer, "truncated": True} if request.is_cut else answer)
    return {"predictions": predictions}


def _read_instance(where: str, instance: Any, model: HostedModel) -> Texts:
    if isinstance(instance, str):
        return (instance,)
    if isinstance(instance, list):
        return tuple(check_texts(where, instance))
    if not isinstance(instance, dict):
        names = ", ".join(model.predictor.columns)
        raise RefusalError(400, f"{where}: must be a text, or an object with the fields {names}")
    try:
        return read_texts(instance, model.predictor)
    except InputError as error:
        raise RefusalError(400, f"{where}: {error}") from None


async def embed(fields: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Answers OpenAI's /v1/embeddings.

    Args:
        fields: the body of the request: `input`, `model`, `encoding_format`, `dimensions`, and
            `input_type` for models with prompts.
        caller: the client.

    Raises:
        RefusalError: a field cannot be used, or the model computes no embeddings.
    """
    name = read_field(fields, "model", str, None)
    model = caller.host.find_able(name, "has_vectors", "compute embeddings")
    texts = fields.get("input")
    if isinstance(texts, str):
        texts = [texts]
    texts = check_texts("input", texts)
    encoding = read_field(fields, "encoding_format", str, FLOAT)
    if encoding not in (FLOAT, BASE64):
        raise RefusalError(400, f"encoding_format: must be {FLOAT} or {BASE64}")
    input_type = read_field(fields, "input_type", str, None)
    if input_type not in _ROLES:
        raise RefusalError(400, "input_type: must be query or document")
    num_dimensions = read_field(fields, "dimensions", int, None)
    if num_dimensions is not None and num_dimensions < 1:
        raise RefusalError(400, "dimensions: must be positive")
    encoded = await model.encode([(text,) for text in texts])
    rows = [request.row for request in encoded]
    key = (VECTORS, _ROLES[input_type])
    vectors = np.stack(await model.compute(key, rows, caller.disconnected))
    if num_dimensions is not None:
        vectors = _shorten(vectors, num_dimensions)
    write = _write_base64 if encoding == BASE64 else numbers
    num_tokens = sum(request.num_tokens for request in encoded)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": write(vector)}
            for index, vector in enumerate(vectors)
        ],
        "model": model.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def _shorten(vectors: np.ndarray, num_dimensions: int) -> np.ndarray:
    """Returns the first numbers of vectors, with length 1 as OpenAI's."""
    width = vectors.shape[1]
    if num_dimensions > width:
        raise RefusalError(400, f"dimensions: must be at most {width}, the width of the model")
    vectors = vectors[:, :num_dimensions]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def _write_base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class RankedDocument(NamedTuple):
    """A document of a request: its place, its text and its scores."""

    index: int
    text: str
    score: float
    logit: float


async def rerank(fields: Mapping[str, Any], caller: Caller) -> dict[str, Any] | list:
    """Answers Cohere's rerank, or with `texts` that of text-embeddings-inference.

    Args:
        fields: the body of the request: `query`, `documents` and `top_n` of Cohere, or `query` and
            `texts` of text-embeddings-inference.
        caller: the client.

    Raises:
        RefusalError: a field cannot be used, or the model gives pairs no score.
    """
    if "documents" in fields and "texts" in fields:
        raise RefusalError(400, "the body has documents and texts; send one of them")
    if "texts" in fields:
        return await _rerank_texts(fields, caller)
    query = read_field(fields, "query", str)
    documents = [
        document.get("text") if isinstance(document, dict) else document
        for document in read_field(fields, "documents", list)
    ]
    documents = check_texts("documents", documents)
    top_n = read_field(fields, "top_n", int, len(documents))
    if top_n < 1:
        raise RefusalError(400, "top_n: must be positive")
    returns_documents = read_field(fields, "return_documents", bool, False)
    name = read_field(fields, "model", str, None)
    model = caller.host.find_able(name, "ranks_documents", "rank documents")
    ranking = await _rank(model, query, documents, caller)
    results = []
    for document in ranking[:top_n]:
        result: dict[str, Any] = {"index": document.index, "relevance_score": document.score}
        if returns_documents:
            result["document"] = {"text": document.text}
        results.append(result)
    return {"id": f"rerank-{time.time_ns():x}", "model": model.name, "results": results}


async def _rerank_texts(fields: Mapping[str, Any], caller: Caller) -> list[dict[str, Any]]:
    query = read_field(fields, "query", str)
    texts = check_texts("texts", fields["texts"])
    returns_text = read_field(fields, "return_text", bool, False)
    has_raw_scores = read_field(fields, "raw_scores", bool, False)
    name = read_field(fields, "model", str, None)
    model = caller.host.find_able(name, "ranks_documents", "rank documents")
    results = []
    for document in await _rank(model, query, texts, caller):
        score = document.logit if has_raw_scores else document.score
        result: dict[str, Any] = {"index": document.index, "score": score}
        if returns_text:
            result["text"] = document.text
        results.append(result)
    return results


async def _rank(
    model: HostedModel, query: str, documents: Sequence[str], caller: Caller
) -> list[RankedDocument]:
    """Returns the documents, best first."""
    encoded = await model.encode([(query, document) for document in documents])
    rows = [request.row for request in encoded]
    outputs = await model.compute((OUTPUTS,), rows, caller.disconnected)
    ranked = []
    for index, (document, row) in enumerate(zip(documents, outputs, strict=True)):
        # The probability of the last of two labels is the score of a classifier of pairs.
        score = row["score"] if "score" in row else row["probabilities"][1]
        logit = row.get("logit", score)
        (plain_score, plain_logit) = numbers([score, logit])
        ranked.append(RankedDocument(index, document, plain_score, plain_logit))
    return sorted(ranked, key=lambda each: -each.score)

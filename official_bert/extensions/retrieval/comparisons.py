"""The methods that search and compare texts, for official_bert.Predictor and SentenceEncoder.

The `encoder` or `predictor` of these functions is the object that has them as methods.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from official_bert.extensions.retrieval import vector_search
from official_bert.extensions.retrieval.index import Index
from official_bert.extensions.retrieval.small_vectors import FLOAT32, VECTOR_TYPES, BlockEncoder
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type
from official_bert.metrics.cosines import all_cosines
from official_bert.serving.predictor import Predictor
from official_bert.tasks.clients import numbers
from official_bert.tokenizer_call import list_texts

COSINE = "cosine"


class Encoder(Protocol):
    """An object that encodes texts.

    It may have the attribute `comparison`, the measure that compares its vectors; by default that
    is the cosine. It may also have the methods `encode_query` and `encode_document`, which put a
    prompt before each text.
    """

    def encode(self, texts: str | list[str]) -> np.ndarray:
        """Returns the vectors of texts, float32[n, width].

        Args:
            texts: the texts; a single text is a list of one.
        """
        ...


def encode_queries(
    encoder: Encoder, texts: str | list[str], prompt: str | None = None
) -> np.ndarray:
    """Return the vectors of queries, float32[n, width].

    Args:
        encoder: the object that encodes them.
        texts: the queries; a single text is a list of one.
        prompt: a text to put before each; None for the prompt of the model.

    Raises:
        InputError: the model has no prompts.
    """
    return _encode_role(encoder, "encode_query", texts, prompt)


def encode_documents(
    encoder: Encoder, texts: str | list[str], prompt: str | None = None
) -> np.ndarray:
    """Return the vectors of documents, float32[n, width].

    Args:
        encoder: the object that encodes them.
        texts: the documents; a single text is a list of one.
        prompt: a text to put before each; None for the prompt of the model.

    Raises:
        InputError: the model has no prompts.
    """
    return _encode_role(encoder, "encode_document", texts, prompt)


def _encode_role(
    encoder: Encoder, method: str, texts: str | list[str], prompt: str | None
) -> np.ndarray:
    # Another package may have an encoder without roles.
    encode: Callable[..., np.ndarray] = getattr(encoder, method, encoder.encode)
    return encode(texts) if prompt is None else encode(texts, prompt=prompt)


def similarity(
    encoder: Encoder, a: str | list[str], b: str | list[str]
) -> float | list[list[float]]:
    """Return the cosines of texts.

    Args:
        encoder: the object that encodes them.
        a: a text, or several.
        b: a text, or several.

    Returns:
        The cosine of two texts; for lists a table with a row for each text of `a`.
    """
    _check_comparison(encoder)
    cosines = all_cosines(encoder.encode(a), encoder.encode(b))
    table = [numbers(row) for row in cosines]
    if isinstance(a, str) and isinstance(b, str):
        return table[0][0]
    return table


def search(
    encoder: Encoder,
    queries: str | list[str],
    corpus: Iterable[str] | str | os.PathLike | Index,
    k: int = 10,
    prompt: str | None = None,
) -> list:
    """Return the texts of a corpus that are nearest to a text, best first.

    Args:
        encoder: the object that encodes texts.
        queries: the text, or several.
        corpus: a list of texts, which each call encodes again; the result of `index_of` for one; or
            the path of an index that official-bert predict --index wrote.
        k: the number of texts in a result.
        prompt: a text to put before each query; None for the model's prompt of queries.

    Returns:
        A list of dicts with `text`, `row`, its place in the corpus from 0, and `score`, the cosine.
        For a list of queries it is a list of these lists.

    Raises:
        InputError: `k` is no positive number, or the model does not compare texts by the cosine.
    """
    _check_comparison(encoder)
    _check_number("k", k, kind=int, lowest=1)
    index = index_of(encoder, corpus)
    all_scores, all_rows = index.search(encode_queries(encoder, queries, prompt), k)
    results = []
    for rows, scores in zip(all_rows.tolist(), all_scores, strict=True):
        results.append(make_hits(index.texts, rows, scores))
    return results[0] if isinstance(queries, str) else results


def paraphrases(
    encoder: Encoder, texts: list[str], limit: int = 100, threshold: float = 0.0
) -> list[dict]:
    """Return the pairs of texts with the highest cosines, best first.

    Args:
        encoder: the object that encodes texts.
        texts: the texts.
        limit: the largest number of pairs.
        threshold: the lowest cosine of a pair.

    Returns:
        A list of dicts with `text_a`, `text_b`, their places `row_a` < `row_b` from 0, and `score`.

    Raises:
        InputError: a number is out of range, or the model does not compare texts by the cosine.
    """
    _check_comparison(encoder)
    _check_number("limit", limit, kind=int, lowest=1)
    _check_number("threshold", threshold, kind=float, lowest=-1)
    texts = list_texts("texts", texts)
    scores, pairs = vector_search.paraphrases(encoder.encode(texts), limit, threshold)
    results = []
    for (row_a, row_b), score in zip(pairs.tolist(), numbers(scores), strict=True):
        results.append(
            {
                "text_a": texts[row_a],
                "text_b": texts[row_b],
                "row_a": row_a,
                "row_b": row_b,
                "score": score,
            }
        )
    return results


def index_of(
    encoder: Encoder,
    corpus: Iterable[str] | str | os.PathLike | Index,
    vector_type: str = FLOAT32,
    width: int | None = None,
) -> Index:
    """Return the index of a corpus, which `search` accepts.

    Args:
        encoder: the object that encodes texts.
        corpus: the texts, the path of an index, or an index, which is returned as it is.
        vector_type: for texts, the type of the vectors: float32; int8, which needs a quarter of the
            memory; or binary, which needs a thirty-second.
        width: for texts, the number of first components that are kept; None for all.

    Returns:
        The texts and their vectors.

    Raises:
        InputError: the file is no index, or is the index of another model.
    """
    if vector_type not in VECTOR_TYPES:
        raise InputError(f"vector_type={vector_type!r}: must be one of {', '.join(VECTOR_TYPES)}")
    if width is not None:
        _check_number("width", width, kind=int, lowest=1)
    if isinstance(corpus, Index):
        return corpus
    if not isinstance(corpus, (str, os.PathLike)):
        texts = list_texts("corpus", corpus)
        encoded = BlockEncoder(vector_type, width)
        encoded.add(encode_documents(encoder, texts))
        (vectors,) = encoded.finish()
        return Index(texts, vectors, ranges=encoded.ranges)
    path = os.fspath(corpus)
    index = Index.read(path)
    if not index.has_model_vectors(encode_documents(encoder, list(index.texts[:1]), index.prompt)):
        raise InputError(
            f"{path}: was made by another model; name that one, or make the index anew"
        )
    return index


def rank(predictor: Predictor, query: str, texts: list[str]) -> list[dict]:
    """Return texts in the order in which they fit a query, best first.

    A model of pairs reads the query with each text, which is slow and exact. Its score is that of a
    regression, or the probability of the last of two labels. The score of an embedding model is the
    cosine.

    Args:
        predictor: the opened model.
        query: the text that the others should fit.
        texts: the texts.

    Returns:
        A list of dicts with `text`, `row`, its place in `texts` from 0, and `score`.

    Raises:
        InputError: the model has no such score.
    """
    texts = list_texts("texts", texts)
    if hasattr(predictor.client, "vectors"):
        return search(predictor, query, texts, max(len(texts), 1))
    labels = predictor.model.labels
    is_classifier = predictor.method == "classify" and "labels" not in predictor.model.outputs
    has_score = labels is None or len(labels) == 2
    if not is_classifier or len(predictor.columns) != 2 or not has_score:
        raise InputError(
            f"{predictor.path}: this is a model of the task {predictor.task_name}, which has no "
            "rank(); use an embedding model, or a model of pairs with two labels or a score"
        )
    scores = []
    for answer in predictor.answers([(query, text) for text in texts]):
        scores.append(answer["probabilities"][labels[1]] if labels else answer["score"])
    order = sorted(range(len(texts)), key=lambda row: -scores[row])
    return make_hits(texts, order, [scores[row] for row in order])


def token_ids(predictor: Predictor, text: str) -> tuple[int, ...]:
    """Return the ids of the WordPieces that the model reads of a text.

    A model cannot tell two texts with equal ids apart.

    Args:
        predictor: the opened model.
        text: the text.

    Returns:
        The ids, without those of [CLS] and [SEP].
    """
    model = predictor.model
    ids = model.tokenizer.encode(text)
    return tuple(ids[: model.max_seq_length - 2])


def make_hits(
    texts: Sequence[str], rows: Iterable[int], scores: Iterable[float]
) -> list[dict[str, Any]]:
    """Return the results of a search.

    Args:
        texts: the texts of the corpus.
        rows: the places of some texts in it, best first.
        scores: the scores of these texts.

    Returns:
        A list of dicts with `text`, `row` and `score`.
    """
    results = []
    for row, score in zip(rows, numbers(scores), strict=True):
        results.append({"text": texts[row], "row": row, "score": score})
    return results


def _check_comparison(encoder: Encoder):
    comparison = getattr(encoder, "comparison", COSINE)
    if comparison != COSINE:
        raise InputError(
            f"similarity_fn_name: the model compares vectors by {comparison}, and only the cosine "
            "can be computed here; compare the vectors of encode, or pass normalize=True to use "
            "the cosine"
        )


def _check_number(name: str, value: Any, kind: type, lowest: int):
    if not has_type(value, kind) or value < lowest:
        noun = "whole number" if kind is int else "number"
        raise InputError(f"{name}={value!r}: must be a {noun} from {lowest}")

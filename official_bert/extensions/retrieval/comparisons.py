"""The methods that search and compare texts, for official_bert.Predictor and SentenceEncoder.

The `encoder` of these functions is the object that has them as methods. Its method `encode` turns
texts into float32[n, width].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from official_bert.extensions.retrieval import vector_search
from official_bert.extensions.retrieval.index import Index
from official_bert.io.errors import InputError
from official_bert.io.reading import is_of_kind
from official_bert.metrics.cosines import all_cosines
from official_bert.serving.predictor import Predictor
from official_bert.tasks.clients import numbers
from official_bert.tokenizer_call import list_texts

COSINE = "cosine"
# The cosine of a text's two vectors: devices and bfloat16 differ by less, other models by more.
_SAME_MODEL = 0.99


class Encoder(Protocol):
    """An object that encodes texts.

    It may have the attribute `comparison`, the measure by which its vectors are to be compared;
    without it that is the cosine.
    """

    def encode(self, texts: str | list[str]) -> np.ndarray:
        """Returns the vectors of texts, float32[n, width]; a single text is a list of one."""


def encoder_methods() -> Mapping[str, Callable]:
    """Returns the methods of every object that encodes texts."""
    return {
        "similarity": similarity,
        "search": search,
        "paraphrases": paraphrases,
        "index_of": index_of,
    }


def predictor_methods() -> Mapping[str, Callable]:
    """Returns the methods of a Predictor."""
    return {**encoder_methods(), "rank": rank, "token_ids": token_ids}


def similarity(
    encoder: Encoder, a: str | list[str], b: str | list[str]
) -> float | list[list[float]]:
    """Returns the cosine of two texts; for lists the rows of a table, one for each text of `a`."""
    _check_comparison(encoder)
    table = [numbers(cosines) for cosines in all_cosines(encoder.encode(a), encoder.encode(b))]
    return table[0][0] if isinstance(a, str) and isinstance(b, str) else table


def search(
    encoder: Encoder,
    queries: str | list[str],
    corpus: Iterable[str] | str | os.PathLike | Index,
    k: int = 10,
) -> list:
    """Returns the `k` texts of a corpus that are nearest to a text, best first; for a list a list
    of these.

    Args:
        queries: the text, or several.
        corpus: a list of texts, which each call encodes anew; what `index_of` returned for one; or
            the path of an index that official-bert predict --index wrote.
        k: the number of texts in a result.

    Returns:
        A list of dicts with `text`, `row`, its place in the corpus from 0, and `score`, the cosine.
    """
    _check_comparison(encoder)
    _check("k", k, kind=int, least=1)
    index = index_of(encoder, corpus)
    scores, rows = vector_search.search(encoder.encode(queries), index.vectors, k)
    results = [
        hits(index.texts, query_rows, query_scores)
        for query_rows, query_scores in zip(rows.tolist(), scores, strict=True)
    ]
    return results[0] if isinstance(queries, str) else results


def paraphrases(
    encoder: Encoder, texts: list[str], limit: int = 100, threshold: float = 0.0
) -> list[dict]:
    """Returns the pairs of texts with the highest cosines, best first.

    Args:
        texts: the texts.
        limit: the largest number of pairs.
        threshold: the lowest cosine of a pair.

    Returns:
        A list of dicts with `text_a`, `text_b`, their places `row_a` < `row_b` from 0, and `score`.
    """
    _check_comparison(encoder)
    _check("limit", limit, kind=int, least=1)
    _check("threshold", threshold, kind=float, least=-1)
    texts = list_texts("texts", texts)
    scores, pairs = vector_search.paraphrases(encoder.encode(texts), limit, threshold)
    return [
        {"text_a": texts[a], "text_b": texts[b], "row_a": a, "row_b": b, "score": score}
        for (a, b), score in zip(pairs.tolist(), numbers(scores), strict=True)
    ]


def index_of(encoder: Encoder, corpus: Iterable[str] | str | os.PathLike | Index) -> Index:
    """Returns the texts and the vectors of a corpus, which is what `search` takes."""
    if isinstance(corpus, Index):
        return corpus
    if not isinstance(corpus, (str, os.PathLike)):
        texts = list_texts("corpus", corpus)
        return Index(texts, encoder.encode(texts))
    path = os.fspath(corpus)
    index = Index.read(path)
    stored, computed = index.vectors[:1], encoder.encode(index.texts[:1])
    if stored.shape != computed.shape or (all_cosines(stored, computed) < _SAME_MODEL).any():
        raise InputError(
            f"{path}: was made by another model; name that one, or make the index anew"
        )
    return index


def rank(predictor: Predictor, query: str, texts: list[str]) -> list[dict]:
    """Returns the texts in the order in which they fit a query, best first.

    A model of pairs reads the query with each text, which is slow and exact: the score is that of a
    regression, or the probability of the last of two labels. With a model of embeddings it is the
    cosine.

    Args:
        query: the text that the others are to fit.
        texts: the texts.

    Returns:
        A list of dicts with `text`, `row`, its place in `texts` from 0, and `score`.
    """
    texts = list_texts("texts", texts)
    if hasattr(predictor.client, "vectors"):
        return search(predictor, query, texts, max(len(texts), 1))
    labels = predictor.model.labels
    is_classifier = predictor.method == "classify" and "labels" not in predictor.model.outputs
    has_score = labels is None or len(labels) == 2
    if not is_classifier or len(predictor.columns) != 2 or not has_score:
        raise InputError(
            f"{predictor.path}: rank is not for a model of {predictor.task_name}; it takes one of "
            "pairs with two labels or a score, or one of vectors"
        )
    answers = predictor.answers([(query, text) for text in texts])
    scores = [
        answer["probabilities"][labels[1]] if labels else answer["score"] for answer in answers
    ]
    order = sorted(range(len(texts)), key=lambda row: -scores[row])
    return hits(texts, order, [scores[row] for row in order])


def token_ids(predictor: Predictor, text: str) -> tuple[int, ...]:
    """Returns the ids of the WordPieces that the model reads of a text.

    A model cannot tell two texts with equal ids apart.
    """
    model = predictor.model
    return tuple(model.tokenizer.encode(text)[: model.max_seq_length - 2])


def hits(
    texts: Sequence[str], rows: Iterable[int], scores: Iterable[np.float32 | float]
) -> list[dict[str, Any]]:
    """Returns the results of a search for some rows of its texts."""
    return [
        {"text": texts[row], "row": row, "score": score}
        for row, score in zip(rows, numbers(scores), strict=True)
    ]


def _check_comparison(encoder: Encoder):
    comparison = getattr(encoder, "comparison", COSINE)
    if comparison != COSINE:
        raise InputError(
            f"similarity_fn_name: the model compares vectors by {comparison}, and only the cosine "
            "can be computed here; compare the vectors of encode, or pass normalize=True to use "
            "the cosine"
        )


def _check(name: str, value: Any, kind: type, least: int):
    if not is_of_kind(value, kind) or value < least:
        raise InputError(
            f"{name}={value!r}: must be a {'whole ' if kind is int else ''}number from {least}"
        )

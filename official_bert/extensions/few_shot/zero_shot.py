"""Classifies texts by the names of the labels: a method of Predictor.

A model of natural language inference says how well "This example is about trains." follows from a
text (Yin et al., 2019). An embedding model compares the text with the names of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.io.errors import InputError
from official_bert.metrics.cosines import all_cosines
from official_bert.serving.predictor import Predictor
from official_bert.tasks.clients import numbers
from official_bert.tokenizer_call import list_texts

_HYPOTHESIS = "This example is {}."  # that of the pipelines of transformers
_ENTAILMENT, _CONTRADICTION = "entail", "contra"  # how the names of the labels begin


def predictor_methods() -> Mapping[str, Callable]:
    """Returns the methods of a Predictor."""
    return {"zero_shot": zero_shot}


def zero_shot(
    predictor: Predictor,
    texts: str | list[str],
    labels: list[str],
    hypothesis: str | None = None,
    multi_label: bool = False,
) -> Any:
    """Returns how well labels fit a text, without a training on these labels.

    Args:
        predictor: the opened model: one of pairs with a label such as "entailment", or one of
            embeddings.
        texts: the text, or several.
        labels: the names of the labels.
        hypothesis: the sentence about a text, with {} for the label. Without it, it is "This
            example is {}.", and for embeddings the label alone.
        multi_label: whether several labels can fit a text. The score of each then does not depend
            on the others. It is only for models of pairs.

    Returns:
        A dict with `sequence`, `labels`, best first, and their `scores`; for a list of texts, a
        list of these. The scores are probabilities, whose sum is 1 unless `multi_label`; those of
        embeddings are cosines.

    Raises:
        InputError: an argument cannot be used, or the model is another one.

    Example:
        ```python
        from official_bert import Predictor

        predictor = Predictor("my_mnli_model")
        predictor.zero_shot("The train was late.", ["travel", "food"])
        # {"sequence": ..., "labels": ["travel", "food"], "scores": [0.9..., 0.0...]}
        ```
    """
    requests = list_texts("texts", texts)
    if not isinstance(labels, list) or not labels or len({*labels}) != len(labels):
        raise InputError(f"labels={labels!r}: must be a list of different texts, at least one")
    labels = list_texts("labels", labels)
    is_embedder = hasattr(predictor.client, "vectors")
    if hypothesis is None:
        hypothesis = "{}" if is_embedder else _HYPOTHESIS
    if "{}" not in hypothesis:
        raise InputError(f"hypothesis={hypothesis!r}: has no {{}} for the label")
    sentences = [hypothesis.replace("{}", label) for label in labels]
    if not is_embedder:
        scores = _compare_by_inference(predictor, requests, sentences, multi_label)
    elif multi_label:
        raise InputError(
            "multi_label: is for models of pairs; the cosines of embeddings never depend on the "
            "other labels"
        )
    else:
        scores = _compare_by_cosine(predictor, requests, sentences)
    answers = []
    for text, row in zip(requests, scores, strict=True):
        order = np.argsort(-row, kind="stable")
        ranked = [labels[index] for index in order]
        answers.append({"sequence": text, "labels": ranked, "scores": numbers(row[order])})
    return answers[0] if isinstance(texts, str) else answers


def _compare_by_cosine(
    predictor: Predictor, texts: Sequence[str], sentences: Sequence[str]
) -> np.ndarray:
    """Returns the cosines of texts and sentences, float32[texts, sentences]."""
    client: Any = predictor.client
    text_vectors = client.vectors([(text,) for text in texts])
    sentence_vectors = client.vectors([(sentence,) for sentence in sentences])
    return all_cosines(text_vectors, sentence_vectors)


def _compare_by_inference(
    predictor: Predictor, texts: Sequence[str], sentences: Sequence[str], multi_label: bool
) -> np.ndarray:
    """Returns the probabilities of sentences given texts, float64[texts, sentences]."""
    names = predictor.model.labels or []
    entailment = _find_label(names, _ENTAILMENT)
    has_pairs = predictor.method == "classify" and len(predictor.columns) == 2
    if entailment is None or not has_pairs or "labels" in predictor.model.outputs:
        raise InputError(
            f"{predictor.path}: this is a model of the task {predictor.task_name}, which has no "
            "zero_shot(); use an embedding model, or a model of pairs with a label that begins "
            f"with {_ENTAILMENT!r}, such as one of MNLI"
        )
    pairs = [(text, sentence) for text in texts for sentence in sentences]
    client: Any = predictor.client
    logits = np.array([row["logits"] for row in client.rows(pairs)], np.float64)
    logits = logits.reshape(len(texts), len(sentences), len(names))
    if not multi_label:
        return _softmax(logits[..., entailment])
    contradiction = _find_label(names, _CONTRADICTION)
    compared = [entailment]
    if contradiction is None:
        compared += [index for index in range(len(names)) if index != entailment]
    else:
        compared.append(contradiction)
    probabilities = _softmax(logits[..., compared])
    return probabilities[..., 0]


def _find_label(names: Sequence[str], start: str) -> int | None:
    """Returns the index of the label whose name begins so, in any case; None without one."""
    indices = (index for index, name in enumerate(names) if name.lower().startswith(start))
    return next(indices, None)


def _softmax(values: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)

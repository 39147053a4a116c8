"""What an evaluation of sentence vectors measures, by its name in --eval_task: from examples and
vectors to metrics.

Only the different texts of a set get a vector, once each; an evaluation knows the rows of its texts
among them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from official_bert.data.model_inputs import ModelInputs
from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings import probing
from official_bert.extensions.embeddings.examples import TextRows
from official_bert.extensions.embeddings.metrics import (
    pair_classification,
    retrieval,
    sts,
    triplets,
)
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import cosines, unit_vectors

_SEED = 0  # of the starts of clustering, and of the draws of few_shot


# Of the vectors of texts, float32[texts, D], by name.
Metrics = Callable[[np.ndarray], dict[str, float]]


class Kind(NamedTuple):
    """A kind of evaluation: its main metric, and the function that prepares it for a set."""

    main_metric: str
    prepare: Callable[[Sequence[Example], TextRows], Metrics]


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """The different texts of a set; `metrics` is None for one that is only predicted."""

    inputs: ModelInputs
    texts: list[str]
    metrics: Metrics | None = None

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of each text."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of encoder features, int32[b, length]."""
        return self.inputs.features(rows, length)


def _pairs(
    examples: Sequence[Example], rows: TextRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows of both texts of each pair, and the scores; a pair without a score is
    left out.
    """
    scored = [example for example in examples if example.label]
    if len(scored) < len(examples):
        logging.info("%d pairs without a score are left out", len(examples) - len(scored))
    if alone := next((example for example in scored if not example.positives), None):
        raise InputError(
            f"{alone.where}: has no second text; name its column, --columns=positive=..."
        )
    if not scored:
        raise InputError(
            f"{examples[0].where}: no pair has a score; name their column, --columns=label=..."
        )
    listed = [
        (rows(one.anchor), rows(text), one.score()) for one in scored for text in one.positives
    ]
    first, second, scores = zip(*listed, strict=True)
    return np.array(first), np.array(second), np.array(scores)


def _sts(examples, rows):
    first, second, scores = _pairs(examples, rows)
    if len(set(scores)) < 2:
        raise InputError(
            f"{examples[0].where}: all pairs have the score {scores[0]:g}, with which nothing "
            "correlates; give pairs of several scores"
        )

    def metrics(vectors):
        values = sts(vectors[first], vectors[second], scores)
        if np.isnan(values["spearman"]):
            logging.warning(
                "All pairs have the same cosine, so no correlation is defined: the vectors are "
                "alike"
            )
        return values

    return metrics


def _pair_classification(examples, rows):
    first, second, labels = _pairs(examples, rows)
    if not set(labels) <= {0.0, 1.0}:
        raise InputError(
            f"{examples[0].where}: --eval_task=pairs needs labels 0 and 1; correct them, or take "
            "sts"
        )
    if len(set(labels)) < 2:
        raise InputError(
            f"{examples[0].where}: all pairs have label {labels[0]:g}, and --eval_task=pairs tells "
            "those of label 1 from those of label 0; give both, or leave the labels out, "
            "--columns=label=, for --eval_task=retrieval"
        )

    return lambda vectors: pair_classification(cosines(vectors[first], vectors[second]), labels)


def _triplets(examples, rows):
    listed = [
        [rows(example.anchor), rows(positive), rows(negative)]
        for example in examples
        for positive in example.positives
        for negative in example.negatives
    ]
    if not listed:
        raise InputError(
            f"{examples[0].where}: has no negative text; name its column, --columns=negative=..."
        )
    anchors, positives, negatives = np.array(listed).T
    if num_same := int(np.sum((negatives == positives) | (negatives == anchors))):
        logging.warning(
            "%d triplets have a negative that is their anchor or positive: always wrong", num_same
        )
    return lambda vectors: triplets(vectors[anchors], vectors[positives], vectors[negatives])


def _retrieval(examples, rows):
    """Ranks all texts that are an answer or, for labelled pairs, the second texts of the query;
    never the query.
    """
    ranked = collections.defaultdict(list)  # of each query
    relevant = collections.defaultdict(set)
    is_labelled = any(example.label for example in examples)
    num_self_answers = 0
    for example in examples:
        query = rows(example.anchor)
        answers = list(map(rows, example.positives))
        is_right = not is_labelled or example.score() > 0
        num_self_answers += is_right and query in answers
        relevant[query].update(answer for answer in answers if is_right and answer != query)
        ranked[query] += answers + list(map(rows, example.negatives))
    if num_self_answers:
        logging.warning(
            "%d examples have the query itself as its answer, which no search returns",
            num_self_answers,
        )
    texts = sorted({text for answers in ranked.values() for text in answers})
    corpus, place = np.array(texts, np.int64), {text: number for number, text in enumerate(texts)}
    queries = []
    for query, right in relevant.items():
        candidates = set(ranked[query] if is_labelled else texts) - {query}
        if right and right != candidates:
            queries.append(query)
    if not queries:
        raise InputError(
            f"{examples[0].where}: no query has a text to find among others; check --columns, or "
            "give more examples"
        )
    if len(queries) < len(ranked):
        logging.info(
            "%d queries without a right or a wrong text are left out", len(ranked) - len(queries)
        )
    right = [[place[text] for text in relevant[query]] for query in queries]
    candidates = (
        [[place[text] for text in ranked[query]] for query in queries] if is_labelled else None
    )
    query_rows = [place.get(query, -1) for query in queries]
    return lambda vectors: retrieval(
        vectors[queries], vectors[corpus], right, candidates, query_rows
    )


def _classes(examples, rows) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the texts and their classes."""
    if nameless := next((example for example in examples if not example.label), None):
        raise InputError(f"{nameless.where}: has no label; name its column, --columns=label=...")
    return np.array([rows(example.anchor) for example in examples]), np.array(
        [example.label for example in examples]
    )


def _clustering(examples, rows):
    texts, classes = _classes(examples, rows)
    num_labels, num_texts = len(set(classes)), len(set(texts))
    if not 1 < num_labels < num_texts:
        raise InputError(
            f"{examples[0].where}: {num_texts} different texts have {num_labels} labels, for which "
            "any clusters are perfect; --eval_task=clustering needs several labels, and several "
            "texts of a label"
        )
    return lambda vectors: probing.clustering(vectors[texts], classes, _SEED)


def _few_shot(examples, rows):
    texts, classes = _classes(examples, rows)
    order = np.random.default_rng(_SEED).permutation(len(texts))
    training_rows, test_rows = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    counts = {str(name): np.sum(classes[training_rows] == name) for name in np.unique(classes)}
    fewest = min(counts, key=lambda name: counts[name])
    if len(counts) < 2 or counts[fewest] < probing.SHOTS[-1]:
        raise InputError(
            f"{examples[0].where}: --eval_task=few_shot draws {probing.SHOTS[-1]} examples of each "
            f"of several labels from half of the set, which has {counts[fewest]} of {fewest!r}; "
            "give more, or take clustering"
        )

    def metrics(vectors):
        vectors = vectors[texts]
        return probing.few_shot(
            vectors[training_rows],
            classes[training_rows],
            vectors[test_rows],
            classes[test_rows],
            seed=_SEED,
        )

    return metrics


KINDS = {
    "sts": Kind("eval_spearman", _sts),
    "pairs": Kind("eval_average_precision", _pair_classification),
    "triplets": Kind("eval_accuracy", _triplets),
    "retrieval": Kind("eval_ndcg_at_10", _retrieval),
    "clustering": Kind("eval_v_measure", _clustering),
    "few_shot": Kind("eval_accuracy_8", _few_shot),
}


def choose_kind(examples: Sequence[Example]) -> str:
    """Returns the name of the evaluation that suits examples, by the columns that they have."""
    labelled = [example for example in examples if example.label]
    if any(example.negatives for example in examples):
        return "triplets"
    if any(example.positives for example in examples):
        is_truth = {example.score() for example in labelled} <= {0.0, 1.0}
        return ("pairs" if is_truth else "sts") if labelled else "retrieval"
    if labelled:
        return "clustering"
    raise InputError(
        f"{examples[0].where}: has one text and no label, so nothing can be measured; check "
        "--columns"
    )


def prepare(examples: Sequence[Example], rows: TextRows, kind: str) -> Metrics:
    """Prepares an evaluation of a kind for the examples of a set, whose texts `rows` has."""
    compute = KINDS[kind].prepare(examples, rows)

    def metrics(vectors):
        # Refuses numbers that are not finite.
        unit_vectors(np.sum(vectors, axis=0, dtype=np.float64))
        return {f"eval_{name}": value for name, value in compute(vectors).items()}

    return metrics

"""The evaluations of embeddings, by their names in --eval_task: from vectors to metrics.

Each distinct text of a set has one vector. Before the vectors exist, an evaluation finds the rows
of its texts among them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from official_bert import catalog
from official_bert.data.model_inputs import ModelInputs
from official_bert.data.text_examples import (
    POOLING_START,
    QUERY,
    Metrics,
    TextRows,
    VectorEvaluation,
)
from official_bert.data.text_tables import LABEL, NEGATIVE, POSITIVE, Example
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import cosines, unit_vectors
from official_bert.metrics.embeddings import pair_classification, retrieval, sts, triplets

_CLUSTERING = "clustering"  # an evaluation of an extension


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """The distinct texts of a set.

    Attributes:
        inputs: the inputs of the model for all texts.
        texts: the texts.
        metrics: the evaluation; None for a set that is only predicted.
        pooling_starts: the first pooled token of each text, int32[n]; None for the first one.
    """

    inputs: ModelInputs
    texts: list[str]
    metrics: Metrics | None = None
    pooling_starts: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each text, int64[n]."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch of encoder features.

        Args:
            rows: the rows of the texts, int[b].
            length: the number of tokens to which each text is padded.

        Returns:
            The features by name, int32[b, length].
        """
        batch = self.inputs.features(rows, length)
        if self.pooling_starts is not None:
            batch[POOLING_START] = self.pooling_starts[rows]
        return batch


def _read_pairs(
    examples: Sequence[Example], rows: TextRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows of the first and the second texts, and the scores of the pairs.

    Pairs without a score are left out.
    """
    scored = [example for example in examples if example.label]
    if len(scored) < len(examples):
        logging.info("%d pairs without a score are left out", len(examples) - len(scored))
    for example in scored:
        if not example.positives:
            raise InputError(
                f"{example.where}: has no second text; name its column, --positive_column=..."
            )
    if not scored:
        raise InputError(
            f"{examples[0].where}: no pair has a score; name their column, --label_column=..."
        )
    first_rows = []
    second_rows = []
    scores = []
    for example in scored:
        for text in example.positives:
            first_rows.append(rows(example.anchor, QUERY))
            second_rows.append(rows(text))
            scores.append(example.score())
    return np.array(first_rows), np.array(second_rows), np.array(scores)


def _prepare_sts(examples: Sequence[Example], rows: TextRows) -> Metrics:
    first, second, scores = _read_pairs(examples, rows)
    if len(set(scores)) < 2:
        raise InputError(
            f"{examples[0].where}: all pairs have the score {scores[0]:g}, so no correlation "
            "is defined; give pairs with different scores"
        )

    def compute(vectors: np.ndarray) -> dict[str, float]:
        values = sts(vectors[first], vectors[second], scores)
        if np.isnan(values["spearman"]):
            logging.warning(
                "All pairs have the same cosine, so no correlation is defined: the vectors do not "
                "differ"
            )
        return values

    return compute


def _prepare_pairs(examples: Sequence[Example], rows: TextRows) -> Metrics:
    first, second, labels = _read_pairs(examples, rows)
    if not set(labels) <= {0.0, 1.0}:
        raise InputError(
            f"{examples[0].where}: --eval_task=pairs needs labels 0 and 1; correct them, or "
            "use --eval_task=sts"
        )
    if len(set(labels)) < 2:
        raise InputError(
            f"{examples[0].where}: all pairs have label {labels[0]:g}, and --eval_task=pairs needs "
            "pairs of label 0 and of label 1; add the others, or leave the labels out with "
            "--label_column= for --eval_task=retrieval"
        )
    return lambda vectors: pair_classification(cosines(vectors[first], vectors[second]), labels)


def _prepare_triplets(examples: Sequence[Example], rows: TextRows) -> Metrics:
    row_triplets = []
    for example in examples:
        for positive in example.positives:
            for negative in example.negatives:
                anchor = rows(example.anchor, QUERY)
                row_triplets.append([anchor, rows(positive), rows(negative)])
    if not row_triplets:
        raise InputError(
            f"{examples[0].where}: has no negative text; name its column, --negative_columns=..."
        )
    anchors, positives, negatives = np.array(row_triplets).T
    num_same = int(np.sum((negatives == positives) | (negatives == anchors)))
    if num_same:
        logging.warning(
            "%d triplets count as wrong: their negative is also their anchor or positive", num_same
        )
    return lambda vectors: triplets(vectors[anchors], vectors[positives], vectors[negatives])


def _prepare_retrieval(examples: Sequence[Example], rows: TextRows) -> Metrics:
    """Ranks texts for each query.

    Without labels, they are the answers to all queries. With labels, they are the second texts of
    the query's own pairs. The query itself is never ranked.
    """
    is_labelled = any(example.label for example in examples)
    # The row of each query as a document, which is not ranked for it.
    itself = {rows(example.anchor, QUERY): rows.find(example.anchor) for example in examples}
    ranked, relevant = _read_answers(examples, rows, is_labelled)
    texts = sorted({text for answers in ranked.values() for text in answers})
    queries = []
    for query, right in relevant.items():
        candidates = set(ranked[query] if is_labelled else texts) - {itself[query]}
        if right and right != candidates:
            queries.append(query)
    if not queries:
        raise InputError(
            f"{examples[0].where}: no query has a text to find among others; check "
            "--anchor_column and --positive_column, or give more examples"
        )
    if len(queries) < len(ranked):
        logging.info(
            "%d queries without a right or a wrong text are left out",
            len(ranked) - len(queries),
        )
    places = {text: number for number, text in enumerate(texts)}
    relevant_places = [[places[text] for text in relevant[query]] for query in queries]
    candidate_places = None
    if is_labelled:
        candidate_places = [[places[text] for text in ranked[query]] for query in queries]
    query_places = [places.get(itself[query], -1) for query in queries]

    def compute(vectors: np.ndarray) -> dict[str, float]:
        return retrieval(
            vectors[queries],
            vectors[texts],
            relevant_places,
            candidate_places,
            query_places,
        )

    return compute


def _read_answers(
    examples: Sequence[Example], rows: TextRows, is_labelled: bool
) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
    """Returns the rows of the second texts of each query, and the rows of the right ones."""
    ranked: dict[int, list[int]] = collections.defaultdict(list)
    relevant: dict[int, set[int]] = collections.defaultdict(set)
    num_self_answers = 0
    for example in examples:
        query = rows(example.anchor, QUERY)
        itself = rows.find(example.anchor)
        answers = [rows(text) for text in example.positives]
        is_right = not is_labelled or example.score() > 0
        num_self_answers += is_right and itself in answers
        relevant[query] |= (set(answers) - {itself}) if is_right else set()
        ranked[query] += answers
        ranked[query] += [rows(text) for text in example.negatives]
    if num_self_answers:
        logging.warning(
            "%d examples have the query itself as its answer, which is not ranked",
            num_self_answers,
        )
    return ranked, relevant


_PAIR_PARTS = frozenset({POSITIVE, LABEL})
_EVALUATIONS = {
    "sts": VectorEvaluation("eval_spearman", _PAIR_PARTS, _prepare_sts),
    "pairs": VectorEvaluation("eval_average_precision", _PAIR_PARTS, _prepare_pairs),
    "triplets": VectorEvaluation(
        "eval_accuracy", frozenset({POSITIVE, NEGATIVE}), _prepare_triplets
    ),
    "retrieval": VectorEvaluation(
        "eval_ndcg_at_10", frozenset({POSITIVE, NEGATIVE, LABEL}), _prepare_retrieval
    ),
}


def list_evaluations() -> Mapping[str, VectorEvaluation]:
    """Return all evaluations by name, those of extensions last."""
    evaluations = dict(_EVALUATIONS)
    for further in catalog.hooks("embedding_evaluations"):
        evaluations |= {name: catalog.load(place) for name, place in further().items()}
    return evaluations


def choose_kind(examples: Sequence[Example]) -> str:
    """Return the name of the evaluation that fits the columns of examples.

    Args:
        examples: the examples of a set, at least one.

    Returns:
        A key of `list_evaluations`.

    Raises:
        InputError: the examples have neither a second text nor a label.
    """
    labelled = [example for example in examples if example.label]
    if any(example.negatives for example in examples):
        return "triplets"
    if any(example.positives for example in examples):
        if not labelled:
            return "retrieval"
        scores = {example.score() for example in labelled}
        return "pairs" if scores <= {0.0, 1.0} else "sts"
    if labelled and _CLUSTERING in list_evaluations():
        return _CLUSTERING
    raise InputError(
        f"{examples[0].where}: has one text and no label, so nothing can be measured; "
        "name the column of the second text or the label, --positive_column=... or "
        "--label_column=..."
    )


def prepare(examples: Sequence[Example], rows: TextRows, kind: str) -> Metrics:
    """Prepare an evaluation for the examples of a set.

    Args:
        examples: the examples.
        rows: the texts of the set and their rows.
        kind: a key of `list_evaluations`.

    Returns:
        A function from vectors to metrics with names such as `eval_accuracy`. It raises Diverged
        for vectors that are not finite.

    Raises:
        InputError: the evaluation cannot be computed from these examples.
    """
    compute = list_evaluations()[kind].prepare(examples, rows)

    def compute_finite(vectors: np.ndarray) -> dict[str, float]:
        # This raises Diverged for numbers that are not finite.
        unit_vectors(vectors.sum(axis=0, dtype=np.float64, keepdims=True))
        return {f"eval_{name}": value for name, value in compute(vectors).items()}

    return compute_finite

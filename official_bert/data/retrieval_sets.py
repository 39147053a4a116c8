"""Queries and the documents that are ranked for them, and the metrics of a ranking.

In: examples of a set. Out: a `RetrievalSet`, whose `measure` reads scores; and `EncodedTexts`, the
inputs of the model for its queries and documents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.text_examples import TextRows, all_texts
from official_bert.data.text_tables import Example
from official_bert.io.errors import Diverged, InputError
from official_bert.io.progress import counted
from official_bert.metrics.embeddings import score_places
from official_bert.tokenization import FullTokenizer

IS_QUERY = "is_query"


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """The queries and documents of a set.

    Attributes:
        queries: the distinct queries that have a right document and a wrong one.
        documents: the distinct documents.
        relevant: the rows of the right documents of each query, int[...].
        candidates: the rows that are ranked for each query, int[...]. None ranks all documents.
        query_rows: the document that is equal to each query and is never ranked, -1 for none.
    """

    queries: list[str]
    documents: list[str]
    relevant: list[np.ndarray]
    candidates: list[np.ndarray] | None
    query_rows: np.ndarray

    def measure(self, score_blocks: Iterable[np.ndarray]) -> dict[str, float]:
        """Return how high the relevant documents rank. Of equal scores the lower row ranks first.

        Args:
            score_blocks: the scores of the documents for all queries in their order, as blocks
                float32[q, documents]. A document with a higher score ranks higher.

        Returns:
            The means of `metrics.embeddings.score_places` over the queries, without `map` if all
            documents are ranked, else without `map_at_100`.

        Raises:
            Diverged: a score is not finite.
        """
        query_scores = []
        for block in score_blocks:
            if not np.isfinite(block).all():
                raise Diverged(
                    "the scores have numbers that are not finite; use a model whose training did "
                    "not diverge"
                )
            for scores in block:
                number = len(query_scores)
                places = self._find_places(number, scores)
                query_scores.append(score_places(places, len(self.relevant[number])))
        unused_name = "map" if self.candidates is None else "map_at_100"
        names = [name for name in query_scores[0] if name != unused_name]
        return {name: float(np.mean([one[name] for one in query_scores])) for name in names}

    def _find_places(self, number: int, scores: np.ndarray) -> np.ndarray:
        """Returns the places of a query's relevant documents that are ranked, from 1."""
        is_ranked = np.ones(len(scores), bool)
        if self.candidates is not None:
            is_ranked[:] = False
            is_ranked[self.candidates[number]] = True
        if self.query_rows[number] >= 0:
            is_ranked[self.query_rows[number]] = False
        ranked_rows = np.flatnonzero(is_ranked)
        order = np.argsort(-scores[ranked_rows], kind="stable")
        is_relevant = np.isin(ranked_rows[order], self.relevant[number])
        return np.flatnonzero(is_relevant) + 1


def build_retrieval_set(examples: Sequence[Example]) -> RetrievalSet:
    """Build the queries and documents of examples.

    Without labels, each query ranks the positives and negatives of all examples. With labels, it
    ranks the second texts of its own pairs, of which those with a label above 0 are right.

    Args:
        examples: the examples, at least one.

    Returns:
        The set, without queries that have no right or no wrong document.

    Raises:
        InputError: no query is left.
    """
    is_labelled = any(example.label for example in examples)
    queries = TextRows()
    documents = TextRows()
    ranked: list[set[int]] = []
    relevant: list[set[int]] = []
    for example in examples:
        row = queries(example.anchor)
        if row == len(ranked):
            ranked.append(set())
            relevant.append(set())
        positives = {documents(text) for text in example.positives}
        negatives = {documents(text) for text in example.negatives}
        ranked[row] |= positives | negatives
        if not is_labelled or example.score() > 0:
            relevant[row] |= positives
    document_rows = {text: row for row, text in enumerate(documents.texts)}
    all_documents = set(document_rows.values())
    query_numbers = []
    for row, query in enumerate(queries.texts):
        query_row = {document_rows.get(query, -1)}
        relevant[row] -= query_row
        ranked[row] -= query_row
        others = ranked[row] if is_labelled else all_documents - query_row
        if relevant[row] and relevant[row] != others:
            query_numbers.append(row)
    if not query_numbers:
        raise InputError(
            f"{examples[0].where}: no query has a document to find among others; check "
            "--anchor_column and --positive_column, or give more examples"
        )
    if len(query_numbers) < len(ranked):
        logging.info(
            "%d queries without a right or a wrong document are left out",
            len(ranked) - len(query_numbers),
        )
    ranked_queries = [queries.texts[row] for row in query_numbers]
    return RetrievalSet(
        queries=ranked_queries,
        documents=documents.texts,
        relevant=[np.array(sorted(relevant[row])) for row in query_numbers],
        candidates=[np.array(sorted(ranked[row])) for row in query_numbers]
        if is_labelled
        else None,
        query_rows=np.array([document_rows.get(query, -1) for query in ranked_queries]),
    )


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """The texts of a set: queries, then documents.

    Attributes:
        inputs: the inputs of the model for all texts.
        texts: the texts.
        num_queries: the number of queries.
        retrieval: the ranking that is measured; None for a set that is only predicted.
    """

    inputs: ModelInputs
    texts: list[str]
    num_queries: int = 0
    retrieval: RetrievalSet | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each text, int64[n]."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch.

        Args:
            rows: the rows of the texts, int[b].
            length: the number of tokens to which each text is padded.

        Returns:
            The features of the encoder, int32[b, length], and `is_query`, int32[b].
        """
        is_query = np.asarray(rows) < self.num_queries
        return self.inputs.features(rows, length) | {IS_QUERY: is_query.astype(np.int32)}


def encode_texts(
    examples: Sequence[Example],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    is_measured: bool,
) -> EncodedTexts:
    """Encode the texts of a set.

    Args:
        examples: the examples.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens; longer texts are truncated.
        is_measured: whether retrieval is measured. Otherwise all texts are documents.

    Raises:
        InputError: there is nothing to measure.
    """
    retrieval = build_retrieval_set(examples) if is_measured else None
    texts = all_texts(examples).texts
    if retrieval:
        texts = retrieval.queries + retrieval.documents
    ids = (
        model_input_ids(tokenizer, text, None, max_seq_length)
        for text in counted(texts, "texts encoded")
    )
    return EncodedTexts(
        inputs=ModelInputs(ids),
        texts=texts,
        num_queries=len(retrieval.queries) if retrieval else 0,
        retrieval=retrieval,
    )


def check_pair_labels(examples: Sequence[Example], loss: str, learns_margins: bool) -> None:
    """Reject a training set with labels that its loss does not read, or lacks.

    Args:
        examples: the examples of the set.
        loss: the name of the loss.
        learns_margins: whether the label is by how much a teacher scores the document of an example
            above its negative. Otherwise each document is a right one.

    Raises:
        InputError: the loss cannot learn from these examples.
    """
    for example in examples:
        if learns_margins:
            example.score()
        elif example.label and example.score() != 1.0:
            raise InputError(
                f"{example.where}: has the label {example.label}, but --loss={loss} takes each "
                "document for a right one; keep the rows with label 1, choose --loss=margin_mse, "
                "which learns margins, or leave the column out with --label_column="
            )

"""Pairs of a query and a document as inputs of the model, built batch by batch.

Each text is tokenized once, however many pairs have it.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.data.text_examples import TextRows
from official_bert.data.text_tables import Example
from official_bert.extensions.reranking.rankings import Ranking, list_documents
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_config import build_pair
from official_bert.training.batches import padded_length

NO_DOCUMENT = -1  # The row of a document that only fills an example.


class PairBuilder:
    """The distinct texts of a set, from which the inputs of pairs are built."""

    def __init__(self, texts: Sequence[str], tokenizer: FullTokenizer, max_seq_length: int):
        """Tokenizes the texts.

        Args:
            texts: the texts; the row of a text is its number.
            tokenizer: the tokenizer of the model.
            max_seq_length: the maximum number of tokens of a pair, special tokens included.
        """
        self._ids = RaggedRows(tokenizer.encode(text) for text in counted(texts, "texts encoded"))
        self._cls = tokenizer.vocab["[CLS]"]
        self._sep = tokenizer.vocab["[SEP]"]
        self._max_seq_length = max_seq_length

    def lengths(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return the number of tokens of pairs, int64[...].

        Args:
            queries: the rows of the queries, int[...].
            documents: the rows of the documents, int[...]; the length without a document is 2.
        """
        second = self._ids.lengths[documents]
        pairs = self._ids.lengths[queries] + second + np.where(second > 0, 3, 2)
        return np.where(documents == NO_DOCUMENT, 2, np.minimum(pairs, self._max_seq_length))

    def features(
        self, queries: np.ndarray, documents: np.ndarray, length: int
    ) -> dict[str, np.ndarray]:
        """Return the encoder features of pairs, int32[n, length] by name.

        Args:
            queries: the rows of the queries, int[n].
            documents: the rows of the documents, int[n]; the input without one is `[CLS] [SEP]`.
            length: the number of tokens to which pairs are padded. If one has more, all are padded
                to the next multiple of 8 that it fits.
        """
        inputs = ModelInputs(
            self._build(query, document) for query, document in zip(queries, documents, strict=True)
        )
        longest = int(inputs.lengths.max(initial=0))
        if longest > length:
            length = padded_length(longest, self._max_seq_length)
        return inputs.features(np.arange(len(inputs)), length)

    def _build(self, query: int, document: int) -> tuple[list[int], int]:
        first = second = []
        if document != NO_DOCUMENT:
            first = self._ids[query].tolist()
            second = self._ids[document].tolist()
        return build_pair(first, second, self._max_seq_length, self._cls, self._sep)


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """A set that is evaluated or predicted: n pairs of a query and a document.

    Attributes:
        pairs: the texts.
        queries: the row of the query of each pair, int32[n].
        documents: the row of its document, int32[n].
        labels: its label, float32[n]; 0 in a set without labels.
        texts: the texts in the order of their rows.
        examples: the rows of the file, whose documents are the pairs in this order; empty for a
            set with labels.
    """

    pairs: PairBuilder
    queries: np.ndarray
    documents: np.ndarray
    labels: np.ndarray
    texts: Sequence[str]
    examples: Sequence[Example] = ()

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each pair, int64[n]."""
        return self.pairs.lengths(self.queries, self.documents)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch of encoder features.

        Args:
            rows: the numbers of the pairs, int[b].
            length: the number of tokens to which each pair is padded.

        Returns:
            The features by name, int32[b, length].
        """
        return self.pairs.features(self.queries[rows], self.documents[rows], length)


@dataclasses.dataclass(frozen=True)
class TrainingLists:
    """A training set: n queries with N documents each, of which some only fill the example.

    Attributes:
        pairs: the texts.
        queries: the row of each query, int32[n].
        documents: the rows of its documents, int32[n, N].
        labels: their labels, float32[n, N].
        query_documents: the rows of all documents of a query, by its row; they are not drawn as
            negatives of it.
        num_negatives: the number K of documents of other queries of the batch that each example
            gets; 0 for none.
        computed_features: the features that a teacher computes.
    """

    pairs: PairBuilder
    queries: np.ndarray
    documents: np.ndarray
    labels: np.ndarray
    query_documents: dict[int, set[int]] = dataclasses.field(default_factory=dict)
    num_negatives: int = 0
    computed_features: tuple[str, ...] = ()

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of the longest pair of each example, int64[n]."""
        return self.pairs.lengths(self.queries[:, None], self.documents).max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch.

        Args:
            rows: the numbers of the examples, int[b].
            length: the number of tokens to which pairs are padded, or more if a document of
                another query needs it.

        Returns:
            Encoder features, int32[b, N + K, length], `labels`, float32[b, N + K], and
            `is_document`, float32[b, N + K]: 0 for a document that only fills the example.
        """
        queries = self.queries[rows]
        documents = self.documents[rows]
        labels = self.labels[rows]
        if self.num_negatives:
            negatives = self._draw_negatives(rows)
            documents = np.concatenate([documents, negatives], axis=1)
            labels = np.concatenate([labels, np.zeros(negatives.shape, np.float32)], axis=1)
        num_documents = documents.shape[1]
        repeated_queries = np.repeat(queries, num_documents)
        flat = self.pairs.features(repeated_queries, documents.ravel(), length)
        batch = {
            name: values.reshape(len(rows), num_documents, -1) for name, values in flat.items()
        }
        is_document = documents != NO_DOCUMENT
        batch["labels"] = labels
        batch["is_document"] = is_document.astype(np.float32)
        return batch

    def _draw_negatives(self, rows: np.ndarray) -> np.ndarray:
        """Returns documents of the other examples of a batch, int32[b, K].

        The draw depends on the batch alone, so that a run resumes exactly.
        """
        draws = np.random.default_rng(zlib.crc32(rows.astype(np.int64).tobytes()))
        batch_documents = self.documents[rows]
        candidates = np.unique(batch_documents[batch_documents != NO_DOCUMENT])
        negatives = np.full((len(rows), self.num_negatives), NO_DOCUMENT, np.int32)
        for place, row in enumerate(rows):
            documents = self.query_documents[int(self.queries[row])]
            others = [document for document in candidates.tolist() if document not in documents]
            chosen = draws.permutation(others)[: self.num_negatives]
            negatives[place, : len(chosen)] = chosen
        return negatives


def build_scored_pairs(
    rankings: Sequence[Ranking], tokenizer: FullTokenizer, max_seq_length: int
) -> ScoredPairs:
    """Return the set of an evaluation.

    Args:
        rankings: the queries and their documents with labels.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens of a pair.
    """
    pairs = []
    labels = []
    for ranking in rankings:
        pairs += [(ranking.query, document.text) for document in ranking.documents]
        labels += ranking.labels
    return _build_pairs(pairs, labels, tokenizer, max_seq_length)


def build_unscored_pairs(
    examples: Sequence[Example], tokenizer: FullTokenizer, max_seq_length: int
) -> ScoredPairs:
    """Return the set of a prediction.

    Args:
        examples: the rows of the file.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens of a pair.

    Raises:
        InputError: a row has no document.
    """
    pairs = [
        (example.anchor, document) for example in examples for document in list_documents(example)
    ]
    encoded = _build_pairs(pairs, [0.0] * len(pairs), tokenizer, max_seq_length)
    return dataclasses.replace(encoded, examples=examples)


def _build_pairs(
    pairs: Sequence[tuple[str, str]],
    labels: Sequence[float],
    tokenizer: FullTokenizer,
    max_seq_length: int,
) -> ScoredPairs:
    rows = TextRows()
    pair_rows = np.array([(rows(query), rows(document)) for query, document in pairs], np.int32)
    return ScoredPairs(
        pairs=PairBuilder(rows.texts, tokenizer, max_seq_length),
        queries=pair_rows[:, 0],
        documents=pair_rows[:, 1],
        labels=np.array(labels, np.float32),
        texts=rows.texts,
    )


def build_training_lists(
    rankings: Sequence[Ranking],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    num_negatives: int = 0,
) -> TrainingLists:
    """Return a training set whose examples have as many documents as the longest ranking.

    Args:
        rankings: the examples.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens of a pair.
        num_negatives: the number of documents of other queries of the batch that each example
            gets.
    """
    rows = TextRows()
    num_documents = max(len(ranking.documents) for ranking in rankings)
    shape = (len(rankings), num_documents)
    documents = np.full(shape, NO_DOCUMENT, np.int32)
    labels = np.zeros(shape, np.float32)
    queries = np.zeros(len(rankings), np.int32)
    query_documents: dict[int, set[int]] = {}
    for number, ranking in enumerate(rankings):
        queries[number] = rows(ranking.query)
        document_rows = [rows(document.text) for document in ranking.documents]
        documents[number, : len(document_rows)] = document_rows
        labels[number, : len(document_rows)] = ranking.labels
        query_rows = query_documents.setdefault(int(queries[number]), set())
        query_rows.update(document_rows)
    return TrainingLists(
        pairs=PairBuilder(rows.texts, tokenizer, max_seq_length),
        queries=queries,
        documents=documents,
        labels=labels,
        query_documents=query_documents if num_negatives else {},
        num_negatives=num_negatives,
    )

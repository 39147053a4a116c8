"""The sets of sparse embeddings: the texts of an evaluation, and the metrics of retrieval."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.retrieval_sets import RetrievalSet, build_retrieval_set
from official_bert.data.text_examples import all_texts
from official_bert.data.text_tables import Example
from official_bert.extensions.sparse.vectors import build_matrix, measure_sparsity, score_blocks
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer

IS_QUERY = "is_query"


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

    def measure(
        self, indices: np.ndarray, weights: np.ndarray, vocab_size: int
    ) -> dict[str, float]:
        """Return the metrics of retrieval, and how sparse the texts are.

        Args:
            indices: the words of each text, int32[n, K].
            weights: their weights, float32[n, K].
            vocab_size: the size of the vocabulary.
        """
        assert self.retrieval is not None  # A set that is only predicted has no evaluation.
        matrix = build_matrix(indices, weights, vocab_size)
        queries, documents = matrix[: self.num_queries], matrix[self.num_queries :]
        metrics = self.retrieval.measure(score_blocks(queries, documents))
        metrics |= measure_sparsity(queries, documents)
        return {f"eval_{name}": value for name, value in metrics.items()}


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

"""The signature `rank` of an exported reranker: one query and N documents to N scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official_bert.graph_text.text_reader import InputBuilder, TextReader, run_in_batches
from official_bert.tasks.base import FreeSignature

Features = dict[str, tf.Tensor]


def make_rank_signature(
    compute_scores: Callable[[Features], tf.Tensor], builder: InputBuilder
) -> FreeSignature:
    """Makes the signature.

    With a TextReader it reads `query`, string[], and `documents`, string[N]. Otherwise it reads
    `query_ids`, int32[Q], and `document_ids`, int32[N, D]: WordPiece ids without special tokens,
    in which id 0 is padding. The output `scores` is float32[N].

    Args:
        compute_scores: encoder features, int32[B, S], -> scores, float32[B].
        builder: builds the features.
    """

    def rank(query: tf.RaggedTensor, documents: tf.RaggedTensor) -> Features:
        """Returns the scores of the ids of documents for the ids of a query, [1, (pieces)]."""
        num_documents = documents.nrows()
        has_document = tf.debugging.Assert(
            num_documents > 0, ["a request must have at least one document"]
        )
        with tf.control_dependencies([has_document]):
            rows = tf.zeros([num_documents], tf.int64)
        features = builder.build_inputs(tf.gather(query, rows), documents)
        scores = run_in_batches(compute_scores, features, tf.float32)
        return {"scores": tf.ensure_shape(scores, [None])}

    if isinstance(builder, TextReader):
        reader = builder

        def rank_texts(texts: Features) -> Features:
            query = reader.tokenizer.encode(texts["query"][None])
            return rank(query, reader.tokenizer.encode(texts["documents"]))

        return FreeSignature(
            inputs={
                "query": tf.TensorSpec([], tf.string, "query"),
                "documents": tf.TensorSpec([None], tf.string, "documents"),
            },
            answer=rank_texts,
            request={
                "query": np.array(b"a", object),
                "documents": np.array([b"a"], object),
            },
        )

    def rank_ids(ids: Features) -> Features:
        query = tf.RaggedTensor.from_tensor(ids["query_ids"][None], padding=0)
        return rank(query, tf.RaggedTensor.from_tensor(ids["document_ids"], padding=0))

    return FreeSignature(
        inputs={
            "query_ids": tf.TensorSpec([None], tf.int32, "query_ids"),
            "document_ids": tf.TensorSpec([None, None], tf.int32, "document_ids"),
        },
        answer=rank_ids,
        request={
            "query_ids": np.ones(1, np.int32),
            "document_ids": np.ones((1, 1), np.int32),
        },
    )

"""The methods that this extension adds to official_bert.Predictor and SentenceEncoder."""

from collections.abc import Callable, Mapping

from official_bert.extensions.retrieval.comparisons import (
    index_of,
    paraphrases,
    rank,
    search,
    similarity,
    token_ids,
)
from official_bert.extensions.retrieval.vector_file import encode_file


def encoder_methods() -> Mapping[str, Callable]:
    """Return the methods of every object that encodes texts, by name."""
    return {
        "similarity": similarity,
        "search": search,
        "paraphrases": paraphrases,
        "index_of": index_of,
        "encode_file": encode_file,
    }


def predictor_methods() -> Mapping[str, Callable]:
    """Return the methods of a Predictor, by name."""
    return {**encoder_methods(), "rank": rank, "token_ids": token_ids}

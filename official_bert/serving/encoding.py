"""What the encoders of texts share: their lengths, batches of like length, and compiled functions.

They are SentenceEncoder, SparseEncoder and MultiVectorEncoder, each of a model or of its export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.io.reading import has_type
from official_bert.serving.exported_model import DEFAULT

# The name of a signature and the features of a batch -> the outputs by name.
Run = Callable[[str, Mapping[str, np.ndarray]], Mapping[str, Any]]


def check_positive(name: str, value: Any) -> None:
    """Checks an argument that is a positive whole number.

    Args:
        name: the name of the argument.
        value: its value.

    Raises:
        InputError: it is none.
    """
    if not has_type(value, int) or value < 1:
        raise InputError(f"{name}={value!r}: must be a positive whole number")


def choose_max_seq_length(max_seq_length: int | None, recorded: int | None, longest: int) -> int:
    """Returns the number of tokens to which texts are truncated.

    Args:
        max_seq_length: the argument; None leaves the choice to the folder.
        recorded: what the folder says; None for nothing.
        longest: the longest sequence of the model.

    Raises:
        InputError: the argument is no positive whole number, or the model reads fewer tokens.

    Example:
        ```python
        choose_max_seq_length(None, 128, 512)  # 128
        ```
    """
    if max_seq_length is None:
        return min(recorded or longest, longest)
    check_positive("max_seq_length", max_seq_length)
    if max_seq_length > longest:
        raise InputError(
            f"{max_seq_length=}: the model was made for sequences up to {longest} tokens; give a "
            "smaller number"
        )
    return max_seq_length


def list_hits(
    rankings: Iterable[Iterable[tuple[int, float]]], texts: Sequence[str] | None
) -> list[list[dict[str, Any]]]:
    """Returns the results of a search as dicts.

    Args:
        rankings: the rows of the documents with their scores for each query, best first.
        texts: the documents by row; None if they are unknown.

    Returns:
        A list for each query: dicts with `row`, `score` and, if it is known, `text`.

    Example:
        ```python
        list_hits([[(1, 0.5)]], ["A train left.", "It rained."])
        # [[{"text": "It rained.", "row": 1, "score": 0.5}]]
        ```
    """
    results = []
    for ranking in rankings:
        hits = []
        for row, score in ranking:
            hit: dict[str, Any] = {}
            if texts is not None:
                hit["text"] = texts[row]
            hit["row"] = row
            hit["score"] = score
            hits.append(hit)
        results.append(hits)
    return results


def like_length_batches(texts: Sequence[str], batch_size: int) -> Iterator[list[int]]:
    """Yields the rows of texts in batches of like length, and shows the progress.

    Args:
        texts: the texts.
        batch_size: the number of texts in a batch.

    Raises:
        InputError: the size is no positive whole number.
    """
    check_positive("batch_size", batch_size)
    # Characters tell enough about tokens.
    lengths = [len(text) for text in texts]
    order = np.argsort(lengths, kind="stable").tolist()
    starts = range(0, len(order), batch_size)
    for start in counted(starts, "batches of texts"):
        yield order[start : start + batch_size]


def compile_signatures(encoders: Mapping[str, Callable[[dict], dict]]) -> Run:
    """Returns the call of a model's functions, each with one trace for all shapes.

    Args:
        encoders: the functions of the encoder features, int32[B, S] each, by signature.
    """
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ENCODER_INPUTS}
    functions = {}
    for name, encode in encoders.items():
        functions[name] = tf.function(encode, input_signature=[signature], autograph=False)
    return lambda name, batch: functions[name](batch)


def run_export(export: Run) -> Run:
    """Returns the call of an export's signatures.

    Args:
        export: the opened export, or another open model with the signatures of one.
    """

    def run(name: str, batch: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        if name != DEFAULT:
            # The form of the further signatures of an export, which read positions.
            num_texts = len(batch["input_ids"])
            no_positions = np.zeros((num_texts, 1), np.int32)
            batch = {**batch, MASKED_LM_POSITIONS: no_positions}
        return export(name, batch)

    return run

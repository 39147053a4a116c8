"""The margins that the loss margin_mse learns: how much better a reranker scores a positive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import logging

from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.serving.predictor import Predictor


def read(examples: Sequence[Example], num_texts: int, teacher: str | None) -> np.ndarray:
    """Return the margins of the examples that `build_example_rows` makes.

    Args:
        examples: the rows of the file. Those with fewer negatives than the others have no example.
        num_texts: the number of texts of an example.
        teacher: the folder or the name of a reranker; None if the labels of the rows are scores.

    Returns:
        float32[n, num_texts - 2].

    Raises:
        InputError: the labels are no scores, or the teacher gives none.
    """
    num_negatives = num_texts - 2
    examples = [example for example in examples if len(example.negatives) >= num_negatives]
    if teacher:
        all_scores = _compute_scores(examples, teacher)
    else:
        all_scores = [np.array(example.scores()) for example in examples]
    margins = []
    for example, scores in zip(examples, all_scores, strict=True):
        num_positives = len(example.positives)
        negative_scores = scores[num_positives : num_positives + num_negatives]
        for positive_score in scores[:num_positives]:
            margins.append(positive_score - negative_scores)
    return np.array(margins, np.float32)


def _compute_scores(examples: Sequence[Example], teacher: str) -> list[np.ndarray]:
    """Returns the scores of the positives and negatives of each example."""
    pairs = []
    counts = []
    for example in examples:
        texts = (*example.positives, *example.negatives)
        pairs += [(example.anchor, text) for text in texts]
        counts.append(len(texts))
    logging.info("%d pairs get their scores from the teacher", len(pairs))
    try:
        scores = Predictor(teacher).score_pairs(pairs)
    except InputError as error:
        raise InputError(f"--teacher={teacher}: {error}") from None
    return np.split(scores, np.cumsum(counts)[:-1])

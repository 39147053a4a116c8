"""MaxSim and its losses against loops in numpy, and the objective of a training."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.extensions.late_interaction import options
from official_bert.extensions.late_interaction.losses import ranking_loss, score_all, score_pairs
from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
from official_bert.extensions.late_interaction.settings import LateInteractionSettings
from official_bert.extensions.late_interaction.task import MaxSimObjective
from official_bert.extensions.late_interaction.token_features import TokenRules
from tests import toy

GENERATOR = np.random.default_rng(5)
QUERIES = np.float32(GENERATOR.normal(size=(3, 4, 6)))  # [Q, L, D]
DOCUMENTS = np.float32(GENERATOR.normal(size=(3, 5, 6)))
NEGATIVES = np.float32(GENERATOR.normal(size=(3, 5, 6)))
QUERY_MASK = np.float32([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0]])
DOCUMENT_MASK = np.float32([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])
TEXT_IDS = np.arange(9, dtype=np.int32).reshape(3, 3)


def max_sim(query, query_mask, document, document_mask) -> float:
    """Compute the score of a pair by loops."""
    score = 0.0
    for vector, counts in zip(query, query_mask, strict=True):
        if counts:
            others = zip(document, document_mask, strict=True)
            score += max(float(vector @ other) for other, is_token in others if is_token)
    return score


def all_scores(documents) -> np.ndarray:
    scores = np.zeros((3, 3))
    for row in range(3):
        for column in range(3):
            scores[row, column] = max_sim(
                QUERIES[row], QUERY_MASK[row], documents[column], DOCUMENT_MASK[column]
            )
    return scores


def test_a_score_is_the_sum_of_the_largest_products():
    expected = all_scores(DOCUMENTS)
    scores = score_all(QUERIES, QUERY_MASK, DOCUMENTS, DOCUMENT_MASK)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    pairs = score_pairs(QUERIES, QUERY_MASK, DOCUMENTS, DOCUMENT_MASK)
    np.testing.assert_allclose(pairs, np.diag(expected), rtol=1e-5)


def compute_ranking(scores, excluded=()) -> float:
    """Compute the mean of -log of the softmax share of each query's document."""
    logits = np.array(scores)
    for place in excluded:
        logits[place] = -np.inf
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(-np.log(np.diag(shares)).mean())


def test_ranking_leaves_out_right_documents():
    scores = np.float32(GENERATOR.normal(size=(3, 6)))
    loss = float(ranking_loss(tf.constant(scores), TEXT_IDS, 2.0))
    assert loss == pytest.approx(compute_ranking(2 * scores), rel=1e-5)
    text_ids = TEXT_IDS.copy()
    text_ids[2, 2] = text_ids[0, 1]  # the last negative is the document of row 0
    loss = float(ranking_loss(tf.constant(scores), text_ids, 2.0))
    assert loss == pytest.approx(compute_ranking(2 * scores, [(0, 5)]), rel=1e-5)


def joined() -> np.ndarray:
    """Make the vectors of three examples with their masks, padded to 5 tokens: [3, 3, 5, 7]."""
    queries = np.concatenate([QUERIES, QUERY_MASK[..., None]], axis=-1)
    queries = np.pad(queries, [(0, 0), (0, 1), (0, 0)])
    others = [
        np.concatenate([one, DOCUMENT_MASK[..., None]], axis=-1) for one in (DOCUMENTS, NEGATIVES)
    ]
    return np.stack([queries, *others], axis=1)


@pytest.mark.parametrize("loss", options.LOSSES)
def test_the_objective_compares_the_batch(loss):
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    rules = TokenRules(4, 3, (), 4, False, longest=8)
    objective = MaxSimObjective(
        BertMultiVectorEncoder(config, 6), rules, LateInteractionSettings(loss=loss, scale=0.5)
    )
    labels = np.float32([0.5, -1, 2])
    features = {"text_ids": TEXT_IDS, "scores": labels}
    scores, others = all_scores(DOCUMENTS), all_scores(NEGATIVES)
    if loss == "margin_mse":
        expected = np.mean((np.diag(scores) - np.diag(others) - labels) ** 2)
    else:
        expected = compute_ranking(0.5 * np.concatenate([scores, others], axis=1))
    value = float(objective.batch_loss(tf.constant(joined()), features))
    assert value == pytest.approx(expected, rel=1e-5)

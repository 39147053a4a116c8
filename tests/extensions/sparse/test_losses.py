"""The losses of sparse embeddings and their schedule, against their formulas in numpy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.extensions.sparse import options
from official_bert.extensions.sparse.losses import LOSSES, flops
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.extensions.sparse.settings import SparseSettings
from official_bert.extensions.sparse.task import SparseObjective, compute_idf
from tests import toy

GENERATOR = np.random.default_rng(5)
WEIGHTS = np.float32(GENERATOR.random((4, 3, 7)))  # [B, N, V]
QUERIES, DOCUMENTS, NEGATIVES = WEIGHTS.swapaxes(0, 1)
TEXT_IDS = np.arange(12, dtype=np.int32).reshape(4, 3)


def close(value):
    return pytest.approx(value, rel=1e-5)


def ranking_loss(scale: float = 1.0, excluded=()) -> float:
    """Compute the mean of -log of the softmax share of each query's document."""
    logits = scale * QUERIES @ np.concatenate([DOCUMENTS, NEGATIVES]).T
    for row, column in excluded:
        logits[row, column] = -np.inf
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(-np.log(np.diag(shares)).mean())


def compute(name: str, features: dict, **settings) -> float:
    loss = LOSSES[name](SparseSettings(**settings))
    return float(loss(tf.constant(WEIGHTS), features))


def test_ranking_compares_dot_products_with_the_whole_batch():
    loss = compute("multiple_negatives_ranking", {"text_ids": TEXT_IDS})
    assert loss == close(ranking_loss())
    loss = compute("multiple_negatives_ranking", {"text_ids": TEXT_IDS}, scale=3.0)
    assert loss == close(ranking_loss(3.0))


def test_a_right_document_is_no_negative():
    text_ids = TEXT_IDS.copy()
    text_ids[2, 2] = text_ids[1, 1]  # a negative is the document of row 1
    loss = compute("multiple_negatives_ranking", {"text_ids": text_ids})
    assert loss == close(ranking_loss(excluded=[(1, 4 + 2)]))


def test_margin_mse_is_the_squared_difference_of_margins():
    labels = np.float32([0.1, -0.5, 2.0, 0.0])
    margins = (QUERIES * DOCUMENTS).sum(1) - (QUERIES * NEGATIVES).sum(1)
    expected = np.mean((margins - labels) ** 2)
    assert compute("margin_mse", {"scores": labels}) == close(expected)


def test_the_flags_name_every_loss():
    assert tuple(LOSSES) == options.LOSSES


@pytest.mark.parametrize("query_encoder", options.QUERY_ENCODERS)
def test_flops_are_added_by_the_square_of_the_updates(query_encoder):
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    settings = SparseSettings(query_flops=0.3, document_flops=0.2, flops_warmup=0.5)
    objective = SparseObjective(BertSparseEncoder(config, query_encoder), settings)
    step = tf.Variable(0, dtype=tf.int64)
    objective.follow(step, 20)
    documents = np.concatenate([DOCUMENTS, NEGATIVES])
    sparsity = 0.2 * np.sum(documents.mean(axis=0) ** 2)
    if query_encoder == "model":
        sparsity += 0.3 * np.sum(QUERIES.mean(axis=0) ** 2)
    for made, share in ((0, 0.0), (5, 0.25), (9, 0.81), (10, 1.0), (19, 1.0)):
        step.assign(made)
        loss = objective.batch_loss(tf.constant(WEIGHTS), {"text_ids": TEXT_IDS})
        assert float(loss) == close(ranking_loss() + share * sparsity)


def test_flops_are_the_sum_of_squared_means():
    assert float(flops(tf.constant([[1.0, 0.0, 2.0], [0.0, 0.0, 4.0]]))) == close(0.25 + 9)


def test_the_inverse_document_frequencies_are_those_of_bm25():
    counts = np.array([0, 3, 1, 4])  # of words 0 to 2; 4 documents
    expected = [np.log(1 + 4.5 / 0.5), np.log(1 + 1.5 / 3.5), np.log(1 + 3.5 / 1.5)]
    idf = compute_idf(counts, 5)
    np.testing.assert_allclose(idf, [*expected, expected[0], expected[0]], rtol=1e-6)

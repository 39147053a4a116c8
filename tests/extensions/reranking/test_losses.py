"""The losses of rerankers against their formulas in numpy, and those of sentence-transformers."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert.extensions.reranking.losses import LOSSES, Targets
from official_bert.extensions.reranking.options import LOSSES as LOSS_FLAG_VALUES
from official_bert.extensions.reranking.settings import RerankingSettings

GENERATOR = np.random.default_rng(5)
LOGITS = np.float32(GENERATOR.normal(size=(3, 4)) * 2)
LABELS = np.float32([[0, 1, 0, 2], [1, 0, 0, 0], [0.5, 3, 1, 0]])
# The last documents of two examples only fill them.
IS_DOCUMENT = np.float32([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
NUM_DOCUMENTS = [4, 3, 2]


def mean_loss(name, logits=LOGITS, labels=LABELS, is_document=IS_DOCUMENT, **settings) -> float:
    """The weighted mean over the batch, as `TaskObjective` computes it."""
    loss = LOSSES[name](RerankingSettings(loss=name, **settings))
    targets = Targets(tf.constant(labels), tf.constant(is_document))
    losses = loss(tf.constant(logits), targets).numpy()
    weights = loss.weights(targets).numpy()
    assert losses.shape == weights.shape == (len(logits),)
    return float(np.sum(losses * weights) / np.sum(weights))


def sigmoid(values):
    return 1 / (1 + np.exp(-np.float64(values)))


def close(value):
    return pytest.approx(value, rel=1e-5)


def real_documents():
    """The logits and labels of the documents of each example, without those that only fill."""
    for logits, labels, count in zip(LOGITS, LABELS, NUM_DOCUMENTS, strict=True):
        yield logits[:count].astype(float), labels[:count].astype(float)


def test_binary_cross_entropy_weighs_positives():
    logits = LOGITS[:, :1]
    labels = np.float32([[1], [0], [0.25]])
    losses = []
    for (logit,), (label,) in zip(logits, labels, strict=True):
        probability = sigmoid(logit)
        loss = -3 * label * math.log(probability) - (1 - label) * math.log(1 - probability)
        losses.append(loss)
    loss = mean_loss(
        "binary_cross_entropy", logits, labels, np.ones_like(labels), positive_weight=3.0
    )
    assert loss == close(np.mean(losses))


def test_multiple_negatives_is_the_share_of_the_first_document():
    losses = []
    for logits, _ in real_documents():
        exponentials = np.exp(5 * sigmoid(logits))
        losses.append(-math.log(exponentials[0] / exponentials.sum()))
    assert mean_loss("multiple_negatives_ranking", scale=5.0) == close(np.mean(losses))


def test_mse_of_scores_and_of_margins():
    assert mean_loss("mse", LOGITS[:, :1], LABELS[:, :1], IS_DOCUMENT[:, :1]) == close(
        np.mean((LOGITS[:, 0] - LABELS[:, 0]) ** 2)
    )
    errors = []
    for logits, labels in real_documents():
        for number in range(1, len(logits)):
            margin = logits[0] - logits[number]
            errors.append((margin - (labels[0] - labels[number])) ** 2)
    assert mean_loss("margin_mse") == close(np.mean(errors))


def test_rank_net_is_the_mean_over_all_ordered_pairs():
    losses = []
    for logits, labels in real_documents():
        for i, j in np.ndindex(len(logits), len(logits)):
            if labels[i] > labels[j]:
                losses.append(-math.log2(sigmoid(logits[i] - logits[j])))
    assert mean_loss("rank_net") == close(np.mean(losses))


def test_lambda_loss_weighs_pairs_by_their_places():
    losses = []
    for logits, labels in real_documents():
        discounts = np.log2(2 + np.arange(len(logits)))
        best_dcg = np.sum((2 ** np.sort(labels)[::-1] - 1) / discounts)
        gains = (2**labels - 1) / best_dcg
        ranks = np.argsort(np.argsort(-logits))
        for i, j in np.ndindex(len(logits), len(logits)):
            if labels[i] <= labels[j]:
                continue
            distance = abs(ranks[i] - ranks[j])
            ndcg_loss2 = abs(1 / discounts[distance - 1] - 1 / np.log2(2 + distance))
            lambda_rank = abs(1 / discounts[ranks[i]] - 1 / discounts[ranks[j]])
            weight = (10 * ndcg_loss2 + lambda_rank) * abs(gains[i] - gains[j])
            losses.append(-weight * math.log2(sigmoid(logits[i] - logits[j])))
    assert mean_loss("lambda_loss") == close(np.mean(losses))


def test_list_net_compares_distributions():
    losses = []
    for logits, labels in real_documents():
        wanted = np.exp(labels) / np.exp(labels).sum()
        losses.append(-np.sum(wanted * (logits - math.log(np.exp(logits).sum()))))
    assert mean_loss("list_net") == close(np.mean(losses))


@pytest.mark.parametrize("name", ["rank_net", "lambda_loss", "list_net", "margin_mse"])
def test_documents_that_only_fill_have_no_part(name):
    fill = IS_DOCUMENT == 0
    changed_logits = np.where(fill, 50, LOGITS)
    changed_labels = np.where(fill, 9, LABELS)
    assert mean_loss(name, changed_logits, changed_labels) == close(mean_loss(name))


def test_the_flag_names_every_loss():
    assert tuple(LOSSES) == LOSS_FLAG_VALUES


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize("name", ["rank_net", "lambda_loss", "list_net"])
def test_losses_and_gradients_of_lists_equal_those_of_sentence_transformers(name):
    torch = pytest.importorskip("torch")
    from sentence_transformers.cross_encoder import losses

    their_class = {
        "rank_net": losses.RankNetLoss,
        "lambda_loss": losses.LambdaLoss,
        "list_net": losses.ListNetLoss,
    }[name]
    flat = np.concatenate([logits for logits, _ in real_documents()])
    their_logits = torch.tensor(flat, dtype=torch.float32, requires_grad=True)

    class KnownLogits(torch.nn.Module):
        num_labels = 1
        device = torch.device("cpu")

        def preprocess(self, pairs, **_):
            return {"pairs": torch.zeros(len(pairs))}

        def forward(self, inputs):
            return {"scores": their_logits}

    queries = ["a", "b", "c"]
    documents = [["d"] * count for count in NUM_DOCUMENTS]
    labels = [torch.tensor(labels) for _, labels in real_documents()]
    compute = their_class(KnownLogits(), mini_batch_size=-1)
    theirs = compute([queries, documents], labels)
    theirs.backward()

    logits = tf.constant(LOGITS)
    loss = LOSSES[name](RerankingSettings(loss=name))
    targets = Targets(tf.constant(LABELS), tf.constant(IS_DOCUMENT))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = loss(logits, targets)
        weights = loss.weights(targets)
        mean = tf.reduce_sum(values * weights) / tf.reduce_sum(weights)
    assert float(mean) == close(theirs.item())
    gradient = tape.gradient(mean, logits).numpy()[IS_DOCUMENT > 0]
    np.testing.assert_allclose(gradient, their_logits.grad.numpy(), atol=1e-6)

"""The losses of rerankers, by their name in --loss.

A loss gets the logits of the documents of each query, and their labels. It returns a loss for each
example, and the weight of that in the mean over the batch. Documents that only fill an example
have no part in either.

B batch   N documents of an example
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras import ops

from official_bert.extensions.reranking.settings import RerankingSettings
from official_bert.modeling.layers import Tensor

# The parts that the examples of a loss are made of.
PAIRS = "pairs"  # one document
LISTS = "lists"  # the documents of a query
MARGINS = "margins"  # a document, and others that are compared with it
BATCH_NEGATIVES = "in_batch"  # a right document and wrong ones, some of them of other queries

_EXCLUDED = -1e9  # The logit of a document that only fills an example.
_MU = 10.0  # The share of NDCG-Loss2 in NDCG-Loss2++.
_SMALLEST_GAIN = 1e-10


class Targets(NamedTuple):
    """What the documents of a batch should get.

    Attributes:
        labels: their labels, float32[B, N].
        is_document: 0 for a document that only fills the example, float32[B, N].
    """

    labels: Tensor
    is_document: Tensor


class RerankingLoss:
    """A loss; its docstring has the formula and the source.

    Attributes:
        examples: what an example has, one of the constants above.
    """

    examples: str = LISTS

    def __init__(self, settings: RerankingSettings):
        """Creates a loss.

        Args:
            settings: the flags of run_reranker.
        """
        self.scale = settings.scale
        self.positive_weight = settings.positive_weight

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        """Returns the loss of each example, float32[B].

        Args:
            logits: the logits of the documents, float32[B, N].
            targets: their labels.
        """
        raise NotImplementedError

    def weights(self, targets: Targets) -> Tensor:
        """Returns the weights of the examples in the mean over the batch, float32[B].

        Args:
            targets: the labels of the documents.
        """
        return ops.ones_like(targets.labels[:, 0])


class BinaryCrossEntropy(RerankingLoss):
    """The cross-entropy of the label of a pair: -w y log s(x) - (1 - y) log(1 - s(x)).

    x is the logit, s the sigmoid, y the label, from 0 to 1, and w --positive_weight.
    Source: Nogueira and Cho (2019), section 3.
    """

    examples = PAIRS

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        labels = targets.labels
        if_positive = ops.softplus(-logits)
        if_negative = ops.softplus(logits)
        positive_part = self.positive_weight * labels * if_positive
        negative_part = (1.0 - labels) * if_negative
        losses = positive_part + negative_part
        return losses[:, 0]


class MultipleNegativesRanking(RerankingLoss):
    """The cross-entropy of the first document among all of the example.

        -log( exp(scale s(x_0)) / sum_n exp(scale s(x_n)) )

    x are the logits and s is the sigmoid. The other documents are the negatives of the query, and
    documents of other queries of the batch.
    Source: Henderson et al. (2017), section 4.4, for a model that reads both texts.
    """

    examples = BATCH_NEGATIVES

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        scores = self.scale * ops.sigmoid(logits)
        scores = ops.where(targets.is_document > 0, scores, _EXCLUDED)
        first_score = scores[:, 0]
        return ops.logsumexp(scores, axis=-1) - first_score


class MarginMse(RerankingLoss):
    """The squared error of the margins of the first document over the others.

        ((x_0 - x_n) - (y_0 - y_n))^2

    x are the logits and y the labels, which are the scores of a teacher. The mean is over all
    margins of the batch.
    Source: Hofstätter et al. (2020), section 3.
    """

    examples = MARGINS

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        errors = logits - targets.labels
        squares = ops.square(errors[:, :1] - errors[:, 1:])
        is_other = targets.is_document[:, 1:]
        total = ops.sum(squares * is_other, axis=-1)
        return total / ops.maximum(self.weights(targets), 1.0)

    def weights(self, targets: Targets) -> Tensor:
        """Returns the number of margins of each example, float32[B].

        Args:
            targets: the labels of the documents.
        """
        return ops.sum(targets.is_document[:, 1:], axis=-1)


class Mse(RerankingLoss):
    """The squared error of the logit of a pair: (x - y)^2."""

    examples = PAIRS

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        return ops.square(logits - targets.labels)[:, 0]


class RankNet(RerankingLoss):
    """The cross-entropy of the order of two documents with different labels.

        -log2 s(x_i - x_j)   for all i, j with y_i > y_j

    x are the logits, y the labels, and s is the sigmoid. The mean is over all such pairs of the
    batch.
    Source: Burges et al. (2005), section 3.
    """

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        differences = _differences(logits)
        losses = ops.softplus(-differences) / math.log(2)
        weights = self._pair_weights(logits, targets) * _ordered_pairs(targets)
        total = ops.sum(weights * losses, axis=(1, 2))
        return total / ops.maximum(self.weights(targets), 1.0)

    def weights(self, targets: Targets) -> Tensor:
        return ops.sum(_ordered_pairs(targets), axis=(1, 2))

    def _pair_weights(self, logits: Tensor, targets: Targets) -> Tensor | float:
        """Returns the weight of each pair of documents, float32[B, N, N]."""
        return 1.0


class LambdaLoss(RankNet):
    """`rank_net` with a weight for each pair: how much exchanging the two would change the nDCG.

        -(10 d_ij + |1/D_i - 1/D_j|) |G_i - G_j| log2 s(x_i - x_j)   for all i, j with y_i > y_j

    G_i is (2^y_i - 1) divided by the best DCG of the query, D_i the logarithm of 1 plus the rank of
    document i by the logits, to base 2, and d_ij the same difference of discounts at the ranks
    |i - j| and |i - j| + 1. The weights have no gradient.
    Source: Wang et al. (2018), NDCG-Loss2++ in section 4.
    """

    def _pair_weights(self, logits: Tensor, targets: Targets) -> Tensor | float:
        labels = ops.maximum(targets.labels, 0.0)
        is_document = targets.is_document
        gains = ops.power(2.0, labels) - 1.0
        gains *= is_document
        best_ranks = _ranks(labels, is_document)
        best_dcg = ops.sum(gains / _discount(best_ranks), axis=-1, keepdims=True)
        gains /= ops.maximum(best_dcg, _SMALLEST_GAIN)
        gain_differences = ops.abs(_differences(gains))

        ranks = _ranks(ops.stop_gradient(logits), is_document)
        lambda_rank = ops.abs(_differences(1.0 / _discount(ranks)))

        distances = ops.abs(_differences(ranks))
        # The distance is 0 only for a document and itself, which are no pair.
        distances = ops.maximum(distances, 1.0)
        ndcg_loss2 = 1.0 / _discount(distances) - 1.0 / _discount(distances + 1.0)
        weights = _MU * ops.abs(ndcg_loss2) + lambda_rank
        return weights * gain_differences


class ListNet(RerankingLoss):
    """The cross-entropy of two distributions over the documents of a query.

        -sum_n softmax(y)_n log softmax(x)_n

    x are the logits and y the labels.
    Source: Cao et al. (2007), section 5, with top-one probabilities.
    """

    def __call__(self, logits: Tensor, targets: Targets) -> Tensor:
        is_document = targets.is_document > 0
        logits = ops.where(is_document, logits, _EXCLUDED)
        labels = ops.where(is_document, targets.labels, _EXCLUDED)
        target_probabilities = ops.softmax(labels)
        return -ops.sum(target_probabilities * ops.log_softmax(logits), axis=-1)


LOSSES: dict[str, type[RerankingLoss]] = {
    "binary_cross_entropy": BinaryCrossEntropy,
    "multiple_negatives_ranking": MultipleNegativesRanking,
    "margin_mse": MarginMse,
    "mse": Mse,
    "rank_net": RankNet,
    "list_net": ListNet,
    "lambda_loss": LambdaLoss,
}


def _differences(values: Tensor) -> Tensor:
    """Returns the difference of documents i and j, float32[B, N, N]."""
    first = ops.expand_dims(values, 2)
    second = ops.expand_dims(values, 1)
    return first - second


def _ordered_pairs(targets: Targets) -> Tensor:
    """Returns 1 where document i has a higher label than document j, float32[B, N, N]."""
    is_higher = ops.cast(_differences(targets.labels) > 0, "float32")
    is_first = ops.expand_dims(targets.is_document, 2)
    is_second = ops.expand_dims(targets.is_document, 1)
    return is_higher * is_first * is_second


def _ranks(values: Tensor, is_document: Tensor) -> Tensor:
    """Returns the ranks of documents by their values from 1, the highest first, float32[B, N].

    Of equal values, the earlier document ranks first. Documents that only fill rank last.
    """
    values = ops.where(is_document > 0, values, _EXCLUDED)
    higher = -_differences(values)  # how much higher document j is than document i
    places = ops.arange(ops.shape(values)[1])
    is_earlier = places[None, :] < places[:, None]
    is_before_equal = ops.logical_and(higher == 0, is_earlier)
    is_before = ops.logical_or(higher > 0, is_before_equal)
    num_before = ops.sum(ops.cast(is_before, "float32"), axis=-1)
    return 1.0 + num_before


def _discount(ranks: Tensor) -> Tensor:
    """Returns the discount of the gain at ranks from 1 on, float32 like `ranks`."""
    return ops.log(1.0 + ranks) / math.log(2)

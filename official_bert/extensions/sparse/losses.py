"""The losses of sparse embeddings.

A loss reads the weights of examples of N texts, float32[B, N, V], of which the first is the query
and the others are documents, and compares them by dot products.

B batch   N texts of an example   V vocabulary   C candidates
"""

from collections.abc import Mapping

from keras import ops

from official_bert.extensions.sparse.settings import SparseSettings
from official_bert.modeling.layers import Tensor
from official_bert.modeling.losses import cross_entropy, find_false_negatives, stack_columns

_EXCLUDED = -1e9  # The logit of a candidate that is no negative.


class MultipleNegativesRanking:
    """The cross-entropy of the right document among all of the batch, for each query.

        -log( exp(scale q_i d_i) / sum_c exp(scale q_i c) )

    The candidates c are the second texts of all examples and, as hard negatives, their further
    texts. A text that is equal to d_i, or the document of a query equal to q_i, is no negative.
    Source: Henderson et al. (2017), section 4.4.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        reads: the key of the feature that it reads.
        repeats: the number of times that a text of an example is encoded.
    """

    num_texts = (2, 1000)
    reads = "text_ids"
    repeats = 1

    def __init__(self, settings: SparseSettings):
        self.scale = settings.scale

    def __call__(self, weights: Tensor, features: Mapping[str, Tensor]) -> Tensor:
        queries = weights[:, 0]
        candidates = stack_columns(weights[:, 1:])  # [C, V], C = B (N - 1)
        logits = self.scale * ops.matmul(queries, ops.transpose(candidates))  # [B, C]
        logits = ops.where(find_false_negatives(features["text_ids"]), _EXCLUDED, logits)
        right = ops.arange(ops.shape(logits)[0], dtype="int32")
        return ops.mean(cross_entropy(logits, right))


class MarginMse:
    """The squared difference between the margin of a document to its negative and a teacher's.

        ((q d - q n) - label)^2

    Source: Hofstätter et al. (2020). The attributes are those of MultipleNegativesRanking.
    """

    num_texts = (3, 3)
    reads = "scores"
    repeats = 1

    def __init__(self, settings: SparseSettings):
        pass

    def __call__(self, weights: Tensor, features: Mapping[str, Tensor]) -> Tensor:
        query, document, negative = weights[:, 0], weights[:, 1], weights[:, 2]
        margins = ops.sum(query * document, axis=-1) - ops.sum(query * negative, axis=-1)
        return ops.mean(ops.square(margins - features["scores"]))


LOSSES = {
    "multiple_negatives_ranking": MultipleNegativesRanking,
    "margin_mse": MarginMse,
}


def flops(weights: Tensor) -> Tensor:
    """Return the sum over the vocabulary of the squared mean weight, float32[].

    Source: Paria et al. (2020), section 3.

    Args:
        weights: float32[n, V].
    """
    return ops.sum(ops.square(ops.mean(weights, axis=0)))

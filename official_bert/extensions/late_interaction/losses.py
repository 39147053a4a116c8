"""MaxSim scores, and the losses of late interaction.

Q queries   L tokens of a query   C documents   S tokens of a document   D width   B batch
"""

from keras import ops

from official_bert.modeling.layers import Tensor
from official_bert.modeling.losses import cross_entropy, find_false_negatives

_EXCLUDED = -1e9  # The score of a token or of a candidate that does not count.


def score_all(
    queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor
) -> Tensor:
    """Return the sum over the tokens of a query of their largest products with a document's.

    Args:
        queries: float32[Q, L, D].
        query_mask: float32[Q, L], 1 for a token that counts.
        documents: float32[C, S, D].
        document_mask: float32[C, S].

    Returns:
        float32[Q, C].
    """
    products = ops.einsum(
        "qld,csd->qcls",
        queries,
        documents,
    )
    mask = document_mask[None, :, None, :]
    return _sum_largest(
        products,
        mask,
        query_mask[:, None, :],
    )


def score_pairs(
    queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor
) -> Tensor:
    """Return the scores of pairs of a query and a document.

    Args:
        queries: float32[B, L, D].
        query_mask: float32[B, L].
        documents: float32[B, S, D].
        document_mask: float32[B, S].

    Returns:
        float32[B].
    """
    products = ops.einsum(
        "bld,bsd->bls",
        queries,
        documents,
    )
    mask = document_mask[:, None, :]
    return _sum_largest(
        products,
        mask,
        query_mask,
    )


def _sum_largest(products: Tensor, document_mask: Tensor, query_mask: Tensor) -> Tensor:
    """Returns float32[...] of products float32[..., L, S] and masks that broadcast."""
    counted = ops.where(
        document_mask > 0,
        products,
        _EXCLUDED,
    )
    largest = ops.max(counted, axis=-1)
    return ops.sum(largest * query_mask, axis=-1)


def ranking_loss(scores: Tensor, text_ids: Tensor, scale: float) -> Tensor:
    """Return the cross-entropy of the right document among all, for each query, float32[].

    Source: Henderson et al. (2017), section 4.4.

    Args:
        scores: float32[B, C]; the document of query i is candidate i.
        text_ids: the texts of the examples, equal for equal texts, int32[B, N].
        scale: the factor of the scores.
    """
    logits = ops.where(
        find_false_negatives(text_ids),
        _EXCLUDED,
        scale * scores,
    )
    num_queries = ops.shape(logits)[0]
    right = ops.arange(num_queries, dtype="int32")
    losses = cross_entropy(logits, right)
    return ops.mean(losses)

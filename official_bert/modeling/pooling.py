"""Makes one vector of the vectors of a text's tokens.

In: the output of a layer and the input mask. Out: a vector for each text; padding has no part in it.
"""

from keras import ops

_SMALLEST_NORM = 1e-12  # of a vector that is divided by its norm


def pooled(pooling: str, vectors, input_mask):
    """Pools the vectors of each text.

    Args:
        pooling: a key of POOLINGS.
        vectors: float[B, S, hidden].
        input_mask: int32[B, S], 1 for a token and 0 for padding.

    Returns:
        float32[B, hidden].
    """
    is_token = ops.cast(input_mask, "float32")[:, :, None]  # [B, S, 1]
    return POOLINGS[pooling](ops.cast(vectors, "float32"), is_token)


def normalized(vectors):
    """Divides float32[B, hidden] by their norms, so that a product of two is the cosine of their angle."""
    norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(norms, _SMALLEST_NORM)


def _mean(vectors, is_token):
    return ops.sum(vectors * is_token, axis=1) / ops.maximum(ops.sum(is_token, axis=1), 1.0)


def _first(vectors, is_token):
    return vectors[:, 0]


def _max(vectors, is_token):
    return ops.max(ops.where(is_token > 0, vectors, -float("inf")), axis=1)


# The mean over the tokens, special ones included; the vector of [CLS]; the largest value of each coordinate.
POOLINGS = {"mean": _mean, "cls": _first, "max": _max}

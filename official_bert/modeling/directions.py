"""The direction of attention: which tokens a token attends to, and which token has attended to the whole text.

In: the configuration and the input mask. Out: the bias of the attention scores, and the vectors that are pooled.
Devlin et al. (2019), section 5.1, compare both directions.

B batch   S length
"""

from keras import ops

from official_bert.config import BIDIRECTIONAL, LEFT_TO_RIGHT
from official_bert.modeling.shapes import gather_indexes

MASKED = -10000.0


def attention_bias(input_mask, dtype="float32"):
    """Converts an input mask to a bias that is added to the attention scores.

    Args:
        input_mask: int32[B, S], 1 for a token and 0 for padding.
        dtype: the float type of the bias.

    Returns:
        float[B, 1, 1, S], 0 for tokens and -10000 for padding. Because the bias is added and does not replace the
        scores, a sequence that is all padding attends to every position, as in the original.
    """
    return ops.expand_dims((1.0 - ops.cast(input_mask, dtype)) * MASKED, (1, 2))


class Bidirectional:
    """Every token attends to all tokens; the first one, [CLS], stands for the text."""

    def bias(self, input_mask, dtype="float32"):
        """Returns float[B, 1, 1, S]; see `attention_bias`."""
        return attention_bias(input_mask, dtype)

    def pooled_vectors(self, x, input_mask):
        """Returns the vector of the token that stands for each text, float[B, hidden], of float[B, S, hidden]."""
        return x[:, 0]


class LeftToRight:
    """Every token attends to itself and to those before it; the last one, [SEP], has attended to the whole text."""

    def bias(self, input_mask, dtype="float32"):
        """Returns float[B, 1, S, S]: -10000 for padding and, in each row, for the positions after its own."""
        position = ops.arange(ops.shape(input_mask)[1])
        is_later = ops.cast(position[None, :] > position[:, None], dtype)  # [S, S]
        return attention_bias(input_mask, dtype) + is_later * MASKED

    def pooled_vectors(self, x, input_mask):
        """Returns the vector of the last token of each text, float[B, hidden], of float[B, S, hidden]."""
        position = ops.arange(ops.shape(input_mask)[1], dtype="int32")
        last = ops.max(ops.where(input_mask != 0, position, 0), axis=1, keepdims=True)  # [B, 1]
        return gather_indexes(x, last)


_DIRECTIONS = {BIDIRECTIONAL: Bidirectional(), LEFT_TO_RIGHT: LeftToRight()}


def direction_of(config) -> Bidirectional | LeftToRight:
    """Returns the direction of a model's attention."""
    return _DIRECTIONS[config.direction]

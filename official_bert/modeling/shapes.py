"""Small tensor helpers that the original made public."""

from keras import ops


def get_shape_list(tensor, expected_rank=None, name=None):
    """The shape, static where it is known.

    Args:
        tensor: a tensor.
        expected_rank: int or list of ints that the rank must be among; None accepts any.
        name: what the error calls the tensor.

    Returns:
        A list of ints and, for dimensions that are unknown while tracing, int tensors.

    Raises:
        ValueError: another rank.
    """
    shape = list(ops.shape(tensor))
    if expected_rank is not None:
        allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
        if len(shape) not in allowed:
            label = name or getattr(tensor, "name", None) or "tensor"
            raise ValueError(
                f"{label}: rank {len(shape)} (shape {tuple(tensor.shape)}) is not the expected rank {expected_rank}"
            )
    return shape


def create_attention_mask_from_input_mask(from_tensor, to_mask):
    """Which position may look at which, from a mask of real tokens.

    Args:
        from_tensor: a tensor [B, F] or [B, F, ...].
        to_mask: int32[B, T], 1 for a token.

    Returns:
        float32[B, F, T]: entry (b, f, t) is to_mask[b, t]. The from-side is not masked: padded positions are
        computed like real ones, and nobody looks at them.
    """
    batch, length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_length = get_shape_list(to_mask, expected_rank=2)[1]
    mask = ops.cast(ops.reshape(to_mask, (-1, 1, to_length)), "float32")
    return ops.broadcast_to(mask, (batch, length, to_length))


def gather_indexes(sequence_tensor, positions):
    """The vectors at some positions of each sequence.

    Args:
        sequence_tensor: float[B, S, hidden].
        positions: int32[B, P], each within [0, S).

    Returns:
        float[B*P, hidden], flattened as in the original.
    """
    batch, length, width = get_shape_list(sequence_tensor, expected_rank=3)
    offsets = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
    return ops.take(
        ops.reshape(sequence_tensor, (-1, width)), ops.reshape(positions + offsets, (-1,)), axis=0
    )

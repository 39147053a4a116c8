"""Small tensor functions that are part of the original's public API."""

from keras import ops


def get_shape_list(tensor, expected_rank=None, name=None):
    """Returns the shape of a tensor, static where it is known.

    Args:
        tensor: a tensor.
        expected_rank: the allowed rank, or a list of allowed ranks; None allows any.
        name: the name of the tensor in the error message.

    Returns:
        A list with an int for each dimension or, where tracing does not know it, an int tensor.

    Raises:
        ValueError: the rank is not allowed.
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
    """Makes an attention mask from an input mask.

    Args:
        from_tensor: a tensor [B, F] or [B, F, ...].
        to_mask: int32[B, T], 1 for a token and 0 for padding.

    Returns:
        float32[B, F, T]: entry (b, f, t) is to_mask[b, t]. Positions that attend are not masked: the model computes
        padded positions like others, but no position attends to them.
    """
    batch, length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_length = get_shape_list(to_mask, expected_rank=2)[1]
    mask = ops.cast(ops.reshape(to_mask, (-1, 1, to_length)), "float32")
    return ops.broadcast_to(mask, (batch, length, to_length))


def gather_indexes(sequence_tensor, positions):
    """Returns the vectors at the given positions of each sequence.

    Args:
        sequence_tensor: float[B, S, hidden].
        positions: int32[B, P], each in [0, S).

    Returns:
        float[B*P, hidden], flattened as in the original.
    """
    batch, length, width = get_shape_list(sequence_tensor, expected_rank=3)
    offsets = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
    return ops.take(
        ops.reshape(sequence_tensor, (-1, width)), ops.reshape(positions + offsets, (-1,)), axis=0
    )

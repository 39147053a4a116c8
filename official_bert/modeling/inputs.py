"""Checks of what a model is called with, as far as it can be known when it is called.

Values are known in eager calls only; inside a compiled step the input pipeline has checked them. The models run
these checks in `__call__`, before Keras: what fails in `call` it wraps in a page of text.
"""

import numpy as np

from official_bert.errors import InputError


def check_ids(name: str, ids, size: int, table: str):
    """Refuses ids outside [0, size) where their values are known.

    Args:
        name: what the error calls the ids.
        ids: int32 tensor.
        size: rows of the table that the ids index.
        table: what the error calls that table's size.

    Raises:
        InputError: an id outside.
    """
    values = ids.numpy() if hasattr(ids, "numpy") else ids
    if not isinstance(values, np.ndarray) or not values.size:
        return
    for value in (int(values.min()), int(values.max())):
        if not 0 <= value < size:
            raise InputError(
                f"{name} holds {value}, outside 0 to {size - 1} ({table} {size}); use the vocabulary and the "
                "configuration that belong together"
            )


def check_encoder_inputs(config, input_ids, input_mask, segment_ids):
    """Refuses inputs that are not int[B, S], longer than the position table or outside the vocabulary.

    Raises:
        InputError: another rank, shape or length, or an id outside.
    """
    if len(input_ids.shape) != 2:
        raise InputError(f"input_ids must be [batch, length], got shape {tuple(input_ids.shape)}")
    length = input_ids.shape[1]
    if length is not None and length > config.max_position_embeddings:
        raise InputError(
            f"input_ids has {length} positions, but the model was made for max_position_embeddings "
            f"{config.max_position_embeddings}; use shorter sequences"
        )
    for name, value in (("input_mask", input_mask), ("segment_ids", segment_ids)):
        if value is None:
            continue
        known = zip(value.shape, input_ids.shape, strict=False)
        if len(value.shape) != 2 or any(a is not None and b is not None and a != b for a, b in known):
            raise InputError(
                f"{name} has shape {tuple(value.shape)}, but input_ids has {tuple(input_ids.shape)}; they must be equal"
            )
    check_ids("input_ids", input_ids, config.vocab_size, "vocab_size")

"""Checks the inputs of a model call and converts ids to int32.

The values are known only in eager calls; in a compiled step the input pipeline has checked them. The models run these
checks in `__call__`, because Keras wraps an error that occurs in `call` in a page of text.
"""

from collections.abc import Mapping

import numpy as np
from keras import SymbolicScope, backend, ops

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError


def checked_ids(name: str, ids, size: int, table: str):
    """Converts integers of any shape to int32 and, if their values are known, checks that they lie in [0, size).

    While Keras only finds out shapes, as it does to build a model of the user's own from a `.keras` file, ids may be of
    any type, because it then puts float32 in the place of every input.
    """
    ids = _with_shape(name, ids)
    dtype = backend.standardize_dtype(ids.dtype)
    if "int" not in dtype and not _finds_shapes():
        raise InputError(f"{name} must be whole numbers, got {dtype}")
    _check_values(name, ids, size, table)
    return ids if dtype == "int32" else ops.cast(ids, "int32")


def given_features(features, keywords: Mapping) -> dict:
    """Returns the features of a call that are not None, from a dict with `input_ids` or from keyword arguments."""
    keywords = {name: value for name, value in keywords.items() if value is not None}
    if features is not None and keywords:
        raise InputError(f"{', '.join(keywords)}: given beside the features; put all of them into one dict")
    features = keywords if features is None else features
    if not isinstance(features, Mapping) or features.get("input_ids") is None:
        given = ", ".join(map(str, features)) if isinstance(features, Mapping) else type(features).__name__
        raise InputError(
            f"the model takes a dict of features with {', '.join(ENCODER_INPUTS)}, of which only the first is needed; "
            f"got {given or 'an empty one'}"
        )
    return {name: value for name, value in features.items() if value is not None}


def checked_features(config, given: dict) -> dict:
    """Checks the encoder's inputs among `given_features`; those of choices, [B, N, S], the encoder itself checks."""
    if len(_with_shape("input_ids", given["input_ids"]).shape) == 3:
        return given
    inputs = checked_encoder_inputs(config, *(given.get(name) for name in ENCODER_INPUTS))
    checked = zip(ENCODER_INPUTS, inputs, strict=True)
    return given | {name: value for name, value in checked if value is not None}


def checked_encoder_inputs(config, input_ids, input_mask, segment_ids):
    """Returns the three inputs of the encoder, checked, the ids as int32[B, S]; mask and segments may be None."""
    input_ids = _with_shape("input_ids", input_ids)
    if len(input_ids.shape) != 2 or input_ids.shape[1] == 0:
        raise InputError(f"input_ids must be [batch, length], got shape {tuple(input_ids.shape)}")
    length = input_ids.shape[1]
    if length is not None and length > config.max_position_embeddings:
        raise InputError(
            f"input_ids has {length} positions, but the model was made for max_position_embeddings "
            f"{config.max_position_embeddings}; use shorter sequences"
        )
    input_mask = _of_equal_shape("input_mask", input_mask, input_ids)
    segment_ids = _of_equal_shape("segment_ids", segment_ids, input_ids)
    if segment_ids is not None and _finds_shapes():
        segment_ids = ops.cast(segment_ids, "int32")
    return checked_ids("input_ids", input_ids, config.vocab_size, "vocab_size"), input_mask, segment_ids


def _finds_shapes() -> bool:
    """Tells whether Keras calls the model only for the shapes of its outputs."""
    with SymbolicScope() as scope:
        return scope.original_scope is not None


def _with_shape(name, values):
    """Converts lists to an array; returns arrays and tensors unchanged."""
    if hasattr(values, "shape"):
        return values
    try:
        return np.array(values)
    except ValueError:
        raise InputError(f"{name} has rows of different lengths; fill them up to one length") from None


def _of_equal_shape(name, value, input_ids):
    if value is None:
        return None
    value = _with_shape(name, value)
    known = zip(value.shape, input_ids.shape, strict=False)
    if len(value.shape) != 2 or any(a is not None and b is not None and a != b for a, b in known):
        raise InputError(
            f"{name} has shape {tuple(value.shape)}, but input_ids has {tuple(input_ids.shape)}; they must be equal"
        )
    return value


def _check_values(name, ids, size, table):
    values = ids.numpy() if hasattr(ids, "numpy") else ids
    if not isinstance(values, np.ndarray) or not values.size:
        return
    for value in (int(values.min()), int(values.max())):
        if not 0 <= value < size:
            raise InputError(
                f"{name} holds {value}, outside 0 to {size - 1} ({table} {size}); use the vocabulary and the "
                "configuration that belong together"
            )

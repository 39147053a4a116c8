"""Checks the inputs of a model call and converts ids to int32.

The values are known only in eager calls; in a compiled step the input pipeline has checked them.
The models run these checks in `__call__`, because Keras wraps an error that occurs in `call` in a
page of text.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import numpy as np
from keras import SymbolicScope, backend, ops

from official_bert.features import BATCH_FEATURES, ENCODER_INPUTS
from official_bert.io.errors import InputError, did_you_mean

# The names that transformers uses.
SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
# Arguments of transformers' models with the values that change nothing here.
_WITHOUT_EFFECT = {
    "return_dict": (None, True),
    "output_hidden_states": (None, False),
    "output_attentions": (None, False),
}
_BELONG = "use the vocabulary and the configuration that belong together"


def checked_ids(name: str, ids, size: int, table: str):
    """Converts integers of any shape to int32 and, if their values are known, checks that they lie
    in [0, size).

    While Keras only finds out shapes, as it does to build a model of the user's own from a `.keras`
    file, ids may be of any type, because it then puts float32 in the place of every input.
    """
    ids = _with_shape(name, ids)
    dtype = backend.standardize_dtype(ids.dtype)
    if "int" not in dtype and not _finds_shapes():
        raise InputError(f"{name} must be whole numbers, got {dtype}")
    _check_values(name, ids, size, f"{table} {size}); {_BELONG}")
    return ids if dtype == "int32" else ops.cast(ids, "int32")


def given_features(features, keywords: Mapping, names: Collection[str]) -> dict:
    """Returns the features of a call that are not None, under the original's names.

    They are given as a dict with `input_ids`, or as keyword arguments, of which the ids may also
    stand alone. Besides `names`, which the model reads, a dict may have the features of our
    batches. Other names are refused in eager and functional calls; the batches of a compiled step,
    as in `fit`, may have labels of any name that is no misprint.
    """
    keywords = {
        name: value for name, value in keywords.items() if not _is_without_effect(name, value)
    }
    _check_names(keywords, names, names)
    given = _in_our_names(keywords)
    if isinstance(features, Mapping):
        if given:
            raise InputError(
                f"{', '.join(given)}: given beside the features; put all of them into one dict"
            )
        # As a tensor has while TensorFlow traces a function.
        is_traced = hasattr(features.get("input_ids"), "graph")
        others = {
            name for name in features if is_traced and not _is_misprint(name, (*names, *SYNONYMS))
        }
        _check_names(features, names, BATCH_FEATURES.union(names, others))
        given = _in_our_names(features)
    elif features is not None:
        if "input_ids" in given:
            raise InputError("input_ids: given twice, with its name and without")
        given["input_ids"] = features
    if "input_ids" not in given:
        raise InputError(
            f"the model takes {', '.join(ENCODER_INPUTS)}, of which only the first is needed, in a "
            f"dict or by name; got {', '.join(given) or 'nothing'}"
        )
    return given


def _is_without_effect(name: str, value) -> bool:
    return any(value is one for one in _WITHOUT_EFFECT.get(name, ()))


def _check_names(given: Iterable[str], names: Iterable[str], known: Container[str]):
    for name in given:
        if name not in known and name not in SYNONYMS:
            question = did_you_mean(name, (*names, *SYNONYMS))
            ending = f"; {question}" if question else ""
            raise InputError(
                f"{name}: no input of the model, which takes {', '.join(names)}{ending}"
            )


def _is_misprint(name: str, names: Sequence[str]) -> bool:
    """Tells whether a name differs from one of the `names` by a letter, which is wrong, missing,
    surplus or moved.
    """
    return any(not _shortened(name).isdisjoint(_shortened(known)) for known in names)


def _shortened(word: str) -> set[str]:
    """Returns a word and what is left of it without one of its letters."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _in_our_names(features: Mapping) -> dict:
    """Returns what is not None under the original's names."""
    given = {name: value for name, value in features.items() if value is not None}
    for other, name in SYNONYMS.items():
        if other in given and name in given:
            raise InputError(
                f"{other}: given beside {name}, which is the same input; give one of them"
            )
    return {SYNONYMS.get(name, name): value for name, value in given.items()}


def checked_features(config, given: dict) -> dict:
    """Checks the encoder's inputs among `given_features`; the shapes of choices, [B, N, S], the
    encoder checks.
    """
    if len(_with_shape("input_ids", given["input_ids"]).shape) == 3:
        _check_mask_and_segments(config, given.get("input_mask"), given.get("segment_ids"))
        return given
    inputs = checked_encoder_inputs(config, *(given.get(name) for name in ENCODER_INPUTS))
    checked = zip(ENCODER_INPUTS, inputs, strict=True)
    return given | {name: value for name, value in checked if value is not None}


def checked_encoder_inputs(config, input_ids, input_mask, segment_ids):
    """Returns the three inputs of the encoder, checked, the ids as int32[B, S]; mask and
    segments may be None.
    """
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
    _check_mask_and_segments(config, input_mask, segment_ids)
    if segment_ids is not None and _finds_shapes():
        segment_ids = ops.cast(segment_ids, "int32")
    return (
        checked_ids("input_ids", input_ids, config.vocab_size, "vocab_size"),
        input_mask,
        segment_ids,
    )


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
        raise InputError(
            f"{name} has rows of different lengths; fill them up to one length"
        ) from None


def _of_equal_shape(name, value, input_ids):
    if value is None:
        return None
    value = _with_shape(name, value)
    known = zip(value.shape, input_ids.shape, strict=False)
    if len(value.shape) != 2 or any(a is not None and b is not None and a != b for a, b in known):
        raise InputError(
            f"{name} has shape {tuple(value.shape)}, but input_ids has {tuple(input_ids.shape)}; "
            "they must be equal"
        )
    return value


def _check_mask_and_segments(config, input_mask, segment_ids):
    _check_values("input_mask", input_mask, 2, "1 for a token, 0 for padding)")
    num_segments = config.type_vocab_size
    _check_values(
        "segment_ids", segment_ids, num_segments, f"type_vocab_size {num_segments}); {_BELONG}"
    )


def _check_values(name: str, values, size: int, meaning: str):
    """Checks that values, as far as they are known, are whole numbers in [0, size); `meaning`
    ends the sentence.
    """
    values = values.numpy() if hasattr(values, "numpy") else values
    if not isinstance(values, np.ndarray) or not values.size:
        return
    if values.dtype.kind in "OSU":  # texts
        raise InputError(f"{name} holds no numbers; it takes 0 to {size - 1} ({meaning}")
    if values.dtype.kind not in "biu" and (values != np.floor(values)).any():
        raise InputError(
            f"{name} holds numbers that are not whole; it takes 0 to {size - 1} ({meaning}"
        )
    for value in (values.min(), values.max()):
        if not 0 <= value < size:
            raise InputError(f"{name} holds {value}, outside 0 to {size - 1} ({meaning}")

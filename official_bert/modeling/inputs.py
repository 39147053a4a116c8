"""Checks the inputs of a model call and converts ids to int32.

The values are known only in eager calls; in a compiled step the input pipeline has checked them.
The models run these checks in `__call__`, because Keras wraps an error that occurs in `call` in a
page of text.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from keras import SymbolicScope, backend, ops

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.features import BATCH_FEATURES, ENCODER_INPUTS
from official_bert.io.errors import InputError, did_you_mean

_BELONG = "use the vocabulary and the configuration that belong together"


class InputNames(NamedTuple):
    """What calls of a model understand besides the names of its inputs.

    Attributes:
        synonyms: another name of an input -> its name.
        without_effect: name of an argument -> the values that change nothing, which are compared
            by identity.
    """

    synonyms: Mapping[str, str] = MappingProxyType({})
    without_effect: Mapping[str, tuple] = MappingProxyType({})


def extension_names(model_class: type) -> InputNames:
    """Returns what extensions add to the calls of a class of models.

    Args:
        model_class: the class, such as BertModel.
    """
    synonyms = {}
    without_effect = {}
    for model_input_names in catalog.hooks("model_input_names"):
        names = model_input_names(model_class)
        synonyms.update(names.synonyms)
        without_effect.update(names.without_effect)
    return InputNames(synonyms, without_effect)


def checked_ids(name: str, ids: Any, size: int, table: str) -> Any:
    """Converts integers of any shape to int32, and checks them if their values are known.

    While Keras only infers shapes, as it does to build a user's model from a `.keras` file, ids may
    be of any type, because Keras then passes float32 for every input.

    Args:
        name: the name of the input, for messages.
        ids: the integers.
        size: they have to be in [0, size).
        table: the name of the limit, for messages.

    Returns:
        int32 like `ids`.

    Raises:
        InputError: the ids are no integers, or one of them is too large or negative.
    """
    ids = _with_shape(name, ids)
    dtype = backend.standardize_dtype(ids.dtype)
    if "int" not in dtype and not _finds_shapes():
        raise InputError(f"{name} must be whole numbers, got {dtype}")
    meaning = f"{table} {size}); {_BELONG}"
    _check_values(name, ids, size, meaning)
    return ids if dtype == "int32" else ops.cast(ids, "int32")


def named_features(
    features: Any,
    keywords: Mapping,
    names: Collection[str],
    extra: InputNames,
) -> dict:
    """Returns the features of a call that are not None, under the original's names.

    Other names are refused in eager and functional calls, but those of our batches. The batches of
    a compiled step, as in `fit`, may have labels of any name that is no misprint.

    Args:
        features: a dict with `input_ids`, or the ids alone, or None.
        keywords: the features that are keyword arguments of the call.
        names: the names of the features that the model reads.
        extra: what extensions add to these names.
    """
    keywords = {
        name: value
        for name, value in keywords.items()
        if not any(value is one for one in extra.without_effect.get(name, ()))
    }
    all_names = (*names, *extra.synonyms)
    _check_names(keywords, names=names, accepted_names=all_names, all_names=all_names)
    inputs = _rename_inputs(keywords, extra.synonyms)
    if isinstance(features, Mapping):
        if inputs:
            raise InputError(
                f"{', '.join(inputs)}: given beside the features; put all of them into one dict"
            )
        # Tensors have a graph while TensorFlow traces a function.
        accepted_names = BATCH_FEATURES.union(all_names)
        is_traced = hasattr(features.get("input_ids"), "graph")
        if is_traced:
            accepted_names |= {name for name in features if not _is_misprint(name, all_names)}
        _check_names(
            features,
            names=names,
            accepted_names=accepted_names,
            all_names=all_names,
        )
        inputs = _rename_inputs(features, extra.synonyms)
    elif features is not None:
        if "input_ids" in inputs:
            raise InputError("input_ids: given twice, with its name and without")
        inputs["input_ids"] = features
    if "input_ids" not in inputs:
        raise InputError(
            f"the model takes {', '.join(ENCODER_INPUTS)}, of which only the first is needed, in a "
            f"dict or by name; got {', '.join(inputs) or 'nothing'}"
        )
    return inputs


def _check_names(
    inputs: Iterable[str],
    *,
    names: Iterable[str],
    accepted_names: Container[str],
    all_names: Sequence[str],
):
    """Raises InputError for an input without an accepted name; it may suggest one of all names."""
    for name in inputs:
        if name not in accepted_names:
            question = did_you_mean(name, all_names)
            ending = f"; {question}" if question else ""
            raise InputError(
                f"{name}: no input of the model, which takes {', '.join(names)}{ending}"
            )


def _is_misprint(name: str, names: Sequence[str]) -> bool:
    """Returns whether a name differs from another one by a letter.

    The letter is wrong, missing, surplus or moved.
    """
    variants = _shortened(name)
    return any(not variants.isdisjoint(_shortened(other)) for other in names)


def _shortened(word: str) -> set[str]:
    """Returns a word, and the word without each of its letters."""
    variants = {word}
    for index in range(len(word)):
        variants.add(word[:index] + word[index + 1 :])
    return variants


def _rename_inputs(
    features: Mapping,
    synonyms: Mapping[str, str],
) -> dict:
    """Returns the features that are not None, by the original's names."""
    inputs = {name: value for name, value in features.items() if value is not None}
    for other, name in synonyms.items():
        if other in inputs and name in inputs:
            raise InputError(
                f"{other}: given beside {name}, which is the same input; give one of them"
            )
    return {synonyms.get(name, name): value for name, value in inputs.items()}


def checked_features(config: BertConfig, features: dict) -> dict:
    """Checks the encoder's inputs among features.

    The encoder checks the shapes of choices, [B, N, S].

    Args:
        config: the configuration of the model.
        features: the result of `named_features`.

    Returns:
        The features with the checked inputs.

    Raises:
        InputError: the inputs do not fit each other or the model.
    """
    input_mask = features.get("input_mask")
    segment_ids = features.get("segment_ids")
    input_ids = _with_shape("input_ids", features["input_ids"])
    if len(input_ids.shape) == 3:
        _check_mask_and_segments(config, input_mask, segment_ids)
        return features
    inputs = checked_encoder_inputs(
        config,
        features["input_ids"],
        input_mask,
        segment_ids,
    )
    checked = zip(ENCODER_INPUTS, inputs, strict=True)
    return features | {name: value for name, value in checked if value is not None}


def checked_encoder_inputs(
    config: BertConfig,
    input_ids: Any,
    input_mask: Any,
    segment_ids: Any,
) -> tuple[Any, Any, Any]:
    """Checks the three inputs of the encoder, as far as their values are known.

    Args:
        config: the configuration of the model.
        input_ids: integers, [B, S].
        input_mask: 0 and 1, [B, S]; or None.
        segment_ids: integers, [B, S]; or None.

    Returns:
        The inputs, the ids as int32.

    Raises:
        InputError: the inputs do not fit each other or the model.
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
    input_mask = _with_equal_shape("input_mask", input_mask, input_ids)
    segment_ids = _with_equal_shape("segment_ids", segment_ids, input_ids)
    _check_mask_and_segments(config, input_mask, segment_ids)
    if segment_ids is not None and _finds_shapes():
        segment_ids = ops.cast(segment_ids, "int32")
    return (
        checked_ids("input_ids", input_ids, config.vocab_size, "vocab_size"),
        input_mask,
        segment_ids,
    )


def _finds_shapes() -> bool:
    """Returns whether Keras calls the model only for the shapes of its outputs."""
    with SymbolicScope() as scope:
        return scope.original_scope is not None


def _with_shape(name: str, values: Any):
    """Converts lists to an array; returns arrays and tensors unchanged."""
    if hasattr(values, "shape"):
        return values
    try:
        return np.array(values)
    except ValueError:
        raise InputError(
            f"{name} has rows of different lengths; fill them up to one length"
        ) from None


def _with_equal_shape(name: str, value: Any, input_ids: Any):
    """Converts lists to an array, and checks that the shape is that of the ids, as far as known."""
    if value is None:
        return None
    value = _with_shape(name, value)
    differs = len(value.shape) != 2
    for size, num_ids in zip(value.shape, input_ids.shape, strict=False):
        differs = differs or (None not in (size, num_ids) and size != num_ids)
    if differs:
        raise InputError(
            f"{name} has shape {tuple(value.shape)}, but input_ids has {tuple(input_ids.shape)}; "
            "they must be equal"
        )
    return value


def _check_mask_and_segments(config: BertConfig, input_mask: Any, segment_ids: Any):
    _check_values("input_mask", input_mask, 2, "1 for a token, 0 for padding)")
    num_segments = config.type_vocab_size
    _check_values(
        "segment_ids", segment_ids, num_segments, f"type_vocab_size {num_segments}); {_BELONG}"
    )


def _check_values(name: str, values: Any, size: int, meaning: str):
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

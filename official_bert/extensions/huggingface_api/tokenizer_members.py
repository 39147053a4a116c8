"""The methods and properties of transformers' tokenizers that a FullTokenizer gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.extensions.huggingface_api.tokenizer_inputs import (
    INPUT_IDS,
    LONGEST,
    MASK,
    MAX_LENGTH,
    PADDINGS,
    SEGMENTS,
    SPECIAL,
    SPECIAL_PIECES,
    choose,
    make_tensor,
)
from official_bert.io.errors import InputError

if TYPE_CHECKING:
    from official_bert.tokenization import FullTokenizer


def tokenizer_members() -> Mapping[str, Any]:
    """Returns the methods, properties and values that a FullTokenizer gets, by name."""
    members: dict[str, Any] = {
        "vocab_size": property(len),
        "get_vocab": get_vocab,
        "special_tokens_map": property(special_tokens_map),
        "all_special_tokens": property(all_special_tokens),
        "all_special_ids": property(all_special_ids),
        "batch_decode": batch_decode,
        "pad": pad,
    }
    for piece in SPECIAL_PIECES:
        name = f"{piece[1:-1].lower()}_token"
        members[name] = piece
        members[f"{name}_id"] = _id_property(piece)
    return members


def _id_property(piece: str) -> property:
    def number(tokenizer: FullTokenizer) -> int:
        if piece not in tokenizer.vocab:
            raise InputError(f"the vocabulary lacks {piece}; add a line for it")
        return tokenizer.vocab[piece]

    return property(number, doc=f"The id of {piece}; InputError if the vocabulary lacks it.")


def get_vocab(tokenizer: FullTokenizer) -> dict[str, int]:
    """Returns a copy of `vocab`."""
    return dict(tokenizer.vocab)


def special_tokens_map(tokenizer: FullTokenizer) -> dict[str, str]:
    """Returns the special tokens of the vocabulary, by their role: {"mask_token": "[MASK]", ...}."""
    return {f"{piece[1:-1].lower()}_token": piece for piece in all_special_tokens(tokenizer)}


def all_special_tokens(tokenizer: FullTokenizer) -> list[str]:
    """Returns the special tokens that the vocabulary has."""
    return [piece for piece in SPECIAL_PIECES if piece in tokenizer.vocab]


def all_special_ids(tokenizer: FullTokenizer) -> list[int]:
    """Returns the ids of `all_special_tokens`."""
    return [tokenizer.vocab[piece] for piece in all_special_tokens(tokenizer)]


def batch_decode(
    tokenizer: FullTokenizer, rows: Iterable[Iterable[int]], skip_special_tokens: bool = True
) -> list[str]:
    """Returns the text of each of several sequences of ids, as `decode` does."""
    return [tokenizer.decode(row, skip_special_tokens) for row in rows]


def pad(
    tokenizer: FullTokenizer,
    encoded: Mapping[str, Iterable] | Iterable[Mapping],
    padding: bool | str = True,
    max_length: int | None = None,
    return_tensors: str | None = None,
) -> dict:
    """Pads what a call with transformers' arguments returned, or a list of such examples, to one
    length.

    Args:
        tokenizer: the tokenizer that made them.
        encoded: `input_ids` and other names; a name that is no input of a model, such as `labels`,
            stays as it is.
        padding: True or "longest" for the longest example, "max_length" for `max_length`, False
            for none.
        max_length: by default the tokenizer's `model_max_length`.
        return_tensors: "np", "tf", or None for lists.

    Returns:
        The dict, with an `attention_mask`.
    """
    columns = {name: _to_lists(values) for name, values in _merge_examples(encoded).items()}
    if not columns.get(INPUT_IDS):
        raise InputError(
            f"encoded: has no {INPUT_IDS}; give what a call of the tokenizer returned, or a list "
            "of such"
        )
    is_one = not isinstance(columns[INPUT_IDS][0], list)
    if is_one:
        columns = {name: [values] for name, values in columns.items()}
    if MASK not in columns:
        columns[MASK] = [[1] * len(ids) for ids in columns[INPUT_IDS]]

    longest = max(map(len, columns[INPUT_IDS]))
    max_length = tokenizer.model_max_length if max_length is None else max_length
    length = {None: 0, LONGEST: longest, MAX_LENGTH: max_length}[
        choose("padding", padding, PADDINGS)
    ]
    if length is None:
        raise InputError(
            "padding='max_length': give max_length, since the tokenizer knows of no longest input"
        )
    fillers = {INPUT_IDS: tokenizer.vocab.get("[PAD]", 0), SEGMENTS: 0, MASK: 0, SPECIAL: 1}
    for name in fillers.keys() & columns.keys():
        columns[name] = [list(row) + [fillers[name]] * (length - len(row)) for row in columns[name]]
    if return_tensors is not None:
        return {name: make_tensor(name, values, return_tensors) for name, values in columns.items()}
    return {name: values[0] for name, values in columns.items()} if is_one else columns


def _merge_examples(encoded: Mapping | Iterable[Mapping]) -> Mapping:
    """Returns a list of examples as one mapping of lists; a mapping stays as it is."""
    if isinstance(encoded, Mapping):
        return encoded
    examples = list(encoded)
    names = examples[0] if examples else ()
    return {name: [example[name] for example in examples] for name in names}


def _to_lists(values: Any) -> Any:
    """Returns lists, arrays or tensors, or lists of them, as lists."""
    if isinstance(values, list | tuple):
        return [_to_lists(one) for one in values]
    return np.asarray(values).tolist() if hasattr(values, "shape") else values

"""The methods and properties of transformers' tokenizers that a FullTokenizer gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.extensions.huggingface_api.tokenizer_inputs import (
    INPUT_IDS,
    LONGEST,
    MASK,
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
    """Return the methods, properties and values that a FullTokenizer gets, by name."""
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
        name = _token_name(piece)
        members[name] = piece
        members[f"{name}_id"] = _make_id_property(piece)
    return members


def _token_name(piece: str) -> str:
    """Returns transformers' name of a special token, such as mask_token."""
    return f"{piece[1:-1].lower()}_token"


def _make_id_property(piece: str) -> property:
    def find_id(tokenizer: FullTokenizer) -> int:
        if piece not in tokenizer.vocab:
            raise InputError(f"the vocabulary lacks {piece}; add a line for it")
        return tokenizer.vocab[piece]

    return property(find_id, doc=f"The id of {piece}; InputError if the vocabulary lacks it.")


def get_vocab(tokenizer: FullTokenizer) -> dict[str, int]:
    """Return a copy of `vocab`.

    Args:
        tokenizer: the tokenizer.

    Returns:
        The id of each WordPiece.
    """
    return dict(tokenizer.vocab)


def special_tokens_map(tokenizer: FullTokenizer) -> dict[str, str]:
    """Return the special tokens of the vocabulary by role: {"mask_token": "[MASK]", ...}.

    Args:
        tokenizer: the tokenizer.
    """
    return {_token_name(piece): piece for piece in all_special_tokens(tokenizer)}


def all_special_tokens(tokenizer: FullTokenizer) -> list[str]:
    """Return the special tokens of the vocabulary.

    Args:
        tokenizer: the tokenizer.
    """
    return [piece for piece in SPECIAL_PIECES if piece in tokenizer.vocab]


def all_special_ids(tokenizer: FullTokenizer) -> list[int]:
    """Return the ids of `all_special_tokens`.

    Args:
        tokenizer: the tokenizer.
    """
    return [tokenizer.vocab[piece] for piece in all_special_tokens(tokenizer)]


def batch_decode(
    tokenizer: FullTokenizer, rows: Iterable[Iterable[int]], skip_special_tokens: bool = True
) -> list[str]:
    """Return the texts of several sequences of ids.

    Args:
        tokenizer: the tokenizer.
        rows: the sequences.
        skip_special_tokens: whether the texts lack the special tokens, as in `decode`.

    Returns:
        The text of each sequence.
    """
    return [tokenizer.decode(row, skip_special_tokens) for row in rows]


def pad(
    tokenizer: FullTokenizer,
    encoded: Mapping[str, Iterable] | Iterable[Mapping],
    padding: bool | str = True,
    max_length: int | None = None,
    return_tensors: str | None = None,
) -> dict:
    """Pad the result of a call with transformers' arguments, or a list of such examples.

    Args:
        tokenizer: the tokenizer that made them.
        encoded: `input_ids` and other names; a name that is no input of a model, such as `labels`,
            stays as it is.
        padding: True or "longest" for the longest example, "max_length" for `max_length`, False
            for none.
        max_length: the length; None for the tokenizer's `model_max_length`.
        return_tensors: "np", "tf", or None for lists.

    Returns:
        The dict, with an `attention_mask`.

    Raises:
        InputError: an argument has a wrong value.
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

    longest = max(len(ids) for ids in columns[INPUT_IDS])
    default_length = tokenizer.model_max_length if max_length is None else max_length
    length = _choose_length(padding, longest, default_length)
    pad_id = tokenizer.vocab.get("[PAD]", 0)
    for name, filler in {INPUT_IDS: pad_id, SEGMENTS: 0, MASK: 0, SPECIAL: 1}.items():
        if name in columns:
            columns[name] = [[*row, *[filler] * (length - len(row))] for row in columns[name]]
    if return_tensors is not None:
        return {name: make_tensor(name, values, return_tensors) for name, values in columns.items()}
    if is_one:
        return {name: values[0] for name, values in columns.items()}
    return columns


def _choose_length(padding: bool | str, longest: int, max_length: int | None) -> int:
    """Returns the length to which examples are padded, 0 for none."""
    kind = choose("padding", padding, PADDINGS)
    if kind is None:
        return 0
    if kind == LONGEST:
        return longest
    if max_length is None:
        raise InputError(
            "padding='max_length': give max_length, since the tokenizer knows of no longest input"
        )
    return max_length


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

"""Makes the inputs of a model from texts, in the form of the original.

In: a FullTokenizer and texts or pairs. Out: a dict of arrays by name. Extensions make other forms
of the inputs (the hook `tokenizer_call`).
"""

import sys
from collections.abc import Iterable, Mapping, Set
from typing import Any, Protocol

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_config import build_pair

NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")  # a vocabulary without them makes no model inputs
_MIN_SEQ_LENGTH = 3  # the special tokens of a pair


class _Tokenizer(Protocol):
    """FullTokenizer of tokenization.py."""

    vocab: dict[str, int]

    def encode(self, text: str) -> list[int]: ...


def model_inputs(
    tokenizer: _Tokenizer,
    texts: Any,
    pairs: Any,
    max_seq_length: int | None,
) -> dict[str, np.ndarray]:
    """Makes the inputs that a call of FullTokenizer without further arguments returns.

    Args:
        tokenizer: the tokenizer.
        texts: a text, which is a batch of one, or a list of texts.
        pairs: the second text of each; None for single texts.
        max_seq_length: the number of tokens to which examples are truncated; None for no limit.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, each int32[B, S].

    Raises:
        InputError: an argument has another form, or the vocabulary lacks a special token.
    """
    firsts, seconds = pair_texts(texts, pairs)
    length = sys.maxsize if max_seq_length is None else max_seq_length
    if not isinstance(length, int | np.integer) or length < _MIN_SEQ_LENGTH:
        raise InputError(
            f"max_seq_length: must be a whole number from {_MIN_SEQ_LENGTH}, got {max_seq_length!r}"
        )
    cls, sep = get_frame_ids(tokenizer)
    rows = []
    for first, second in zip(firsts, seconds, strict=True):
        first_ids = tokenizer.encode(first)
        second_ids = tokenizer.encode(second or "")
        rows.append(build_pair(first_ids, second_ids, length, cls, sep))
    longest = max(len(ids) for ids, _ in rows)
    shape = (len(rows), longest)
    input_ids = np.zeros(shape, np.int32)
    input_mask = np.zeros(shape, np.int32)
    segment_ids = np.zeros(shape, np.int32)
    for row, (ids, num_first) in enumerate(rows):
        input_ids[row, : len(ids)] = ids
        input_mask[row, : len(ids)] = 1
        segment_ids[row, num_first : len(ids)] = 1
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": segment_ids,
    }


def list_texts(name: str, texts: Any, may_be_none: bool = False) -> list:
    """Returns texts as a list.

    Args:
        name: the name of the argument, for the error.
        texts: a text, which becomes a list of one, or several.
        may_be_none: whether an item may be None.

    Raises:
        InputError: the argument, or an item, is not a text.
    """
    if isinstance(texts, str | bytes):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | Set):
        raise InputError(f"{name}: must be a text or a list of texts, got {type(texts).__name__}")
    texts = list(texts)
    for number, text in enumerate(texts):
        is_absent = may_be_none and text is None
        if not is_absent and not isinstance(text, str | bytes):
            raise InputError(
                f"{name}: number {number} (from 0) is of type {type(text).__name__}, and must be a "
                "text (str)"
            )
    return texts


def pair_texts(texts: Any, pairs: Any) -> tuple[list, list]:
    """Returns the first and the second texts.

    Args:
        texts: a text, or a list of texts.
        pairs: the second text of each; None for single texts.

    Returns:
        Two lists of one length. An absent second text is None.

    Raises:
        InputError: an argument has another form, or the two have different lengths.
    """
    if isinstance(texts, tuple):
        raise InputError(
            "texts: is a tuple; give several texts as a list, and the second texts of pairs as "
            "pairs="
        )
    firsts = list_texts("texts", texts)
    if not firsts:
        raise InputError("texts: is empty; give at least one text")
    if pairs is None:
        return firsts, [None] * len(firsts)
    seconds = list_texts("pairs", pairs, may_be_none=True)
    is_one = isinstance(texts, str | bytes)
    is_one_pair = isinstance(pairs, str | bytes)
    if is_one != is_one_pair:
        raise InputError(
            "texts and pairs: one is a single text and the other is not; give both in one form"
        )
    if len(firsts) != len(seconds):
        raise InputError(
            f"pairs: has {len(seconds)} texts, and texts has {len(firsts)}; give one for each, or "
            "None"
        )
    return firsts, seconds


def get_frame_ids(tokenizer: _Tokenizer) -> tuple[int, int]:
    """Returns the ids of [CLS] and [SEP].

    Args:
        tokenizer: the tokenizer.

    Raises:
        InputError: the vocabulary lacks a special token.
    """
    missing = [piece for piece in NEEDED_PIECES if piece not in tokenizer.vocab]
    if missing:
        raise InputError(f"the vocabulary lacks {', '.join(missing)}; add a line for each of them")
    return tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]

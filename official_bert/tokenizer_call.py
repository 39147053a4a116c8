"""Makes the inputs of a model from texts, in the form of the original.

In: a FullTokenizer and texts or pairs. Out: a dict of arrays by name. Extensions make other forms
of the same texts (the hook `tokenizer_call`).
"""

import sys
from collections.abc import Iterable, Mapping, Set

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_config import build_pair

NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")  # of a vocabulary that makes model inputs
_MIN_SEQ_LENGTH = 3  # the special tokens of a pair


def model_inputs(tokenizer, texts, pairs, max_seq_length: int | None) -> dict[str, np.ndarray]:
    """Does what a call of FullTokenizer without arguments of transformers does."""
    firsts, seconds = pair_texts(texts, pairs)
    length = sys.maxsize if max_seq_length is None else max_seq_length
    if not isinstance(length, int | np.integer) or length < _MIN_SEQ_LENGTH:
        raise InputError(
            f"max_seq_length: must be a whole number from {_MIN_SEQ_LENGTH}, got {max_seq_length!r}"
        )
    cls, sep = get_frame_ids(tokenizer)
    rows = [
        build_pair(tokenizer.encode(first), tokenizer.encode(second or ""), length, cls, sep)
        for first, second in zip(firsts, seconds, strict=True)
    ]
    longest = max(len(ids) for ids, _ in rows)
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: np.zeros((len(rows), longest), np.int32) for name in names}
    for row, (ids, num_first) in enumerate(rows):
        batch["input_ids"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
        batch["segment_ids"][row, num_first : len(ids)] = 1
    return batch


def list_texts(name: str, texts, may_be_none: bool = False) -> list:
    """Returns texts as a list; raises InputError, with the `name` of the argument, if they are
    no texts.
    """
    if isinstance(texts, str | bytes):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | Set):
        raise InputError(f"{name}: must be a text or a list of texts, got {type(texts).__name__}")
    texts = list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes) and not (may_be_none and text is None):
            raise InputError(
                f"{name}: number {number} (from 0) is of type {type(text).__name__}, and must be a "
                "text (str)"
            )
    return texts


def pair_texts(texts, pairs) -> tuple[list, list]:
    """Returns the first and the second texts, checked; a second text that is not there is None."""
    if isinstance(texts, tuple):
        raise InputError(
            "texts: is a tuple; give several texts as a list, and the second texts of pairs as "
            "pairs="
        )
    firsts = list_texts("texts", texts)
    if not firsts:
        raise InputError("texts: is empty; give at least one text")
    seconds = (
        [None] * len(firsts) if pairs is None else list_texts("pairs", pairs, may_be_none=True)
    )
    if pairs is not None and isinstance(texts, str | bytes) != isinstance(pairs, str | bytes):
        raise InputError(
            "texts and pairs: one is a single text and the other is not; give both in one form"
        )
    if len(firsts) != len(seconds):
        raise InputError(
            f"pairs: has {len(seconds)} texts, and texts has {len(firsts)}; give one for each, or "
            "None"
        )
    return firsts, seconds


def get_frame_ids(tokenizer) -> tuple[int, int]:
    """Returns the ids of [CLS] and [SEP] of a vocabulary that makes model inputs."""
    if missing := [piece for piece in NEEDED_PIECES if piece not in tokenizer.vocab]:
        raise InputError(f"the vocabulary lacks {', '.join(missing)}; add a line for each of them")
    return tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]

"""Makes the inputs of a model from texts: in the form of our scripts, and with transformers' arguments in its form.

In: a FullTokenizer and texts or pairs. Out: a dict of arrays or lists by name. Offsets count characters of the text.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Set

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_config import joined

NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")  # of a vocabulary that makes model inputs
_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # which transformers finds in a text
_MIN_SEQ_LENGTH = 3  # the special tokens of a pair
_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND = "longest_first", "only_first", "only_second"
_LONGEST, _MAX_LENGTH = "longest", "max_length"
_PADDINGS = {False: None, "do_not_pad": None, True: _LONGEST, _LONGEST: _LONGEST, _MAX_LENGTH: _MAX_LENGTH}
_TRUNCATIONS = {None: None, False: None, "do_not_truncate": None, True: _LONGEST_FIRST} | {
    name: name for name in (_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND)
}
_NOWHERE = (0, 0)  # the offsets of a special token that stands for no part of the text

Token = tuple[int, tuple[int, int]]  # its id, and where it begins and ends in the text


def model_inputs(tokenizer, texts, pairs, max_seq_length: int | None) -> dict[str, np.ndarray]:
    """Does what a call of FullTokenizer without arguments of transformers does."""
    firsts, seconds = _examples(texts, pairs)
    length = sys.maxsize if max_seq_length is None else max_seq_length
    if not isinstance(length, int | np.integer) or length < _MIN_SEQ_LENGTH:
        raise InputError(f"max_seq_length: must be a whole number from {_MIN_SEQ_LENGTH}, got {max_seq_length!r}")
    cls, sep = _frame(tokenizer)
    rows = [
        joined(tokenizer.encode(first), tokenizer.encode(second or ""), length, cls, sep)
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


def transformers_inputs(
    tokenizer,
    texts,
    pairs=None,
    *,
    text_pair=None,
    add_special_tokens: bool = True,
    padding: bool | str = False,
    truncation: bool | str | None = None,
    max_length: int | None = None,
    stride: int = 0,
    return_tensors: str | None = None,
    return_overflowing_tokens: bool = False,
    return_offsets_mapping: bool = False,
) -> dict:
    """Does what a call of FullTokenizer with arguments of transformers does, whose defaults are these."""
    pairs = text_pair if pairs is None else pairs
    is_one = isinstance(texts, str | bytes)
    firsts, seconds = _examples(texts, (pairs or None) if is_one else pairs)
    pads = _chosen("padding", padding, _PADDINGS)
    cuts = _chosen("truncation", truncation, _TRUNCATIONS)
    if max_length is None:
        max_length = tokenizer.model_max_length
        if pads == _MAX_LENGTH and max_length is None:
            raise InputError("padding='max_length': give max_length, since the tokenizer knows of no longest input")
    elif truncation is None and padding is False:
        cuts = _LONGEST_FIRST
    begin, end = ([(number, _NOWHERE)] if add_special_tokens else [] for number in _frame(tokenizer))

    rows, samples = [], []
    for number, example in enumerate(zip(firsts, seconds, strict=True)):
        tokens = [_tokens(tokenizer, text, return_offsets_mapping) for text in example if text is not None]
        num_special = len(begin) + len(end) * len(tokens)
        cut = _cut(tokens, cuts, max_length - num_special, stride) if cuts and max_length is not None else [tokens]
        for first, *others in cut if return_overflowing_tokens else cut[:1]:
            segments = [*begin, *first, *end], [token for second in others for token in (*second, *end)]
            rows.append(([*segments[0], *segments[1]], len(segments[0])))
            samples.append(number)
    length = {None: 0, _LONGEST: max(len(tokens) for tokens, _ in rows), _MAX_LENGTH: max_length}[pads]
    batch = _columns(rows, length, tokenizer.vocab.get("[PAD]", 0))
    if not return_offsets_mapping:
        del batch["offset_mapping"]
    if return_overflowing_tokens:
        batch["overflow_to_sample_mapping"] = samples
    if return_tensors is not None:
        return {name: _tensor(name, values, return_tensors) for name, values in batch.items()}
    is_flat = is_one and not return_overflowing_tokens
    return {name: values[0] for name, values in batch.items()} if is_flat else batch


def offsets_of(tokenizer, text: str) -> list[tuple[int, int]]:
    """Returns where each of the WordPieces that `tokenizer.encode` makes of a text begins and ends in it.

    Lower-casing, the removal of accents and the cleaning change a character on its own, so that the characters of the
    words, in order, are those of the text; [UNK] stands for a whole word.
    """
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    widths = {char: sum(map(len, basic.tokenize(char))) for char in set(text)}
    origins = [at for at, char in enumerate(text) for _ in range(widths[char])]
    offsets, begin = [], 0
    for word in basic.tokenize(text):
        pieces = wordpiece.split_word(word)
        widths_of_pieces = [len(word)] if len(pieces) == 1 else [len(pieces[0]), *(len(one) - 2 for one in pieces[1:])]
        for width in widths_of_pieces:
            offsets.append((origins[begin], origins[begin + width - 1] + 1))
            begin += width
    return offsets


def listed_texts(name: str, texts, may_be_none: bool = False) -> list:
    """Returns texts as a list; raises InputError, with the `name` of the argument, if they are no texts."""
    if isinstance(texts, str | bytes):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | Set):
        raise InputError(f"{name}: must be a text or a list of texts, got {type(texts).__name__}")
    texts = list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes) and not (may_be_none and text is None):
            raise InputError(
                f"{name}: number {number} (from 0) is of type {type(text).__name__}, and must be a text (str)"
            )
    return texts


def _examples(texts, pairs) -> tuple[list, list]:
    """Returns the first and the second texts, checked; a second text that is not there is None."""
    if isinstance(texts, tuple):
        raise InputError("texts: is a tuple; give several texts as a list, and the second texts of pairs as pairs=")
    firsts = listed_texts("texts", texts)
    if not firsts:
        raise InputError("texts: is empty; give at least one text")
    seconds = [None] * len(firsts) if pairs is None else listed_texts("pairs", pairs, may_be_none=True)
    if pairs is not None and isinstance(texts, str | bytes) != isinstance(pairs, str | bytes):
        raise InputError("texts and pairs: one is a single text and the other is not; give both in one form")
    if len(firsts) != len(seconds):
        raise InputError(f"pairs: has {len(seconds)} texts, and texts has {len(firsts)}; give one for each, or None")
    return firsts, seconds


def _frame(tokenizer) -> tuple[int, int]:
    """Returns the ids of [CLS] and [SEP] of a vocabulary that makes model inputs."""
    if missing := [piece for piece in NEEDED_PIECES if piece not in tokenizer.vocab]:
        raise InputError(f"the vocabulary lacks {', '.join(missing)}; add a line for each of them")
    return tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]


def _chosen(name: str, value, table: Mapping):
    if value not in table:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, table))}")
    return table[value]


def _tokens(tokenizer, text: str | bytes, with_offsets: bool) -> list[Token]:
    """Returns the tokens of a text, in which special pieces of the vocabulary stay whole."""
    text = text if isinstance(text, str) else text.decode("utf-8", "ignore")
    special = [piece for piece in _SPECIAL_PIECES if piece in tokenizer.vocab]
    ids, offsets, start = [], [], 0
    for part in re.split(f"({'|'.join(map(re.escape, special))})", text):
        of_part = [(0, len(part))]
        if part in special:
            ids.append(tokenizer.vocab[part])
        else:
            ids += tokenizer.encode(part)
            of_part = offsets_of(tokenizer, part) if with_offsets else []
        offsets += [(start + begin, start + end) for begin, end in of_part]
        start += len(part)
    return list(zip(ids, offsets, strict=True)) if with_offsets else [(number, _NOWHERE) for number in ids]


def _cut(tokens: list[list[Token]], strategy: str, room: int, stride: int) -> list[list[list[Token]]]:
    """Returns the windows of one text or two that together have no more than `room` tokens, the first window first.

    Those of a text share `stride` tokens; if both texts are cut, every window of one goes with every one of the other.
    """
    lengths = list(map(len, tokens))
    if sum(lengths) <= room:
        return [tokens]
    if strategy == _LONGEST_FIRST:
        sizes = [room]
        if len(tokens) == 2:
            shorter = min(*lengths, room // 2)
            sizes = [room - shorter, shorter] if lengths[0] > lengths[1] else [shorter, room - shorter]
    else:
        chosen = (_ONLY_FIRST, _ONLY_SECOND).index(strategy)
        if chosen >= len(tokens):
            raise InputError(f"truncation={strategy!r}: there is no second text; give pairs")
        sizes = [length if number != chosen else room - sum(lengths) + length for number, length in enumerate(lengths)]
    windows = [_windows(*of_text, stride) for of_text in zip(tokens, sizes, strict=True)]
    if len(windows) == 1:
        return [[window] for window in windows[0]]
    (first, *firsts), (second, *seconds) = windows
    both = [[one, other] for one in firsts for other in (second, *seconds)]
    return [[first, second], *both, *([first, other] for other in seconds)]


def _windows(tokens: list[Token], size: int, stride: int) -> list[list[Token]]:
    if len(tokens) <= size:
        return [tokens]
    if not 0 <= stride < size:
        raise InputError(
            f"max_length: leaves room for {size} tokens of a text, and stride={stride} must be less; give a larger "
            "max_length"
        )
    return [tokens[start : start + size] for start in range(0, len(tokens) - stride, size - stride)]


def _columns(rows: Iterable[tuple[list[Token], int]], length: int, pad: int) -> dict[str, list]:
    """Returns the examples by the names of transformers, each padded to a length."""
    batch = {name: [] for name in ("input_ids", "token_type_ids", "attention_mask", "offset_mapping")}
    for tokens, num_first in rows:
        padding = length - len(tokens)
        batch["input_ids"].append([number for number, _ in tokens] + [pad] * padding)
        batch["token_type_ids"].append([0] * num_first + [1] * (len(tokens) - num_first) + [0] * padding)
        batch["attention_mask"].append([1] * len(tokens) + [0] * padding)
        batch["offset_mapping"].append([offsets for _, offsets in tokens] + [_NOWHERE] * padding)
    return batch


def _tensor(name: str, values: list, kind: str):
    try:
        array = np.array(values, np.int64)
    except ValueError:
        raise InputError(f"{name}: the examples differ in length; give padding=True, or return_tensors=None") from None
    if kind == "np":
        return array
    if kind != "tf":
        raise InputError(f"return_tensors={kind!r}: must be 'tf', 'np' or None")
    import tensorflow as tf

    return tf.constant(array, tf.int32)

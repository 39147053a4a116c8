"""Makes the inputs of a model from texts as a call of transformers' tokenizers does.

In: a FullTokenizer and texts or pairs. Out: a dict of lists, arrays or tensors by transformers'
names. Offsets count characters of the text.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_call import get_frame_ids, pair_texts

# The special tokens that transformers recognizes in a text.
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND = "longest_first", "only_first", "only_second"
LONGEST, MAX_LENGTH = "longest", "max_length"
PADDINGS = {
    False: None,
    "do_not_pad": None,
    True: LONGEST,
    LONGEST: LONGEST,
    MAX_LENGTH: MAX_LENGTH,
}
_TRUNCATIONS = {None: None, False: None, "do_not_truncate": None, True: _LONGEST_FIRST} | {
    name: name for name in (_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND)
}
INPUT_IDS, SEGMENTS, MASK, SPECIAL = (
    "input_ids",
    "token_type_ids",
    "attention_mask",
    "special_tokens_mask",
)
_NOWHERE = (0, 0)  # the offsets of a special token that stands for no part of the text

Token = tuple[int, tuple[int, int]]  # its id, and where it begins and ends in the text


class _Row(NamedTuple):
    """The tokens of an example.

    Attributes:
        tokens: the tokens, special ones included.
        num_first: the number of tokens in segment 0.
        special: 1 for each special token that the call adds, else 0.
    """

    tokens: list[Token]
    num_first: int
    special: list[int]


def tokenizer_call(tokenizer, texts, pairs, max_seq_length: int | None, arguments: Mapping) -> dict:
    """Does what a call of FullTokenizer with arguments of transformers does."""
    if max_seq_length is not None:
        raise InputError("max_seq_length: is called max_length beside arguments of transformers")
    return transformers_inputs(tokenizer, texts, pairs, **arguments)


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
    return_special_tokens_mask: bool = False,
    return_length: bool = False,
    return_token_type_ids: bool = True,
    return_attention_mask: bool = True,
) -> dict:
    """Does what a call of FullTokenizer with arguments of transformers does, whose defaults are
    these.
    """
    pairs = text_pair if pairs is None else pairs
    is_one = isinstance(texts, str | bytes)
    firsts, seconds = pair_texts(texts, (pairs or None) if is_one else pairs)
    pads = choose("padding", padding, PADDINGS)
    cuts = choose("truncation", truncation, _TRUNCATIONS)
    if max_length is None:
        max_length = tokenizer.model_max_length
        if pads == MAX_LENGTH and max_length is None:
            raise InputError(
                "padding='max_length': give max_length, since the tokenizer knows of no longest "
                "input"
            )
    elif truncation is None and padding is False:
        cuts = _LONGEST_FIRST
    begin: list[Token] = []
    end: list[Token] = []
    cls_id, sep_id = get_frame_ids(tokenizer)
    if add_special_tokens:
        begin, end = [(cls_id, _NOWHERE)], [(sep_id, _NOWHERE)]

    rows, samples = [], []
    for number, example in enumerate(zip(firsts, seconds, strict=True)):
        tokens = [
            _tokens(tokenizer, text, return_offsets_mapping) for text in example if text is not None
        ]
        num_special = len(begin) + len(end) * len(tokens)
        cut = (
            _cut(tokens, cuts, max_length - num_special, stride)
            if cuts and max_length is not None
            else [tokens]
        )
        for first, *others in cut if return_overflowing_tokens else cut[:1]:
            rows.append(_framed(begin, first, others, end))
            samples.append(number)
    length = {None: 0, LONGEST: max(len(row.tokens) for row in rows), MAX_LENGTH: max_length}[pads]
    batch = _columns(rows, length, tokenizer.vocab.get("[PAD]", 0))
    is_returned = {
        SEGMENTS: return_token_type_ids,
        MASK: return_attention_mask,
        SPECIAL: return_special_tokens_mask,
        "length": return_length,
        "offset_mapping": return_offsets_mapping,
    }
    batch = {name: values for name, values in batch.items() if is_returned.get(name, True)}
    if return_overflowing_tokens:
        batch["overflow_to_sample_mapping"] = samples
    if return_tensors is not None:
        return {name: make_tensor(name, values, return_tensors) for name, values in batch.items()}
    if not is_one or return_overflowing_tokens:
        return batch
    return {name: values if name == "length" else values[0] for name, values in batch.items()}


def offsets_of(tokenizer, text: str) -> list[tuple[int, int]]:
    """Returns where each of the WordPieces that `tokenizer.encode` makes of a text begins and ends
    in it.

    Lower-casing, the removal of accents and the cleaning change a character on its own, so that the
    characters of the words, in order, are those of the text; [UNK] stands for a whole word.
    """
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    widths = {char: sum(map(len, basic.tokenize(char))) for char in set(text)}
    origins = [at for at, char in enumerate(text) for _ in range(widths[char])]
    offsets, begin = [], 0
    for word in basic.tokenize(text):
        pieces = wordpiece.split_word(word)
        piece_widths = (
            [len(word)]
            if len(pieces) == 1
            else [len(pieces[0]), *(len(one) - 2 for one in pieces[1:])]
        )
        for width in piece_widths:
            offsets.append((origins[begin], origins[begin + width - 1] + 1))
            begin += width
    return offsets


def choose(name: str, value, table: Mapping):
    if value not in table:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, table))}")
    return table[value]


def _tokens(tokenizer, text: str | bytes, with_offsets: bool) -> list[Token]:
    """Returns the tokens of a text, in which special pieces of the vocabulary stay whole."""
    text = text if isinstance(text, str) else text.decode("utf-8", "ignore")
    special = [piece for piece in SPECIAL_PIECES if piece in tokenizer.vocab]
    ids, offsets, start = [], [], 0
    for part in re.split(f"({'|'.join(map(re.escape, special))})", text):
        part_offsets = [(0, len(part))]
        if part in special:
            ids.append(tokenizer.vocab[part])
        else:
            ids += tokenizer.encode(part)
            part_offsets = offsets_of(tokenizer, part) if with_offsets else []
        offsets += [(start + begin, start + end) for begin, end in part_offsets]
        start += len(part)
    return (
        list(zip(ids, offsets, strict=True))
        if with_offsets
        else [(number, _NOWHERE) for number in ids]
    )


def _cut(
    tokens: list[list[Token]], strategy: str, room: int, stride: int
) -> list[list[list[Token]]]:
    """Returns the windows of one text or two that together have no more than `room` tokens, the
    first window first.

    Those of a text share `stride` tokens; if both texts are cut, every window of one goes with
    every one of the other.
    """
    lengths = list(map(len, tokens))
    if sum(lengths) <= room:
        return [tokens]
    if strategy == _LONGEST_FIRST:
        sizes = [room]
        if len(tokens) == 2:
            shorter = min(*lengths, room // 2)
            sizes = (
                [room - shorter, shorter] if lengths[0] > lengths[1] else [shorter, room - shorter]
            )
    else:
        chosen = (_ONLY_FIRST, _ONLY_SECOND).index(strategy)
        if chosen >= len(tokens):
            raise InputError(f"truncation={strategy!r}: there is no second text; give pairs")
        sizes = [
            length if number != chosen else room - sum(lengths) + length
            for number, length in enumerate(lengths)
        ]
    windows = [
        _windows(text_tokens, size, stride) for text_tokens, size in zip(tokens, sizes, strict=True)
    ]
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
            f"max_length: leaves room for {size} tokens of a text, and stride={stride} must be "
            "less; give a larger max_length"
        )
    return [tokens[start : start + size] for start in range(0, len(tokens) - stride, size - stride)]


def _framed(
    begin: list[Token], first: list[Token], others: list[list[Token]], end: list[Token]
) -> _Row:
    """Returns `begin first end` and, of each of the others, which are one or none, the tokens
    and `end`.
    """
    tokens, special = [*begin, *first, *end], [1] * len(begin) + [0] * len(first) + [1] * len(end)
    num_first = len(tokens)
    for second in others:
        tokens += [*second, *end]
        special += [0] * len(second) + [1] * len(end)
    return _Row(tokens, num_first, special)


def _columns(rows: Iterable[_Row], length: int, pad: int) -> dict[str, list]:
    """Returns the examples by the names of transformers, each padded to a length."""
    batch = {name: [] for name in (INPUT_IDS, SEGMENTS, MASK, SPECIAL, "offset_mapping", "length")}
    for tokens, num_first, special in rows:
        padding = max(length - len(tokens), 0)
        batch[INPUT_IDS].append([number for number, _ in tokens] + [pad] * padding)
        batch[SEGMENTS].append([0] * num_first + [1] * (len(tokens) - num_first) + [0] * padding)
        batch[MASK].append([1] * len(tokens) + [0] * padding)
        batch[SPECIAL].append(special + [1] * padding)
        batch["offset_mapping"].append([offsets for _, offsets in tokens] + [_NOWHERE] * padding)
        batch["length"].append(len(tokens) + padding)
    return batch


def make_tensor(name: str, values: list, kind: str):
    """Returns whole numbers as int64 of numpy or int32 of TensorFlow, others as float32."""
    try:
        array = np.array(values)
        array = array.astype(
            np.int64 if array.dtype.kind in "biu" or not array.size else np.float32
        )
    except ValueError:
        raise InputError(
            f"{name}: the examples differ in length; give padding=True, or return_tensors=None"
        ) from None
    if kind == "np":
        return array
    if kind != "tf":
        raise InputError(f"return_tensors={kind!r}: must be 'tf', 'np' or None")
    import tensorflow as tf

    return tf.constant(array, tf.int32 if array.dtype == np.int64 else tf.float32)

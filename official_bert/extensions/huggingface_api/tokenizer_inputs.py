"""Makes the inputs of a model from texts as a call of transformers' tokenizers does.

Input: a FullTokenizer and texts or pairs. Output: a dict of lists, arrays or tensors by
transformers' names. Offsets count characters of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_call import get_frame_ids, pair_texts

if TYPE_CHECKING:
    from official_bert.tokenization import FullTokenizer

# The special tokens that transformers recognizes in a text.
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_FIRST = "longest_first"
_ONLY_FIRST = "only_first"
_ONLY_SECOND = "only_second"
LONGEST = "longest"
MAX_LENGTH = "max_length"
PADDINGS = {
    False: None,
    "do_not_pad": None,
    True: LONGEST,
    LONGEST: LONGEST,
    MAX_LENGTH: MAX_LENGTH,
}
_TRUNCATIONS = {
    None: None,
    False: None,
    "do_not_truncate": None,
    True: _LONGEST_FIRST,
    _LONGEST_FIRST: _LONGEST_FIRST,
    _ONLY_FIRST: _ONLY_FIRST,
    _ONLY_SECOND: _ONLY_SECOND,
}
INPUT_IDS = "input_ids"
SEGMENTS = "token_type_ids"
MASK = "attention_mask"
SPECIAL = "special_tokens_mask"
_OFFSETS = "offset_mapping"
_LENGTH = "length"
_NOWHERE = (0, 0)  # The offsets of a special token, which is no part of the text.

Token = tuple[int, tuple[int, int]]  # The id, and the begin and the end in the text.
Texts = Any  # A text, or several; the same for the second texts of pairs.


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


def tokenizer_call(
    tokenizer: FullTokenizer,
    texts: Texts,
    pairs: Texts,
    max_seq_length: int | None,
    arguments: Mapping[str, Any],
) -> dict:
    """Return the result of a call of FullTokenizer with arguments of transformers.

    Args:
        tokenizer: the tokenizer.
        texts: a text, or several.
        pairs: the second texts of pairs; None for none.
        max_seq_length: our name of the longest input, which has to be None here.
        arguments: the arguments of transformers by name.

    Returns:
        The inputs by the names of transformers.

    Raises:
        InputError: an argument has a wrong value.
    """
    if max_seq_length is not None:
        raise InputError("max_seq_length: is called max_length beside arguments of transformers")
    return transformers_inputs(tokenizer, texts, pairs, **arguments)


def transformers_inputs(  # noqa: PLR0913 - transformers' arguments
    tokenizer: FullTokenizer,
    texts: Texts,
    pairs: Texts = None,
    *,
    text_pair: Texts = None,
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
    """Return the result of a call of FullTokenizer with arguments of transformers.

    The arguments and their defaults are those of transformers.

    Args:
        tokenizer: the tokenizer.
        texts: a text, or several.
        pairs: the second texts of pairs; None for none.
        text_pair: another name of `pairs`.
        add_special_tokens: whether [CLS] and [SEP] are added.
        padding: True or "longest" for the longest example, "max_length" for `max_length`, False
            for none.
        truncation: True or "longest_first", "only_first" or "only_second" for the text to truncate;
            False for none; None truncates the longest if only `max_length` is there.
        max_length: the longest input; None for the tokenizer's `model_max_length`.
        stride: the number of tokens that two windows of a text share.
        return_tensors: "np", "tf", or None for lists.
        return_overflowing_tokens: whether all windows of a text are returned, not only the first.
        return_offsets_mapping: whether the offsets of the tokens are returned.
        return_special_tokens_mask: whether the mask of special tokens is returned.
        return_length: whether the number of tokens is returned.
        return_token_type_ids: whether the segments are returned.
        return_attention_mask: whether the mask of padding is returned.

    Returns:
        The inputs by the names of transformers; without a list for one text.

    Raises:
        InputError: an argument has a wrong value.
    """
    pairs = text_pair if pairs is None else pairs
    is_one = isinstance(texts, str | bytes)
    firsts, seconds = pair_texts(texts, (pairs or None) if is_one else pairs)
    padding_kind = choose("padding", padding, PADDINGS)
    strategy = choose("truncation", truncation, _TRUNCATIONS)
    if max_length is None:
        max_length = tokenizer.model_max_length
        if padding_kind == MAX_LENGTH and max_length is None:
            raise InputError(
                "padding='max_length': give max_length, since the tokenizer knows of no longest "
                "input"
            )
    elif truncation is None and padding is False:
        strategy = _LONGEST_FIRST
    begin: list[Token] = []
    end: list[Token] = []
    cls_id, sep_id = get_frame_ids(tokenizer)
    if add_special_tokens:
        begin = [(cls_id, _NOWHERE)]
        end = [(sep_id, _NOWHERE)]

    # Make a row of each example, or of each of its windows.
    rows: list[_Row] = []
    samples: list[int] = []
    for number, example in enumerate(zip(firsts, seconds, strict=True)):
        texts_tokens = [
            _tokenize(tokenizer, text, return_offsets_mapping)
            for text in example
            if text is not None
        ]
        num_special = len(begin) + len(end) * len(texts_tokens)
        room = None if max_length is None else max_length - num_special
        windows = _truncate(texts_tokens, strategy, room, stride)
        if not return_overflowing_tokens:
            windows = windows[:1]
        rows += [_add_special_tokens(begin, window, end) for window in windows]
        samples += [number] * len(windows)

    # Pad the rows, and select the requested columns.
    longest = max(len(row.tokens) for row in rows)
    lengths = {None: 0, LONGEST: longest, MAX_LENGTH: max_length}
    columns = _make_columns(
        rows=rows,
        length=lengths[padding_kind],
        pad_id=tokenizer.vocab.get("[PAD]", 0),
    )
    is_returned = {
        INPUT_IDS: True,
        SEGMENTS: return_token_type_ids,
        MASK: return_attention_mask,
        SPECIAL: return_special_tokens_mask,
        _LENGTH: return_length,
        _OFFSETS: return_offsets_mapping,
    }
    batch = {name: values for name, values in columns.items() if is_returned[name]}
    if return_overflowing_tokens:
        batch["overflow_to_sample_mapping"] = samples
    if return_tensors is not None:
        return {name: make_tensor(name, values, return_tensors) for name, values in batch.items()}
    if not is_one or return_overflowing_tokens:
        return batch
    return {name: values if name == _LENGTH else values[0] for name, values in batch.items()}


def find_offsets(tokenizer: FullTokenizer, text: str) -> list[tuple[int, int]]:
    """Return the begin and the end in a text of each of its WordPieces.

    Lower-casing, the removal of accents and the cleaning change each character alone. Hence the
    characters of the words, in order, are those of the text. [UNK] stands for a whole word.

    Args:
        tokenizer: the tokenizer.
        text: the text.

    Returns:
        The offsets of the pieces of `tokenizer.encode(text)`.
    """
    basic = tokenizer.basic_tokenizer
    widths = {}
    for char in set(text):
        words = basic.tokenize(char)
        widths[char] = sum(len(word) for word in words)
    # The place in the text of each character of the words.
    origins: list[int] = []
    for place, char in enumerate(text):
        origins += [place] * widths[char]
    offsets = []
    begin = 0
    for word in basic.tokenize(text):
        pieces = tokenizer.wordpiece_tokenizer.split_word(word)
        piece_widths = [len(word)]
        if len(pieces) > 1:
            further_widths = [len(piece) - len("##") for piece in pieces[1:]]
            piece_widths = [len(pieces[0]), *further_widths]
        for width in piece_widths:
            offsets.append((origins[begin], origins[begin + width - 1] + 1))
            begin += width
    return offsets


def choose(name: str, value: Any, table: Mapping) -> Any:
    """Return the meaning of an argument's value.

    Args:
        name: the name of the argument.
        value: its value.
        table: the meanings by value.

    Returns:
        The meaning.

    Raises:
        InputError: the table lacks the value.
    """
    if value not in table:
        choices = ", ".join(repr(key) for key in table)
        raise InputError(f"{name}={value!r}: must be one of {choices}")
    return table[value]


def _tokenize(tokenizer: FullTokenizer, text: str | bytes, with_offsets: bool) -> list[Token]:
    """Returns the tokens of a text, in which special pieces of the vocabulary stay whole."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    special_pieces = [piece for piece in SPECIAL_PIECES if piece in tokenizer.vocab]
    pattern = "|".join(re.escape(piece) for piece in special_pieces)
    tokens: list[Token] = []
    start = 0
    for part in re.split(f"({pattern})", text):
        if part in special_pieces:
            ids = [tokenizer.vocab[part]]
            offsets = [(0, len(part))]
        else:
            ids = tokenizer.encode(part)
            offsets = find_offsets(tokenizer, part) if with_offsets else [_NOWHERE] * len(ids)
        for token_id, (begin, end) in zip(ids, offsets, strict=True):
            place = (start + begin, start + end) if with_offsets else _NOWHERE
            tokens.append((token_id, place))
        start += len(part)
    return tokens


def _truncate(
    tokens: list[list[Token]],
    strategy: str | None,
    room: int | None,
    stride: int,
) -> list[list[list[Token]]]:
    """Returns the windows of one text or of a pair, the first window first.

    The windows of a text share `stride` tokens. If both texts of a pair are truncated, every window
    of one goes with every one of the other.

    Args:
        tokens: the tokens of one text or two.
        strategy: the text to truncate; None for none.
        room: the largest number of tokens of a window; None without a limit.
        stride: the number of tokens that two windows share.
    """
    if strategy is None or room is None:
        return [tokens]
    if sum(len(text_tokens) for text_tokens in tokens) <= room:
        return [tokens]
    sizes = _share_room([len(text_tokens) for text_tokens in tokens], strategy, room)
    windows = []
    for text_tokens, size in zip(tokens, sizes, strict=True):
        windows.append(_split_windows(text_tokens, size, stride))
    if len(windows) == 1:
        return [[window] for window in windows[0]]
    firsts, seconds = windows
    results = [[firsts[0], seconds[0]]]
    results += [[first, second] for first in firsts[1:] for second in seconds]
    results += [[firsts[0], second] for second in seconds[1:]]
    return results


def _share_room(lengths: list[int], strategy: str, room: int) -> list[int]:
    """Returns the largest number of tokens of each text in a window."""
    if strategy == _LONGEST_FIRST:
        if len(lengths) == 1:
            return [room]
        shorter = min(*lengths, room // 2)
        longer = room - shorter
        return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]
    index = (_ONLY_FIRST, _ONLY_SECOND).index(strategy)
    if index >= len(lengths):
        raise InputError(f"truncation={strategy!r}: there is no second text; give pairs")
    sizes = list(lengths)
    sizes[index] = room - sum(lengths) + lengths[index]
    return sizes


def _split_windows(tokens: list[Token], size: int, stride: int) -> list[list[Token]]:
    """Returns windows of at most `size` tokens of a text, of which neighbours share `stride`."""
    if len(tokens) <= size:
        return [tokens]
    if not 0 <= stride < size:
        raise InputError(
            f"max_length: leaves room for {size} tokens of a text, and stride={stride} must be "
            "less; give a larger max_length"
        )
    starts = range(0, len(tokens) - stride, size - stride)
    return [tokens[start : start + size] for start in starts]


def _add_special_tokens(
    begin: list[Token],
    texts: list[list[Token]],
    end: list[Token],
) -> _Row:
    """Returns `begin first end` or, for two texts, `begin first end second end`."""
    tokens = list(begin)
    special = [1] * len(begin)
    ends = []
    for text_tokens in texts:
        tokens += text_tokens
        tokens += end
        special += [0] * len(text_tokens)
        special += [1] * len(end)
        ends.append(len(tokens))
    return _Row(tokens, ends[0], special)


def _make_columns(rows: Iterable[_Row], length: int, pad_id: int) -> dict[str, list]:
    """Returns the examples by the names of transformers, each padded to a length."""
    names = (INPUT_IDS, SEGMENTS, MASK, SPECIAL, _OFFSETS, _LENGTH)
    columns: dict[str, list] = {name: [] for name in names}
    for tokens, num_first, special in rows:
        num_tokens = len(tokens)
        num_padding = max(length - num_tokens, 0)
        zeros = [0] * num_padding
        ids = [token_id for token_id, _ in tokens]
        offsets = [place for _, place in tokens]
        segments = [0] * num_first + [1] * (num_tokens - num_first)
        columns[INPUT_IDS].append(ids + [pad_id] * num_padding)
        columns[SEGMENTS].append(segments + zeros)
        columns[MASK].append([1] * num_tokens + zeros)
        columns[SPECIAL].append(special + [1] * num_padding)
        columns[_OFFSETS].append(offsets + [_NOWHERE] * num_padding)
        columns[_LENGTH].append(num_tokens + num_padding)
    return columns


def make_tensor(name: str, values: list, kind: str) -> Any:
    """Return lists as an array or a tensor.

    Args:
        name: the name of the values, for error messages.
        values: lists of numbers of equal lengths.
        kind: "np" or "tf".

    Returns:
        Whole numbers as int64 of numpy or int32 of TensorFlow, others as float32.

    Raises:
        InputError: the lengths differ, or there is no such kind.
    """
    try:
        array = np.array(values)
        is_whole = array.dtype.kind in "biu" or not array.size
        array = array.astype(np.int64 if is_whole else np.float32)
    except ValueError:
        raise InputError(
            f"{name}: the examples differ in length; give padding=True, or return_tensors=None"
        ) from None
    if kind == "np":
        return array
    if kind != "tf":
        raise InputError(f"return_tensors={kind!r}: must be 'tf', 'np' or None")
    import tensorflow as tf

    return tf.constant(array, tf.int32 if is_whole else tf.float32)

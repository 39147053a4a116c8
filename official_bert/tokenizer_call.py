"""Makes the inputs of a model from texts: in the form of our scripts, and with transformers'
arguments in its form.

In: a FullTokenizer and texts or pairs. Out: a dict of arrays or lists by name. Offsets count
    characters of the text.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np

from official_bert.io.errors import InputError
from official_bert.tokenizer_config import joined

NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")  # of a vocabulary that makes model inputs
# Which transformers finds in a text.
_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MIN_SEQ_LENGTH = 3  # the special tokens of a pair
_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND = "longest_first", "only_first", "only_second"
_LONGEST, _MAX_LENGTH = "longest", "max_length"
_PADDINGS = {
    False: None,
    "do_not_pad": None,
    True: _LONGEST,
    _LONGEST: _LONGEST,
    _MAX_LENGTH: _MAX_LENGTH,
}
_TRUNCATIONS = {None: None, False: None, "do_not_truncate": None, True: _LONGEST_FIRST} | {
    name: name for name in (_LONGEST_FIRST, _ONLY_FIRST, _ONLY_SECOND)
}
_INPUT_IDS, _SEGMENTS, _MASK, _SPECIAL = (
    "input_ids",
    "token_type_ids",
    "attention_mask",
    "special_tokens_mask",
)
_NOWHERE = (0, 0)  # the offsets of a special token that stands for no part of the text

Token = tuple[int, tuple[int, int]]  # its id, and where it begins and ends in the text


class _Row(NamedTuple):
    """The tokens of an example, how many of them are in segment 0, and 1 for each that the frame
    adds, else 0.
    """

    tokens: list[Token]
    num_first: int
    special: list[int]


def _id_property(piece: str) -> property:
    def number(tokenizer) -> int:
        if piece not in tokenizer.vocab:
            raise InputError(f"the vocabulary lacks {piece}; add a line for it")
        return tokenizer.vocab[piece]

    return property(number, doc=f"The id of {piece}; InputError if the vocabulary lacks it.")


class TransformersNames:
    """The names of transformers' tokenizers that a FullTokenizer has besides those of the original."""

    vocab: dict[str, int]

    pad_token, unk_token, cls_token, sep_token, mask_token = _SPECIAL_PIECES
    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = map(
        _id_property, _SPECIAL_PIECES
    )

    def __len__(self) -> int:
        """Returns the number of ids, which is the `vocab_size` of a model of this vocabulary."""
        return 1 + max(self.vocab.values(), default=-1)

    @property
    def vocab_size(self) -> int:
        return len(self)

    def get_vocab(self) -> dict[str, int]:
        """Returns a copy of `vocab`."""
        return dict(self.vocab)

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens of the vocabulary, by their role: `{"mask_token": "[MASK]", ...}`."""
        return {f"{piece[1:-1].lower()}_token": piece for piece in self.all_special_tokens}

    @property
    def all_special_tokens(self) -> list[str]:
        return [piece for piece in _SPECIAL_PIECES if piece in self.vocab]

    @property
    def all_special_ids(self) -> list[int]:
        return [self.vocab[piece] for piece in self.all_special_tokens]

    def batch_decode(
        self, rows: Iterable[Iterable[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """Returns the text of each of several sequences of ids, as `decode` does."""
        return [self.decode(row, skip_special_tokens) for row in rows]

    def pad(
        self,
        encoded: Mapping[str, Iterable] | Iterable[Mapping],
        padding: bool | str = True,
        max_length: int | None = None,
        return_tensors: str | None = None,
    ) -> dict:
        """Pads what a call with transformers' arguments returned, or a list of such examples, to
        one length.

        Args:
            encoded: `input_ids` and other names; a name that is no input of a model, such as
                `labels`, stays as it is.
            padding: True or "longest" for the longest example, "max_length" for `max_length`, False
                for none.
            max_length: by default the tokenizer's `model_max_length`.
            return_tensors: "np", "tf", or None for lists.

        Returns:
            The dict, with an `attention_mask`.
        """
        return _padded(self, encoded, padding, max_length, return_tensors)


def model_inputs(tokenizer, texts, pairs, max_seq_length: int | None) -> dict[str, np.ndarray]:
    """Does what a call of FullTokenizer without arguments of transformers does."""
    firsts, seconds = _examples(texts, pairs)
    length = sys.maxsize if max_seq_length is None else max_seq_length
    if not isinstance(length, int | np.integer) or length < _MIN_SEQ_LENGTH:
        raise InputError(
            f"max_seq_length: must be a whole number from {_MIN_SEQ_LENGTH}, got {max_seq_length!r}"
        )
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
    firsts, seconds = _examples(texts, (pairs or None) if is_one else pairs)
    pads = _chosen("padding", padding, _PADDINGS)
    cuts = _chosen("truncation", truncation, _TRUNCATIONS)
    if max_length is None:
        max_length = tokenizer.model_max_length
        if pads == _MAX_LENGTH and max_length is None:
            raise InputError(
                "padding='max_length': give max_length, since the tokenizer knows of no longest "
                "input"
            )
    elif truncation is None and padding is False:
        cuts = _LONGEST_FIRST
    begin, end = (
        [(number, _NOWHERE)] if add_special_tokens else [] for number in _frame(tokenizer)
    )

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
    length = {None: 0, _LONGEST: max(len(row.tokens) for row in rows), _MAX_LENGTH: max_length}[
        pads
    ]
    batch = _columns(rows, length, tokenizer.vocab.get("[PAD]", 0))
    is_wanted = {
        _SEGMENTS: return_token_type_ids,
        _MASK: return_attention_mask,
        _SPECIAL: return_special_tokens_mask,
        "length": return_length,
        "offset_mapping": return_offsets_mapping,
    }
    batch = {name: values for name, values in batch.items() if is_wanted.get(name, True)}
    if return_overflowing_tokens:
        batch["overflow_to_sample_mapping"] = samples
    if return_tensors is not None:
        return {name: _tensor(name, values, return_tensors) for name, values in batch.items()}
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
        widths_of_pieces = (
            [len(word)]
            if len(pieces) == 1
            else [len(pieces[0]), *(len(one) - 2 for one in pieces[1:])]
        )
        for width in widths_of_pieces:
            offsets.append((origins[begin], origins[begin + width - 1] + 1))
            begin += width
    return offsets


def listed_texts(name: str, texts, may_be_none: bool = False) -> list:
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


def _examples(texts, pairs) -> tuple[list, list]:
    """Returns the first and the second texts, checked; a second text that is not there is None."""
    if isinstance(texts, tuple):
        raise InputError(
            "texts: is a tuple; give several texts as a list, and the second texts of pairs as "
            "pairs="
        )
    firsts = listed_texts("texts", texts)
    if not firsts:
        raise InputError("texts: is empty; give at least one text")
    seconds = (
        [None] * len(firsts) if pairs is None else listed_texts("pairs", pairs, may_be_none=True)
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
    batch = {
        name: [] for name in (_INPUT_IDS, _SEGMENTS, _MASK, _SPECIAL, "offset_mapping", "length")
    }
    for tokens, num_first, special in rows:
        padding = max(length - len(tokens), 0)
        batch[_INPUT_IDS].append([number for number, _ in tokens] + [pad] * padding)
        batch[_SEGMENTS].append([0] * num_first + [1] * (len(tokens) - num_first) + [0] * padding)
        batch[_MASK].append([1] * len(tokens) + [0] * padding)
        batch[_SPECIAL].append(special + [1] * padding)
        batch["offset_mapping"].append([offsets for _, offsets in tokens] + [_NOWHERE] * padding)
        batch["length"].append(len(tokens) + padding)
    return batch


def _padded(
    tokenizer, encoded, padding, max_length: int | None, return_tensors: str | None
) -> dict:
    """Does what `TransformersNames.pad` does."""
    if not isinstance(encoded, Mapping):
        examples = list(encoded)
        encoded = {
            name: [example[name] for example in examples]
            for name in (examples[0] if examples else ())
        }
    columns = {name: _as_lists(values) for name, values in encoded.items()}
    if not columns.get(_INPUT_IDS):
        raise InputError(
            f"encoded: has no {_INPUT_IDS}; give what a call of the tokenizer returned, or a list "
            "of such"
        )
    is_one = not isinstance(columns[_INPUT_IDS][0], list)
    if is_one:
        columns = {name: [values] for name, values in columns.items()}
    if _MASK not in columns:
        columns[_MASK] = [[1] * len(ids) for ids in columns[_INPUT_IDS]]

    longest = max(map(len, columns[_INPUT_IDS]))
    max_length = tokenizer.model_max_length if max_length is None else max_length
    length = {None: 0, _LONGEST: longest, _MAX_LENGTH: max_length}[
        _chosen("padding", padding, _PADDINGS)
    ]
    if length is None:
        raise InputError(
            "padding='max_length': give max_length, since the tokenizer knows of no longest input"
        )
    fillers = {_INPUT_IDS: tokenizer.vocab.get("[PAD]", 0), _SEGMENTS: 0, _MASK: 0, _SPECIAL: 1}
    for name in fillers.keys() & columns.keys():
        columns[name] = [list(row) + [fillers[name]] * (length - len(row)) for row in columns[name]]
    if return_tensors is not None:
        return {name: _tensor(name, values, return_tensors) for name, values in columns.items()}
    return {name: values[0] for name, values in columns.items()} if is_one else columns


def _as_lists(values):
    """Returns lists, arrays or tensors, or lists of them, as lists."""
    if isinstance(values, list | tuple):
        return [_as_lists(one) for one in values]
    return np.asarray(values).tolist() if hasattr(values, "shape") else values


def _tensor(name: str, values: list, kind: str):
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

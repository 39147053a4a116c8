"""The in-graph tokenizer, and the learner of WordPiece vocabularies.

Both use tensorflow_text. No other module imports it, because it cannot be installed beside the TPU wheel of
TensorFlow. Models with the in-graph tokenizer read raw text wherever TensorFlow runs.
"""

import functools
import os
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

from official_bert.io.errors import InputError
from official_bert.tokenization import BasicTokenizer, FullTokenizer, write_vocabulary

# All code points except surrogates and the planes that are unassigned or private, which need no special treatment.
_CODES = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))


class CharacterClasses(NamedTuple):
    """Classes of characters that the tokenizer does not simply keep as letters of words.

    The last two serve to lower-case a capital sigma: after a cased letter it is a final sigma if no such letter
    follows, not counting case-ignorable characters next to the sigma.
    """

    blank: str  # separate words
    punctuation: str  # words of their own, also if they are punctuation only without their accent
    ideographs: str  # words of their own, too
    dropped: str
    cased: str
    case_ignorable: str


@functools.cache
def character_classes(do_lower_case: bool, strip_accents: bool | None = None) -> CharacterClasses:
    """Returns the character classes of BasicTokenizer(do_lower_case, strip_accents): a second for each pair, once."""
    basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
    members = {name: [] for name in CharacterClasses._fields}
    for code in _CODES:
        char = chr(code)
        words = basic_tokenizer.tokenize(f"a{char}a")
        if len(words) == 3:
            is_punctuation = unicodedata.category(char)[0] in "PS"
            members["punctuation" if is_punctuation else "ideographs"].append(code)
        elif words == ["a", "a"]:
            members["blank"].append(code)
        elif words == ["aa"]:
            members["dropped"].append(code)
        if words == ["aa"] or _ends_in_final_sigma(f"a{char}Σ") != _ends_in_final_sigma(f"1{char}Σ"):
            members["case_ignorable"].append(code)
        elif _ends_in_final_sigma(f"1{char}Σ"):
            members["cased"].append(code)
    return CharacterClasses(**{name: _class_of(codes) for name, codes in members.items()})


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("ς")


def _class_of(codes: Iterable[int]) -> str:
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _runs(codes)) + "]"


def _runs(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last number of each run of consecutive numbers in an increasing sequence."""
    first = last = None
    for code in codes:
        if first is None:
            first = code
        elif code != last + 1:
            yield first, last
            first = code
        last = code
    if first is not None:
        yield first, last


_WHITE_SPACE = r"[ \t\r\n\x{202f}]+"  # separates the words of a document, as in tasks/squad/examples.py


def learn_pieces(
    word_counts: list[tuple[str, int]],
    vocab_size: int,
    reserved_tokens: tuple[str, ...],
    lowest_threshold: int,
    highest_threshold: int,
) -> list[str]:
    """Learns WordPieces top-down: substrings that occur often enough, longer ones before their parts.

    The learner searches between bounds for the threshold of occurrences that gives `vocab_size` WordPieces; there may
    be up to 5 % fewer, or fewer or more than that if the bounds end the search. It returns the reserved tokens, the
    characters in order with and without "##", then WordPieces by decreasing counts.
    """
    return wordpiece_tokenizer_learner_lib.learn(
        word_counts,
        vocab_size,
        list(reserved_tokens),
        upper_thresh=highest_threshold,
        lower_thresh=lowest_threshold,
        max_input_tokens=-1,
        max_token_length=max(len(word) for word, _ in word_counts),
        max_unique_chars=len({char for word, _ in word_counts for char in word}),
    )


class Spans(NamedTuple):
    """Parts of texts, string[texts, (parts)], with their int32 offsets in characters (code points) of the text."""

    strings: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Pieces(NamedTuple):
    """The WordPieces of texts with their offsets.

    All are int32[texts, (pieces)], and [texts, (words)] for `word_starts` and `word_ends`. Offsets count the characters
    (code points) of `readable(text)`, as Python does, and as `tf.strings.substr` does with unit="UTF8_CHAR". A piece
    has the offsets of its basic token if that has another number of characters than the text it comes from, because of
    a combining accent, for example. White space separates words, as in the documents of tasks/squad/examples.py;
    `words` are the indices of the pieces' words in the text.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    words: tf.RaggedTensor
    word_starts: tf.RaggedTensor
    word_ends: tf.RaggedTensor


class TextTokenizer(tf.Module):
    """An in-graph tokenizer that gives the same ids as FullTokenizer.

    It needs three ops of tensorflow_text, which old versions of the package have, too: NormalizeUTF8,
    RegexSplitWithOffsets and WordpieceTokenizeWithOffsets. The vocabulary, which must have [UNK], is written below
    `folder`, where it must stay until the model is saved: it becomes an asset of the SavedModel.
    """

    def __init__(self, tokenizer: FullTokenizer, folder: str):
        super().__init__(name="text_tokenizer")
        basic = tokenizer.basic_tokenizer
        self._do_lower_case, self._strip_accents = basic.do_lower_case, basic.strip_accents
        self._max_word_chars = tokenizer.wordpiece_tokenizer.max_input_chars_per_word
        self._unknown = tokenizer.wordpiece_tokenizer.unk_token
        self._unknown_id = tokenizer.vocab[self._unknown]
        self._mask_id = tokenizer.vocab.get("[MASK]")
        self._classes = character_classes(basic.do_lower_case, basic.strip_accents)
        # TensorFlow shares a process's tables by the path of their file, so every table gets a path of its own.
        path = os.path.join(tempfile.mkdtemp(dir=folder), "vocab.txt")
        write_vocabulary(tokenizer.vocab, path)
        whole_line, line_number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(path, tf.string, whole_line, tf.int64, line_number),
            default_value=self._unknown_id,
        )
        self._wordpiece = tensorflow_text.WordpieceTokenizer(
            self._table,
            max_bytes_per_word=4 * self._max_word_chars,
            max_chars_per_token=max(len(piece.removeprefix("##")) for piece in tokenizer.vocab),
            token_out_type=tf.int32,
            unknown_token=self._unknown,
        )

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes string[texts] as int32[texts, (pieces)]: the ids that FullTokenizer.encode gives for each text."""
        tokens = self._basic_tokens(self._prepared(texts))
        return self._wordpiece.tokenize(self._without_long_words(tokens.strings)).merge_dims(1, 2)

    def encode_with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts like `encode`, except that `[MASK]` in a text becomes the mask token."""
        if self._mask_id is None:
            raise InputError("the vocabulary lacks [MASK], so no text can contain it; use the model's own vocabulary")
        parts = _split(self._prepared(texts), r"\[MASK\]").strings  # string[texts, (parts)]
        is_mask = parts.values == "[MASK]"
        masks = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(is_mask)], self._mask_id), tf.cast(is_mask, tf.int64)
        )
        others = self.encode(tf.where(is_mask, "", parts.values))
        return parts.with_values(tf.concat([masks, others], axis=1)).merge_dims(1, 2)

    def pieces(self, texts: tf.Tensor, unknown_words: bool = False) -> Pieces:
        """Splits string[texts] into WordPieces with their offsets.

        With `unknown_words` a word without WordPieces, such as a lone accent, becomes [UNK].
        """
        words = _split(self._prepared(texts), _WHITE_SPACE)
        words = _select(words, ~tf.strings.regex_full_match(words.strings.values, _WHITE_SPACE))
        flat_words = words.strings.values
        tokens = self._basic_tokens(flat_words)  # [words, (tokens)]
        ids, starts, ends = self._wordpieces(tokens)  # [words, (pieces)]
        if unknown_words:
            is_empty = tf.cast(ids.row_lengths() == 0, tf.int64)
            first = tf.zeros(tf.reduce_sum(is_empty), tf.int32)
            lengths = tf.strings.length(tf.boolean_mask(flat_words, is_empty == 1), unit="UTF8_CHAR")
            ids, starts, ends = (
                tf.concat([values, tf.RaggedTensor.from_row_lengths(filling, is_empty)], axis=1)
                for values, filling in ((ids, first + self._unknown_id), (starts, first), (ends, lengths))
            )
        word_of_piece = ids.value_rowids()
        before = tf.gather(words.starts.values, word_of_piece)
        numbers = tf.gather(_numbers(words.strings), word_of_piece)
        return Pieces(
            *(
                words.strings.with_values(ids.with_values(values)).merge_dims(1, 2)
                for values in (ids.values, starts.values + before, ends.values + before, numbers)
            ),
            word_starts=words.starts,
            word_ends=words.ends,
        )

    def _prepared(self, texts: tf.Tensor) -> tf.Tensor:
        """Prepares texts for splitting without a change of their numbers of characters.

        Lower-casing of the capital sigma happens here: which of the two small sigmas it becomes may depend on letters
        beyond the end of the word.
        """
        texts = tf.strings.regex_replace(readable(texts), r"\x00", "\x01")  # some ops treat NUL as the end of a text
        if not self._do_lower_case:
            return texts
        cased, case_ignorable = self._classes.cased, self._classes.case_ignorable
        for _ in range(2):  # of adjacent sigmas, the first pass changes only every second one
            texts = tf.strings.regex_replace(texts, f"Σ({case_ignorable}*{cased})", r"σ\1")
        return tf.strings.regex_replace(texts, f"({cased}{case_ignorable}*)Σ", r"\1ς")

    def _basic_tokens(self, texts: tf.Tensor) -> Spans:
        """Splits texts into the tokens of BasicTokenizer, with the offsets of the characters that they come from."""
        blank, punctuation, ideographs, dropped, *_ = self._classes
        parts = _split(texts, f"{blank}+|{punctuation}|{ideographs}")
        strings = tf.strings.regex_replace(parts.strings.values, f"{blank}+|{dropped}+", "")
        if self._do_lower_case:
            # ASCII and the dotted I come first: in a Turkish locale, the lower-casing of UTF-8 treats them differently.
            strings = tf.strings.regex_replace(tf.strings.lower(strings), "İ", "i\u0307")
            strings = tf.strings.lower(strings, encoding="utf-8")
        if self._strip_accents:
            strings = tensorflow_text.normalize_utf8(strings, "NFD")
            strings = tf.strings.regex_replace(strings, f"{dropped}+", "")
        parts = parts._replace(strings=parts.strings.with_values(strings))
        return _select(parts, strings != "")

    def _without_long_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        is_long = tf.strings.length(words.values, unit="UTF8_CHAR") > self._max_word_chars
        return words.with_values(tf.where(is_long, self._unknown, words.values))

    def _wordpieces(self, tokens: Spans) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids, starts and ends of the WordPieces of [texts, (tokens)], each int32[texts, (pieces)]."""
        words = self._without_long_words(tokens.strings)
        # [texts, (tokens), (pieces)]; the offsets count bytes of the token
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(words)
        token_of_piece = ids.values.value_rowids()
        word, first, last = (
            tf.gather(values, token_of_piece) for values in (words.values, tokens.starts.values, tokens.ends.values)
        )
        # If a token has as many characters as its part of the text, the characters correspond one to one.
        is_same_length = tf.strings.length(word, unit="UTF8_CHAR") == last - first
        starts, ends = (first + _num_chars(word, num_bytes.flat_values) for num_bytes in (starts, ends))
        starts, ends = tf.where(is_same_length, starts, first), tf.where(is_same_length, ends, last)
        return tuple(ids.with_flat_values(values).merge_dims(1, 2) for values in (ids.flat_values, starts, ends))


def readable(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore", replace_control_characters=False)


def _split(texts: tf.Tensor, delimiter: str) -> Spans:
    """Splits texts before and after each match; the parts, matches included, make up the whole text."""
    parts = tensorflow_text.regex_split(texts, delimiter, delimiter)
    bounds = tf.concat([[0], tf.cumsum(tf.strings.length(parts.values, unit="UTF8_CHAR"))], axis=0)
    before = tf.gather(tf.gather(bounds, parts.row_starts()), parts.value_rowids())
    return Spans(parts, parts.with_values(bounds[:-1] - before), parts.with_values(bounds[1:] - before))


def _num_chars(texts: tf.Tensor, num_bytes: tf.Tensor) -> tf.Tensor:
    """Returns the number of characters in the first `num_bytes` bytes of each text: int32[texts]."""
    return tf.strings.length(tf.strings.substr(texts, tf.zeros_like(num_bytes), num_bytes), unit="UTF8_CHAR")


def _select(parts: Spans, is_chosen: tf.Tensor) -> Spans:
    """Keeps the parts for which `is_chosen`, bool[all parts], is true."""
    mask = parts.strings.with_values(is_chosen)
    return Spans(*(tf.ragged.boolean_mask(values, mask) for values in parts))


def _numbers(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns the index of each value in its row: int32[all values]."""
    return tf.cast(tf.ragged.range(rows.row_lengths()).values, tf.int32)

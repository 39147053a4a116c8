"""The one importer of tensorflow_text, which the TPU wheel of TensorFlow has no room for.

Two things are made of it: the pieces of a vocabulary, and a tokenizer that runs inside a graph, for models that
read raw text wherever TensorFlow runs.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

from official_bert import files
from official_bert.data.text.character_classes import character_classes
from official_bert.errors import InputError
from official_bert.tokenization import FullTokenizer

_WHITE_SPACE = r"[ \t\r\n\x{202f}]+"  # what separates the words of a document in tasks/squad/examples.py


def learn_pieces(
    word_counts: list[tuple[str, int]],
    vocab_size: int,
    reserved_tokens: tuple[str, ...],
    lowest_threshold: int,
    highest_threshold: int,
) -> list[str]:
    """Learns WordPieces top-down: what occurs often enough, long pieces before their parts.

    The learner looks for the threshold of occurrences that gives a vocabulary of the size asked for. It ends up to
    5 % below, further below where the lowest threshold gives no more, and above where the highest gives no fewer.

    Args:
        word_counts: words and how often they occur.
        vocab_size: pieces to aim at, reserved and single characters included.
        reserved_tokens: come first.
        lowest_threshold, highest_threshold: bounds of the search.

    Returns:
        The reserved tokens, the characters in order, then pieces by how often they occur; every character also
        has its "##" piece.
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
    """Parts of texts.

    Attributes:
        strings: string[texts, (parts)].
        starts: int32[texts, (parts)], characters (code points) of the text before each part.
        ends: int32[texts, (parts)], the same with the part.
    """

    strings: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Pieces(NamedTuple):
    """Pieces of texts, and where they stand in them.

    Places are counted in characters (code points) of `readable(text)`, as Python counts them, and
    `tf.strings.substr` with unit="UTF8_CHAR". White space separates words, as in the documents of
    tasks/squad/examples.py; basic tokens are what BasicTokenizer cuts them into.

    Attributes:
        ids: int32[texts, (pieces)].
        starts: int32[texts, (pieces)], where the piece begins. Where the basic token has another number of characters
            in the text, with a combining accent say, where that begins.
        ends: int32[texts, (pieces)], where the piece ends, or its basic token, likewise.
        words: int32[texts, (pieces)], number of the word that the piece is of.
        word_starts: int32[texts, (words)].
        word_ends: int32[texts, (words)].
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    words: tf.RaggedTensor
    word_starts: tf.RaggedTensor
    word_ends: tf.RaggedTensor


class TextTokenizer(tf.Module):
    """FullTokenizer as a graph: the same ids.

    Of tensorflow_text it needs three ops that its old versions have, too: NormalizeUTF8, RegexSplitWithOffsets and
    WordpieceTokenizeWithOffsets. The vocabulary is an asset of the SavedModel.

    Args:
        tokenizer: whose rules and vocabulary, which must have [UNK], are taken over.
        folder: where vocab.txt is written; it must stay until the model is saved.
    """

    def __init__(self, tokenizer: FullTokenizer, folder: str):
        super().__init__(name="text_tokenizer")
        basic = tokenizer.basic_tokenizer
        self._do_lower_case, self._strip_accents = basic.do_lower_case, basic.strip_accents
        self._max_word_chars = tokenizer.wordpiece_tokenizer.max_input_chars_per_word
        self._unknown = tokenizer.wordpiece_tokenizer.unk_token
        self._unknown_id = tokenizer.vocab[self._unknown]
        self._mask_id = tokenizer.vocab.get("[MASK]")
        self._classes = character_classes(basic)
        path = os.path.join(folder, "vocab.txt")
        write_vocabulary(tokenizer.vocab, path)
        self._vocabulary = tf.saved_model.Asset(path)
        whole_line, line_number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(self._vocabulary, tf.string, whole_line, tf.int64, line_number),
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
        """Ids of string[texts]: int32[texts, (pieces)], what FullTokenizer.encode gives of each."""
        tokens = self._basic_tokens(self._prepared(texts))
        return self._wordpiece.tokenize(self._known_length(tokens.strings)).merge_dims(1, 2)

    def encode_with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The same, but that `[MASK]` in a text is the token; elsewhere it is text like any other.

        Raises:
            InputError: a vocabulary without [MASK].
        """
        if self._mask_id is None:
            raise InputError(
                "the vocabulary lacks [MASK], so no text can have it; use the model's own vocabulary"
            )
        parts = _split(self._prepared(texts), r"\[MASK\]").strings  # string[texts, (parts)]
        is_mask = parts.values == "[MASK]"
        masks = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(is_mask)], self._mask_id), tf.cast(is_mask, tf.int64)
        )
        others = self.encode(tf.where(is_mask, "", parts.values))
        return parts.with_values(tf.concat([masks, others], axis=1)).merge_dims(1, 2)

    def pieces(
        self, texts: tf.Tensor, split_punctuation: bool = False, unknown_words: bool = False
    ) -> Pieces:
        """The pieces of string[texts] with their places.

        Args:
            texts: string[texts].
            split_punctuation: whether punctuation at either end of a word, and every ideograph, is a word of its own.
            unknown_words: whether a word without pieces, such as a lone accent, counts as [UNK].
        """
        words = _split(self._prepared(texts), _WHITE_SPACE)
        words = _chosen(words, ~tf.strings.regex_full_match(words.strings.values, _WHITE_SPACE))
        if split_punctuation:
            words = self._split_punctuation(words)
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
        """Texts that can be split, each with as many characters as it has.

        A capital sigma becomes small here: which of the two small ones may depend on letters beyond the word's end.
        """
        texts = tf.strings.regex_replace(readable(texts), r"\x00", "\x01")  # a NUL ends a text for some ops
        if not self._do_lower_case:
            return texts
        cased, passed_over = self._classes.cased, self._classes.passed_over
        for _ in range(2):  # of neighbours, the first pass changes every second
            texts = tf.strings.regex_replace(texts, f"Σ({passed_over}*{cased})", r"σ\1")
        return tf.strings.regex_replace(texts, f"({cased}{passed_over}*)Σ", r"\1ς")

    def _basic_tokens(self, texts: tf.Tensor) -> Spans:
        """What BasicTokenizer makes of texts, and what of them it is made of."""
        blank, punctuation, ideographs, dropped, *_ = self._classes
        parts = _split(texts, f"{blank}+|{punctuation}|{ideographs}")
        strings = tf.strings.regex_replace(parts.strings.values, f"{blank}+|{dropped}+", "")
        if self._do_lower_case:
            # ASCII first, and the dotted I by itself: a server in a Turkish locale would lower-case them otherwise.
            strings = tf.strings.regex_replace(tf.strings.lower(strings), "İ", "i\u0307")
            strings = tf.strings.lower(strings, encoding="utf-8")
        if self._strip_accents:
            strings = tensorflow_text.normalize_utf8(strings, "NFD")
            strings = tf.strings.regex_replace(strings, f"{dropped}+", "")
        parts = parts._replace(strings=parts.strings.with_values(strings))
        return _chosen(parts, strings != "")

    def _known_length(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Words, with [UNK] in the place of those that are too long."""
        is_long = tf.strings.length(words.values, unit="UTF8_CHAR") > self._max_word_chars
        return words.with_values(tf.where(is_long, self._unknown, words.values))

    def _wordpieces(self, tokens: Spans) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids, starts and ends of the pieces of [texts, (tokens)], each int32[texts, (pieces)]."""
        words = self._known_length(tokens.strings)
        # [texts, (tokens), (pieces)], the places in bytes of the token
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(words)
        token_of_piece = ids.values.value_rowids()
        word, first, last = (
            tf.gather(values, token_of_piece)
            for values in (words.values, tokens.starts.values, tokens.ends.values)
        )
        # Characters of a token that keeps their number stand for those of the text one by one.
        is_same_length = tf.strings.length(word, unit="UTF8_CHAR") == last - first
        starts, ends = (first + _num_chars(word, num_bytes.flat_values) for num_bytes in (starts, ends))
        starts, ends = tf.where(is_same_length, starts, first), tf.where(is_same_length, ends, last)
        return tuple(
            ids.with_flat_values(values).merge_dims(1, 2) for values in (ids.flat_values, starts, ends)
        )

    def _split_punctuation(self, words: Spans) -> Spans:
        """Words cut at ideographs and at the punctuation round them."""
        _, punctuation, ideographs, *_ = self._classes
        parts = _split(words.strings.values, f"{ideographs}|^{punctuation}+|{punctuation}+$")
        before = tf.gather(words.starts.values, parts.strings.value_rowids())
        return Spans(
            *(
                words.strings.with_values(parts.strings.with_values(values)).merge_dims(1, 2)
                for values in (parts.strings.values, parts.starts.values + before, parts.ends.values + before)
            )
        )


def readable(texts: tf.Tensor) -> tf.Tensor:
    """Texts without the bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="ignore", replace_control_characters=False
    )


def write_vocabulary(vocab: Mapping[str, int], path: str):
    """Writes a vocabulary so that a lookup table can be made of it: every line is another.

    The lines that a repeated piece leaves over, and those of pieces that no word can hold, are filled with text that
    no word can hold.

    Args:
        vocab: piece -> number of its line.
        path: the new file.
    """
    lines = [f"[line {number}]" for number in range(1 + max(vocab.values()))]
    for piece, number in vocab.items():
        if piece.split() == [piece]:
            lines[number] = piece
    with files.replacing(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def _split(texts: tf.Tensor, delimiter: str) -> Spans:
    """Texts cut before and after what matches; the parts, those that match among them, are the whole text."""
    parts = tensorflow_text.regex_split(texts, delimiter, delimiter)
    bounds = tf.concat([[0], tf.cumsum(tf.strings.length(parts.values, unit="UTF8_CHAR"))], axis=0)
    before = tf.gather(tf.gather(bounds, parts.row_starts()), parts.value_rowids())
    return Spans(parts, parts.with_values(bounds[:-1] - before), parts.with_values(bounds[1:] - before))


def _num_chars(texts: tf.Tensor, num_bytes: tf.Tensor) -> tf.Tensor:
    """How many characters the first bytes of each text are: int32[texts]."""
    return tf.strings.length(tf.strings.substr(texts, tf.zeros_like(num_bytes), num_bytes), unit="UTF8_CHAR")


def _chosen(parts: Spans, is_chosen: tf.Tensor) -> Spans:
    """Some of the parts: bool[all parts]."""
    mask = parts.strings.with_values(is_chosen)
    return Spans(*(tf.ragged.boolean_mask(values, mask) for values in parts))


def _numbers(rows: tf.RaggedTensor) -> tf.Tensor:
    """int32[all values]: 0, 1, ... anew in every row."""
    return tf.cast(tf.ragged.range(rows.row_lengths()).values, tf.int32)

"""The texts of a graph as WordPieces with their offsets, whatever splits them.

In: strings. Out: the ids of FullTokenizer, and the places of the WordPieces and of the words in the
texts. A subclass splits the texts into characters, tokens and WordPieces. Everything else computes
with integers.
"""

from typing import NamedTuple

import tensorflow as tf

from official_bert.graph_text.vectors import (
    concat_fields,
    count_up_to_each,
    following,
    gather_fields,
    previous,
    to_int32,
    true_indices,
)
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

# The characters that separate the words of a document, as in tasks/squad/examples.py.
_WHITE_SPACE = " \t\r\n\u202f"


class Characters(NamedTuple):
    """The characters of all texts, one after the other.

    Attributes:
        codes: int32[texts, (characters)], the code points.
        offsets: int32[characters], their indices in their texts.
    """

    codes: tf.RaggedTensor
    offsets: tf.Tensor


class Tokens(NamedTuple):
    """The basic tokens of all texts, each int32[tokens].

    Attributes:
        lengths: their numbers of characters.
        firsts: the index of the token's first character among those of all texts.
        spans: the number of characters of the text that became the token.
    """

    lengths: tf.Tensor
    firsts: tf.Tensor
    spans: tf.Tensor


class WordPieces(NamedTuple):
    """WordPieces, each field int32[pieces].

    Attributes:
        ids: their ids.
        tokens: the indices of their tokens.
        starts: the index of the first character in the token.
        lengths: their numbers of characters.
    """

    ids: tf.Tensor
    tokens: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor


class SplitTexts(NamedTuple):
    """Texts that a tokenizer has split.

    Attributes:
        characters: their characters.
        tokens: their basic tokens.
        pieces: the WordPieces of the tokens.
    """

    characters: Characters
    tokens: Tokens
    pieces: WordPieces


class _Words(NamedTuple):
    """The words of all texts: the parts between white space, or the basic tokens.

    Attributes:
        firsts: int32[words], the index of each word's first character among those of all texts.
        lengths: int32[words], their numbers of characters.
        numbers: int32[characters], the index of each character's word among those of all texts.
    """

    firsts: tf.Tensor
    lengths: tf.Tensor
    numbers: tf.Tensor


class _PlacedPieces(NamedTuple):
    """WordPieces with their places in the texts, each field int32[pieces].

    Attributes:
        ids: their ids.
        firsts: the index of the first character of the piece's token, or else of its word, among
            those of all texts.
        starts: the number of characters between this one and the first character of the piece.
        lengths: their numbers of characters.
        words: the indices of their words among those of all texts.
    """

    ids: tf.Tensor
    firsts: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor
    words: tf.Tensor


class Pieces(NamedTuple):
    """The WordPieces of texts with their offsets.

    Offsets count the characters (code points) of `readable(text)`, as Python does, and as
    `tf.strings.substr` does with unit="UTF8_CHAR".

    If a basic token has another number of characters than its part of the text, for example because
    of a combining accent, its pieces have the offsets of the token. Removed and added characters
    may balance, as in Bengali words of which one vowel sign is left out and another becomes two.
    The offsets of a piece are then those of the characters with its indices, as in the original's
    get_final_text.

    White space separates words, as in the documents of tasks/squad/examples.py, or they are the
    basic tokens.

    Attributes:
        ids: int32[texts, (pieces)], the ids of the WordPieces.
        starts: int32[texts, (pieces)], the offset of each piece's first character.
        ends: int32[texts, (pieces)], the offset behind its last character.
        words: int32[texts, (pieces)], the index of the piece's word in the text.
        word_starts: int32[texts, (words)], the offset of each word's first character.
        word_ends: int32[texts, (words)], the offset behind its last character.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    words: tf.RaggedTensor
    word_starts: tf.RaggedTensor
    word_ends: tf.RaggedTensor


class GraphTokenizer(tf.Module):
    """An in-graph tokenizer that returns the same ids as FullTokenizer.

    A subclass has the methods `split` and `substrings`.
    """

    def __init__(self, tokenizer: FullTokenizer):
        """Reads a tokenizer.

        Args:
            tokenizer: the tokenizer to rebuild. Its vocabulary must have [UNK].
        """
        super().__init__(name="text_tokenizer")
        self._unknown_id = tokenizer.vocab[tokenizer.wordpiece_tokenizer.unk_token]
        self._mask_id = tokenizer.vocab.get("[MASK]")

    def split(self, texts: tf.Tensor, is_each_alone: bool = False) -> SplitTexts:
        """Splits texts into characters, basic tokens and WordPieces.

        Args:
            texts: string[texts].
            is_each_alone: whether the letters of each token are lower-cased as if it were a text,
                as those of the words of a tagger.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method split")

    def substrings(
        self, texts: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tf.Tensor:
        """Cuts parts out of texts.

        Args:
            texts: string[texts].
            rows: int[parts], the index of each part's text.
            starts: int32[parts], the offset of its first character.
            ends: int32[parts], the offset behind its last character.

        Returns:
            string[parts].
        """
        raise NotImplementedError(f"{type(self).__name__} has no method substrings")

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts as FullTokenizer.encode does.

        Args:
            texts: string[texts].

        Returns:
            The ids, int32[texts, (pieces)].
        """
        characters, tokens, pieces = self.split(texts)
        firsts = tf.gather(tokens.firsts, pieces.tokens)
        return split_by_text(characters, pieces.ids, firsts)

    def encode_with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts like `encode`, except that `[MASK]` in a text becomes the mask token.

        Args:
            texts: string[texts].

        Returns:
            The ids, int32[texts, (pieces)].

        Raises:
            InputError: the vocabulary lacks [MASK].
        """
        if self._mask_id is None:
            raise InputError(
                "the vocabulary lacks [MASK], so no text can contain it; use the vocabulary of the "
                "model"
            )
        parts = tf.strings.split(texts, "[MASK]")  # string[texts, (parts)]
        part_numbers = tf.ragged.range(parts.row_lengths())
        is_after_mask = part_numbers.values > 0
        mask_counts = tf.cast(is_after_mask, tf.int64)  # of each part, 0 or 1
        num_masks = tf.reduce_sum(mask_counts)
        masks = tf.RaggedTensor.from_row_lengths(
            values=tf.fill([num_masks], self._mask_id),
            row_lengths=mask_counts,
        )
        part_ids = self.encode(parts.values)
        ids = tf.concat([masks, part_ids], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)

    def pieces(
        self, texts: tf.Tensor, unknown_words: bool = False, splits_tokens: bool = False
    ) -> Pieces:
        """Splits texts into WordPieces with their offsets.

        Args:
            texts: string[texts].
            unknown_words: whether a word without WordPieces, such as a lone accent, becomes [UNK].
            splits_tokens: whether each basic token, such as a full stop or an ideograph, is a word.
                Otherwise, white space separates words.
        """
        split = self.split(texts, is_each_alone=splits_tokens)
        characters, tokens = split.characters, split.tokens
        words = _list_tokens(characters, tokens) if splits_tokens else _find_words(characters)
        pieces = _place_pieces(split, words)
        if unknown_words:
            pieces = self._add_unknown_words(pieces, words)

        # Split words and pieces by text.
        starts = pieces.starts + tf.gather(characters.offsets, pieces.firsts)
        word_offsets = tf.gather(characters.offsets, words.firsts)
        word_starts = split_by_text(characters, word_offsets, words.firsts)
        rows = split_by_text(characters, pieces.words, pieces.firsts)
        first_words = to_int32(word_starts.row_starts())  # the first word of each text
        words_before = tf.gather(first_words, rows.value_rowids())
        return Pieces(
            ids=rows.with_values(pieces.ids),
            starts=rows.with_values(starts),
            ends=rows.with_values(starts + pieces.lengths),
            words=rows.with_values(pieces.words - words_before),
            word_starts=word_starts,
            word_ends=word_starts.with_values(word_offsets + words.lengths),
        )

    def _add_unknown_words(self, pieces: _PlacedPieces, words: _Words) -> _PlacedPieces:
        """Adds [UNK] for each word without WordPieces."""
        num_pieces = tf.math.unsorted_segment_sum(
            data=tf.ones_like(pieces.words),
            segment_ids=pieces.words,
            num_segments=tf.size(words.firsts),
        )
        empty_words = true_indices(num_pieces == 0)
        unknown_pieces = _PlacedPieces(
            ids=tf.fill(tf.shape(empty_words), self._unknown_id),
            firsts=tf.gather(words.firsts, empty_words),
            starts=tf.zeros_like(empty_words),
            lengths=tf.gather(words.lengths, empty_words),
            words=empty_words,
        )
        pieces = concat_fields(pieces, unknown_pieces)
        order = tf.argsort(pieces.words, stable=True)
        return gather_fields(pieces, order)


def _place_pieces(split: SplitTexts, words: _Words) -> _PlacedPieces:
    """Finds the places of WordPieces in the texts."""
    _, tokens, pieces = split
    firsts = tf.gather(tokens.firsts, pieces.tokens)
    spans = tf.gather(tokens.spans, pieces.tokens)
    token_lengths = tf.gather(tokens.lengths, pieces.tokens)
    # If a token has as many characters as its part of the text, each character corresponds to
    # one of the text.
    is_exact = spans == token_lengths
    return _PlacedPieces(
        ids=pieces.ids,
        firsts=firsts,
        starts=tf.where(is_exact, pieces.starts, 0),
        lengths=tf.where(is_exact, pieces.lengths, spans),
        words=tf.gather(words.numbers, firsts),
    )


def _find_words(characters: Characters) -> _Words:
    """Finds the words of the texts."""
    codes = characters.codes.values
    white_codes = [ord(character) for character in _WHITE_SPACE]
    is_white = tf.reduce_any(codes[:, None] == white_codes, axis=1)
    is_text_start = characters.offsets == 0
    is_text_end = following(is_text_start, last=True)
    is_after_white = previous(is_white, first=True)
    is_before_white = following(is_white, last=True)
    is_word_start = ~is_white & (is_text_start | is_after_white)
    is_word_end = ~is_white & (is_text_end | is_before_white)
    firsts = true_indices(is_word_start)
    lasts = true_indices(is_word_end)
    return _Words(
        firsts=firsts,
        lengths=1 + lasts - firsts,
        numbers=count_up_to_each(is_word_start) - 1,
    )


def _list_tokens(characters: Characters, tokens: Tokens) -> _Words:
    """Returns the basic tokens as words."""
    num_firsts = tf.math.unsorted_segment_sum(
        data=tf.ones_like(tokens.firsts),
        segment_ids=tokens.firsts,
        num_segments=tf.size(characters.offsets),
    )
    return _Words(
        firsts=tokens.firsts,
        lengths=tokens.spans,
        numbers=tf.cumsum(num_firsts) - 1,
    )


def split_by_text(characters: Characters, values: tf.Tensor, firsts: tf.Tensor) -> tf.RaggedTensor:
    """Splits values, which are in the order of the texts, into one row for each text.

    Args:
        characters: the characters of all texts.
        values: the values, [values, ...].
        firsts: int32[values], the indices of the values' characters among those of all texts.

    Returns:
        [texts, (values), ...].
    """
    texts = tf.gather(characters.codes.value_rowids(), firsts)
    return tf.RaggedTensor.from_value_rowids(
        values=values,
        value_rowids=texts,
        nrows=characters.codes.nrows(),
    )

"""The in-graph tokenizer: models that contain it read raw text wherever TensorFlow runs.

In: strings. Out: the ids of FullTokenizer and the offsets of its WordPieces. The tokenizer uses
only core operations of TensorFlow:

- Tables contain the replacement of each character by BasicTokenizer, which computes them.
- A word that is in the vocabulary is one WordPiece.
- A loop cuts all other words of a batch at once, the longest WordPiece first. Each iteration cuts
  one WordPiece from every word that is left.
"""

import functools
import os
import tempfile
from typing import NamedTuple, TypeVar

import tensorflow as tf

from official_bert.graph_text.character_classes import (
    ALONE,
    BLANK,
    CASE_IGNORABLE,
    CASED,
    COMBINING_CLASS,
    COUNT,
    PAGE_SIZE,
    STRIPPED_STARTER,
    CharacterTables,
    character_tables,
)
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer, write_vocabulary

_SIGMA, _FINAL_SIGMA = map(ord, "Σς")
# The characters that separate the words of a document, as in tasks/squad/examples.py.
_WHITE_SPACE = " \t\r\n\u202f"
_Fields = TypeVar("_Fields")
to_int32 = functools.partial(tf.cast, dtype=tf.int32)


class _Characters(NamedTuple):
    """The characters of all texts, one after the other.

    A part of a text is a lone character, consecutive blanks, or the characters between these.

    Attributes:
        codes: int32[texts, (characters)], the code points.
        offsets: int32[characters], their indices in their texts.
        parts: int32[characters], the indices of their parts among those of all texts.
        part_starts: bool[characters], whether a part begins here.
        classes: int32[characters], the bits of their classes.
    """

    codes: tf.RaggedTensor
    offsets: tf.Tensor
    parts: tf.Tensor
    part_starts: tf.Tensor
    classes: tf.Tensor


class _Tokens(NamedTuple):
    """The basic tokens of all texts, each [tokens].

    Attributes:
        strings: string, the tokens.
        lengths: int32, their numbers of characters.
        firsts: int32, the index of the token's first character among those of all texts.
        spans: int32, the number of characters of the text that became the token.
    """

    strings: tf.Tensor
    lengths: tf.Tensor
    firsts: tf.Tensor
    spans: tf.Tensor


class _WordPieces(NamedTuple):
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


class TextTokenizer(tf.Module):
    """An in-graph tokenizer that returns the same ids as FullTokenizer."""

    def __init__(self, tokenizer: FullTokenizer, folder: str):
        """Creates the tables and writes the vocabulary.

        Args:
            tokenizer: the tokenizer to rebuild. Its vocabulary must have [UNK].
            folder: the folder in which the vocabulary is written. The file must stay there until
                the model is saved, because it becomes an asset of the SavedModel.
        """
        super().__init__(name="text_tokenizer")
        basic = tokenizer.basic_tokenizer
        self._do_lower_case = basic.do_lower_case
        self._strip_accents = basic.strip_accents
        tables = character_tables(basic.do_lower_case, basic.strip_accents)
        # The tables are variables, because each signature would have its own copy of a constant.
        variables = [tf.Variable(table, trainable=False) for table in tables]
        self._tables = CharacterTables(*variables)
        wordpiece = tokenizer.wordpiece_tokenizer
        self._max_word_chars = wordpiece.max_input_chars_per_word
        self._unknown_id = tokenizer.vocab[wordpiece.unk_token]
        self._mask_id = tokenizer.vocab.get("[MASK]")
        piece_lengths = (len(piece.removeprefix("##")) for piece in tokenizer.vocab)
        self._longest_piece = max(piece_lengths)
        # TensorFlow shares a process's tables by the path of their file, so every table gets
        # another path.
        path = os.path.join(tempfile.mkdtemp(dir=folder), "vocab.txt")
        write_vocabulary(tokenizer.vocab, path)
        initializer = tf.lookup.TextFileInitializer(
            path,
            key_dtype=tf.string,
            key_index=tf.lookup.TextFileIndex.WHOLE_LINE,
            value_dtype=tf.int64,
            value_index=tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self._vocabulary = tf.lookup.StaticHashTable(initializer, default_value=-1)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts as FullTokenizer.encode does.

        Args:
            texts: string[texts].

        Returns:
            The ids, int32[texts, (pieces)].
        """
        characters = self._characters(texts)
        tokens = self._basic_tokens(characters)
        pieces = self._wordpieces(tokens)
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
        characters = self._characters(texts)
        tokens = self._basic_tokens(characters, is_each_alone=splits_tokens)
        words = _list_tokens(characters, tokens) if splits_tokens else _find_words(characters)
        pieces = self._place_pieces(tokens, words)
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

    def _place_pieces(self, tokens: _Tokens, words: _Words) -> _PlacedPieces:
        """Splits tokens into WordPieces, and finds their places in the texts."""
        pieces = self._wordpieces(tokens)
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

    def _add_unknown_words(self, pieces: _PlacedPieces, words: _Words) -> _PlacedPieces:
        """Adds [UNK] for each word without WordPieces."""
        num_pieces = tf.math.unsorted_segment_sum(
            data=tf.ones_like(pieces.words),
            segment_ids=pieces.words,
            num_segments=tf.size(words.firsts),
        )
        empty_words = _true_indices(num_pieces == 0)
        unknown_pieces = _PlacedPieces(
            ids=tf.fill(tf.shape(empty_words), self._unknown_id),
            firsts=tf.gather(words.firsts, empty_words),
            starts=tf.zeros_like(empty_words),
            lengths=tf.gather(words.lengths, empty_words),
            words=empty_words,
        )
        pieces = _concat_fields(pieces, unknown_pieces)
        order = tf.argsort(pieces.words, stable=True)
        return _gather_fields(pieces, order)

    def _look_up(self, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the classes and the outputs of code points, each int32[codes]."""
        pages = tf.gather(self._tables.pages, codes // PAGE_SIZE)
        index = pages * PAGE_SIZE + codes % PAGE_SIZE
        classes = tf.gather(self._tables.classes, index)
        outputs = tf.gather(self._tables.outputs, index)
        return classes, outputs

    def _characters(self, texts: tf.Tensor) -> _Characters:
        """Decodes texts, and finds their parts."""
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        classes, _ = self._look_up(codes.values)
        columns = tf.ragged.range(codes.row_lengths())
        offsets = to_int32(columns.values)
        is_alone = _has(classes, ALONE)
        is_blank = _has(classes, BLANK)
        # A part begins at a lone character, after it, and where blanks begin or end.
        is_after_lone = _previous(is_alone, first=True)
        is_after_blank = _previous(is_blank, first=False)
        is_blank_edge = is_blank != is_after_blank
        part_starts = (offsets == 0) | is_alone | is_after_lone | is_blank_edge
        return _Characters(
            codes=codes,
            offsets=offsets,
            parts=_count_up_to_each(part_starts) - 1,
            part_starts=part_starts,
            classes=classes,
        )

    def _basic_tokens(self, characters: _Characters, is_each_alone: bool = False) -> _Tokens:
        """Splits texts into the tokens of BasicTokenizer.

        If each token is alone, its letters are lower-cased as if it were a text, as those of the
        words of a tagger.
        """
        codes = characters.codes.values
        counts = characters.classes & COUNT
        if self._do_lower_case:
            texts = characters.codes.value_rowids()
            if is_each_alone:
                texts = tf.cast(characters.parts, texts.dtype)
            codes = self._with_final_sigmas(characters, texts)
        _, outputs = self._look_up(codes)
        # Replace each character by nothing, by one character, or by several.
        source = tf.repeat(_indices(codes), counts)  # [new characters]
        first_numbers = tf.cumsum(counts, exclusive=True)
        number = _indices(source) - tf.gather(first_numbers, source)
        output = tf.gather(outputs, source)
        is_single = tf.gather(counts, source) == 1
        expansion_index = tf.where(is_single, 0, output + number)
        expansion_codes = tf.gather(self._tables.expansions, expansion_index)
        single_codes = tf.gather(codes, source) + output
        new_codes = tf.where(is_single, single_codes, expansion_codes)
        parts = tf.gather(characters.parts, source)
        if self._strip_accents:
            new_codes = self._sort_accents(new_codes, source, characters)
        num_parts = tf.reduce_sum(to_int32(characters.part_starts))
        part_codes = tf.RaggedTensor.from_value_rowids(
            values=new_codes,
            value_rowids=tf.cast(parts, tf.int64),
            nrows=tf.cast(num_parts, tf.int64),
        )
        lengths = to_int32(part_codes.row_lengths())
        firsts = _true_indices(characters.part_starts)
        ends = _next(firsts, last=tf.size(codes))
        spans = ends - firsts
        is_token = lengths > 0
        strings = tf.strings.unicode_encode(part_codes, "UTF-8")
        return _Tokens(
            strings=tf.boolean_mask(strings, is_token),
            lengths=tf.boolean_mask(lengths, is_token),
            firsts=tf.boolean_mask(firsts, is_token),
            spans=tf.boolean_mask(spans, is_token),
        )

    def _with_final_sigmas(self, characters: _Characters, texts: tf.Tensor) -> tf.Tensor:
        """Returns the code points with final sigmas in place of capital sigmas that become one.

        Args:
            characters: the characters.
            texts: int64[characters], the text of each character. Neighbours are of the same text.
        """
        codes = characters.codes.values
        classes = characters.classes
        counts = ~_has(classes, CASE_IGNORABLE)
        # For each counting character, and at both ends: whether it is a cased letter, and its text.
        is_cased = _has(tf.boolean_mask(classes, counts), CASED)
        is_cased = tf.concat([[False], is_cased, [False]], 0)
        texts = tf.boolean_mask(texts, counts)
        texts = tf.concat([[-1], texts, [-1]], 0)
        sigmas = _true_indices(codes == _SIGMA)
        index = tf.gather(_count_up_to_each(counts), sigmas)  # among the counting ones
        text = tf.gather(texts, index)

        def is_cased_neighbour(step: int) -> tf.Tensor:
            neighbour = index + step
            is_same_text = tf.gather(texts, neighbour) == text
            return tf.gather(is_cased, neighbour) & is_same_text

        is_after = is_cased_neighbour(-1)
        is_before = is_cased_neighbour(1)
        final = tf.boolean_mask(sigmas, is_after & ~is_before)
        return tf.tensor_scatter_nd_update(
            tensor=codes,
            indices=final[:, None],
            updates=tf.fill(tf.shape(final), _FINAL_SIGMA),
        )

    def _sort_accents(
        self, codes: tf.Tensor, source: tf.Tensor, characters: _Characters
    ) -> tf.Tensor:
        """Sorts adjacent combining characters by their classes, as NFD does.

        Nearly all combining characters have already been stripped.

        Args:
            codes: int32[new characters], the code points after the replacement.
            source: int32[new characters], the index of the character that each one replaces.
            characters: the characters of the texts.
        """
        classes, _ = self._look_up(codes)
        classes //= COMBINING_CLASS
        stripped = _count_up_to_each(_has(characters.classes, STRIPPED_STARTER))
        groups = _count_up_to_each(classes == 0)
        groups += tf.gather(characters.parts + stripped, source)
        marks = _true_indices(classes > 0)
        mark_groups = tf.gather(groups, marks)
        keys = mark_groups * COMBINING_CLASS + tf.gather(classes, marks)
        order = tf.argsort(keys, stable=True)
        mark_codes = tf.gather(codes, marks)
        return tf.tensor_scatter_nd_update(
            tensor=codes,
            indices=marks[:, None],
            updates=tf.gather(mark_codes, order),
        )

    def _wordpieces(self, tokens: _Tokens) -> _WordPieces:
        """Splits tokens into WordPieces.

        A token that WordPieces do not cover, or a very long one, becomes [UNK].
        """
        ids = to_int32(self._vocabulary.lookup(tokens.strings))
        is_too_long = tokens.lengths > self._max_word_chars
        ids = tf.where(is_too_long, self._unknown_id, ids)
        words = _true_indices(ids < 0)  # the tokens that are cut
        # Each other token is one WordPiece, which begins at 0.
        is_whole = ids >= 0
        whole_ids = tf.boolean_mask(ids, is_whole)
        whole_tokens = tf.boolean_mask(_indices(ids), is_whole)
        pieces = _WordPieces(
            ids=whole_ids,
            tokens=whole_tokens,
            starts=tf.zeros_like(whole_ids),
            lengths=tf.gather(tokens.lengths, whole_tokens),
        )

        def cut(
            words: tf.Tensor, starts: tf.Tensor, pieces: _WordPieces
        ) -> tuple[tf.Tensor, tf.Tensor, _WordPieces]:
            """Cuts the longest WordPieces of the tokens `words` at `starts`, int32[words]."""
            rest = tf.gather(tokens.lengths, words) - starts
            longest_rest = tf.reduce_max(rest)
            max_length = tf.minimum(self._longest_piece, longest_rest)
            lengths = tf.range(1, 1 + max_length)
            shape = [tf.size(words), tf.size(lengths)]

            def repeat_for_lengths(values: tf.Tensor) -> tf.Tensor:
                return tf.broadcast_to(values[:, None], shape)

            strings = tf.gather(tokens.strings, words)
            prefixes = tf.where(starts == 0, "", "##")
            parts = tf.strings.substr(
                repeat_for_lengths(strings),
                pos=repeat_for_lengths(starts),
                len=tf.zeros_like(starts)[:, None] + lengths,
                unit="UTF8_CHAR",
            )
            candidates = repeat_for_lengths(prefixes) + parts
            ids = self._vocabulary.lookup(candidates)
            is_inside = lengths <= rest[:, None]
            is_piece = (ids >= 0) & is_inside
            piece_lengths = tf.where(is_piece, lengths, 0)
            longest = tf.reduce_max(piece_lengths, axis=1)
            has_piece = longest > 0
            column = tf.maximum(longest - 1, 0)
            longest_ids = to_int32(tf.gather(ids, column, batch_dims=1))
            new_pieces = _WordPieces(
                ids=tf.where(has_piece, longest_ids, -1),
                tokens=words,
                starts=starts,
                lengths=longest,
            )
            has_rest = has_piece & (longest < rest)
            next_words = tf.boolean_mask(words, has_rest)
            next_starts = tf.boolean_mask(starts + longest, has_rest)
            return next_words, next_starts, _concat_fields(pieces, new_pieces)

        vector = tf.TensorShape([None])
        vectors = _WordPieces(vector, vector, vector, vector)
        _, _, pieces = tf.while_loop(
            cond=lambda words, *_: tf.size(words) > 0,
            body=cut,
            loop_vars=(words, tf.zeros_like(words), pieces),
            shape_invariants=(vector, vector, vectors),
        )
        lowest_ids = tf.math.unsorted_segment_min(
            data=pieces.ids,
            segment_ids=pieces.tokens,
            num_segments=tf.size(tokens.lengths),
        )
        is_unknown = tf.gather(lowest_ids < 0, pieces.tokens)
        token_lengths = tf.gather(tokens.lengths, pieces.tokens)
        pieces = pieces._replace(
            ids=tf.where(is_unknown, self._unknown_id, pieces.ids),
            lengths=tf.where(is_unknown, token_lengths, pieces.lengths),
        )
        # An unknown token is one piece.
        is_first_piece = pieces.starts == 0
        rows = _true_indices(~is_unknown | is_first_piece)
        # Sort by token. The loop has cut the pieces of a token in the order of their starts.
        row_tokens = tf.gather(pieces.tokens, rows)
        row_order = tf.argsort(row_tokens, stable=True)
        order = tf.gather(rows, row_order)
        return _gather_fields(pieces, order)


def _find_words(characters: _Characters) -> _Words:
    """Finds the words of the texts."""
    codes = characters.codes.values
    white_codes = [ord(character) for character in _WHITE_SPACE]
    is_white = tf.reduce_any(codes[:, None] == white_codes, axis=1)
    is_text_start = characters.offsets == 0
    is_text_end = _next(is_text_start, last=True)
    is_after_white = _previous(is_white, first=True)
    is_before_white = _next(is_white, last=True)
    is_word_start = ~is_white & (is_text_start | is_after_white)
    is_word_end = ~is_white & (is_text_end | is_before_white)
    firsts = _true_indices(is_word_start)
    lasts = _true_indices(is_word_end)
    return _Words(
        firsts=firsts,
        lengths=1 + lasts - firsts,
        numbers=_count_up_to_each(is_word_start) - 1,
    )


def _list_tokens(characters: _Characters, tokens: _Tokens) -> _Words:
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


def readable(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts without the bytes that are not UTF-8.

    Args:
        texts: string of any shape.
    """
    return tf.strings.unicode_transcode(
        texts,
        input_encoding="UTF-8",
        output_encoding="UTF-8",
        errors="ignore",
        replace_control_characters=False,
    )


def _has(classes: tf.Tensor, bit: int) -> tf.Tensor:
    """Returns whether each class has a bit."""
    return classes & bit > 0


def _indices(values: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the values of a vector: int32[values]."""
    return tf.range(tf.size(values))


def _true_indices(is_chosen: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the true values of a vector: int32[true values]."""
    indices = tf.where(is_chosen)[:, 0]
    return to_int32(indices)


def _count_up_to_each(is_chosen: tf.Tensor) -> tf.Tensor:
    """Returns the number of true values up to each value of a vector, including it."""
    return tf.cumsum(to_int32(is_chosen))


def _previous(values: tf.Tensor, first: bool) -> tf.Tensor:
    """Returns the value before each one of a vector, and `first` for the first one."""
    values = tf.concat([[first], values], 0)
    return values[:-1]


def _next(values: tf.Tensor, last: bool | tf.Tensor) -> tf.Tensor:
    """Returns the value behind each one of a vector, and `last` for the last one."""
    values = tf.concat([values, [last]], 0)
    return values[1:]


def _concat_fields(first: _Fields, second: _Fields) -> _Fields:
    """Appends the values in each field of a named tuple to those of another."""

    def concat(*values: tf.Tensor) -> tf.Tensor:
        return tf.concat(values, 0)

    return tf.nest.map_structure(concat, first, second)


def _gather_fields(fields: _Fields, indices: tf.Tensor) -> _Fields:
    """Returns the values at some indices in each field of a named tuple."""
    return tf.nest.map_structure(lambda values: tf.gather(values, indices), fields)


def split_by_text(characters: _Characters, values: tf.Tensor, firsts: tf.Tensor) -> tf.RaggedTensor:
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

"""The in-graph tokenizer: models that contain it read raw text wherever TensorFlow runs.

In: strings. Out: the ids of FullTokenizer and the offsets of its WordPieces. The tokenizer uses
only core operations of TensorFlow:

- Tables contain the replacement of each character by BasicTokenizer, which computes them.
- A word that is in the vocabulary is one WordPiece.
- A loop cuts all other words of a batch at once, the longest WordPiece first. Each iteration cuts
  one WordPiece from every word that is left.
"""

import os
import tempfile
from typing import NamedTuple

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
from official_bert.graph_text.graph_tokenizer import (
    Characters,
    GraphTokenizer,
    SplitTexts,
    Tokens,
    WordPieces,
)
from official_bert.graph_text.vectors import (
    concat_fields,
    count_up_to_each,
    following,
    gather_fields,
    indices,
    previous,
    to_int32,
    true_indices,
)
from official_bert.tokenization import FullTokenizer, write_vocabulary

_SIGMA, _FINAL_SIGMA = map(ord, "Σς")


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


class TextTokenizer(GraphTokenizer):
    """A tokenizer of the core operations of TensorFlow."""

    def __init__(self, tokenizer: FullTokenizer, folder: str):
        """Creates the tables and writes the vocabulary.

        Args:
            tokenizer: the tokenizer to rebuild. Its vocabulary must have [UNK].
            folder: the folder in which the vocabulary is written. The file must stay there until
                the model is saved, because it becomes an asset of the SavedModel.
        """
        super().__init__(tokenizer)
        basic = tokenizer.basic_tokenizer
        self._do_lower_case = basic.do_lower_case
        self._strip_accents = basic.strip_accents
        tables = character_tables(basic.do_lower_case, basic.strip_accents)
        # The tables are variables, because each signature would have its own copy of a constant.
        variables = [tf.Variable(table, trainable=False) for table in tables]
        self._tables = CharacterTables(*variables)
        wordpiece = tokenizer.wordpiece_tokenizer
        self._max_word_chars = wordpiece.max_input_chars_per_word
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

    def split(self, texts: tf.Tensor, is_each_alone: bool = False) -> SplitTexts:
        """Splits texts; see `GraphTokenizer.split`."""
        characters = self._characters(texts)
        tokens = self._basic_tokens(characters, is_each_alone)
        return SplitTexts(
            characters=Characters(characters.codes, characters.offsets),
            tokens=Tokens(tokens.lengths, tokens.firsts, tokens.spans),
            pieces=self._wordpieces(tokens),
        )

    def substrings(
        self, texts: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tf.Tensor:
        """Cuts parts out of texts; see `GraphTokenizer.substrings`."""
        return tf.strings.substr(
            tf.gather(readable(texts), rows),
            pos=starts,
            len=ends - starts,
            unit="UTF8_CHAR",
        )

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
        is_after_lone = previous(is_alone, first=True)
        is_after_blank = previous(is_blank, first=False)
        is_blank_edge = is_blank != is_after_blank
        part_starts = (offsets == 0) | is_alone | is_after_lone | is_blank_edge
        return _Characters(
            codes=codes,
            offsets=offsets,
            parts=count_up_to_each(part_starts) - 1,
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
        source = tf.repeat(indices(codes), counts)  # [new characters]
        first_numbers = tf.cumsum(counts, exclusive=True)
        number = indices(source) - tf.gather(first_numbers, source)
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
        firsts = true_indices(characters.part_starts)
        ends = following(firsts, last=tf.size(codes))
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
        sigmas = true_indices(codes == _SIGMA)
        index = tf.gather(count_up_to_each(counts), sigmas)  # among the counting ones
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
        stripped = count_up_to_each(_has(characters.classes, STRIPPED_STARTER))
        groups = count_up_to_each(classes == 0)
        groups += tf.gather(characters.parts + stripped, source)
        marks = true_indices(classes > 0)
        mark_groups = tf.gather(groups, marks)
        keys = mark_groups * COMBINING_CLASS + tf.gather(classes, marks)
        order = tf.argsort(keys, stable=True)
        mark_codes = tf.gather(codes, marks)
        return tf.tensor_scatter_nd_update(
            tensor=codes,
            indices=marks[:, None],
            updates=tf.gather(mark_codes, order),
        )

    def _wordpieces(self, tokens: _Tokens) -> WordPieces:
        """Splits tokens into WordPieces.

        A token that WordPieces do not cover, or a very long one, becomes [UNK].
        """
        ids = to_int32(self._vocabulary.lookup(tokens.strings))
        is_too_long = tokens.lengths > self._max_word_chars
        ids = tf.where(is_too_long, self._unknown_id, ids)
        words = true_indices(ids < 0)  # the tokens that are cut
        # Each other token is one WordPiece, which begins at 0.
        is_whole = ids >= 0
        whole_ids = tf.boolean_mask(ids, is_whole)
        whole_tokens = tf.boolean_mask(indices(ids), is_whole)
        pieces = WordPieces(
            ids=whole_ids,
            tokens=whole_tokens,
            starts=tf.zeros_like(whole_ids),
            lengths=tf.gather(tokens.lengths, whole_tokens),
        )

        def cut(
            words: tf.Tensor, starts: tf.Tensor, pieces: WordPieces
        ) -> tuple[tf.Tensor, tf.Tensor, WordPieces]:
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
            new_pieces = WordPieces(
                ids=tf.where(has_piece, longest_ids, -1),
                tokens=words,
                starts=starts,
                lengths=longest,
            )
            has_rest = has_piece & (longest < rest)
            next_words = tf.boolean_mask(words, has_rest)
            next_starts = tf.boolean_mask(starts + longest, has_rest)
            return next_words, next_starts, concat_fields(pieces, new_pieces)

        vector = tf.TensorShape([None])
        vectors = WordPieces(vector, vector, vector, vector)
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
        rows = true_indices(~is_unknown | is_first_piece)
        # Sort by token. The loop has cut the pieces of a token in the order of their starts.
        row_tokens = tf.gather(pieces.tokens, rows)
        row_order = tf.argsort(row_tokens, stable=True)
        order = tf.gather(rows, row_order)
        return gather_fields(pieces, order)


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

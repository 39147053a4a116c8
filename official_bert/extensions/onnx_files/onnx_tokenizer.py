"""Writes FullTokenizer into an ONNX graph: texts in, their WordPieces and offsets out.

The graph equals `TextTokenizer.split` of graph_text/tokenizer.py, with the same tables of
characters:

- `Tokenizer`, an operation of every onnxruntime, splits the texts into characters. A table replaces
  each character by its code point. Everything else computes with integers, for the characters of
  all texts at once.
- A table of (state, character) -> state contains the vocabulary as a tree of characters. A loop
  finds the longest WordPiece that begins at each character.
- The pieces of a word are found by doubling: first those after 1 piece, then after 2, 4, 8, ...

A word is here a basic token.

N characters   M characters after the replacement   W words
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from official_bert.extensions.onnx_files.onnx_graph import BlockValue, OnnxGraph
from official_bert.extensions.onnx_files.onnx_ragged import RaggedWriter
from official_bert.graph_text.character_classes import (
    ALONE,
    BLANK,
    CASE_IGNORABLE,
    CASED,
    COMBINING_CLASS,
    COUNT,
    PAGE_SIZE,
    STRIPPED_STARTER,
    character_tables,
)
from official_bert.graph_text.vocabulary_tree import (
    DEAD,
    NUM_CODES,
    REST_ROOT,
    WORD_ROOT,
    build_tree,
    list_known_codes,
)
from official_bert.tokenization import FullTokenizer

_SIGMA, _FINAL_SIGMA = map(ord, "Σς")


class OnnxSplitTexts(NamedTuple):
    """The values of `SplitTexts` of graph_text/graph_tokenizer.py, by name, each int64.

    Attributes:
        codes: [N], the code points.
        rows: [N], the indices of their texts.
        offsets: [N], their indices in their texts.
        word_lengths: [W], the number of characters of each word.
        word_firsts: [W], the index of the word's first character among those of all texts.
        word_spans: [W], the number of characters of the text that became the word.
        piece_ids: [pieces], the ids of the WordPieces.
        piece_words: [pieces], the indices of their words.
        piece_starts: [pieces], the index of the first character in the word.
        piece_lengths: [pieces], their numbers of characters.
    """

    codes: str
    rows: str
    offsets: str
    word_lengths: str
    word_firsts: str
    word_spans: str
    piece_ids: str
    piece_words: str
    piece_starts: str
    piece_lengths: str


class _Characters(NamedTuple):
    """The characters of all texts, one after the other; each field is int64[N] or bool[N].

    Attributes:
        codes: their code points.
        rows: the indices of their texts.
        text_starts: whether a text begins here.
        classes: the bits of their classes.
        part_starts: whether a part begins here: a lone character, consecutive blanks, or the
            characters between these.
        parts: the numbers of their parts, from 1.
    """

    codes: str
    rows: str
    text_starts: str
    classes: str
    part_starts: str
    parts: str


class _NewCharacters(NamedTuple):
    """The characters after the replacement; each field is int64[M] or bool[M].

    Attributes:
        codes: their code points.
        source: the index of the character that each one replaces.
        is_start: whether a word begins here.
        words: the indices of their words.
    """

    codes: str
    source: str
    is_start: str
    words: str


class _Matches(NamedTuple):
    """The longest WordPiece that begins at each character, each field int64[M].

    Attributes:
        places: the index of each character in the sequence with gaps.
        lengths: the number of its characters; 0 if there is none.
        ids: its id; -1 if there is none.
        num_places: the name of int64, the length of the sequence with gaps.
    """

    places: str
    lengths: str
    ids: str
    num_places: str


class OnnxTokenizer(RaggedWriter):
    """Writes the calls of one tokenizer."""

    def __init__(self, graph: OnnxGraph, tokenizer: FullTokenizer):
        """Makes the tables.

        Args:
            graph: the graph to write into.
            tokenizer: the tokenizer. Its vocabulary must have [UNK].
        """
        basic = tokenizer.basic_tokenizer
        wordpiece = tokenizer.wordpiece_tokenizer
        super().__init__(graph)
        self._do_lower_case = basic.do_lower_case
        self._strip_accents = basic.strip_accents
        self._max_word_chars = wordpiece.max_input_chars_per_word
        self._unknown_id = tokenizer.vocab[wordpiece.unk_token]
        self._tree = build_tree(tokenizer.vocab)
        self._tables = character_tables(bool(basic.do_lower_case), basic.strip_accents)
        codes, self._other_code = list_known_codes(self._tables, tokenizer.vocab)
        self._codes = np.array([*codes, -1], np.int64)
        self._strings = np.array([*map(chr, codes), ""], object)
        self._characters: dict[str, str] = {}

    def split(self, texts: str, is_each_alone: bool = False) -> OnnxSplitTexts:
        """Add the nodes that split texts; see `GraphTokenizer.split`.

        Args:
            texts: the name of string[texts].
            is_each_alone: whether the letters of each word are lower-cased as if it were a text.

        Returns:
            The names of their characters, words and WordPieces.
        """
        with self.graph.scope("tokenizer"):
            characters = self._split_characters(texts)
            new_characters = self._replace_characters(characters, is_each_alone)
            matches = self._find_matches(new_characters)
            return self._choose_pieces(characters, new_characters, matches)

    def substrings(self, texts: str, rows: str, starts: str, ends: str) -> str:
        """Add the nodes that cut parts out of texts; see `GraphTokenizer.substrings`.

        Args:
            texts: the name of string[texts].
            rows: int64[parts], the index of each part's text.
            starts: int64[parts], the offset of its first character.
            ends: int64[parts], the offset behind its last character.

        Returns:
            The name of string[parts].
        """
        graph = self.graph
        with graph.scope("substrings"):
            # A row of characters for each text, of which the last ones are "".
            strings = self._list_strings(texts)
            num_columns = graph.node("Shape", strings, start=1, end=2)
            row_starts = graph.node("Mul", rows, num_columns)
            lengths = self.subtract(ends, starts)
            spans = self.make_ranges(self.add(row_starts, starts), self.add(row_starts, ends))
            characters = self.gather(self.flat(strings), spans.values)
            first = self.gather(spans.starts, spans.rows)
            positions = self.subtract(self.indices(self.size(spans.rows)), first)
            joined = self._join_neighbours(characters, positions)
            # A part without characters is not among them.
            no_text = graph.constant(np.array([""], object))
            joined = self.concat(joined, no_text)
            has_text = self.is_above(lengths, 0)
            number = self.add(self.count_up_to_each(has_text), -1)
            return self.gather(joined, self.where(has_text, number, -1))

    def _join_neighbours(self, strings: str, positions: str) -> str:
        """Joins the strings of each part.

        Each iteration joins neighbours, so that a part has half as many strings.

        Args:
            strings: string[strings], those of all parts.
            positions: int64[strings], their indices in their parts.
        """
        graph = self.graph
        no_text = graph.constant(np.array([""], object))
        zero = graph.integers(0)

        def has_neighbours(positions: str) -> str:
            positions = self.concat(positions, zero)
            return self.is_above(self.largest(positions), 0)

        def join(iteration: str, strings: str, positions: str) -> list[str]:
            all_strings = self.concat(strings, no_text)
            all_positions = self.concat(positions, zero)
            next_strings = self.without_first(all_strings)
            next_positions = self.without_first(all_positions)
            # The first string of the next part has the position 0.
            is_same_part = self.is_above(next_positions, 0)
            next_strings = graph.node("Where", is_same_part, next_strings, no_text)
            strings = graph.node("StringConcat", strings, next_strings)
            two = self.number(2)
            is_even = self.is_equal(graph.node("Mod", positions, two), 0)
            positions = graph.node("Div", self.select(positions, is_even), two)
            return [has_neighbours(positions), self.select(strings, is_even), positions]

        start = [BlockValue(strings, object), BlockValue(positions, np.int64)]
        return graph.loop(start, join, condition=has_neighbours(positions))[0]

    def _previous(self, values: str, first: Any) -> str:
        """Returns the value before each one of a vector, and `first` for the first one."""
        start = self.graph.constant(np.array([first]))
        return self.without_last(self.concat(start, values))

    def _has(self, classes: str, bit: int) -> str:
        bits = self.graph.node("BitwiseAnd", classes, self.number(bit))
        return self.is_above(bits, 0)

    # The characters of the texts.

    def _look_up(self, codes: str, values: np.ndarray) -> str:
        """Returns the values of code points in a table of pages."""
        graph = self.graph
        page_size = self.number(PAGE_SIZE)
        all_pages = graph.constant(self._tables.pages.astype(np.int64), "pages")
        pages = self.gather(all_pages, graph.node("Div", codes, page_size))
        first = graph.node("Mul", pages, page_size)
        index = self.add(first, graph.node("Mod", codes, page_size))
        return self.gather(graph.constant(values.astype(np.int64), "characters"), index)

    def _split_characters(self, texts: str) -> _Characters:
        """Splits texts into characters, and finds their parts."""
        graph = self.graph
        strings = self._list_strings(texts)
        table = self._map(strings, self._strings, self._codes, default=self._other_code)
        is_character = graph.node("GreaterOrEqual", table, self.number(0))
        codes = self.select(self.flat(table), self.flat(is_character))
        all_rows = graph.node("NonZero", is_character)
        rows = graph.node("Gather", all_rows, self.number(0), axis=0)
        classes = self._look_up(codes, self._tables.classes)

        # A part begins at a lone character, after it, and where blanks begin or end.
        is_alone = self._has(classes, ALONE)
        is_blank = self._has(classes, BLANK)
        is_after_blank = self._previous(is_blank, first=False)
        is_blank_edge = graph.node("Xor", is_blank, is_after_blank)
        is_text_start = self.negate(self.is_equal(rows, self._previous(rows, first=-1)))
        is_after_lone = self._previous(is_alone, first=True)
        is_edge = self.either(self.either(is_alone, is_after_lone), is_blank_edge)
        part_starts = self.either(is_text_start, is_edge)
        return _Characters(
            codes=codes,
            rows=rows,
            text_starts=is_text_start,
            classes=classes,
            part_starts=part_starts,
            parts=self.count_up_to_each(part_starts),
        )

    def _list_strings(self, texts: str) -> str:
        """Returns the characters of each text as strings, string[texts, longest]."""
        if texts not in self._characters:
            self._characters[texts] = self.graph.node(
                "Tokenizer",
                texts,
                domain="com.microsoft",
                mark=0,
                mincharnum=1,
                pad_value="",
                separators=[""],
            )
        return self._characters[texts]

    def _map(self, x: str, keys: np.ndarray, values: np.ndarray, default: int) -> str:
        """Returns the values of keys, and a default for other ones."""
        return self.graph.node(
            "LabelEncoder",
            x,
            domain="ai.onnx.ml",
            keys_tensor=self.graph.make_tensor(keys, "keys"),
            values_tensor=self.graph.make_tensor(values, "values"),
            default_tensor=self.graph.make_tensor(np.array([default], np.int64), "default"),
        )

    # The characters of the words.

    def _replace_characters(self, characters: _Characters, is_each_alone: bool) -> _NewCharacters:
        """Replaces each character by nothing, by one character, or by several."""
        graph = self.graph
        codes = characters.codes
        if self._do_lower_case:
            texts = characters.parts if is_each_alone else characters.rows
            codes = self._make_final_sigmas(characters, texts)
        outputs = self._look_up(codes, self._tables.outputs)
        counts = graph.node("BitwiseAnd", characters.classes, self.number(COUNT))
        counts = self.column(counts)
        # Make a column for each of the characters that replace one, int64[N, columns].
        num_columns = int((self._tables.classes & COUNT).max())
        columns = graph.constant(np.arange(num_columns)[None])
        is_present = self.is_above(counts, columns)
        is_several = self.both(is_present, self.is_above(counts, 1))
        expansion_index = self.add(self.column(outputs), columns)
        expansion_index = self.where(is_several, expansion_index, 0)
        expansions = graph.constant(self._tables.expansions.astype(np.int64), "expansions")
        several_codes = self.gather(expansions, expansion_index)
        single_codes = self.column(self.add(codes, outputs))
        new_codes = self.where(is_several, several_codes, single_codes)
        new_codes = self.select(self.flat(new_codes), self.flat(is_present))
        places = graph.node("NonZero", is_present)
        source = graph.node("Gather", places, self.number(0), axis=0)

        parts = self.gather(characters.parts, source)
        if self._strip_accents:
            new_codes = self._sort_accents(new_codes, source, characters)
        is_start = self.negate(self.is_equal(parts, self._previous(parts, first=0)))
        return _NewCharacters(
            codes=new_codes,
            source=source,
            is_start=is_start,
            words=self.add(self.count_up_to_each(is_start), -1),
        )

    def _make_final_sigmas(self, characters: _Characters, texts: str) -> str:
        """Returns the code points with final sigmas in place of capital sigmas that become one.

        Args:
            characters: the characters.
            texts: int64[N], the text of each character. Neighbours are of the same text.
        """
        graph = self.graph
        counts = self.negate(self._has(characters.classes, CASE_IGNORABLE))
        # For each counting character, and at both ends: whether it is a cased letter, and its text.
        is_cased = self._has(self.select(characters.classes, counts), CASED)
        no_letter = graph.constant(np.array([False]))
        is_cased = self.concat(no_letter, is_cased, no_letter)
        no_row = graph.integers(-1)
        rows = self.select(texts, counts)
        rows = self.concat(no_row, rows, no_row)
        # Only the results for sigmas count. Others may have the index 0.
        index = self.count_up_to_each(counts)

        def is_cased_neighbour(step: int) -> str:
            neighbour = self.add(index, step)
            is_same_text = self.is_equal(self.gather(rows, neighbour), texts)
            return self.both(self.gather(is_cased, neighbour), is_same_text)

        is_after_only = self.both(is_cased_neighbour(-1), self.negate(is_cased_neighbour(1)))
        is_final = self.both(self.is_equal(characters.codes, _SIGMA), is_after_only)
        return self.where(is_final, _FINAL_SIGMA, characters.codes)

    def _sort_accents(self, codes: str, source: str, characters: _Characters) -> str:
        """Sorts adjacent combining characters by their classes, as NFD does."""
        graph = self.graph
        unit = self.number(COMBINING_CLASS)
        classes = graph.node("Div", self._look_up(codes, self._tables.classes), unit)
        stripped = self.count_up_to_each(self._has(characters.classes, STRIPPED_STARTER))
        groups = self.gather(self.add(characters.parts, stripped), source)
        groups = self.add(groups, self.count_up_to_each(self.is_equal(classes, 0)))
        keys = self.add(graph.node("Mul", groups, unit), classes)
        marks = self.true_indices(self.is_above(classes, 0))
        mark_keys = self.gather(keys, marks)
        # Equal keys keep their order, as ONNX defines.
        count = self.flat(self.size(marks))
        _, order = graph.nodes("TopK", mark_keys, count, num_outputs=2, largest=0, sorted=1)
        sorted_codes = self.gather(codes, self.gather(marks, order))
        return self.scatter(codes, marks, sorted_codes)

    # The pieces of the words.

    def _find_matches(self, characters: _NewCharacters) -> _Matches:
        """Finds the longest WordPiece that begins at each character, within its word."""
        graph = self.graph
        tree = self._tree
        # A sequence with a gap after each word, whose code 0 continues no WordPiece.
        size = self.size(characters.codes)
        places = self.add(self.indices(size), characters.words)
        num_words = graph.node("ReduceSum", self.to_int64(characters.is_start), keepdims=0)
        num_places = self.add(self.add(size, num_words), tree.depth)
        sequence = self.scatter(self.fill(num_places, 0), places, characters.codes)
        state_ids = graph.constant(tree.ids, "state_ids")
        num_codes = self.number(NUM_CODES)

        def extend(iteration: str, states: str, lengths: str, ids: str) -> list[str]:
            """Reads one more character of each WordPiece."""
            code = self.gather(sequence, self.add(places, iteration))
            key = self.add(graph.node("Mul", states, num_codes), code)
            states = self._map(key, tree.keys, tree.targets, default=DEAD)
            piece_ids = self.gather(state_ids, states)
            is_piece = graph.node("GreaterOrEqual", piece_ids, self.number(0))
            length = self.add(iteration, 1)
            return [
                graph.constant(True),
                states,
                self.where(is_piece, length, lengths),
                self.where(is_piece, piece_ids, ids),
            ]

        states = self.where(characters.is_start, WORD_ROOT, REST_ROOT)
        names = [states, self.fill(size, 0), self.fill(size, -1)]
        start = [BlockValue(name, np.int64) for name in names]
        _, lengths, ids = graph.loop(start, extend, num_iterations=self.number(tree.depth))
        return _Matches(places, lengths, ids, num_places)

    def _choose_pieces(
        self,
        characters: _Characters,
        new_characters: _NewCharacters,
        matches: _Matches,
    ) -> OnnxSplitTexts:
        """Follows the longest WordPieces from the start of each word to its end."""
        graph = self.graph
        words, is_start = new_characters.words, new_characters.is_start
        places, lengths, ids, num_places = matches
        # The place behind the match of each place, and whether a piece begins there.
        following = self.scatter(self.indices(num_places), places, self.add(places, lengths))
        reached = self.scatter(self.fill(num_places, 0), places, self.to_int64(is_start))
        for _ in range(int(self._max_word_chars).bit_length()):
            reached = self.scatter(reached, following, reached, reduction="max")
            following = self.gather(following, following)
        is_piece_start = self.is_above(self.gather(reached, places), 0)

        # A word that WordPieces do not cover, or a very long one, becomes [UNK].
        num_words = graph.node("ReduceSum", self.to_int64(is_start), keepdims=0)
        no_words = self.fill(num_words, 0)
        ones = self.fill(self.size(words), 1)
        word_lengths = self.scatter(no_words, words, ones, reduction="add")
        is_too_long = self.to_int64(self.is_above(word_lengths, self._max_word_chars))
        is_stuck = self.both(is_piece_start, self.is_equal(lengths, 0))
        unknown = self.scatter(is_too_long, words, self.to_int64(is_stuck), reduction="max")
        is_unknown = self.is_above(self.gather(unknown, words), 0)
        # An unknown word is one piece, which begins at its start.
        is_known_piece = self.both(is_piece_start, self.negate(is_unknown))
        is_chosen = self.either(is_known_piece, is_start)
        piece_ids = self.where(is_unknown, self._unknown_id, ids)
        all_lengths = self.gather(word_lengths, words)
        piece_lengths = self.where(is_unknown, all_lengths, lengths)
        piece_starts = self.index_in_groups(is_start)

        # The parts of the words.
        firsts = self.true_indices(characters.part_starts)
        all_firsts = graph.node("Concat", firsts, self.flat(self.size(characters.codes)), axis=0)
        ends = self.without_first(all_firsts)
        parts = self.add(self.gather(characters.parts, new_characters.source), -1)
        parts = self.select(parts, is_start)
        return OnnxSplitTexts(
            codes=characters.codes,
            rows=characters.rows,
            offsets=self.index_in_groups(characters.text_starts),
            word_lengths=word_lengths,
            word_firsts=self.gather(firsts, parts),
            word_spans=self.gather(self.subtract(ends, firsts), parts),
            piece_ids=self.select(piece_ids, is_chosen),
            piece_words=self.select(words, is_chosen),
            piece_starts=self.select(piece_starts, is_chosen),
            piece_lengths=self.select(piece_lengths, is_chosen),
        )

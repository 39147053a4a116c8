"""Caches the WordPieces of words, so that running text needs one look-up a word."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Protocol

from official_bert.characters import ascii_tokens, has_boundary, split_at_boundaries

LINE_END = "\n"
CACHED_WORDS = 1 << 19  # about 100 MB when full
_LONGEST_CACHED_WORD = 64


class _WordSplitter(Protocol):
    """BasicTokenizer of tokenization.py."""

    do_lower_case: bool | None

    def tokenize(self, text: str) -> list[str]: ...


class _PieceSplitter(Protocol):
    """WordpieceTokenizer of tokenization.py."""

    def split_word(self, word: str) -> list[str]: ...


class WordCache(dict):
    """A bounded cache: word -> tuple of the values of its WordPieces, such as their ids.

    A word is any text without a space. The tokenizers always split at a space, so the WordPieces of
    a text are those of its words in order.

    When the newer half of the cache is full it becomes the older one, and the words of the older
    half are dropped. A look-up in the older half copies the word to the newer half, so common words
    stay.
    """

    def __init__(
        self,
        basic: _WordSplitter,
        wordpiece: _PieceSplitter,
        values: Mapping[str, object],
        line_end: tuple = (),
    ):
        """Makes an empty cache.

        Args:
            basic: splits a text into words.
            wordpiece: splits a word into WordPieces.
            values: WordPiece -> its value, such as its id.
            line_end: the values of a line end, which has no WordPieces.
        """
        super().__init__()
        self._line_end = line_end
        self._basic = basic
        self._wordpiece = wordpiece
        self._values = values
        self._older: dict[str, tuple] = {}

    def __missing__(self, word: str) -> tuple:
        """Returns the values of a word that the newer half lacks."""
        is_plain = word.isascii() and word.isprintable()
        if not is_plain and len(word) > 1 and has_boundary(word):
            # Chinese sentences and whole lines hardly occur twice. Only their words are cached.
            return _concatenate(map(self.__getitem__, split_at_boundaries(word)))
        values = self._older.get(word) or self._compute(word, is_plain)
        if len(word) <= _LONGEST_CACHED_WORD:
            if len(self) >= CACHED_WORDS // 2:
                self._older = dict(self)
                self.clear()
            self[word] = values
        return values

    def _compute(self, word: str, is_plain: bool) -> tuple:
        if word == LINE_END:
            return self._line_end
        if not is_plain:
            return _concatenate(map(self._look_up, self._basic.tokenize(word)))
        tokens = ascii_tokens(word.lower() if self._basic.do_lower_case else word)
        if len(tokens) == 1:
            return self._look_up(tokens[0])
        return _concatenate(map(self.__getitem__, tokens))

    def _look_up(self, token: str) -> tuple:
        """Returns the values of a token of the basic tokenizer."""
        pieces = self._wordpiece.split_word(token)
        return tuple(map(self._values.__getitem__, pieces))


def _concatenate(parts: Iterable[tuple]) -> tuple:
    return tuple(itertools.chain.from_iterable(parts))

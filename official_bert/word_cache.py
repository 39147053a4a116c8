"""A bounded cache of the WordPieces of words, with which running text needs one look-up a word."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Protocol

from official_bert.characters import ascii_tokens, has_boundary, split_at_boundaries

LINE_END = "\n"
CACHED_WORDS = 1 << 19  # about 100 MB when full
_LONGEST_CACHED_WORD = 64


class _WordSplitter(Protocol):
    """BasicTokenizer of tokenization.py."""

    do_lower_case: bool

    def tokenize(self, text: str) -> list[str]: ...


class _PieceSplitter(Protocol):
    """WordpieceTokenizer of tokenization.py."""

    def split_word(self, word: str) -> list[str]: ...


class WordCache(dict):
    """A bounded cache: word -> tuple of the values of its WordPieces, which are their strings or
    their ids.

    A word is any text without a space. The tokenizers always split at a space, so the WordPieces of
    a text are those of its words in order. When the newer half of the cache is full it becomes the
    older one, whose words are dropped. A look-up in the older half copies the word to the newer
    half, so common words stay. `line_end` has the values of "\\n" where it is a word, which has no
    WordPieces.
    """

    def __init__(
        self,
        basic: _WordSplitter,
        wordpiece: _PieceSplitter,
        values: Mapping[str, object],
        line_end: tuple = (),
    ):
        super().__init__()
        self._line_end = line_end
        self._basic = basic
        self._wordpiece = wordpiece
        self._value_of = values.__getitem__
        self._older = {}

    def __missing__(self, word: str) -> tuple:
        plain = word.isascii() and word.isprintable()
        if not plain and len(word) > 1 and has_boundary(word):
            # Chinese sentences and whole lines, which hardly occur twice, are not cached but their
            # words are.
            return _joined(map(self.__getitem__, split_at_boundaries(word)))
        values = self._older.get(word) or self._compute(word, plain)
        if len(word) <= _LONGEST_CACHED_WORD:
            if len(self) >= CACHED_WORDS // 2:
                self._older = dict(self)
                self.clear()
            self[word] = values
        return values

    def _compute(self, word: str, plain: bool) -> tuple:
        if word == LINE_END:
            return self._line_end
        if not plain:
            return _joined(map(self._values_of, self._basic.tokenize(word)))
        tokens = ascii_tokens(word.lower() if self._basic.do_lower_case else word)
        return (
            self._values_of(tokens[0])
            if len(tokens) == 1
            else _joined(map(self.__getitem__, tokens))
        )

    def _values_of(self, token: str) -> tuple:
        return tuple(map(self._value_of, self._wordpiece.split_word(token)))


def _joined(parts: Iterable[tuple]) -> tuple:
    return tuple(itertools.chain.from_iterable(parts))

"""The original's rules of tokenization as plain Python, with nothing cached;
benchmarks/tokenizer.py times it, too.
"""

import itertools
import string
import unicodedata
from collections.abc import Collection, Iterable, Iterator

IDEOGRAPHS = (
    ("\u3400", "\u4dbf"),
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0002a6df"),
    ("\U0002a700", "\U0002b73f"),
    ("\U0002b740", "\U0002b81f"),
    ("\U0002b820", "\U0002ceaf"),
    ("\U0002f800", "\U0002fa1f"),
)
LONGEST_WORD = 200  # characters


class PlainTokenizer:
    """Splits a text into words, and words into WordPieces; `strip_accents` None does as
    do_lower_case says.
    """

    def __init__(
        self, vocab: Collection[str], do_lower_case: bool = True, strip_accents: bool | None = None
    ):
        self._lower = do_lower_case
        self._strip = do_lower_case if strip_accents is None else strip_accents
        self._first = letter_tree(vocab)
        self._later = letter_tree(piece[2:] for piece in vocab if piece.startswith("##"))

    def words(self, text: str) -> list[str]:
        found = (
            part
            for word in "".join(spaced(text)).split()
            for part in punctuation_apart(self._folded(word))
        )
        return " ".join(found).split()  # the original splits at whitespace once more, too

    def tokenize(self, text: str) -> list[str]:
        return [piece for word in self.words(text) for piece in self._pieces(word)]

    def _folded(self, word: str) -> str:
        if self._lower:
            word = word.lower()
        return "".join(without_accents(word)) if self._strip else word

    def _pieces(self, word: str) -> list[str]:
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        pieces, start = [], 0
        while start < len(word):
            end = longest_match(self._later if start else self._first, word, start)
            if end is None:
                return ["[UNK]"]
            pieces.append(("##" if start else "") + word[start:end])
            start = end
        return pieces


def spaced(text: str) -> Iterator[str]:
    """The text without control characters, with spaces for whitespace and around ideographs."""
    for character in text:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            yield " "
        elif category in ("Cc", "Cf") or character == "\ufffd":
            continue  # U+0000 has the category Cc
        elif any(low <= character <= high for low, high in IDEOGRAPHS):
            yield f" {character} "
        else:
            yield character


def without_accents(word: str) -> Iterator[str]:
    """The characters of the decomposed word except non-spacing marks; the rest stays decomposed."""
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.category(character) != "Mn":
            yield character


def is_punctuation(character: str) -> bool:
    # string.punctuation is ASCII 33-47, 58-64, 91-96 and 123-126, so symbols such as $ and ^ count
    # as well.
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def punctuation_apart(word: str) -> Iterator[str]:
    """Each punctuation character by itself, and the runs of other characters between them."""
    for apart, characters in itertools.groupby(word, key=is_punctuation):
        if apart:
            yield from characters
        else:
            yield "".join(characters)


def letter_tree(pieces: Iterable[str]) -> dict:
    """Maps a first letter to the tree of the letters that may follow it; the key "" marks the
    end of a piece.
    """
    root = {}
    for piece in pieces:
        node = root
        for letter in piece:
            node = node.setdefault(letter, {})
        node[""] = {}
    return root


def longest_match(tree: dict, word: str, start: int) -> int | None:
    """The end of the longest piece in the tree that begins at `start`, or None if no piece
    begins there.
    """
    longest = None
    for end, letter in enumerate(word[start:], start + 1):
        if letter not in tree:
            break
        tree = tree[letter]
        if "" in tree:
            longest = end
    return longest

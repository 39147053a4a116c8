"""Classifies characters: blanks, control characters, punctuation and ideographs, as the original.

The tables at the end are for `str.translate`: they clean a text and put spaces around its words.
"""

import re
import unicodedata
from collections.abc import Callable

# Each ideograph is a separate word. Kana, Hangul and U+3007 form words like letters.
_CJK = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
# The characters other than the space that separate words. Some control characters that are
# whitespace for str.split() are absent (U+000B, U+000C, U+001C to U+001F, U+0085): the rules remove
# them and join the text around them.
_BLANK = "\t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
is_cjk = re.compile(f"[{_CJK}]").match
has_boundary = re.compile(f"[{_CJK}{_BLANK}]").search
split_at_boundaries = re.compile(f"[{_CJK}{_BLANK}]|[^{_CJK}{_BLANK}]+").findall
# The parts of a text whose WordPieces, in order, are those of the text: each ideograph, and the
# text between blanks and ideographs.
find_words = re.compile(f"[{_CJK}]|[^{_CJK}{_BLANK} ]+").finditer
# The words and punctuation characters of a text in ASCII.
ascii_tokens = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]").findall


def is_whitespace(char: str) -> bool:
    """Returns whether a character is whitespace by the rules of the original.

    Args:
        char: the character, one code point.
    """
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Returns whether a character is a control or format character, and not whitespace.

    Args:
        char: the character, one code point.
    """
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Returns whether a character is Unicode punctuation, or one of $ + < = > ^ ` | ~.

    Args:
        char: the character, one code point.
    """
    is_ascii_symbol = "!" <= char <= "~" and not char.isalnum()
    return is_ascii_symbol or unicodedata.category(char).startswith("P")


class _CharacterTable(dict):
    """A table for str.translate() that computes an entry when its character first occurs."""

    def __init__(self, rule: Callable[[str], str]):
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        replacement = self._rule(chr(code))
        self[code] = replacement
        return replacement


def _clean(char: str) -> str:
    if char in "\0\ufffd" or is_control(char):
        return ""
    if is_whitespace(char):
        return " "
    return f" {char} " if is_cjk(char) else char


def _separate(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


def _separate_and_strip_accents(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _separate(char)


CLEANED = _CharacterTable(_clean)
SEPARATED = _CharacterTable(_separate)
SEPARATED_WITHOUT_ACCENTS = _CharacterTable(_separate_and_strip_accents)

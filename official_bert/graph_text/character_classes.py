"""The tables with which the in-graph tokenizer classifies and replaces characters.

BasicTokenizer computes them, so that both replace each character alike.
"""

import functools
import sys
import unicodedata
from typing import NamedTuple

import numpy as np

from official_bert.tokenization import BasicTokenizer

PAGE_SIZE = 256
_NUM_CODES = sys.maxunicode + 1
# All code points except surrogates, and except unassigned and private planes. BasicTokenizer does
# not change these.
_CODES = (
    *range(0xD800),
    *range(0xE000, 0x40000),
    *range(0xE0000, 0xE1000),
)

# The bits of a character's class. The lowest ones count the characters that replace it.
COUNT = 7
# The character separates words.
BLANK = 8
# The character is a word: an ideograph or punctuation, even if it is punctuation only without its
# accent.
ALONE = 16
# A capital sigma after a cased letter becomes a final sigma if no cased letter follows.
# Case-ignorable characters next to the sigma do not count.
CASED = 32
CASE_IGNORABLE = 64
# A stripped character of combining class 0. NFD does not move accents across it.
STRIPPED_STARTER = 128
# The unit of the canonical combining class, by which NFD sorts accents.
COMBINING_CLASS = 1 << 8


class CharacterTables(NamedTuple):
    """The replacements of all code points by BasicTokenizer, in pages of 256 code points.

    Equal pages are stored once.

    Attributes:
        pages: int32[pages of Unicode], the number of the stored page with the code points from
            256 * index.
        classes: int32[256 * stored pages], the bits of `COUNT` to `COMBINING_CLASS`.
        outputs: int32[256 * stored pages], the difference between the replacement and the code
            point. For a replacement by several characters, the index of the first one in
            `expansions`.
        expansions: int32[characters of such replacements].
    """

    pages: np.ndarray
    classes: np.ndarray
    outputs: np.ndarray
    expansions: np.ndarray


@functools.cache
def character_tables(do_lower_case: bool, strip_accents: bool | None = None) -> CharacterTables:
    """Returns the tables of BasicTokenizer(do_lower_case, strip_accents).

    The first call with a pair of arguments takes a second.

    Args:
        do_lower_case: whether the text is lower-cased.
        strip_accents: whether combining marks are removed; None means the value of do_lower_case.
    """
    basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
    classes = np.ones(_NUM_CODES, np.int32)
    outputs = np.zeros(_NUM_CODES, np.int32)
    expansions: list[int] = []
    for code in _CODES:
        char = chr(code)
        words = basic_tokenizer.tokenize(f"a{char}a")
        if words == ["a", "a"]:
            replacement = ""
        elif len(words) == 3:
            replacement = words[1]
        else:
            replacement = words[0][1:-1]
        if len(replacement) == 1:
            outputs[code] = ord(replacement) - code
        elif replacement:
            outputs[code] = len(expansions)
            expansions.extend(map(ord, replacement))
        classes[code] = _class_bits(char, words, replacement)
    class_pages = classes.reshape(-1, PAGE_SIZE)
    output_pages = outputs.reshape(-1, PAGE_SIZE)
    all_pages = np.concatenate([class_pages, output_pages], axis=1)
    distinct_pages, pages = np.unique(all_pages, axis=0, return_inverse=True)
    distinct_classes, distinct_outputs = np.split(distinct_pages, 2, axis=1)
    return CharacterTables(
        pages=pages.ravel().astype(np.int32),
        classes=distinct_classes.ravel(),
        outputs=distinct_outputs.ravel(),
        expansions=np.array([*expansions, 0], np.int32),
    )


def _class_bits(char: str, words: list[str], replacement: str) -> int:
    """Returns the bits of a character's class.

    Args:
        char: the character.
        words: the words that BasicTokenizer makes of the character between two letters a.
        replacement: the characters that replace it.
    """
    bits = len(replacement)
    bits |= unicodedata.combining(char) * COMBINING_CLASS
    if len(words) > 1:
        bits |= ALONE if replacement else BLANK
    is_final_after_letter = _ends_in_final_sigma(f"a{char}Σ")
    is_final_after_digit = _ends_in_final_sigma(f"1{char}Σ")
    if words == ["aa"] or is_final_after_letter != is_final_after_digit:
        bits |= CASE_IGNORABLE
    elif is_final_after_digit:
        bits |= CASED
    decomposed = unicodedata.normalize("NFD", char)
    is_starter = not all(map(unicodedata.combining, decomposed))
    is_nonspacing_mark = unicodedata.category(char) == "Mn"
    if not replacement and is_starter and is_nonspacing_mark:
        bits |= STRIPPED_STARTER
    return bits


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("ς")

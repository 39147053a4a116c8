"""Which characters a tokenizer's basic rules treat alike, as classes of regular expressions (RE2).

In: a BasicTokenizer. Out: text such as `[\\x{21}-\\x{2f}]`. The classes are read off the tokenizer itself, so that
whoever runs the expressions needs no tables of Unicode, which differ from version to version.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from official_bert.tokenization import BasicTokenizer

# All code points but those that are unassigned or private in every plane; nothing is special about these.
_CODES = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))


class CharacterClasses(NamedTuple):
    """Classes of characters; together they are all that are not simply letters of words.

    Attributes:
        blank: separate words.
        punctuation: are words of their own, as is what loses an accent and becomes punctuation.
        ideographs: are words of their own, too.
        dropped: leave nothing behind.
        cased: letters that make a capital sigma after them a final one.
        passed_over: between such a letter and a sigma, or after the sigma, count as absent.
    """

    blank: str
    punctuation: str
    ideographs: str
    dropped: str
    cased: str
    passed_over: str


def character_classes(basic_tokenizer: BasicTokenizer) -> CharacterClasses:
    """The classes of a tokenizer; takes a second."""
    members = {name: [] for name in CharacterClasses._fields}
    for code in _CODES:
        char = chr(code)
        words = basic_tokenizer.tokenize(f"a{char}a")
        if len(words) == 3:
            is_punctuation = unicodedata.category(char)[0] in "PS"
            members["punctuation" if is_punctuation else "ideographs"].append(code)
        elif words == ["a", "a"]:
            members["blank"].append(code)
        elif words == ["aa"]:
            members["dropped"].append(code)
        if words == ["aa"] or _ends_in_final_sigma(f"a{char}Σ") != _ends_in_final_sigma(f"1{char}Σ"):
            members["passed_over"].append(code)
        elif _ends_in_final_sigma(f"1{char}Σ"):
            members["cased"].append(code)
    return CharacterClasses(**{name: _class_of(codes) for name, codes in members.items()})


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("ς")


def _class_of(codes: Iterable[int]) -> str:
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _runs(codes)) + "]"


def _runs(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers, which come in rising order."""
    first = last = None
    for code in codes:
        if first is None:
            first = code
        elif code != last + 1:
            yield first, last
            first = code
        last = code
    if first is not None:
        yield first, last

"""Describes how a BasicTokenizer treats each character, as character classes of regular expressions (RE2).

In: the two settings of a BasicTokenizer. Out: text such as `[\\x{21}-\\x{2f}]`. The classes list the code points that
this tokenizer treats alike, so the expressions do not depend on the Unicode tables of the program that runs them; these
tables differ between versions.
"""

import functools
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from official_bert.tokenization import BasicTokenizer

# All code points except surrogates and the planes that are unassigned or private, which need no special treatment.
_CODES = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))


class CharacterClasses(NamedTuple):
    """Classes of characters that the tokenizer does not simply keep as letters of words.

    The last two serve to lower-case a capital sigma, which becomes a final sigma at the end of a word.

    Attributes:
        blank: characters that separate words.
        punctuation: characters that are words of their own; one that becomes punctuation when it loses its accent is
            among them.
        ideographs: CJK ideographs, which are words of their own, too.
        dropped: characters that the tokenizer removes.
        cased: letters; a capital sigma after such a letter is a final sigma if no such letter follows.
        case_ignorable: characters that do not count in this rule where they stand next to the sigma.
    """

    blank: str
    punctuation: str
    ideographs: str
    dropped: str
    cased: str
    case_ignorable: str


@functools.cache
def character_classes(do_lower_case: bool, strip_accents: bool | None = None) -> CharacterClasses:
    """Returns the character classes of BasicTokenizer(do_lower_case, strip_accents): a second for each pair, once."""
    basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
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
            members["case_ignorable"].append(code)
        elif _ends_in_final_sigma(f"1{char}Σ"):
            members["cased"].append(code)
    return CharacterClasses(**{name: _class_of(codes) for name, codes in members.items()})


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("ς")


def _class_of(codes: Iterable[int]) -> str:
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _runs(codes)) + "]"


def _runs(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last number of each run of consecutive numbers in an increasing sequence."""
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

import re
import unicodedata

import pytest

from official_bert.graph_text.tokenizer import character_classes


@pytest.fixture(scope="module")
def classes():
    return {settings: compiled(*settings) for settings in [(True, None), (False, None)]}


def compiled(*settings):
    """Returns name of a class -> function that matches its characters; RE2's \\x{21} is \\U00000021 in Python."""

    def matcher(members):
        return re.compile(re.sub(r"\\x{(\w+)}", lambda m: rf"\U{m[1]:>08}", members)).fullmatch

    return {name: matcher(members) for name, members in character_classes(*settings)._asdict().items()}


@pytest.mark.parametrize(
    ("char", "uncased", "cased"),
    [
        (" ", "blank", "blank"),
        ("\xa0", "blank", "blank"),
        ("\u2028", "blank", "blank"),
        ("\x0b", "dropped case_ignorable", "dropped case_ignorable"),
        ("\x00", "dropped case_ignorable", "dropped case_ignorable"),
        ("\u0301", "dropped case_ignorable", "case_ignorable"),
        (".", "punctuation case_ignorable", "punctuation case_ignorable"),
        ("$", "punctuation", "punctuation"),
        ("≠", "punctuation", ""),  # an equals sign with a stroke, which goes
        ("€", "", ""),
        ("北", "ideographs", "ideographs"),
        ("\U0002a6df", "ideographs", "ideographs"),
        ("の", "", ""),
        ("a", "cased", "cased"),
        ("Σ", "cased", "cased"),
        ("1", "", ""),
        ("\U000f0000", "", ""),
    ],
)
def test_what_a_character_is(classes, char, uncased, cased):
    for do_lower_case, expected in ((True, uncased), (False, cased)):
        found = [name for name, holds in classes[do_lower_case, None].items() if holds(char)]
        assert found == expected.split()


def test_the_classes_are_those_of_unicode(classes):
    """Without lower-casing, accents stay, and the classes follow from Unicode's categories."""
    holds = classes[False, None]
    for code in (*range(0xD800), *range(0xE000, 0x110000, 7)):
        char = chr(code)
        category = unicodedata.category(char)
        blank = char in "\t\n\r\u2028\u2029" or category == "Zs"
        assert bool(holds["blank"](char)) == blank, hex(code)
        assert bool(holds["dropped"](char)) == ((not blank and category in ("Cc", "Cf")) or char == "\ufffd")
        is_symbol = char.isascii() and category[0] == "S"
        assert bool(holds["punctuation"](char)) == (category[0] == "P" or is_symbol), hex(code)

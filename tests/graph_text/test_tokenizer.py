"""The in-graph tokenizer gives the ids of FullTokenizer, and the offsets of its WordPieces in
the text.
"""

import random
import re
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_bert.graph_text import character_classes
from official_bert.graph_text import tokenizer as in_graph
from official_bert.graph_text.character_classes import character_tables
from official_bert.graph_text.tokenizer import TextTokenizer, readable
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import GOLDEN, in_test_long, shared
from tests.test_tokenization import (
    CORNERS,
    LETTERS,
    SYLLABLES,
    TEXT_PIECES,
    TRICKY,
    read_recorded_tokens,
    texts,
    write_recorded_vocabularies,
)

# do_lower_case, strip_accents
MODES = [(True, None), (False, None), *in_test_long(((True, False),), ((False, True),))]


class Pair:
    """A FullTokenizer and the in-graph tokenizer made of it, traced once."""

    def __init__(self, tokenizer, folder):
        self.full = tokenizer
        self.graph = TextTokenizer(tokenizer, str(folder))
        signature = [tf.TensorSpec([None], tf.string)]
        self._encode = tf.function(self.graph.encode, signature)
        self.pieces = tf.function(self.graph.pieces, signature)

    def differing(self, strings):
        """Returns the texts whose ids differ, as (text, ids of FullTokenizer, ids of the graph)."""
        encoded = [text.encode("utf-8", "ignore") for text in strings]
        ours = self._encode(encoded).to_list()
        expected = map(self.full.encode, encoded)
        return [case for case in zip(encoded, expected, ours, strict=True) if case[1] != case[2]]


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: f"lower={mode[0]},strip={mode[1]}")
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return Pair(
        FullTokenizer(toy.write_vocabulary(folder, TEXT_PIECES), *request.param),
        tmp_path_factory.mktemp("asset"),
    )


@pytest.fixture(scope="module")
def toy_pair(tokenizer, tmp_path_factory):
    return Pair(tokenizer, tmp_path_factory.mktemp("asset"))


def real_pair(name, tmp_path):
    path = shared("data", "vocab", f"{name}_vocab.txt")
    return Pair(FullTokenizer(str(path), do_lower_case=name != "cased"), tmp_path)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_recorded_texts_get_the_ids_of_the_original(name, tmp_path):
    records = read_recorded_tokens(GOLDEN / "tokenization.jsonl.gz")
    uncased, cased = write_recorded_vocabularies(tmp_path, records)
    full = (
        FullTokenizer(uncased) if name == "uncased" else FullTokenizer(cased, do_lower_case=False)
    )
    assert Pair(full, tmp_path).differing([record["text"] for record in records]) == []


@pytest.mark.needs_shared("golden/tokenization.jsonl.gz", "data/vocab")
@pytest.mark.parametrize("name", ["chinese", *in_test_long("uncased", "cased")])
def test_all_recorded_texts_get_the_ids_of_the_whole_vocabulary(name, tmp_path):
    """The Chinese vocabulary has a line that is a bare U+2028."""
    records = read_recorded_tokens(shared("golden", "tokenization.jsonl.gz"))
    assert real_pair(name, tmp_path).differing([record["text"] for record in records]) == []


def test_each_tokenizer_of_a_process_has_its_own_vocabulary(tmp_path):
    """Also after an earlier one is gone, and when all of them write into one folder."""
    for pieces in (["[UNK]", "cat", "mat"], ["mat", "[UNK]", "cat"]):
        full = FullTokenizer(toy.write_vocabulary(tmp_path, pieces))
        assert Pair(full, tmp_path).differing(["cat mat dog"]) == []


def test_corners(pair):
    assert pair.differing(["", " ", "\u0301", *(text for text, _, _ in CORNERS)]) == []


def random_texts(count, seed):
    rng = random.Random(seed)
    alphabets = [
        SYLLABLES,
        LETTERS,
        TRICKY,
        ["THE", "ΑΣ", "Σ'", "[MASK]", "[UNK]", "≠", "a" * 199, "ß" * 201, " "],
        [chr(code) for code in range(0x2000)],
        [chr(code) for code in range(0x2000, 0xD800)],
        [chr(code) for code in range(0xE000, 0x110000)],
    ]
    for _ in range(count):
        chosen = rng.choices(alphabets, k=3)
        yield "".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(0, 40)))


def test_random_texts(pair):
    assert pair.differing(random_texts(2000, seed=1)) == []


@pytest.mark.long
@pytest.mark.needs_shared("data/vocab")
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_fifty_thousand_texts(name, tmp_path):
    """One text in 10,000 may differ, because TensorFlow and Python have tables of different
    Unicode versions.
    """
    pair = real_pair(name, tmp_path)
    differing = pair.differing(random_texts(40_000, seed=2))
    count = 0

    @settings(
        max_examples=1000,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.lists(texts, min_size=10, max_size=10))
    def try_some(strings):
        nonlocal count
        count += len(strings)
        differing.extend(pair.differing(strings))

    try_some()
    assert count >= 10_000
    assert differing == []


def test_bytes_that_are_not_utf8_are_left_out(toy_pair):
    rng = random.Random(3)
    some = [
        0x41,
        0x80,
        0xBF,
        0xC3,
        0xA9,
        0xE2,
        0x82,
        0xAC,
        0xED,
        0xA0,
        0xF0,
        0x9F,
        0x92,
        0xF4,
        0x90,
        0xC0,
        0xFF,
    ]
    strings = [bytes(rng.choices(some, k=rng.randint(1, 9))) for _ in range(5000)]
    for raw, kept in zip(strings, readable(strings).numpy(), strict=True):
        assert raw.decode("utf-8", "ignore").encode() == kept
    assert toy_pair.graph.encode([b"the\xff cat\xe2\x82"]).to_list() == [
        toy_pair.full.encode("the cat")
    ]


def test_very_long_texts_and_words(toy_pair):
    assert (
        toy_pair.differing(["the cat\n" * 20_000, "a" * 100_000, "football" * 25, "football" * 26])
        == []
    )


def test_a_mask_is_text_unless_it_is_asked_for(toy_pair):
    graph, vocab = toy_pair.graph, toy_pair.full.vocab
    strings = ["The [MASK] sat[MASK].", "[MASK]", "", "[mask] the", "the", "\0[MASK]"]
    assert graph.encode(strings).to_list() == [toy_pair.full.encode(text) for text in strings]
    the, sat, dot, mask, unk = (vocab[piece] for piece in ("the", "sat", ".", "[MASK]", "[UNK]"))
    expected = [[the, mask, sat, mask, dot], [mask], [], [unk, unk, unk, the], [the], [mask]]
    assert graph.encode_with_masks(strings).to_list() == expected


def test_a_vocabulary_without_mask_is_named_when_one_is_asked_for(pair):
    with pytest.raises(InputError, match=r"lacks \[MASK\]"):
        pair.graph.encode_with_masks(["a"])


def test_a_vocabulary_with_repeated_and_blank_lines(tmp_path):
    lines = ["[UNK]", "the", "", "##n", "the", "x\u2028y", "\u2028", "a\rb", " a ", "##nn", "a b"]
    pair = Pair(FullTokenizer(toy.write_vocabulary(tmp_path, lines)), tmp_path)
    assert pair.full.encode("The an ann the a b") == [4, 8, 3, 8, 9, 4, 8, 0]
    assert pair.differing(["The an then ann annn x\u2028y b ab a b", ""]) == []
    (path,) = tmp_path.glob("*/vocab.txt")
    written = path.read_text(encoding="utf-8").split("\n")
    # The last "the" has its id; "x\u2028y" and "a b" can be no word. The reader drops "\r".
    assert written == [
        "[UNK]", "[line 1]", "[line 2]", "##n", "the", "[line 5]", "[line 6]", "ab", "a", "##nn", "[line 10]", "",
    ]  # fmt: skip


def spans_of(pair, text, **options):
    """Returns each WordPiece with its part of the text and the index of its word, and the list
    of words.
    """
    ids, starts, ends, words, word_starts, word_ends = (
        values.to_list()[0] for values in pair.graph.pieces([text], **options)
    )
    pieces = [
        (pair.full.inv_vocab[number], text[start:end], word)
        for number, start, end, word in zip(ids, starts, ends, words, strict=True)
    ]
    return pieces, [text[start:end] for start, end in zip(word_starts, word_ends, strict=True)]


def test_pieces_and_what_they_cover(toy_pair):
    pieces, words = spans_of(
        toy_pair,
        "\ufeffThe  “Football”\u202fwas sun\xadny,\n\u0301 \U0001f4a9 Càt's",
    )
    assert words == [
        "\ufeffThe",
        "“Football”",
        "was",
        "sun\xadny,",
        "\u0301",
        "\U0001f4a9",
        "Càt's",
    ]
    assert pieces == [
        ("the", "\ufeffThe", 0),  # the rules drop the mark: the number of characters changes
        ("[UNK]", "“", 1),
        ("foot", "Foot", 1),
        ("##ball", "ball", 1),
        ("[UNK]", "”", 1),
        ("was", "was", 2),
        ("sun", "sun\xadny", 3),
        ("##ny", "sun\xadny", 3),
        ("[UNK]", ",", 3),
        ("[UNK]", "\U0001f4a9", 5),
        ("cat", "Càt", 6),
        ("[UNK]", "'", 6),
        ("[UNK]", "s", 6),
    ]


def test_words_without_pieces_can_be_counted_as_unknown(toy_pair):
    pieces, words = spans_of(toy_pair, "Cat \u0301 the", unknown_words=True)
    assert words == ["Cat", "\u0301", "the"]
    assert [(piece, covered) for piece, covered, _ in pieces] == [
        ("cat", "Cat"),
        ("[UNK]", "\u0301"),
        ("the", "the"),
    ]


def test_every_text_keeps_its_words_and_offsets(pair):
    """Any text gives the words and WordPieces of the scripts, and offsets in increasing order."""
    strings = [text.encode("utf-8", "ignore").decode() for text in random_texts(300, seed=4)]
    row_pieces = zip(*(values.to_list() for values in pair.pieces(strings)), strict=True)
    num_exact = 0
    for text, (ids, starts, ends, words, word_starts, word_ends) in zip(
        strings,
        row_pieces,
        strict=True,
    ):
        matches = list(re.finditer("[^ \t\r\n\u202f]+", text))
        assert list(zip(word_starts, word_ends, strict=True)) == [match.span() for match in matches]
        expected = [
            (number, word)
            for word, match in enumerate(matches)
            for number in pair.full.encode(match[0])
        ]
        assert list(zip(ids, words, strict=True)) == expected
        assert starts == sorted(starts)
        assert ends == sorted(ends)
        is_exact = [one_by_one(pair, match[0]) for match in matches]
        for number, start, end, word in zip(ids, starts, ends, words, strict=True):
            assert word_starts[word] <= start < end <= word_ends[word]
            piece = pair.full.inv_vocab[number].removeprefix("##")
            if piece != "[UNK]" and is_exact[word]:
                covered = "".join(pair.full.basic_tokenizer.tokenize(text[start:end]))
                assert piece == covered
                num_exact += 1
    assert num_exact > 500


def one_by_one(pair, word):
    """Tells whether each character of a word becomes exactly one character of its tokens."""
    tokenize = pair.full.basic_tokenizer.tokenize
    return "Σ" not in word and all([len(token) for token in tokenize(char)] == [1] for char in word)


def class_tests(do_lower_case):
    """Returns name of a class -> function that tells whether a character belongs to it."""
    pages, classes, *_ = character_tables(do_lower_case)

    def bits(char):
        page, place = divmod(ord(char), 256)
        return classes[256 * pages[page] + place]

    return {
        "blank": lambda char: bits(char) & character_classes.BLANK,
        "alone": lambda char: bits(char) & character_classes.ALONE,
        "dropped": lambda char: (
            bits(char) & (character_classes.COUNT | character_classes.BLANK) == 0
        ),
        "cased": lambda char: bits(char) & character_classes.CASED,
        "case_ignorable": lambda char: bits(char) & character_classes.CASE_IGNORABLE,
    }


CLASSES = {do_lower_case: class_tests(do_lower_case) for do_lower_case in (True, False)}


@pytest.mark.parametrize(
    ("char", "uncased", "cased"),
    [
        (" ", "blank", "blank"),
        ("\x0b", "dropped case_ignorable", "dropped case_ignorable"),
        ("\u0301", "dropped case_ignorable", "case_ignorable"),
        (".", "alone case_ignorable", "alone case_ignorable"),
        ("$", "alone", "alone"),
        ("≠", "alone", ""),  # an equals sign with a stroke, which goes
        ("北", "alone", "alone"),
        ("の", "", ""),
        ("a", "cased", "cased"),
        ("Σ", "cased", "cased"),
        ("1", "", ""),
    ],
)
def test_what_a_character_is(char, uncased, cased):
    for do_lower_case, expected in ((True, uncased), (False, cased)):
        class_names = [name for name, holds in CLASSES[do_lower_case].items() if holds(char)]
        assert class_names == expected.split()


def test_the_classes_are_those_of_unicode():
    """Without lower-casing, accents stay, and the classes follow from Unicode's categories."""
    holds = CLASSES[False]
    for code in (*range(0xD800), *range(0xE000, 0x110000, 7)):
        char = chr(code)
        category = unicodedata.category(char)
        blank = char in "\t\n\r\u2028\u2029" or category == "Zs"
        assert bool(holds["blank"](char)) == blank, hex(code)
        assert bool(holds["dropped"](char)) == (
            (not blank and category in ("Cc", "Cf")) or char == "\ufffd"
        )
        is_symbol = char.isascii() and category[0] == "S"
        is_ideograph = (
            0x3400 <= code < 0xA000 or 0xF900 <= code < 0xFB00 or 0x20000 <= code < 0x30000
        )
        if not is_ideograph:
            assert bool(holds["alone"](char)) == (category[0] == "P" or is_symbol), hex(code)


def test_every_code_point_gives_the_words_of_the_rules(pair):
    """Alone, within a word, and beside a capital sigma and accents of two classes that
    normalization sorts.
    """
    # From U+20000 on are thousands of ideographs, of which each plane has the same rules.
    codes = [
        *range(0xD800),
        *range(0xE000, 0x20000),
        *range(0x20000, 0x40000, 7),
        *range(0xE0000, 0x110000, 37),
    ]
    for before, after, step in (
        ("", "", 5),
        ("a", "b", 1),
        ("aΣ", "Σ", 5),
        ("\u302e", "\U0001d165\u0301", 5),
    ):
        texts = [f"{before}{chr(code)}{after}" for code in codes[::step]]
        characters = pair.graph._characters(tf.constant(texts))
        tokens = pair.graph._basic_tokens(characters)
        words = in_graph._split_by_text(characters, tokens.strings, tokens.firsts).to_list()
        tokenize = pair.full.basic_tokenizer.tokenize
        differing = [
            (text, graph_words)
            for text, graph_words in zip(texts, words, strict=True)
            if tokenize(text) != [word.decode() for word in graph_words]
        ]
        assert differing == []

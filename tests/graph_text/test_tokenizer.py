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
from official_bert.graph_text import graph_tokenizer as in_graph
from official_bert.graph_text.character_classes import character_tables
from official_bert.graph_text.tokenizer import TextTokenizer, readable
from official_bert.io.errors import InputError
from official_bert.tasks.tagging.task import split_words
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
MODES = [
    (True, None),
    (False, None),
    *in_test_long(((True, False),), ((False, True),)),
]


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
        ids_of_graph = self._encode(encoded).to_list()
        differing = []
        for text, graph_ids in zip(encoded, ids_of_graph, strict=True):
            expected_ids = self.full.encode(text)
            if graph_ids != expected_ids:
                differing.append((text, expected_ids, graph_ids))
        return differing


def format_mode(mode) -> str:
    do_lower_case, strip_accents = mode
    return f"lower={do_lower_case},strip={strip_accents}"


@pytest.fixture(scope="module", params=MODES, ids=format_mode)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    vocab_file = toy.write_vocabulary(folder, TEXT_PIECES)
    tokenizer = FullTokenizer(vocab_file, *request.param)
    return Pair(tokenizer, tmp_path_factory.mktemp("asset"))


@pytest.fixture(scope="module")
def toy_pair(tokenizer, tmp_path_factory):
    return Pair(tokenizer, tmp_path_factory.mktemp("asset"))


def real_pair(name, tmp_path):
    path = shared("data", "vocab", f"{name}_vocab.txt")
    full = FullTokenizer(str(path), do_lower_case=name != "cased")
    return Pair(full, tmp_path)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_recorded_texts_get_the_ids_of_the_original(name, tmp_path):
    records = read_recorded_tokens(GOLDEN / "tokenization.jsonl.gz")
    uncased, cased = write_recorded_vocabularies(tmp_path, records)
    if name == "uncased":
        full = FullTokenizer(uncased)
    else:
        full = FullTokenizer(cased, do_lower_case=False)
    pair = Pair(full, tmp_path)
    recorded_texts = [record["text"] for record in records]
    assert pair.differing(recorded_texts) == []


@pytest.mark.needs_shared("golden/tokenization.jsonl.gz", "data/vocab")
@pytest.mark.parametrize("name", ["chinese", *in_test_long("uncased", "cased")])
def test_all_recorded_texts_get_the_ids_of_the_whole_vocabulary(name, tmp_path):
    """The Chinese vocabulary has a line that is a bare U+2028."""
    records = read_recorded_tokens(shared("golden", "tokenization.jsonl.gz"))
    pair = real_pair(name, tmp_path)
    recorded_texts = [record["text"] for record in records]
    assert pair.differing(recorded_texts) == []


def test_each_tokenizer_of_a_process_has_its_own_vocabulary(tmp_path):
    """Also after an earlier one is gone, and when all of them write into one folder."""
    for pieces in (["[UNK]", "cat", "mat"], ["mat", "[UNK]", "cat"]):
        full = FullTokenizer(toy.write_vocabulary(tmp_path, pieces))
        pair = Pair(full, tmp_path)
        assert pair.differing(["cat mat dog"]) == []


def test_corners(pair):
    corners = [text for text, _, _ in CORNERS]
    assert pair.differing(["", " ", "\u0301", *corners]) == []


def random_texts(count, seed):
    rng = random.Random(seed)
    alphabets = [
        SYLLABLES,
        LETTERS,
        TRICKY,
        ["THE", "ΑΣ", "Σ'", "[MASK]", "[UNK]", "≠", "a" * 199, "ß" * 201, " "],
        list(map(chr, range(0x2000))),
        list(map(chr, range(0x2000, 0xD800))),
        list(map(chr, range(0xE000, 0x110000))),
    ]
    for _ in range(count):
        chosen = rng.choices(alphabets, k=3)
        parts = []
        for _ in range(rng.randint(0, 40)):
            alphabet = rng.choice(chosen)
            parts.append(rng.choice(alphabet))
        yield "".join(parts)


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
    some_bytes = b"\x41\x80\xbf\xc3\xa9\xe2\x82\xac\xed\xa0\xf0\x9f\x92\xf4\x90\xc0\xff"
    strings = []
    for _ in range(5000):
        length = rng.randint(1, 9)
        strings.append(bytes(rng.choices(some_bytes, k=length)))
    kept = readable(strings).numpy()
    for raw, kept_bytes in zip(strings, kept, strict=True):
        text = raw.decode("utf-8", "ignore")
        assert text.encode() == kept_bytes
    (ids,) = toy_pair.graph.encode([b"the\xff cat\xe2\x82"]).to_list()
    assert ids == toy_pair.full.encode("the cat")


def test_very_long_texts_and_words(toy_pair):
    long_texts = [
        "the cat\n" * 20_000,
        "a" * 100_000,
        "football" * 25,
        "football" * 26,
    ]
    assert toy_pair.differing(long_texts) == []


def test_a_mask_is_text_unless_it_is_asked_for(toy_pair):
    graph = toy_pair.graph
    vocab = toy_pair.full.vocab
    the = vocab["the"]
    sat = vocab["sat"]
    dot = vocab["."]
    mask = vocab["[MASK]"]
    unk = vocab["[UNK]"]
    ids_with_masks = {
        "The [MASK] sat[MASK].": [the, mask, sat, mask, dot],
        "[MASK]": [mask],
        "": [],
        "[mask] the": [unk, unk, unk, the],
        "the": [the],
        "\0[MASK]": [mask],
    }
    strings = list(ids_with_masks)
    expected_ids = [toy_pair.full.encode(text) for text in strings]
    assert graph.encode(strings).to_list() == expected_ids
    with_masks = graph.encode_with_masks(strings)
    assert with_masks.to_list() == list(ids_with_masks.values())


def test_a_vocabulary_without_mask_is_named_when_one_is_asked_for(pair):
    with pytest.raises(InputError, match=r"lacks \[MASK\]"):
        pair.graph.encode_with_masks(["a"])


def test_a_vocabulary_with_repeated_and_blank_lines(tmp_path):
    # The last "the" has its id; "x\u2028y" and "a b" can be no word. The reader drops "\r".
    written_lines = [
        ("[UNK]", "[UNK]"),
        ("the", "[line 1]"),
        ("", "[line 2]"),
        ("##n", "##n"),
        ("the", "the"),
        ("x\u2028y", "[line 5]"),
        ("\u2028", "[line 6]"),
        ("a\rb", "ab"),
        (" a ", "a"),
        ("##nn", "##nn"),
        ("a b", "[line 10]"),
    ]
    lines = [line for line, _ in written_lines]
    full = FullTokenizer(toy.write_vocabulary(tmp_path, lines))
    pair = Pair(full, tmp_path)
    assert pair.full.encode("The an ann the a b") == [4, 8, 3, 8, 9, 4, 8, 0]
    assert pair.differing(["The an then ann annn x\u2028y b ab a b", ""]) == []
    (path,) = tmp_path.glob("*/vocab.txt")
    written = path.read_text(encoding="utf-8").split("\n")
    assert written == [*(expected for _, expected in written_lines), ""]


def spans_of(pair, text, **options):
    """Returns each WordPiece with its part of the text and the index of its word, and the list
    of words.
    """
    outputs = pair.graph.pieces([text], **options)
    ids, starts, ends, words, word_starts, word_ends = (values.to_list()[0] for values in outputs)
    names = [pair.full.inv_vocab[number] for number in ids]
    covered = slice_text(text, starts, ends)
    pieces = list(zip(names, covered, words, strict=True))
    return pieces, slice_text(text, word_starts, word_ends)


def slice_text(text: str, starts, ends) -> list[str]:
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


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
    assert pieces == [
        ("cat", "Cat", 0),
        ("[UNK]", "\u0301", 1),
        ("the", "the", 2),
    ]


def test_every_text_keeps_its_words_and_offsets(pair):
    """Any text gives the words and WordPieces of the scripts, and offsets in increasing order."""
    strings = []
    for text in random_texts(300, seed=4):
        encoded = text.encode("utf-8", "ignore")
        strings.append(encoded.decode())
    outputs = [values.to_list() for values in pair.pieces(strings)]
    num_exact = 0
    for text, *row in zip(strings, *outputs, strict=True):
        num_exact += check_pieces(pair, text, *row)
    assert num_exact > 500


def test_tokens_as_words_are_those_of_running_text(pair):
    """Any text gives the words of Predictor.tag, with the WordPieces of each."""
    strings = ["The cat, (sat) in 北京.", "", " \t", "a\u0301b\u200b c", "...", "北 京"]
    for text in random_texts(200, seed=5):
        strings.append(text.encode("utf-8", "ignore").decode())
    outputs = pair.graph.pieces(strings, unknown_words=True, splits_tokens=True)
    rows = [values.to_list() for values in outputs]
    for text, ids, _, _, words, starts, ends in zip(strings, *rows, strict=True):
        expected = split_words(text, pair.full.basic_tokenizer)
        assert list(zip(starts, ends, strict=True)) == [(start, end) for _, start, end in expected]
        expected_pieces = []
        for number, (word, _, _) in enumerate(expected):
            word_ids = pair.full.encode(word) or [pair.full.vocab["[UNK]"]]
            expected_pieces += [(piece, number) for piece in word_ids]
        assert list(zip(ids, words, strict=True)) == expected_pieces


def check_pieces(pair, text, ids, starts, ends, words, word_starts, word_ends) -> int:
    """Compares the WordPieces of a text with those of the scripts; returns how many of them were
    compared with the characters that they cover.
    """
    matches = list(re.finditer("[^ \t\r\n\u202f]+", text))
    word_spans = list(zip(word_starts, word_ends, strict=True))
    assert word_spans == [match.span() for match in matches]
    expected = []
    for word, match in enumerate(matches):
        expected += [(number, word) for number in pair.full.encode(match[0])]
    assert list(zip(ids, words, strict=True)) == expected
    assert starts == sorted(starts)
    assert ends == sorted(ends)

    tokenize = pair.full.basic_tokenizer.tokenize
    is_exact = [one_by_one(tokenize, match[0]) for match in matches]
    num_exact = 0
    for number, start, end, word in zip(ids, starts, ends, words, strict=True):
        assert word_starts[word] <= start < end <= word_ends[word]
        piece = pair.full.inv_vocab[number].removeprefix("##")
        if piece != "[UNK]" and is_exact[word]:
            covered_tokens = tokenize(text[start:end])
            assert piece == "".join(covered_tokens)
            num_exact += 1
    return num_exact


def one_by_one(tokenize, word) -> bool:
    """Returns whether each character of a word becomes exactly one character of its tokens."""
    if "Σ" in word:
        return False
    for char in word:
        lengths = [len(token) for token in tokenize(char)]
        if lengths != [1]:
            return False
    return True


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


CLASSES = {
    True: class_tests(do_lower_case=True),
    False: class_tests(do_lower_case=False),
}


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
    assert find_classes(char, do_lower_case=True) == uncased.split()
    assert find_classes(char, do_lower_case=False) == cased.split()


def find_classes(char, do_lower_case) -> list[str]:
    """Returns the names of the classes of a character."""
    is_of_class = CLASSES[do_lower_case]
    return [name for name, is_member in is_of_class.items() if is_member(char)]


IDEOGRAPHS = (
    range(0x3400, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x30000),
)


def test_the_classes_are_those_of_unicode():
    """Without lower-casing, accents stay, and the classes follow from Unicode's categories."""
    is_of_class = CLASSES[False]
    for code in (*range(0xD800), *range(0xE000, 0x110000, 7)):
        char = chr(code)
        category = unicodedata.category(char)
        is_blank = char in "\t\n\r\u2028\u2029" or category == "Zs"
        assert bool(is_of_class["blank"](char)) == is_blank, hex(code)
        is_control = not is_blank and category in ("Cc", "Cf")
        is_dropped = is_control or char == "\ufffd"
        assert bool(is_of_class["dropped"](char)) == is_dropped, hex(code)
        is_punctuation = category[0] == "P"
        is_symbol = char.isascii() and category[0] == "S"
        is_alone = is_punctuation or is_symbol
        if not any(code in block for block in IDEOGRAPHS):
            assert bool(is_of_class["alone"](char)) == is_alone, hex(code)


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
    tokenize = pair.full.basic_tokenizer.tokenize
    for before, after, step in (
        ("", "", 5),
        ("a", "b", 1),
        ("aΣ", "Σ", 5),
        ("\u302e", "\U0001d165\u0301", 5),
    ):
        texts = [before + chr(code) + after for code in codes[::step]]
        characters = pair.graph._characters(tf.constant(texts))
        tokens = pair.graph._basic_tokens(characters)
        words = in_graph.split_by_text(
            characters,
            tokens.strings,
            tokens.firsts,
        )
        differing = []
        for text, encoded_words in zip(texts, words.to_list(), strict=True):
            graph_words = [word.decode() for word in encoded_words]
            if tokenize(text) != graph_words:
                differing.append((text, graph_words))
        assert differing == []

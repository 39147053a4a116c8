"""Tokenization equals the original's recorded output and a plain implementation of its rules."""

import contextlib
import gzip
import itertools
import json
import pickle
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert import tokenization, word_cache
from official_bert.data.model_inputs import model_input
from official_bert.io.errors import InputError
from official_bert.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer
from tests import toy
from tests.oracles.plain_tokenizer import PlainTokenizer
from tests.shared import GOLDEN, recording, shared

# The vocabulary of the original's tests.
PIECES = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "want",
    "##want",
    "##ed",
    "wa",
    "un",
    "runn",
    "##ing",
    ",",
]


@pytest.fixture
def vocab_file(tmp_path):
    return toy.write_vocabulary(tmp_path, PIECES)


def test_full_tokenizer(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    text = "UNwant\u00e9d,running"
    ids_by_token = {
        "un": 7,
        "##want": 4,
        "##ed": 5,
        ",": 10,
        "runn": 8,
        "##ing": 9,
    }
    tokens = list(ids_by_token)
    ids = list(ids_by_token.values())
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.encode(text) == ids
    assert tokenizer.convert_tokens_to_ids(tokens) == ids
    assert tokenization.convert_tokens_to_ids(tokenizer.vocab, tokens) == ids
    assert tokenizer.convert_ids_to_tokens(ids) == tokens


def test_wordpiece_tokenizer():
    pieces = PIECES[:-1]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = WordpieceTokenizer(vocab)
    assert tokenizer.tokenize("") == []
    known = tokenizer.tokenize("unwanted running")
    assert known == ["un", "##want", "##ed", "runn", "##ing"]
    unknown = tokenizer.tokenize("unwantedX running")
    assert unknown == ["[UNK]", "runn", "##ing"]


POO = "\U0001f4a9"
CORNERS = [
    ("ah\u535a\u63a8zz", "ah \u535a \u63a8 zz", "ah \u535a \u63a8 zz"),
    (" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?", "HeLLo ! how Are yoU ?"),
    ("a\u00a0b", "a b", "a b"),
    ("a\u3000b", "a b", "a b"),
    ("a\u200bb", "ab", "ab"),
    ("co\u00adop", "coop", "coop"),
    ("\ufeffhello", "hello", "hello"),
    ("a\u0085b", "ab", "ab"),
    ("a\x0bb", "ab", "ab"),
    ("a\x1cb c\x1fd", "ab cd", "ab cd"),
    ("a\u2028b", "a b", "a b"),
    ("x\x00y\ufffdz", "xyz", "xyz"),
    (
        "H\u00e9llo \u0130stanbul \u00df \u00c5",
        "hello istanbul \u00df a",
        "H\u00e9llo \u0130stanbul \u00df \u00c5",
    ),
    ("北京の気温", "北 京 の 気 温", "北 京 の 気 温"),
    ("don't e-mail $5 €5 5%", "don ' t e - mail $ 5 €5 5 %", "don ' t e - mail $ 5 €5 5 %"),
    ("wait… “ok”", "wait … “ ok ”", "wait … “ ok ”"),
    (f"{POO}{POO} x", f"{POO}{POO} x", f"{POO}{POO} x"),
    ("a_b c^d e=f", "a _ b c ^ d e = f", "a _ b c ^ d e = f"),
    ("a\u0301b", "ab", "a\u0301b"),
    ("안녕", unicodedata.normalize("NFD", "안녕"), "안녕"),
    ("ที่", "ท", "ที่"),
    ("\u2163", "\u2173", "\u2163"),
    ("[CLS] [MASK]", "[ cls ] [ mask ]", "[ CLS ] [ MASK ]"),
    # A sigma is final where no letter follows, stops and dropped characters between not counted.
    ("ΟΔΟΣ. ΑΣ.Α", "οδος . ασ . α", "ΟΔΟΣ . ΑΣ . Α"),
    ("ΑΣ\x00Α", "ασα", "ΑΣΑ"),
]


@pytest.mark.parametrize(("text", "lower", "cased"), CORNERS)
def test_corners_of_the_basic_rules(text, lower, cased):
    uncased_tokenizer = BasicTokenizer()
    assert uncased_tokenizer.tokenize(text) == lower.split(" ")
    cased_tokenizer = BasicTokenizer(do_lower_case=False)
    assert cased_tokenizer.tokenize(text) == cased.split(" ")


@pytest.mark.parametrize("letter", ["a", "ß"])
def test_words_over_200_characters_are_unknown(tmp_path, letter):
    inner_piece = f"##{letter}"
    vocab_file = toy.write_vocabulary(tmp_path, ["[UNK]", letter, inner_piece])
    tokenizer = FullTokenizer(vocab_file)
    longest_word = letter * 200
    too_long_word = letter * 201
    short_word = letter * 2
    assert tokenizer.tokenize(longest_word) == [letter, *[inner_piece] * 199]
    assert tokenizer.tokenize(too_long_word) == ["[UNK]"]
    assert tokenizer.encode(f"{too_long_word} {short_word}") == [0, 1, 2]


def test_text_is_str_or_utf8(vocab_file):
    invalid_at_the_end = "é".encode() + b"\xff"
    assert tokenization.convert_to_unicode(invalid_at_the_end) == "é"
    assert tokenization.printable_text(b"ok") == "ok"
    basic_tokenizer = BasicTokenizer()
    assert basic_tokenizer.tokenize(b"Caf\xc3\xa9") == ["cafe"]
    tokenizer = FullTokenizer(vocab_file)
    assert tokenizer.encode(b"want\xff, UN") == [3, 10, 7]
    with pytest.raises(ValueError, match="text must be str or UTF-8 bytes, got int"):
        tokenization.convert_to_unicode(3)


def test_only_a_newline_ends_a_line_and_every_line_counts(tmp_path):
    path = tmp_path / "vocab.txt"
    lines = [
        "[UNK]",
        "",
        " a ",
        "b\r",
        "a",
        "x\u2028y",
        "\u3000",
        "c\u0085",
        "d",
    ]
    path.write_bytes("\n".join(lines).encode())
    vocab = tokenization.load_vocab(str(path))
    # Lines 1 and 6 are blank, lines 2 and 4 both hold "a": the position of the first, the id of the
    # last.
    assert list(vocab.items()) == [
        ("[UNK]", 0),
        ("", 6),
        ("a", 4),
        ("b", 3),
        ("x\u2028y", 5),
        ("c", 7),
        ("d", 8),
    ]
    tokenizer = FullTokenizer(str(path))
    assert tokenizer.inv_vocab[4] == "a"


def test_unknown_pieces_and_ids_raise_key_error(vocab_file, tmp_path):
    tokenizer = FullTokenizer(vocab_file)
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["want", "absent"])
    with pytest.raises(KeyError):
        tokenizer.convert_ids_to_tokens([11])
    without_unknown_piece = FullTokenizer(toy.write_vocabulary(tmp_path, ["a"]))
    assert without_unknown_piece.tokenize("a b") == ["a", "[UNK]"]
    with pytest.raises(KeyError):
        without_unknown_piece.encode("a b")


@pytest.mark.parametrize(
    ("do_lower_case", "name", "kind"),
    [
        (True, "uncased_L-12_H-768_A-12", None),
        (False, "multi_cased_L-12_H-768_A-12", None),
        (True, "wwm_cased_L-24_H-1024_A-16", None),  # is not known
        (False, "uncased_L-24_H-1024_A-16", "uncased"),
        (False, "uncased_L-12_H-768_A-12", "uncased"),
        (False, "multilingual_L-12_H-768_A-12", "uncased"),
        (False, "chinese_L-12_H-768_A-12", "uncased"),
        (True, "cased_L-12_H-768_A-12", "cased"),
        (True, "cased_L-24_H-1024_A-16", "cased"),
        (True, "multi_cased_L-12_H-768_A-12", "cased"),
    ],
)
def test_a_checkpoint_of_the_other_case_is_refused(do_lower_case, name, kind):
    sentence = (
        f"--do_lower_case={do_lower_case}: .* is the {kind} model .* give "
        f"--do_lower_case={not do_lower_case}"
    )
    for path in (f"models/{name}/bert_model.ckpt", f"models/{name}/bert_model.ckpt.index"):
        with pytest.raises(ValueError, match=sentence) if kind else contextlib.nullcontext():
            tokenization.validate_case_matches_checkpoint(do_lower_case, path)
    tokenization.validate_case_matches_checkpoint(do_lower_case, None)
    tokenization.validate_case_matches_checkpoint(do_lower_case, f"models/{name}/model.ckpt-5")


def write_recorded_vocabularies(folder, records) -> tuple[str, str]:
    """Paths of Google's uncased and cased vocabulary with no pieces but those of some recorded
    texts.

    Of a larger vocabulary the longest piece that fits is the same. The cased one has numbers of its
    own.
    """
    uncased_by_id = {}
    cased_tokens = []
    for record in records:
        uncased_by_id.update(zip(record["lower_ids"], record["lower"], strict=True))
        cased_tokens.extend(record["cased"])
    uncased_lines = [uncased_by_id.get(i, f"[{i}]") for i in range(max(uncased_by_id) + 1)]
    cased_lines = list(dict.fromkeys(cased_tokens))
    uncased_folder = folder / "lower"
    cased_folder = folder / "cased"
    uncased_folder.mkdir()
    cased_folder.mkdir()
    uncased_vocab = toy.write_vocabulary(uncased_folder, uncased_lines)
    cased_vocab = toy.write_vocabulary(cased_folder, cased_lines)
    return uncased_vocab, cased_vocab


def assert_recorded_tokens(records, uncased_vocab, cased_vocab):
    """The tokenizer and the plain rules give what the original gave."""
    lower = FullTokenizer(str(uncased_vocab))
    cased = FullTokenizer(str(cased_vocab), do_lower_case=False)
    plain_lower = PlainTokenizer(lower.vocab)
    plain_cased = PlainTokenizer(cased.vocab, False)
    for record in records:
        text = record["text"]
        lower_tokens = record["lower"]
        assert lower.tokenize(text) == lower_tokens, text
        assert plain_lower.tokenize(text) == lower_tokens, text
        assert lower.encode(text) == record["lower_ids"], text
        cased_tokens = record["cased"]
        assert cased.tokenize(text) == cased_tokens, text
        assert plain_cased.tokenize(text) == cased_tokens, text
        cased_ids = cased.convert_tokens_to_ids(cased_tokens)
        assert cased.encode(text) == cased_ids, text


def read_recorded_tokens(path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_equals_the_recorded_tokens(tmp_path):
    records = read_recorded_tokens(GOLDEN / "tokenization.jsonl.gz")
    assert len(records) == 1000
    uncased_vocab, cased_vocab = write_recorded_vocabularies(tmp_path, records)
    assert_recorded_tokens(records, uncased_vocab, cased_vocab)


@pytest.mark.needs_shared("golden/tokenization.jsonl.gz", "data/vocab")
def test_equals_all_recorded_tokens_with_the_whole_vocabularies():
    records = read_recorded_tokens(shared("golden", "tokenization.jsonl.gz"))
    assert len(records) == 4800
    uncased_vocab = shared("data", "vocab", "uncased_vocab.txt")
    cased_vocab = shared("data", "vocab", "cased_vocab.txt")
    assert_recorded_tokens(records, uncased_vocab, cased_vocab)


SYLLABLES = [*list("19éßσςийท안녕の北京€…'.,-([½ﬁ"), "the", "an", "ing", "er", "to", "σα"]
LETTERS = sorted(set(unicodedata.normalize("NFKD", "".join(SYLLABLES))))
FIRST_PIECES = [*SYLLABLES, *LETTERS]
INNER_PIECES = [f"##{piece}" for piece in FIRST_PIECES]
TEXT_PIECES = [
    "[UNK]",
    *dict.fromkeys([*FIRST_PIECES, *INNER_PIECES]),
]
TRICKY = list(
    " "
    "\t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2028\u2029\u200b\xad\u3000\x00\ufffd\ufeff\u0301\u0345\ud800İΣ.,'"
)
texts = st.lists(
    st.one_of(
        st.sampled_from(SYLLABLES),
        st.sampled_from(TRICKY),
        st.sampled_from(["THE", "an", "ΑΣ", "Α"]),
        st.characters(codec=None, exclude_categories=()),
        st.text(alphabet=st.characters(max_codepoint=0x7F), max_size=8),
        st.text(max_size=8),
    ),
    max_size=30,
).map("".join)


# do_lower_case and strip_accents
MODES = [
    (True, None),
    (False, None),
    (True, False),
    (False, True),
]


@pytest.fixture(scope="module", params=MODES)
def pair(request, tmp_path_factory):
    """A tokenizer and its plain counterpart with the same vocabulary and flags."""
    do_lower_case, strip_accents = request.param
    vocab_file = toy.write_vocabulary(tmp_path_factory.mktemp("vocabulary"), TEXT_PIECES)
    tokenizer = FullTokenizer(vocab_file, do_lower_case, strip_accents)
    plain = PlainTokenizer(tokenizer.vocab, do_lower_case, strip_accents)
    return tokenizer, plain


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_equals_the_plain_rules(pair, text):
    tokenizer, plain = pair
    words = tokenizer.basic_tokenizer.tokenize(text)
    assert words == plain.words(text)
    expected = plain.tokenize(text)
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.tokenize(text) == expected  # now from the cache
    expected_ids = [tokenizer.vocab[piece] for piece in expected]
    assert tokenizer.encode(text) == expected_ids


@pytest.mark.parametrize("pair", [(True, None), (False, None)], indirect=True)
def test_every_character_equals_the_plain_rules(pair):
    tokenizer, plain = pair
    basic_tokenizer = tokenizer.basic_tokenizer
    for start in range(0, 0x30000, 16):
        codes = range(start, start + 16)
        text = "".join(f"a{chr(code)}B " for code in codes)
        words = basic_tokenizer.tokenize(text)
        assert words == plain.words(text), hex(start)


def copy_by_pickle(tokenizer):
    """Returns the tokenizer that another process would receive."""
    pickled = pickle.dumps(tokenizer)
    return pickle.loads(pickled)


def test_the_cache_is_bounded_and_stays_right_when_it_overflows(pair, monkeypatch):
    tokenizer, plain = pair
    monkeypatch.setattr(word_cache, "CACHED_WORDS", 7)
    tokenizer = copy_by_pickle(tokenizer)
    for number in range(200):
        text = f"the{number} an, (anthe{number % 9}) 北{number}"
        expected = plain.tokenize(text)
        assert tokenizer.tokenize(text) == expected
        cache = tokenizer._pieces
        assert len(cache) + len(cache._older) <= 7


def test_a_tokenizer_travels_without_its_cache(vocab_file):
    tokenizer = FullTokenizer(vocab_file, do_lower_case=False, strip_accents=True)
    size_before = len(pickle.dumps(tokenizer))
    many_words = " ".join(f"word{number}" for number in range(1000))
    tokenizer.encode(many_words)
    size_after = len(pickle.dumps(tokenizer))
    assert size_after == size_before
    received = copy_by_pickle(tokenizer)
    assert received.tokenize("w\u00e1nt Unw\u00e1nt") == ["want", "[UNK]"]
    assert received.encode("un") == [7]


def ids_of(text: str) -> list[int]:
    """Returns the toy ids of WordPieces with blanks between them."""
    return [toy.VOCABULARY.index(piece) for piece in text.split()]


def rows_of(array: np.ndarray) -> list[str]:
    """Returns each row of an array of digits as a text."""
    return ["".join(map(str, row)) for row in array.tolist()]


def test_a_call_pads_to_the_longest(tokenizer):
    batch = tokenizer(["The sunny cat", b"mat", ""])
    assert list(batch) == ["input_ids", "input_mask", "segment_ids"]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    assert batch["input_ids"].tolist() == [
        ids_of("[CLS] the sun ##ny cat [SEP]"),
        ids_of("[CLS] mat [SEP] [PAD] [PAD] [PAD]"),
        ids_of("[CLS] [SEP] [PAD] [PAD] [PAD] [PAD]"),
    ]
    assert rows_of(batch["input_mask"]) == ["111111", "111000", "110000"]
    assert rows_of(batch["segment_ids"]) == ["000000"] * 3


def test_a_call_with_pairs_pads_to_the_longest(tokenizer):
    batch = tokenizer(["the cat", "a"], ["mat", None], max_seq_length=6)
    assert rows_of(batch["segment_ids"]) == ["000011", "000000"]
    assert rows_of(batch["input_mask"]) == ["111111", "111000"]


def test_a_single_text_is_a_batch_of_one(tokenizer):
    batch = tokenizer("the cat", "a mat")
    assert list(batch) == ["input_ids", "input_mask", "segment_ids"]
    assert batch["input_ids"].tolist() == [ids_of("[CLS] the cat [SEP] a mat [SEP]")]
    assert rows_of(batch["input_mask"]) == ["1111111"]
    assert rows_of(batch["segment_ids"]) == ["0000111"]


def test_a_generator_is_a_batch(tokenizer):
    animals = np.array(["the cat", "mat"])
    batch = tokenizer(animal for animal in animals)
    assert batch["input_ids"].tolist() == [
        ids_of("[CLS] the cat [SEP]"),
        ids_of("[CLS] mat [SEP] [PAD]"),
    ]


@pytest.mark.parametrize(
    ("text_a", "text_b"),
    [
        ("the cat sat on the mat", "it was a sunny day"),
        ("the cat", None),
    ],
)
@pytest.mark.parametrize("length", range(3, 18))
def test_a_call_truncates_as_the_scripts_do(tokenizer, text_a, text_b, length):
    tokens, segments = model_input(tokenizer, text_a, text_b, length)
    expected_ids = ids_of(" ".join(tokens))
    batch = tokenizer([text_a], [text_b], max_seq_length=length)
    assert batch["input_ids"].tolist() == [expected_ids]
    assert batch["segment_ids"].tolist() == [segments]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"texts": 3},
            "texts: must be a text or a list of texts, got int",
            id="number",
        ),
        pytest.param(
            {"texts": ["a", None]},
            r"texts: number 1 \(from 0\) is of type NoneType",
            id="None in a list",
        ),
        pytest.param(
            {"texts": []},
            "texts: is empty",
            id="empty list",
        ),
        pytest.param(
            {"texts": ("hello", "world")},
            "texts: is a tuple; give several texts as a list, and .* pairs=",
            id="tuple",
        ),
        pytest.param(
            {"texts": ["a", "b"], "pairs": ["c"]},
            "pairs: has 1 texts, and texts has 2",
            id="fewer pairs than texts",
        ),
        pytest.param(
            {"texts": ["a"], "pairs": "b"},
            "one is a single text and the other is not",
            id="list and single text",
        ),
        pytest.param(
            {"texts": "a", "max_seq_length": 2},
            "max_seq_length: must be a whole number from 3, got 2",
            id="no room for a token",
        ),
    ],
)
def test_wrong_arguments_of_a_call_are_named(tokenizer, arguments, message):
    with pytest.raises(InputError, match=message):
        tokenizer(**arguments)


def test_a_call_needs_the_special_pieces(tmp_path):
    vocab_file = toy.write_vocabulary(tmp_path, ["[UNK]", "[CLS]", "a"])
    tokenizer = FullTokenizer(vocab_file)
    with pytest.raises(InputError, match=r"the vocabulary lacks \[SEP\]; add a line"):
        tokenizer("a")


def test_ids_become_text_again(tokenizer):
    batch = tokenizer(["It was a sunny [MASK] football day.", "Rain"], max_seq_length=32)
    sentence_ids, word_ids = batch["input_ids"]
    sentence = tokenizer.decode(sentence_ids)
    assert sentence == "it was a sunny [UNK] [UNK] [UNK] football day ."
    assert tokenizer.decode(word_ids) == "rain"
    with_special_tokens = tokenizer.decode(word_ids[:4], skip_special_tokens=False)
    assert with_special_tokens == "[CLS] rain [SEP] [PAD]"
    inner_piece_first = ids_of("##ny [MASK] sun ##ny")
    assert tokenizer.decode(inner_piece_first) == "##ny [MASK] sunny"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 50], "ids: 50 is not in the vocabulary"),
        ([-1], "ids: -1 is not"),
        ([[1, 2], [3]], "must be those of one sequence"),
        ([1.0], "must be whole numbers, got float64"),
    ],
)
def test_wrong_ids_are_named(tokenizer, ids, message):
    with pytest.raises(InputError, match=message):
        tokenizer.decode(ids)


def test_the_tokenizer_of_a_folder_reads_as_its_config_says(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nThe\nthe\ne\u0301\n\u00e9\n")
    text = "The \u00e9"
    without_config = FullTokenizer.from_pretrained(str(tmp_path))
    assert without_config.tokenize(text) == ["the", "[UNK]"]

    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"do_lower_case": false}')
    (tmp_path / "model.ckpt-3.index").touch()
    cased = FullTokenizer.from_pretrained(str(tmp_path / "model.ckpt-3"))
    assert cased.tokenize(text) == ["The", "\u00e9"]

    config.write_text('{"do_lower_case": true, "strip_accents": false}')
    with_accents = FullTokenizer.from_pretrained(str(tmp_path))
    assert with_accents.tokenize(text) == ["the", "\u00e9"]


@pytest.mark.parametrize("name", ["absent", "absent/x"])
def test_an_absent_folder_has_no_tokenizer(tmp_path, name):
    folder = tmp_path / name
    with pytest.raises(InputError, match=f"{folder}: no folder and no checkpoint is there"):
        FullTokenizer.from_pretrained(str(folder))


def test_a_folder_without_a_vocabulary_has_no_tokenizer(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(InputError, match=r"empty/vocab\.txt: no such file"):
        FullTokenizer.from_pretrained(str(folder))


LINES_TO_ENCODE = [
    "Hello, World. The 3rd line's end",
    "",
    "  spaces   and\ttabs \r",
    "\u00c9t\u00e9 \u4e2d\u6587 \u03a3\u03a3. \u00df",
    "\x01",
    "a" * 300,
    ".",
]


def assert_lines_are_encoded_as(expected, lines, tokenizer):
    """encode_lines gives the ids that `encode` gave for each of the lines."""
    ids, lengths = tokenizer.encode_lines(lines)
    assert ids.tolist() == list(itertools.chain.from_iterable(expected))
    assert lengths.tolist() == [len(line_ids) for line_ids in expected]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_lines_are_encoded_as_one_by_one(do_lower_case, monkeypatch):
    vocab_file = str(recording("uncased_vocab.txt"))
    tokenizer = FullTokenizer(vocab_file, do_lower_case)
    expected = [tokenizer.encode(line) for line in LINES_TO_ENCODE]
    for part in (slice(None), slice(3), slice(1, 2), slice(0)):
        assert_lines_are_encoded_as(expected[part], LINES_TO_ENCODE[part], tokenizer)
    monkeypatch.setattr(word_cache, "CACHED_WORDS", 2)  # the cache forgets in between
    forgetful = FullTokenizer(vocab_file, do_lower_case)
    assert_lines_are_encoded_as(expected, LINES_TO_ENCODE, forgetful)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_a_line_end_within_a_line_is_an_error(do_lower_case):
    tokenizer = FullTokenizer(str(recording("uncased_vocab.txt")), do_lower_case)
    with pytest.raises(ValueError, match="a line contains a line end"):
        tokenizer.encode_lines(["a", "b \n c"])
    assert tokenizer.encode("a \n b") == tokenizer.encode("a b")


@pytest.mark.parametrize("lower", [True, False])
def test_a_saved_tokenizer_is_read_again(tmp_path, lower):
    vocab_file = toy.write_vocabulary(tmp_path)
    saved = FullTokenizer(vocab_file, lower, strip_accents=not lower)
    saved.model_max_length = 7
    folder = tmp_path / "new" / "folder"
    saved.save_pretrained(str(folder))
    names = {path.name for path in folder.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    loaded = FullTokenizer.from_pretrained(str(folder))
    assert loaded.vocab == saved.vocab
    assert loaded.model_max_length == 7
    text = "The Caf\u00e9 sat"
    assert loaded.encode(text) == saved.encode(text)
    assert vars(loaded.basic_tokenizer) == vars(saved.basic_tokenizer)

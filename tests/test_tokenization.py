"""Tokenization equals the original's recorded output and a plain implementation of its rules."""

import contextlib
import gzip
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
PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


@pytest.fixture
def vocab_file(tmp_path):
    return toy.write_vocabulary(tmp_path, PIECES)


def test_full_tokenizer(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    tokens = tokenizer.tokenize("UNwant\u00e9d,running")
    assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [7, 4, 5, 10, 8, 9]
    assert tokenization.convert_tokens_to_ids(tokenizer.vocab, tokens) == [7, 4, 5, 10, 8, 9]
    assert tokenizer.encode("UNwant\u00e9d,running") == [7, 4, 5, 10, 8, 9]
    assert tokenizer.convert_ids_to_tokens([7, 4, 5, 10, 8, 9]) == tokens


def test_wordpiece_tokenizer():
    tokenizer = WordpieceTokenizer(
        vocab={piece: number for number, piece in enumerate(PIECES[:-1])}
    )
    assert tokenizer.tokenize("") == []
    assert tokenizer.tokenize("unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
    assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]


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
    assert BasicTokenizer().tokenize(text) == lower.split(" ")
    assert BasicTokenizer(do_lower_case=False).tokenize(text) == cased.split(" ")


@pytest.mark.parametrize("letter", ["a", "ß"])
def test_words_over_200_characters_are_unknown(tmp_path, letter):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, ["[UNK]", letter, f"##{letter}"]))
    assert tokenizer.tokenize(letter * 200) == [letter] + [f"##{letter}"] * 199
    assert tokenizer.tokenize(letter * 201) == ["[UNK]"]
    assert tokenizer.encode(f"{letter * 201} {letter * 2}") == [0, 1, 2]


def test_text_is_str_or_utf8(vocab_file):
    assert tokenization.convert_to_unicode("é".encode() + b"\xff") == "é"
    assert tokenization.printable_text(b"ok") == "ok"
    assert BasicTokenizer().tokenize(b"Caf\xc3\xa9") == ["cafe"]
    assert FullTokenizer(vocab_file).encode(b"want\xff, UN") == [3, 10, 7]
    with pytest.raises(ValueError, match="text must be str or UTF-8 bytes, got int"):
        tokenization.convert_to_unicode(3)


def test_only_a_newline_ends_a_line_and_every_line_counts(tmp_path):
    path = tmp_path / "vocab.txt"
    lines = ["[UNK]", "", " a ", "b\r", "a", "x\u2028y", "\u3000", "c\u0085", "d"]
    path.write_bytes("\n".join(lines).encode())
    vocab = tokenization.load_vocab(str(path))
    # Lines 1 and 6 are blank, lines 2 and 4 both hold "a": the position of the first, the id of the
    # last.
    assert list(vocab.items()) == [
        ("[UNK]", 0), ("", 6), ("a", 4), ("b", 3), ("x\u2028y", 5), ("c", 7), ("d", 8),
    ]  # fmt: skip
    assert FullTokenizer(str(path)).inv_vocab[4] == "a"


def test_unknown_pieces_and_ids_raise_key_error(vocab_file, tmp_path):
    tokenizer = FullTokenizer(vocab_file)
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["want", "absent"])
    with pytest.raises(KeyError):
        tokenizer.convert_ids_to_tokens([11])
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, ["a"]))
    assert tokenizer.tokenize("a b") == ["a", "[UNK]"]
    with pytest.raises(KeyError):
        tokenizer.encode("a b")


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
    lower = {
        i: token
        for record in records
        for i, token in zip(record["lower_ids"], record["lower"], strict=True)
    }
    cased = dict.fromkeys(token for record in records for token in record["cased"])
    lines = [lower.get(i, f"[{i}]") for i in range(max(lower) + 1)]
    (folder / "lower").mkdir()
    (folder / "cased").mkdir()
    return toy.write_vocabulary(folder / "lower", lines), toy.write_vocabulary(
        folder / "cased", list(cased)
    )


def assert_recorded_tokens(records, uncased_vocab, cased_vocab):
    """The tokenizer and the plain rules give what the original gave."""
    lower = FullTokenizer(str(uncased_vocab))
    cased = FullTokenizer(str(cased_vocab), do_lower_case=False)
    plain_lower, plain_cased = PlainTokenizer(lower.vocab), PlainTokenizer(cased.vocab, False)
    for record in records:
        text = record["text"]
        assert lower.tokenize(text) == plain_lower.tokenize(text) == record["lower"], text
        assert lower.encode(text) == record["lower_ids"], text
        assert cased.tokenize(text) == plain_cased.tokenize(text) == record["cased"], text
        assert cased.encode(text) == cased.convert_tokens_to_ids(record["cased"]), text


def read_recorded_tokens(path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_equals_the_recorded_tokens(tmp_path):
    records = read_recorded_tokens(GOLDEN / "tokenization.jsonl.gz")
    assert len(records) == 1000
    assert_recorded_tokens(records, *write_recorded_vocabularies(tmp_path, records))


@pytest.mark.needs_shared("golden/tokenization.jsonl.gz", "data/vocab")
def test_equals_all_recorded_tokens_with_the_whole_vocabularies():
    records = read_recorded_tokens(shared("golden", "tokenization.jsonl.gz"))
    assert len(records) == 4800
    assert_recorded_tokens(
        records, *(shared("data", "vocab", f"{name}_vocab.txt") for name in ("uncased", "cased"))
    )


SYLLABLES = [*list("19éßσςийท안녕の北京€…'.,-([½ﬁ"), "the", "an", "ing", "er", "to", "σα"]
LETTERS = sorted(
    {letter for syllable in SYLLABLES for letter in unicodedata.normalize("NFKD", syllable)}
)
TEXT_PIECES = [
    "[UNK]",
    *dict.fromkeys([*SYLLABLES, *LETTERS, *(f"##{piece}" for piece in [*SYLLABLES, *LETTERS])]),
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


@pytest.fixture(scope="module", params=[(True, None), (False, None), (True, False), (False, True)])
def pair(request, tmp_path_factory):
    """A tokenizer and its plain counterpart with the same vocabulary and flags."""
    folder = tmp_path_factory.mktemp("vocabulary")
    tokenizer = FullTokenizer(toy.write_vocabulary(folder, TEXT_PIECES), *request.param)
    return tokenizer, PlainTokenizer(tokenizer.vocab, *request.param)


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_equals_the_plain_rules(pair, text):
    tokenizer, plain = pair
    expected = plain.tokenize(text)
    assert tokenizer.basic_tokenizer.tokenize(text) == plain.words(text)
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.tokenize(text) == expected  # now from the cache
    assert tokenizer.encode(text) == [tokenizer.vocab[piece] for piece in expected]


@pytest.mark.parametrize("pair", [(True, None), (False, None)], indirect=True)
def test_every_character_equals_the_plain_rules(pair):
    tokenizer, plain = pair
    for start in range(0, 0x30000, 16):
        text = "".join(f"a{chr(code)}B " for code in range(start, start + 16))
        assert tokenizer.basic_tokenizer.tokenize(text) == plain.words(text), hex(start)


def test_the_cache_is_bounded_and_stays_right_when_it_overflows(pair, monkeypatch):
    tokenizer, plain = pair
    monkeypatch.setattr(word_cache, "CACHED_WORDS", 7)
    tokenizer = pickle.loads(pickle.dumps(tokenizer))
    for number in range(200):
        text = f"the{number} an, (anthe{number % 9}) 北{number}"
        assert tokenizer.tokenize(text) == plain.tokenize(text)
        assert len(tokenizer._pieces) + len(tokenizer._pieces._older) <= 7


def test_a_tokenizer_travels_without_its_cache(vocab_file):
    tokenizer = FullTokenizer(vocab_file, do_lower_case=False, strip_accents=True)
    fresh_bytes = len(pickle.dumps(tokenizer))
    tokenizer.encode(" ".join(f"word{number}" for number in range(1000)))
    arrived = pickle.loads(pickle.dumps(tokenizer))
    assert len(pickle.dumps(tokenizer)) == fresh_bytes
    assert arrived.tokenize("w\u00e1nt Unw\u00e1nt") == ["want", "[UNK]"]
    assert arrived.encode("un") == [7]


def ids_of(text):
    return [toy.VOCABULARY.index(piece) for piece in text.split()]


def test_a_call_pads_to_the_longest(tokenizer):
    batch = tokenizer(["The sunny cat", b"mat", ""])
    assert list(batch) == ["input_ids", "input_mask", "segment_ids"]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    first = ids_of("[CLS] the sun ##ny cat [SEP]")
    second = [*ids_of("[CLS] mat [SEP]"), 0, 0, 0]
    np.testing.assert_array_equal(batch["input_ids"], [first, second, [2, 3, 0, 0, 0, 0]])
    np.testing.assert_array_equal(
        batch["input_mask"], [[1] * 6, [1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(batch["segment_ids"], np.zeros((3, 6)))
    batch = tokenizer(["the cat", "a"], ["mat", None], max_seq_length=6)
    np.testing.assert_array_equal(batch["segment_ids"], [[0, 0, 0, 0, 1, 1], [0] * 6])
    np.testing.assert_array_equal(batch["input_mask"], [[1] * 6, [1, 1, 1, 0, 0, 0]])


def test_a_single_text_is_a_batch_of_one(tokenizer):
    (ids,), (mask,), (segments,) = tokenizer("the cat", "a mat").values()
    assert ids.tolist() == ids_of("[CLS] the cat [SEP] a mat [SEP]")
    assert (mask.tolist(), segments.tolist()) == ([1] * 7, [0, 0, 0, 0, 1, 1, 1])
    generated = tokenizer(text for text in np.array(["the cat", "mat"]))
    assert generated["input_ids"].tolist() == [
        [2, *ids_of("the cat"), 3],
        [2, *ids_of("mat"), 3, 0],
    ]


@pytest.mark.parametrize(
    ("text_a", "text_b"), [("the cat sat on the mat", "it was a sunny day"), ("the cat", None)]
)
@pytest.mark.parametrize("length", range(3, 18))
def test_a_call_truncates_as_the_scripts_do(tokenizer, text_a, text_b, length):
    tokens, segments = model_input(tokenizer, text_a, text_b, length)
    batch = tokenizer([text_a], [text_b], max_seq_length=length)
    assert batch["input_ids"].tolist() == [ids_of(" ".join(tokens))]
    assert batch["segment_ids"].tolist() == [segments]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": 3}, "texts: must be a text or a list of texts, got int"),
        ({"texts": ["a", None]}, r"texts: number 1 \(from 0\) is of type NoneType"),
        ({"texts": []}, "texts: is empty"),
        (
            {"texts": ("hello", "world")},
            "texts: is a tuple; give several texts as a list, and .* pairs=",
        ),
        ({"texts": ["a", "b"], "pairs": ["c"]}, "pairs: has 1 texts, and texts has 2"),
        ({"texts": ["a"], "pairs": "b"}, "one is a single text and the other is not"),
        (
            {"texts": "a", "max_seq_length": 2},
            "max_seq_length: must be a whole number from 3, got 2",
        ),
    ],
)
def test_wrong_arguments_of_a_call_are_named(tokenizer, arguments, message):
    with pytest.raises(InputError, match=message):
        tokenizer(**arguments)


def test_a_call_needs_the_special_pieces(tmp_path):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, ["[UNK]", "[CLS]", "a"]))
    with pytest.raises(InputError, match=r"the vocabulary lacks \[SEP\]; add a line"):
        tokenizer("a")


def test_ids_become_text_again(tokenizer):
    ids = tokenizer(["It was a sunny [MASK] football day.", "Rain"], max_seq_length=32)["input_ids"]
    assert tokenizer.decode(ids[0]) == "it was a sunny [UNK] [UNK] [UNK] football day ."
    assert tokenizer.decode(ids[1]) == "rain"
    assert tokenizer.decode(ids[1][:4], skip_special_tokens=False) == "[CLS] rain [SEP] [PAD]"
    assert tokenizer.decode(ids_of("##ny [MASK] sun ##ny")) == "##ny [MASK] sunny"
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
    assert FullTokenizer.from_pretrained(str(tmp_path)).tokenize(text) == ["the", "[UNK]"]
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"do_lower_case": false}')
    (tmp_path / "model.ckpt-3.index").touch()
    assert FullTokenizer.from_pretrained(str(tmp_path / "model.ckpt-3")).tokenize(text) == [
        "The",
        "\u00e9",
    ]
    config.write_text('{"do_lower_case": true, "strip_accents": false}')
    assert FullTokenizer.from_pretrained(str(tmp_path)).tokenize(text) == ["the", "\u00e9"]
    for absent in (tmp_path / "absent" / "x", tmp_path / "absent"):
        with pytest.raises(InputError, match=f"{absent}: no folder and no checkpoint is there"):
            FullTokenizer.from_pretrained(str(absent))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty/vocab\.txt: no such file"):
        FullTokenizer.from_pretrained(str(tmp_path / "empty"))


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_lines_are_encoded_as_one_by_one(do_lower_case, monkeypatch):
    tokenizer = tokenization.FullTokenizer(str(recording("uncased_vocab.txt")), do_lower_case)
    texts = (
        "Hello, World. The 3rd line's end||  spaces   and\ttabs \r|\u00c9t\u00e9 \u4e2d\u6587 "
        "\u03a3\u03a3. \u00df|\x01"
    )
    lines = [*texts.split("|"), "a" * 300, "."]
    expected = [tokenizer.encode(line) for line in lines]
    for block in (lines, lines[:3], lines[1:2], []):
        ids, lengths = tokenizer.encode_lines(block)
        assert ids.tolist() == [number for line in block for number in tokenizer.encode(line)]
        assert lengths.tolist() == [len(tokenizer.encode(line)) for line in block]
    monkeypatch.setattr(word_cache, "CACHED_WORDS", 2)  # the cache forgets in between
    ids, lengths = tokenization.FullTokenizer(
        str(recording("uncased_vocab.txt")), do_lower_case
    ).encode_lines(lines)
    assert lengths.tolist() == [len(line) for line in expected]
    assert ids.tolist() == [number for line in expected for number in line]
    with pytest.raises(ValueError, match="a line contains a line end"):
        tokenizer.encode_lines(["a", "b \n c"])
    assert tokenizer.encode("a \n b") == tokenizer.encode("a b")


@pytest.mark.parametrize("lower", [True, False])
def test_a_saved_tokenizer_is_read_again(tmp_path, lower):
    toy.write_vocabulary(tmp_path)
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"), lower, strip_accents=not lower)
    tokenizer.model_max_length = 7
    tokenizer.save_pretrained(str(tmp_path / "new" / "folder"))
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    again = FullTokenizer.from_pretrained(str(tmp_path / "new" / "folder"))
    assert (again.vocab, again.model_max_length) == (tokenizer.vocab, 7)
    assert again.encode("The Caf\u00e9 sat") == tokenizer.encode("The Caf\u00e9 sat")
    assert vars(again.basic_tokenizer) == vars(tokenizer.basic_tokenizer)

"""tokenizer.json has our vocabulary and rules, gives our ids elsewhere, and is read where there
is no vocab.txt.
"""

import json
import random

import pytest

from official_bert import FullTokenizer, InputError
from official_bert.tokenization import load_vocab
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

PIECES = [
    *toy.VOCABULARY,
    *"ABab,!?é中'",
    "##e",
    "##é",
    "İ",
    "i",
    "the",
    "a",
    "##" + "a" * 99,
    "a" * 100,
]
WORDS = ["The", "cat", "playing,", "Footballé", "é", "café", "中国", "İ", "\x07b\u200b", "!?", "'A"]
WORDS += ["a" * 199, "a" * 200, "a" * 201, "\u2028"]


def written(folder, config: TokenizerConfig) -> dict:
    """The file of a vocabulary with repeated pieces."""
    text = config.to_tokenizer_json(load_vocab(toy.write_vocabulary(folder, PIECES)))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return json.loads(text)


def test_the_content(tmp_path):
    content = written(tmp_path, TokenizerConfig(False, True))
    added_ids = {}
    for token in content["added_tokens"]:
        assert token["special"]
        assert not token["normalized"]
        added_ids[token["content"]] = token["id"]
    assert added_ids == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert content["normalizer"] == {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": True,
        "lowercase": False,
    }
    model = content["model"]
    assert model["unk_token"] == "[UNK]"
    assert model["max_input_chars_per_word"] == 200
    # The last of equal ones counts.
    assert model["vocab"] == {piece: number for number, piece in enumerate(PIECES)}


def test_the_template(tmp_path):
    content = written(tmp_path, TokenizerConfig(False, True))
    template = content["post_processor"]
    parts = []
    for part in template["pair"]:
        value, *_ = part.values()
        parts.append((value["id"], value["type_id"]))
    assert parts == [
        ("[CLS]", 0),
        ("A", 0),
        ("[SEP]", 0),
        ("B", 1),
        ("[SEP]", 1),
    ]
    assert template["single"] == template["pair"][:3]
    special_tokens = template["special_tokens"]
    assert sorted(special_tokens) == ["[CLS]", "[SEP]"]
    assert special_tokens["[CLS]"]["ids"] == [2]
    assert special_tokens["[SEP]"]["ids"] == [3]


@pytest.mark.parametrize(
    ("do_lower_case", "missing_piece"),
    [
        (None, None),
        (True, "[CLS]"),
        (True, "[SEP]"),
        (True, "[UNK]"),
    ],
)
def test_no_file_of_what_is_unknown(do_lower_case, missing_piece):
    vocab = {piece: number for number, piece in enumerate(toy.VOCABULARY)}
    vocab.pop(missing_piece, None)
    config = TokenizerConfig(do_lower_case)
    assert config.to_tokenizer_json(vocab) is None


@pytest.mark.needs_extra("tokenizers")
@pytest.mark.parametrize(
    "config", [TokenizerConfig(True), TokenizerConfig(False), TokenizerConfig(True, False)]
)
def test_the_ids_are_ours(tmp_path, config):
    from tokenizers import Tokenizer

    written(tmp_path, config)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = FullTokenizer(tmp_path / "vocab.txt", config.do_lower_case, config.strip_accents)
    draws = random.Random(3)
    for _ in range(300):
        separator = draws.choice(["", " ", "\n"])
        num_words = draws.randrange(9)
        text = separator.join(draws.choices(WORDS, k=num_words))
        encoding = theirs.encode(text, add_special_tokens=False)
        assert encoding.ids == ours.encode(text), repr(text)
    inputs = ours(["the cat"], ["sat"])
    encoding = theirs.encode("the cat", "sat")
    assert [encoding.ids] == inputs["input_ids"].tolist()
    assert [encoding.type_ids] == inputs["segment_ids"].tolist()


def test_a_vocabulary_is_read_from_it_where_there_is_no_other(tmp_path):
    written(tmp_path, TokenizerConfig())
    from_vocab_file = FullTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    from_json = FullTokenizer.from_pretrained(tmp_path)
    vocab = dict(from_json.vocab)
    # The numbers of repeated pieces.
    placeholders = [piece for piece in vocab if piece.startswith("[line ")]
    assert len(placeholders) == len(PIECES) - len(set(PIECES))
    for piece in placeholders:
        del vocab[piece]
    assert vocab == from_vocab_file.vocab
    text = "The children, café"
    assert from_json.encode(text) == from_vocab_file.encode(text)


def edited(folder, content: dict, **changes) -> None:
    """Writes tokenizer.json with changes; those of `normalizer` and `model` are of parts."""
    parts = {
        name: content[name] | changes.pop(name)
        for name in ("normalizer", "model")
        if name in changes
    }
    (folder / "tokenizer.json").write_text(json.dumps(content | parts | changes), encoding="utf-8")


ADDED = {"id": len(PIECES), "content": "[E1]", "special": True}
SEQUENCE = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}


@pytest.mark.parametrize("has_vocab", [True, False])
def test_the_normalizer_says_how_text_is_read(tmp_path, has_vocab):
    for config in (
        TokenizerConfig(False),
        TokenizerConfig(True, False),
        TokenizerConfig(False, True),
    ):
        content = written(tmp_path, config)
        if not has_vocab:
            (tmp_path / "vocab.txt").unlink()
        assert TokenizerConfig.read(str(tmp_path)) == config
        basic = FullTokenizer.from_pretrained(tmp_path).basic_tokenizer
        assert basic.do_lower_case == config.do_lower_case
        assert basic.strip_accents == config.strips_accents
        normalizer = {"type": "Sequence", "normalizers": [content["normalizer"]]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"normalizer": normalizer}))
        assert TokenizerConfig.read(str(tmp_path)) == config
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    assert TokenizerConfig.read(str(tmp_path)) == TokenizerConfig(False, True, 9)


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        ({"do_lower_case": True}, "do_lower_case", False),
        ({"strip_accents": True}, "strip_accents", False),
    ],
)
def test_a_normalizer_that_contradicts_the_settings_is_refused(tmp_path, config, name, value):
    edited(
        tmp_path,
        written(tmp_path, TokenizerConfig(False)),
        normalizer={"lowercase": False, "strip_accents": False},
    )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(
        InputError,
        match=f"tokenizer.json: its normalizer says {name}={value}, and tokenizer_config",
    ):
        FullTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"normalizer": {"type": "NFC"}},
            r"its normalizer \(NFC\) gives other tokens than the BertNormalizer of BERT",
        ),
        ({"normalizer": SEQUENCE}, r"its normalizer \(Sequence\) gives other"),
        ({"normalizer": {"clean_text": False}}, "its normalizer keeps control characters"),
        (
            {"pre_tokenizer": {"type": "WhitespaceSplit"}},
            r"its pre_tokenizer \(WhitespaceSplit\) gives",
        ),
        ({"pre_tokenizer": None}, r"its pre_tokenizer \(none\) gives"),
        ({"post_processor": None}, r"its post_processor \(none\) gives"),
        (
            {"post_processor": {"type": "TemplateProcessing", "single": []}},
            r"its post_processor \(TemplateProcessing",
        ),
        (
            {"post_processor": {"type": "BertProcessing", "cls": ["[SEP]", 3]}},
            r"its post_processor \(BertProcessing",
        ),
        (
            {
                "post_processor": {
                    "type": "BertProcessing",
                    "cls": ["[CLS]", 7],
                    "sep": ["[SEP]", 3],
                }
            },
            r"its post_processor \(BertProcessing",
        ),
        (
            {"model": {"unk_token": "<unk>"}},
            "unk_token is '<unk>', and only '\\[UNK\\]' can be used",
        ),
        ({"model": {"continuing_subword_prefix": "@@"}}, "continuing_subword_prefix is '@@'"),
        ({"model": {"type": "BPE"}}, "holds no vocabulary of WordPieces"),
        (
            {"added_tokens": [ADDED]},
            r"the added token '\[E1\]' is one token for transformers .*; remove it from",
        ),
        (
            {"added_tokens": [{"id": 0, "content": "cat"}]},
            "the added token 'cat' .* or get another id here",
        ),
    ],
)
def test_rules_that_give_other_tokens_are_refused(tmp_path, changes, sentence):
    edited(tmp_path, written(tmp_path, TokenizerConfig()), **changes)
    with pytest.raises(InputError, match=f"tokenizer.json: {sentence}"):
        FullTokenizer.from_pretrained(tmp_path)


def test_reserved_words_may_be_single_tokens(tmp_path):
    toy.write_vocabulary(tmp_path, [*PIECES, "[unused0]"])
    special = {"additional_special_tokens": ["[unused0]"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    assert FullTokenizer.from_pretrained(tmp_path).vocab["[unused0]"] == len(PIECES)
    special = {"additional_special_tokens": ["[unused1]"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    with pytest.raises(InputError, match=r"the added token '\[unused1\]' is one token for"):
        FullTokenizer.from_pretrained(tmp_path)


def test_rules_of_the_same_tokens_are_accepted(tmp_path, caplog):
    content = written(tmp_path, TokenizerConfig())
    number = FullTokenizer.from_pretrained(tmp_path).vocab["sat"]
    added = [*content["added_tokens"], {"id": number, "content": "sat"}]
    frame = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
    cut = {"max_length": 8}
    edited(
        tmp_path,
        content,
        added_tokens=added,
        post_processor=frame,
        truncation=cut,
        padding={"length": 8},
    )
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("The cat") == ["the", "cat"]
    edited(tmp_path, content, normalizer={"handle_chinese_chars": False})
    FullTokenizer.from_pretrained(tmp_path)
    assert "handle_chinese_chars is false, but ideographs are always single words" in caplog.text


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_a_generic_class_has_the_rules_of_tokenizer_json(tmp_path, name):
    content = written(tmp_path, TokenizerConfig(False))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    assert TokenizerConfig.read(str(tmp_path)) == TokenizerConfig(False)
    edited(tmp_path, content, pre_tokenizer={"type": "Whitespace"})
    with pytest.raises(InputError, match="its pre_tokenizer"):
        TokenizerConfig.read(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=f"is of a {name}; only models with WordPieces"):
        TokenizerConfig.read(str(tmp_path))


def test_a_template_with_ids_of_another_vocabulary_is_refused(tmp_path):
    content = written(tmp_path, TokenizerConfig())
    content["post_processor"]["special_tokens"]["[SEP]"]["ids"] = [9]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="its post_processor"):
        FullTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(("longest", "is_warned"), [(20, True), (100, False), (200, False)])
def test_short_words_that_are_unknown_elsewhere_are_warned_of(tmp_path, caplog, longest, is_warned):
    content = written(tmp_path, TokenizerConfig())
    edited(tmp_path, content, model={"max_input_chars_per_word": longest})
    FullTokenizer.from_pretrained(tmp_path)
    warning = f"max_input_chars_per_word is {longest}, but longer words are split"
    assert (warning in caplog.text) is is_warned


def test_a_vocabulary_that_contradicts_the_other_is_refused(tmp_path):
    content = written(tmp_path, TokenizerConfig())
    vocab = content["model"]["vocab"]
    swapped = vocab | {"cat": vocab["sat"], "sat": vocab["cat"]}
    longer = vocab | {"dog": len(PIECES)}
    shorter = dict(vocab)
    del shorter["cat"]
    message = r"tokenizer.json: the id of '.*' is .* there, and .* in vocab.txt; delete"
    for other_vocab in (swapped, longer, shorter):
        edited(tmp_path, content, model={"vocab": other_vocab})
        with pytest.raises(InputError, match=message):
            FullTokenizer.from_pretrained(tmp_path)
    for foreign in ("{}", "[]", '{"model": "bert"}'):  # of another program
        (tmp_path / "tokenizer.json").write_text(foreign)
        assert FullTokenizer.from_pretrained(tmp_path).vocab["cat"] == vocab["cat"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", {"[E1]": len(PIECES)}),
        ("special_tokens_map.json", {"additional_special_tokens": [{"content": "[E1]"}]}),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {str(len(PIECES)): {"content": "[E1]"}}},
        ),
        ("tokenizer_config.json", {"additional_special_tokens": ["[E1]"]}),
        ("tokenizer_config.json", {"extra_special_tokens": {"marker": "[E1]"}}),
    ],
)
def test_added_tokens_are_refused_in_each_place(tmp_path, name, content):
    toy.write_vocabulary(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=rf"{name}: the added token '\[E1\]' is one token for transformers"
    ):
        FullTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("kind", "vocab"),
    [
        ("BPE", {"a": 0}),
        ("WordPiece", {}),
        ("WordPiece", {"a": -1}),
        ("WordPiece", {"a": 1 << 40}),
        ("WordPiece", {"a": "0"}),
    ],
)
def test_another_model_is_refused(tmp_path, kind, vocab):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": kind, "vocab": vocab}}))
    with pytest.raises(
        InputError, match=r"tokenizer.json: holds no vocabulary of WordPieces; only models with"
    ):
        FullTokenizer.from_pretrained(tmp_path)

"""Tests how tokenizer_config.json is read, written, and guessed from a vocabulary."""

import json

import pytest

from official_bert.io.errors import InputError
from official_bert.tokenizer_config import TokenizerConfig


def write(folder, content):
    (folder / "tokenizer_config.json").write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, TokenizerConfig(True, None, None)),
        ({"do_lower_case": False, "model_max_length": 512}, TokenizerConfig(False, None, 512)),
        ({"strip_accents": False, "tokenizer_class": "BertTokenizerFast"}, TokenizerConfig(True, False, None)),
        ({"model_max_length": 1000000000000000019884624838656}, TokenizerConfig(True, None, None)),
        ({"model_max_length": True}, TokenizerConfig(True, None, None)),
    ],
)
def test_the_file_of_hugging_face_is_read(tmp_path, content, expected):
    write(tmp_path, content)
    assert TokenizerConfig.read(str(tmp_path)) == expected


def test_what_is_written_is_read_again_and_complete_for_hugging_face(tmp_path):
    config = TokenizerConfig(do_lower_case=False, strip_accents=True, model_max_length=64)
    write(tmp_path, config.to_json_string())
    assert TokenizerConfig.read(str(tmp_path)) == config
    written = json.loads(config.to_json_string())
    assert written["tokenizer_class"] == "BertTokenizer"
    special = {name: value for name, value in written.items() if name.endswith("_token")}
    assert special == {
        "cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]",
        "unk_token": "[UNK]",
    }  # fmt: skip


def test_a_folder_without_the_file_says_nothing(tmp_path):
    assert TokenizerConfig.read(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "tokenizer_config.json: is no object"),
        ("{", "tokenizer_config.json: line 1, column 2: no JSON"),
        ({"do_lower_case": "no"}, "tokenizer_config.json: do_lower_case is 'no'; write true or false"),
        ({"do_lower_case": None}, "tokenizer_config.json: do_lower_case is None"),
        ({"do_lower_case": 1}, "tokenizer_config.json: do_lower_case is 1"),
        ({"tokenizer_class": "RobertaTokenizer"}, r"is of a RobertaTokenizer; only models with WordPieces"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, content, sentence):
    write(tmp_path, content)
    with pytest.raises(InputError, match=sentence):
        TokenizerConfig.read(str(tmp_path))


def test_ideographs_that_form_words_are_warned_of(tmp_path, caplog):
    write(tmp_path, {"tokenize_chinese_chars": False})
    TokenizerConfig.read(str(tmp_path))
    assert "tokenize_chinese_chars is false, but ideographs are always single words" in caplog.text


def test_a_vocabulary_with_capitals_is_cased():
    uncased = ["[PAD]", "[UNK]", "<S>", "the", "##ing", "é", "猫"]
    assert TokenizerConfig.guessed(uncased) == TokenizerConfig(True)
    assert TokenizerConfig.guessed([*uncased, "The"]).do_lower_case is False
    # A slip among thousands of pieces is no sign of a cased vocabulary.
    assert TokenizerConfig.guessed([f"piece{number}" for number in range(3000)] + ["T"]).do_lower_case is True


@pytest.mark.needs_shared("data/vocab")
@pytest.mark.parametrize(("name", "is_uncased"), [("uncased", True), ("cased", False), ("chinese", True)])
def test_the_released_vocabularies_are_told_apart(name, is_uncased):
    from official_bert.tokenization import load_vocab
    from tests.shared import shared

    vocabulary = load_vocab(str(shared("data", "vocab", f"{name}_vocab.txt")))
    assert TokenizerConfig.guessed(vocabulary).do_lower_case is is_uncased

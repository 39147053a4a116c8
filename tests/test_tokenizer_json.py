"""tokenizer.json has our vocabulary and rules, gives our ids elsewhere, and is read where there is no vocab.txt."""

import json
import random

import pytest

from official_bert import FullTokenizer, InputError
from official_bert.tokenization import load_vocab
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

PIECES = [*toy.VOCABULARY, *"ABab,!?é中'", "##e", "##é", "İ", "i", "the", "a", "##" + "a" * 99, "a" * 100]
WORDS = ["The", "cat", "playing,", "Footballé", "é", "café", "中国", "İ", "\x07b\u200b", "!?", "'A"]
WORDS += ["a" * 199, "a" * 200, "a" * 201, "\u2028"]


def written(folder, config: TokenizerConfig) -> dict:
    """The file of a vocabulary with repeated pieces."""
    text = config.to_tokenizer_json(load_vocab(toy.write_vocabulary(folder, PIECES)))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return json.loads(text)


def test_the_content(tmp_path):
    content = written(tmp_path, TokenizerConfig(False, True))
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    assert added == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert all(token["special"] and not token["normalized"] for token in content["added_tokens"])
    assert content["normalizer"] == {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": True,
        "lowercase": False,
    }  # fmt: skip
    frame = content["post_processor"]
    named = [(*part.values(),)[0] for part in frame["pair"]]
    assert [(part["id"], part["type_id"]) for part in named] == [
        ("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), ("[SEP]", 1),
    ]  # fmt: skip
    assert frame["single"] == frame["pair"][:3]
    assert {name: token["ids"] for name, token in frame["special_tokens"].items()} == {"[CLS]": [2], "[SEP]": [3]}
    model = content["model"]
    assert (model["unk_token"], model["max_input_chars_per_word"]) == ("[UNK]", 200)
    assert model["vocab"] == {piece: number for number, piece in enumerate(PIECES)}  # the last of equal ones counts


@pytest.mark.parametrize(("lower", "lacking"), [(None, ()), (True, ("[CLS]",)), (True, ("[SEP]",)), (True, ("[UNK]",))])
def test_no_file_of_what_is_unknown(lower, lacking):
    vocab = {piece: number for number, piece in enumerate(toy.VOCABULARY) if piece not in lacking}
    assert TokenizerConfig(lower).to_tokenizer_json(vocab) is None


@pytest.mark.needs_extra("tokenizers")
@pytest.mark.parametrize("config", [TokenizerConfig(True), TokenizerConfig(False), TokenizerConfig(True, False)])
def test_the_ids_are_ours(tmp_path, config):
    from tokenizers import Tokenizer

    written(tmp_path, config)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = FullTokenizer(tmp_path / "vocab.txt", config.do_lower_case, config.strip_accents)
    draws = random.Random(3)
    for _ in range(300):
        text = draws.choice(["", " ", "\n"]).join(draws.choices(WORDS, k=draws.randrange(9)))
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text), repr(text)
    inputs, found = ours(["the cat"], ["sat"]), theirs.encode("the cat", "sat")
    assert (found.ids, found.type_ids) == (inputs["input_ids"][0].tolist(), inputs["segment_ids"][0].tolist())


def test_a_vocabulary_is_read_from_it_where_there_is_no_other(tmp_path):
    written(tmp_path, TokenizerConfig())
    wanted = FullTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    found = FullTokenizer.from_pretrained(tmp_path)
    lost = {piece for piece in found.vocab if piece.startswith("[line ")}  # the numbers of repeated pieces
    assert {piece: number for piece, number in found.vocab.items() if piece not in lost} == wanted.vocab
    assert len(lost) == len(PIECES) - len(set(PIECES))
    assert found.encode("The children, café") == wanted.encode("The children, café")


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
    with pytest.raises(InputError, match=r"tokenizer.json: holds no vocabulary of WordPieces; only models with"):
        FullTokenizer.from_pretrained(tmp_path)

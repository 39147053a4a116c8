"""The client of a tagger: which words of a text have a tag, and of which a text should be
separated.
"""

import types

import numpy as np
import pytest

from official_bert.tasks.tagging.task import (
    TaggingClient,
    TaggingSettings,
    TaggingTask,
    split_words,
)
from official_bert.tokenization import BasicTokenizer

TEXT = "The cat sat, (the 'dog') in the\u00a0north-east caf\u0065\u0301\u200b."


def client_of(tokenizer, splits: bool, tag: bytes = b"B-LOC") -> TaggingClient:
    """A client of a model that gives each piece the same tag."""
    model = types.SimpleNamespace(tokenizer=tokenizer, reads_text=False, max_seq_length=32)
    model.run = lambda encoded: {"tags": np.full((len(encoded), 32), tag, object)}
    return TaggingClient(model, splits)


def tagged_words(client: TaggingClient, text: str) -> list[str]:
    (answer,) = client.answers([(text,)])
    assert all(text[word["start"] : word["end"]] == word["word"] for word in answer["tags"])
    return [word["word"] for word in answer["tags"]]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("text", [TEXT, "北京的 mat。", "", " \u200b ", "!", "a\tb\n", "\u0301"])
def test_split_words_are_those_of_the_tokenizer(text, lower):
    basic = BasicTokenizer(lower)
    words = split_words(text, basic)
    assert [basic.tokenize(word) for word, _, _ in words] == [
        [word] for word in basic.tokenize(text)
    ]
    assert all(text[start:end] == word for word, start, end in words)


def test_words_of_running_text_and_of_a_file(tokenizer):
    split = client_of(tokenizer, splits=True)
    assert tagged_words(split, "the cat sat, (the dog).") == [
        *["the", "cat", "sat"],
        ",",
        "(",
        "the",
        "dog",
        ")",
        ".",
    ]
    assert tagged_words(split, "我在北京") == ["我", "在", "北", "京"]
    assert tagged_words(split, "") == []
    whole = client_of(tokenizer, splits=False)
    assert tagged_words(whole, "the cat sat, (the dog).") == ["the", "cat", "sat,", "(the", "dog)."]


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("Angela Merkel lives in Berlin.", True),
        ("is it Berlin?\n", True),
        ("我在北京", True),
        ("Angela Merkel lives in Berlin .", False),
        ("我 在 北京", False),
        ("Mr. Smith , U.S. citizen", False),
        ("北京", False),
        (". . .", False),
        ("", False),
    ],
)
def test_running_text_for_a_model_of_words_is_warned_of_once(tokenizer, caplog, text, is_warned):
    for client in (client_of(tokenizer, splits=False), client_of(tokenizer, splits=True)):
        client.answers([(text,)])
        client.answers([(text,)])
    warnings = [
        record.getMessage()
        for record in caplog.records
        if "a word is what blanks separate" in record.msg
    ]
    assert len(warnings) == is_warned
    assert all("split_punctuation=True" in warning for warning in warnings)


def test_the_record_of_an_export_names_how_words_are_separated():
    assert TaggingTask.from_settings(
        None, TaggingSettings.from_values({"labels": ["O"], "split_punctuation": True})
    ).settings() == {"split_punctuation": True}
    assert TaggingTask.from_settings(
        None, TaggingSettings.from_values({"labels": ["O"]})
    ).settings() == {"split_punctuation": False}

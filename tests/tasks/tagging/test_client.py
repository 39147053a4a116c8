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


def client_of(
    tokenizer, splits: bool | None, tag: bytes = b"B-LOC", reads_text: bool = False
) -> TaggingClient:
    """A client of a model that gives each piece the same tag; one that reads text has no words.

    Without `splits`, its record does not say how it separates words.
    """
    model = types.SimpleNamespace(tokenizer=tokenizer, reads_text=reads_text, max_seq_length=32)
    model.run = lambda encoded: {"tags": np.full((len(encoded), 32), tag, object)}
    row = {"num_words": 0, "words": [], "starts": [], "ends": [], "tags": []}
    model.run_texts = lambda texts: [row for _ in texts["text"]]
    return TaggingClient(model, pre_tokenized=None if splits is None else not splits)


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
def test_running_text_for_an_export_of_an_earlier_version_is_warned_of_once(
    tokenizer, caplog, text, is_warned
):
    for client in (
        client_of(tokenizer, splits=None, reads_text=True),
        client_of(tokenizer, splits=True, reads_text=True),
        client_of(tokenizer, splits=False, reads_text=True),
        client_of(tokenizer, splits=True),
    ):
        client.answers([(text,)])
        client.answers([(text,)])
    warnings = [text for text in caplog.messages if "blanks separate words in this export" in text]
    assert len(warnings) == is_warned


def test_entities_are_groups_of_words(tokenizer):
    text = "the cat, (the dog)"
    (answer,) = client_of(tokenizer, splits=True, tag=b"I-X").answers([(text,)])
    (entity,) = answer["entities"]
    assert entity == {"entity_group": "X", "word": text, "start": 0, "end": len(text)}
    assert client_of(tokenizer, splits=True).postprocess((text,), answer) == [entity]


def test_a_record_of_an_earlier_version_separates_no_words():
    values = {"labels": ["O"], "split_punctuation": False}
    task = TaggingTask.from_settings(None, TaggingSettings.from_values(values))
    assert task.settings() == {"pre_tokenized": False}

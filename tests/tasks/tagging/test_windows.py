import itertools
import json
import random

import numpy as np
import pytest

from official_bert.data.table_formats import read_tagged
from official_bert.data.tables import read_conll
from official_bert.io.errors import InputError
from official_bert.tasks.tagging.windows import (
    check_words,
    collect_labels,
    encoded_words,
    predicted_tags,
)

TEXT = """-DOCSTART- O

the O
sunny B-x
day I-x

children O
playing B-y

-DOCSTART- O

\u200d O
football B-y
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text: str, labelled: bool = True):
        path = tmp_path / "train.conll"
        path.write_text(text, encoding="utf-8")
        return read_conll(str(path), labelled)

    return read_text


def test_tags_without_types_have_labels_without_types(read):
    """The tag sets of BioBERT's files."""
    source = read("the O\ncat I\nsat I\n\non B\n")
    labels = collect_labels(source.sentences)
    assert labels == ["O", "B", "I"]
    first, second = source.sentences
    assert first.tags == ["O", "B", "I"]
    assert second.tags == ["B"]
    check_words(source, labels)
    mixed = read("a B\nb I-x\n")
    assert collect_labels(mixed.sentences) == ["O", "B", "I", "B-x", "I-x"]


def windows(encoded, tokenizer):
    """Each window as text: pieces with the number of their label behind a slash, where they have
    one.
    """
    texts = []
    for row, length in enumerate(encoded.lengths):
        batch = encoded.features(np.array([row]), length)
        assert batch["input_mask"].all()
        assert not batch["segment_ids"].any()
        pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
        labels = batch["label_ids"][0]
        has_label = batch["label_mask"][0]
        for place in np.flatnonzero(has_label):
            pieces[place] += f"/{labels[place]}"
        texts.append(" ".join(pieces))
    return texts


def context_windows(source, labels, length: int, tokenizer):
    """The windows of sentences that are filled with their neighbours."""
    encoded = encoded_words(source, labels, length, tokenizer, document_context=True)
    return windows(encoded, tokenizer)


def test_the_first_piece_carries_the_label(read, tokenizer):
    source = read(TEXT)
    labels = collect_labels(source.sentences)
    assert labels == ["O", "B-x", "I-x", "B-y", "I-y"]
    encoded = encoded_words(source, labels, 16, tokenizer)
    assert windows(encoded, tokenizer) == [
        "[CLS] the/0 sun/1 ##ny day/2 [SEP]",
        "[CLS] child/0 ##ren play/3 ##ing [SEP]",
        "[CLS] [UNK]/0 foot/3 ##ball [SEP]",  # the first word has no piece of its own
    ]
    assert encoded.lengths.tolist() == [6, 6, 5]


def test_batches_are_padded(read, tokenizer):
    source = read(TEXT)
    encoded = encoded_words(source, collect_labels(source.sentences), 16, tokenizer)
    batch = encoded.features(np.array([2, 0]), 8)
    assert batch["label_mask"].tolist() == [
        [0, 1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 1, 0, 0, 0],
    ]
    assert batch["label_ids"].tolist() == [
        [0, 0, 3, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 2, 0, 0, 0],
    ]
    assert batch["input_mask"].sum(axis=1).tolist() == [5, 6]
    assert {values.dtype.name for values in batch.values()} == {"int32"}


def test_document_context_fills_the_window_and_carries_no_label(read, tokenizer):
    source = read(TEXT)
    labels = collect_labels(source.sentences)
    assert context_windows(source, labels, 9, tokenizer) == [
        "[CLS] the/0 sun/1 ##ny day/2 child ##ren play [SEP]",
        "[CLS] sun ##ny day child/0 ##ren play/3 ##ing [SEP]",
        "[CLS] [UNK]/0 foot/3 ##ball [SEP]",  # another document
    ]
    # In the middle there is as much on the left as on the right, as far as there is something.
    source = read("-DOCSTART- O\n\nthe O\n\ncat O\n\nsat O\n\non O")
    assert context_windows(source, ["O"], 5, tokenizer) == [
        "[CLS] the/0 cat sat [SEP]",
        "[CLS] the cat/0 sat [SEP]",
        "[CLS] cat sat/0 on [SEP]",
        "[CLS] cat sat on/0 [SEP]",
    ]


def test_long_sentences_are_split(read, tokenizer):
    source = read("the O\nsunny O\ncat O\nsat O\non O\n")
    encoded = encoded_words(source, ["O"], 6, tokenizer)
    assert windows(encoded, tokenizer) == [
        "[CLS] the/0 sun/0 ##ny cat/0 [SEP]",
        "[CLS] ##ny cat sat/0 on/0 [SEP]",  # room that is left shows what went before
    ]
    encoded = encoded_words(source, ["O"], 3, tokenizer)
    assert windows(encoded, tokenizer) == [
        "[CLS] the/0 [SEP]",
        "[CLS] sun/0 [SEP]",  # a word that fits nowhere loses its end
        "[CLS] cat/0 [SEP]",
        "[CLS] sat/0 [SEP]",
        "[CLS] on/0 [SEP]",
    ]


def test_no_word_is_lost_whatever_the_length(read, tokenizer):
    draw = random.Random(1)
    words = ["sunny", "cat", "children", "\u200d", "nobody", "playing.", "xyz", "sunny-day"]
    tags = ["O", "B-x", "I-x"]
    blocks = []
    for k in range(40):
        if k % 7 == 0:
            blocks.append("-DOCSTART- O")
        rows = []
        for _ in range(draw.randint(1, 30)):
            word = draw.choice(words)
            tag = draw.choice(tags)
            rows.append(f"{word} {tag}")
        blocks.append("\n".join(rows))
    source = read("\n\n".join(blocks))
    labels = collect_labels(source.sentences)
    expected = [sentence.tags for sentence in source.sentences]
    for length, context in itertools.product((3, 4, 7, 16, 64), (False, True)):
        encoded = encoded_words(source, labels, length, tokenizer, context)
        assert encoded.lengths.max() <= length
        batch = encoded.features(np.arange(len(encoded)), length)
        numbers = encoded.select_words(batch["label_ids"])
        assert predicted_tags(source.sentences, numbers, labels) == expected
        if context and length == 16:
            assert (encoded.lengths == 16).mean() > 0.9


def test_files_without_tags_are_predicted(read, tokenizer):
    source = read("the\ncat\n\nsat\n", labelled=False)
    encoded = encoded_words(source, ["O", "B-x"], 8, tokenizer)
    assert windows(encoded, tokenizer) == ["[CLS] the/0 cat/0 [SEP]", "[CLS] sat/0 [SEP]"]
    no_word = [9, 9]
    logits = [
        np.array([no_word, [0, 1], [1, 0], no_word, no_word]),
        np.array([no_word, [0, 2], no_word]),
    ]
    assert encoded.select_words(logits).tolist() == [[0, 1], [1, 0], [0, 2]]
    numbers = encoded.select_words(logits).argmax(axis=1)
    assert predicted_tags(source.sentences, numbers, ["O", "B-x"]) == [["B-x", "O"], ["B-x"]]


def test_what_cannot_be_used(read):
    source = read("the O\ncat I-z\n")
    message = r"train.conll: has no -DOCSTART- line, which --document_context needs"
    with pytest.raises(InputError, match=message):
        check_words(source, ["O", "B-z"], document_context=True)


def test_a_file_without_entities_or_ends_of_sentences(read, caplog):
    source = read("the O\ncat O\n")
    labels = collect_labels(source.sentences)
    with pytest.raises(InputError, match=r"train.conll: all tags are O, so that there is nothing"):
        check_words(source, labels)
    warning = "words are one sentence; put a blank"
    source = read("the B-x\n" * 500)
    labels = collect_labels(source.sentences)
    check_words(source, labels)
    assert warning not in caplog.text
    source = read("the B-x\n" * 501)
    check_words(source, labels)
    assert f"all 501 {warning}" in caplog.text


def test_rows_of_several_files_are_sentences_of_their_own(tmp_path, tokenizer):
    """Each file has one line, so that the number of the line tells no sentence from another."""
    rows = {
        "a.jsonl": {"tokens": ["the", "cat"], "tags": ["O", "O"]},
        "b.jsonl": {"tokens": ["the", "sat"], "tags": ["O", "I-z"]},
    }
    for name, row in rows.items():
        (tmp_path / name).write_text(json.dumps(row))
    source = read_tagged(f"{tmp_path}/a.jsonl,{tmp_path}/b.jsonl", "dev_file")
    encoded = encoded_words(source, ["O", "B-z"], 8, tokenizer)
    assert windows(encoded, tokenizer) == ["[CLS] the/0 cat/0 [SEP]", "[CLS] the/0 sat/1 [SEP]"]
    message = r"/b.jsonl: line 1: has the tag 'I-z', which the training file lacks; its tags are"
    with pytest.raises(InputError, match=message):
        check_words(source, ["O", "B-x"])

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
    assert [sentence.tags for sentence in source.sentences] == [["O", "B", "I"], ["B"]]
    check_words(source, labels)
    assert collect_labels(read("a B\nb I-x\n").sentences) == ["O", "B", "I", "B-x", "I-x"]


def windows(encoded, tokenizer):
    """Each window as text: pieces with the number of their label behind a slash, where they have
    one.
    """
    texts = []
    for row, length in enumerate(encoded.lengths):
        batch = {
            name: values[0] for name, values in encoded.features(np.array([row]), length).items()
        }
        assert batch["input_mask"].all()
        assert not batch["segment_ids"].any()
        pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"].tolist())
        marks = [
            f"/{label}" if on else ""
            for label, on in zip(batch["label_ids"], batch["label_mask"], strict=True)
        ]
        texts.append(" ".join(map("".join, zip(pieces, marks, strict=True))))
    return texts


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
    assert batch["label_mask"].tolist() == [[0, 1, 1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 1, 0, 0, 0]]
    assert batch["label_ids"].tolist() == [[0, 0, 3, 0, 0, 0, 0, 0], [0, 0, 1, 0, 2, 0, 0, 0]]
    assert batch["input_mask"].sum(axis=1).tolist() == [5, 6]
    assert {values.dtype.name for values in batch.values()} == {"int32"}


def test_document_context_fills_the_window_and_carries_no_label(read, tokenizer):
    source = read(TEXT)
    labels = collect_labels(source.sentences)
    assert windows(
        encoded_words(source, labels, 9, tokenizer, document_context=True), tokenizer
    ) == [
        "[CLS] the/0 sun/1 ##ny day/2 child ##ren play [SEP]",
        "[CLS] sun ##ny day child/0 ##ren play/3 ##ing [SEP]",
        "[CLS] [UNK]/0 foot/3 ##ball [SEP]",  # another document
    ]
    # In the middle there is as much on the left as on the right, as far as there is something.
    source = read(
        "-DOCSTART- O\n\n" + "\n\n".join(f"{word} O" for word in ["the", "cat", "sat", "on"])
    )
    assert windows(
        encoded_words(source, ["O"], 5, tokenizer, document_context=True), tokenizer
    ) == [
        "[CLS] the/0 cat sat [SEP]",
        "[CLS] the cat/0 sat [SEP]",
        "[CLS] cat sat/0 on [SEP]",
        "[CLS] cat sat on/0 [SEP]",
    ]


def test_long_sentences_are_split(read, tokenizer):
    source = read("".join(f"{word} O\n" for word in ["the", "sunny", "cat", "sat", "on"]))
    assert windows(encoded_words(source, ["O"], 6, tokenizer), tokenizer) == [
        "[CLS] the/0 sun/0 ##ny cat/0 [SEP]",
        "[CLS] ##ny cat sat/0 on/0 [SEP]",  # room that is left shows what went before
    ]
    assert windows(encoded_words(source, ["O"], 3, tokenizer), tokenizer) == [
        "[CLS] the/0 [SEP]",
        "[CLS] sun/0 [SEP]",  # a word that fits nowhere loses its end
        *(f"[CLS] {word}/0 [SEP]" for word in ("cat", "sat", "on")),
    ]


def test_no_word_is_lost_whatever_the_length(read, tokenizer):
    draw = random.Random(1)
    words = ["sunny", "cat", "children", "\u200d", "nobody", "playing.", "xyz", "sunny-day"]
    blocks = []
    for k in range(40):
        blocks += ["-DOCSTART- O"] if k % 7 == 0 else []
        rows = (
            f"{draw.choice(words)} {draw.choice(['O', 'B-x', 'I-x'])}"
            for _ in range(draw.randint(1, 30))
        )
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
    logits = [
        np.array([[9, 9], [0, 1], [1, 0], [9, 9], [9, 9]]),
        np.array([[9, 9], [0, 2], [9, 9]]),
    ]
    assert encoded.select_words(logits).tolist() == [[0, 1], [1, 0], [0, 2]]
    numbers = encoded.select_words(logits).argmax(axis=1)
    assert predicted_tags(source.sentences, numbers, ["O", "B-x"]) == [["B-x", "O"], ["B-x"]]


def test_what_cannot_be_used(read):
    source = read("the O\ncat I-z\n")
    with pytest.raises(
        InputError, match=r"train.conll: has no -DOCSTART- line, which --document_context needs"
    ):
        check_words(source, ["O", "B-z"], document_context=True)


def test_a_file_without_entities_or_ends_of_sentences(read, caplog):
    source = read("the O\ncat O\n")
    with pytest.raises(InputError, match=r"train.conll: all tags are O, so that there is nothing"):
        check_words(source, collect_labels(source.sentences))
    for num_words, is_long in ((500, False), (501, True)):
        source = read("the B-x\n" * num_words)
        check_words(source, collect_labels(source.sentences))
        assert (f"all {num_words} words are one sentence; put a blank" in caplog.text) == is_long


def test_rows_of_several_files_are_sentences_of_their_own(tmp_path, tokenizer):
    """Each file has one line, so that the number of the line tells no sentence from another."""
    for name, word, tag in (("a", "cat", "O"), ("b", "sat", "I-z")):
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({"tokens": ["the", word], "tags": ["O", tag]})
        )
    source = read_tagged(f"{tmp_path}/a.jsonl,{tmp_path}/b.jsonl", "dev_file")
    encoded = encoded_words(source, ["O", "B-z"], 8, tokenizer)
    assert windows(encoded, tokenizer) == ["[CLS] the/0 cat/0 [SEP]", "[CLS] the/0 sat/1 [SEP]"]
    with pytest.raises(
        InputError,
        match=r"/b.jsonl: line 1: has the tag 'I-z', which the training file lacks; its tags are",
    ):
        check_words(source, ["O", "B-x"])

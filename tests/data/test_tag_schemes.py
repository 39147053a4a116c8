"""Schemes of tags: what is read as IOB2, and what is left to be refused."""

import json

import pytest

from official_bert.data.table_formats import read_tagged
from official_bert.data.tables import read_conll
from official_bert.data.tag_schemes import (
    IOB1,
    IOB2,
    convert_chunks,
    convert_schemes,
    restore_scheme,
)


@pytest.mark.parametrize(
    ("tags", "converted", "scheme"),
    [
        ("O S-a B-b I-b E-b S-b", "O B-a B-b I-b I-b B-b", "BIOES"),
        ("O U-a B-b I-b L-b B-b L-b", "O B-a B-b I-b I-b B-b I-b", "BILOU"),
        ("B-a M-a E-a S-a O", "B-a I-a I-a B-a O", "BMES"),
        ("B M E S O", "B I I B O", "BMES"),
        ("S-a E-a", "B-a I-a", "BIOES"),
        ("O PER PER LOC O PER", "O B-PER I-PER B-LOC O B-PER", "types (IO)"),
        # Schemes that the readers know, and tags of none.
        ("O B-a I-a", "O B-a I-a", None),
        ("O I-a B-a", "O I-a B-a", None),
        ("O B I", "O B I", None),
        ("O U-a E-a", "O U-a E-a", None),
        ("O X", "O X", None),
        ("NOUN VERB", "NOUN VERB", None),
        ("O PER B-LOC", "O PER B-LOC", None),
        ("O O", "O O", None),
    ],
)
def test_schemes(tags, converted, scheme, caplog):
    caplog.set_level("INFO", logger="absl")
    assert [list(one) for one in convert_schemes("a", [tags.split()])] == [converted.split()]
    expected = (
        [] if scheme is None else [f"a: tags are {scheme}; they are read and written as IOB2 (BIO)"]
    )
    assert caplog.messages == expected


def test_files_of_another_scheme(tmp_path):
    words = [("Anna", "S-PER"), ("saw", "O"), ("New", "B-LOC"), ("York", "E-LOC")]
    conll = tmp_path / "a.conll"
    conll.write_text("".join(f"{word} x {tag}\n" for word, tag in words))
    table = tmp_path / "a.jsonl"
    tokens, tags = zip(*words, strict=True)
    table.write_text(json.dumps({"tokens": tokens, "ner_tags": tags}) + "\n")
    expected = ["B-PER", "O", "B-LOC", "I-LOC"]
    for read in (read_conll(str(conll)), read_tagged(str(table), "train_file")):
        (sentence,) = read.sentences
        assert sentence.words == list(tokens)
        assert sentence.tags == expected
        # The file of predictions has the tags that conlleval compares.
        assert [columns[-1] for columns in sentence.columns] == expected
        assert read.scheme == "IOB2"


@pytest.mark.parametrize(
    ("iob1", "iob2"),
    [
        ("I-a I-a O I-a B-a I-b", "B-a I-a O B-a B-a B-b"),
        ("I-a B-a B-a", "B-a B-a B-a"),
        ("I-a I-b I-a", "B-a B-b B-a"),
        ("I I O I B", "B I O B B"),
        ("O O", "O O"),
    ],
)
def test_one_function_converts_in_both_directions(iob1, iob2):
    assert convert_chunks(iob1.split(), IOB2) == iob2.split()
    assert convert_chunks(iob2.split(), IOB1) == iob1.split()
    for tags, scheme in ((iob1, IOB1), (iob2, IOB2)):
        assert convert_chunks(tags.split(), scheme) == tags.split()


def test_predictions_of_iob2_stay_as_they_are():
    """A model may predict I- behind O."""
    tags = ["O", "I-a", "B-a", "I-b"]
    assert restore_scheme(tags, IOB2) == tags
    assert restore_scheme(tags, IOB1) == ["O", "I-a", "B-a", "I-b"]

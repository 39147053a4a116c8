"""Tables of every layout: TSV, CSV, lines of sentences, and CoNLL files with their schemes of
tags.
"""

import math

import pytest
from absl import logging

from official_bert.data.tables import (
    parse_number,
    read_conll,
    read_csv,
    read_sentences,
    read_tsv,
    write_predictions,
)
from official_bert.data.tag_schemes import IOB1, IOB2, convert_chunks
from official_bert.io.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_file(data: bytes | str) -> str:
        path = tmp_path / "rows.txt"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write_file


@pytest.fixture
def logged(monkeypatch):
    lines = []
    for level in ("info", "warning"):
        monkeypatch.setattr(logging, level, lambda form, *values: lines.append(form % values))
    return lines


def rows(found):
    return [(row.line, row.fields) for row in found]


def test_tsv_as_it_comes(write, logged):
    path = write('\ufeffa\tb\r\n\r\nsay ""hi\t\n  \n\t\n\'é\u2028\tx "\ty'.encode() + b"\xff")
    assert rows(read_tsv(path)) == [
        (1, ["a", "b"]),  # no byte order mark, no "\r"
        (3, ['say ""hi', ""]),  # quotes are characters
        (5, ["", ""]),  # empty fields are no blank line
        (6, ["'é\u2028", 'x "', "y"]),  # only "\n" ends a line
    ]
    assert logged == [
        f"{path}: left out bytes that are not UTF-8 in 1 lines",
        f"{path}: skipped 2 blank lines",
    ]


def test_csv_with_quotes(write, logged):
    path = write('\ufeffid,text\r\n1,"a ""b"", c"\r\n\r\n2,"two\r\nlines"\r\n3,d\n'.encode())
    assert rows(read_csv(path)) == [
        (1, ["id", "text"]),
        (2, ["1", 'a "b", c']),
        (5, ["2", "two\nlines"]),
        (6, ["3", "d"]),
    ]
    assert logged == [f"{path}: skipped 1 blank lines"]


def test_a_missing_column_and_a_missing_file(write, tmp_path):
    path = write(b"a\tb\nc\td\n")
    last = list(read_tsv(path))[1]
    assert last.field(1, "the label") == "d"
    assert last.field(-2, "the text") == "c"
    with pytest.raises(
        InputError,
        match=rf"^{path}: line 2: has 2 columns, but the label is expected in column 4; complete the row or "
        "check the file's layout$",
    ):
        last.field(3, "the label")
    with pytest.raises(InputError, match="no such file"):
        next(read_tsv(str(tmp_path / "absent.tsv")))


def test_lines_and_pairs(tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes(
        "  One line. \n\nA ||| B\nA ||| B ||| C\nA|||B\nA ||| \n ||| B\nA  |||  B\nline\u2028end\r\nlast".encode()
        + b" \xff\xfe word"
    )
    assert list(read_sentences(str(path))) == [
        (0, "One line.", None),
        (1, "", None),
        (2, "A", "B"),
        (3, "A ||| B", "C"),  # at the last bars
        (4, "A|||B", None),  # the spaces are part of the bars
        (5, "A |||", None),
        (6, "||| B", None),
        (7, "A ", " B"),
        (8, "line\u2028end", None),
        (9, "last  word", None),
    ]


# Four columns in IOB1: the B- sets the second of two neighbours apart. \u00a0 and \u2028 are parts
# of tokens.
CONLL = (
    "\ufeff-DOCSTART- -X- -X- O\r\n\r\n"
    "EU NNP  B-NP I-ORG\r\nBrussels\tNNP B-NP I-LOC\r\nParis NNP B-NP B-LOC\r\n\t\r\n\r\n"
    "a\u00a0b NN B-NP O\n"
    "-DOCSTART- -X- -X- O\n"
    "c\u2028d NN I-NP I-ORG"
)


def test_sentences_documents_and_tags(write, logged):
    path = write(CONLL)
    read = read_conll(path)
    assert [(one.line, one.document, one.words, one.tags) for one in read.sentences] == [
        (3, 1, ["EU", "Brussels", "Paris"], ["B-ORG", "B-LOC", "B-LOC"]),
        (8, 1, ["a\u00a0b"], ["O"]),
        (10, 2, ["c\u2028d"], ["B-ORG"]),
    ]
    assert read.sentences[0].columns[1] == ["Brussels", "NNP", "B-NP", "I-LOC"]
    assert read.scheme == IOB1
    assert read.has_documents is True
    assert logged == [f"{path}: tags are IOB1"]


def test_predictions_stand_beside_the_columns_in_the_files_scheme(write, tmp_path):
    path = str(tmp_path / "predictions.conll")
    write_predictions(
        path, read_conll(write(CONLL)), [["B-ORG", "B-LOC", "B-LOC"], ["B-PER"], ["O"]]
    )
    with open(path, encoding="utf-8", newline="") as file:
        assert file.read() == (
            "EU NNP B-NP I-ORG I-ORG\nBrussels NNP B-NP I-LOC I-LOC\nParis NNP B-NP B-LOC B-LOC\n\n"
            "a\u00a0b NN B-NP O I-PER\n\n"
            "c\u2028d NN I-NP I-ORG O\n\n"
        )


@pytest.mark.parametrize(
    ("tags", "scheme", "iob2"),
    [
        ("O B-a I-a O B-b", IOB2, "O B-a I-a O B-b"),
        ("O I-a I-a O I-b", IOB1, "O B-a I-a O B-b"),
        ("I-a B-a I-a I-b", IOB1, "B-a B-a I-a B-b"),
        # Neither: what begins with I- is a chunk all the same.
        ("I-a O B-b I-b", IOB2, "B-a O B-b I-b"),
        ("B-creative-work I-creative-work", IOB2, "B-creative-work I-creative-work"),
        ("O B I O B B", IOB2, "O B I O B B"),  # no types
        ("I I O I B", IOB1, "B I O B B"),
        ("O I B-x I", IOB2, "O B B-x B"),
    ],
)
def test_schemes(write, tags, scheme, iob2):
    lines = [f"word {tag}\n" for tag in tags.split()]
    read = read_conll(write("".join(lines)))
    assert read.scheme == scheme
    assert read.sentences[0].tags == iob2.split()
    assert read.has_documents is False


def test_iob1_without_types():
    assert convert_chunks(["B", "I", "O", "B", "B"], IOB1) == ["I", "I", "O", "I", "B"]


@pytest.mark.parametrize(
    ("text", "labelled", "is_dropped"),
    [
        ("0\tthe\tO\n1\tcat\tB-X\n\n0\tit\tO\n", True, True),
        ("1 the O\n2 cat B-X\n", True, True),
        ("1 the\n2 cat\n", False, True),
        ("1 O\n2 B-X\n", True, False),  # the numbers are the words
        ("1 CD O\n2 CD O\n\nthe DT O\n", True, False),
        ("1 CD O\n", True, False),
        ("1\n2\n", False, False),
    ],
)
def test_a_column_that_counts_the_words(write, logged, text, labelled, is_dropped):
    first, *_ = read_conll(write(text), labelled).sentences
    warnings = [message for message in logged if "the first column counts the words" in message]
    assert len(warnings) == is_dropped
    assert first.words[0].isdigit() != is_dropped


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("-1.5e1", -15),
        (" .5 ", 0.5),
        ("5.", 5),
        ("1_0", None),
        ("\u0663", None),
        ("1e999", None),
        ("", None),
    ],
)
def test_numbers_are_of_ascii_digits(text, number):
    found = parse_number(text)
    assert found == number or (number is None and math.isnan(found))


def test_the_number_of_odd_beginnings_is_logged(write, logged):
    path = write("a I-x\nb O\nc B-x\nd I-y\n")
    read_conll(path)
    assert logged == [
        f"{path}: tags are IOB2 (BIO)",
        f"{path}: 2 chunks begin with I-; they are read as if with B-",
    ]


def test_files_without_tags(write, tmp_path):
    read = read_conll(write("A\nb\n\nc\n"), labelled=False)
    assert [sentence.words for sentence in read.sentences] == [["A", "b"], ["c"]]
    assert [sentence.tags for sentence in read.sentences] == [None, None]
    path = str(tmp_path / "predictions.conll")
    write_predictions(path, read, [["B-x", "I-x"], ["O"]])
    with open(path) as file:
        assert file.read() == "A B-x\nb I-x\n\nc O\n\n"
    assert read_conll(write("A NN\n"), labelled=False).sentences[0].tags is None
    assert read_conll(write("A I-x\n"), labelled=False).scheme == IOB1  # for the predictions


def test_a_word_of_bytes_that_are_not_utf8_keeps_its_line(tmp_path, logged):
    path = tmp_path / "test.txt"
    path.write_bytes(b"\xe9\nb\ncaf\xe9\n\nd\n")
    read = read_conll(str(path), labelled=False)
    assert [(one.line, one.words) for one in read.sentences] == [
        (1, ["\ufffd", "b", "caf\ufffd"]),
        (5, ["d"]),
    ]
    assert f"{path}: replaced bytes that are not UTF-8 in 2 lines" in logged
    predictions = tmp_path / "predictions.conll"
    write_predictions(str(predictions), read, [["O", "O", "O"], ["B-x"]])
    assert predictions.read_text(encoding="utf-8") == "\ufffd O\nb O\ncaf\ufffd O\n\nd B-x\n\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-DOCSTART- O\n\n", "holds no example"),
        ("a\nb\n", "line 1: has no tag; give each token its tag"),
        ("\na X O\nb O\n", "line 3: has 2 columns and the lines before 3; separate"),
        ("a O\n\nb X-LOC\n", "line 3: has the tag 'X-LOC'; tags are O, B-type and I-type"),
        ("a B-\n", "line 1: has the tag 'B-'; tags are O"),
    ],
)
def test_files_that_cannot_be_used(write, text, message):
    path = write(text)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        read_conll(path)

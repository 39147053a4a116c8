import pytest
from absl import logging

from official_bert.data.tables import read_csv, read_sentences, read_tsv
from official_bert.io.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_bytes(data: bytes) -> str:
        path = tmp_path / "rows.txt"
        path.write_bytes(data)
        return str(path)

    return write_bytes


@pytest.fixture
def logged(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "warning", lambda form, *values: lines.append(form % values))
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
    assert logged == [f"{path}: left out bytes that are not UTF-8 in 1 lines", f"{path}: skipped 2 blank lines"]


def test_csv_with_quotes(write, logged):
    path = write('\ufeffid,text\r\n1,"a ""b"", c"\r\n\r\n2,"two\r\nlines"\r\n3,d\n'.encode())
    assert rows(read_csv(path)) == [
        (1, ["id", "text"]),
        (2, ["1", 'a "b", c']),
        (5, ["2", "two\nlines"]),
        (6, ["3", "d"]),
    ]
    assert logged == [f"{path}: skipped 1 blank lines"]


def test_long_fields(write):
    text = "word " * 200_000
    assert rows(read_tsv(write(f"1\t{text}\n".encode()))) == [(1, ["1", text])]
    assert rows(read_csv(write(f'1,"{text}"\n'.encode()))) == [(1, ["1", text])]


@pytest.mark.parametrize("text", ['a,"b', 'a,"b"c\n', "a\nb,\rc\n"])
def test_quotes_that_do_not_match(write, text):
    path = write(text.encode())
    line = text.strip().count("\n") + 1
    with pytest.raises(InputError, match=rf"^{path}: line {line}: .*; check the quotes up to here$"):
        list(read_csv(path))


def test_a_missing_column_and_a_missing_file(write, tmp_path):
    path = write(b"a\tb\nc\td\n")
    last = list(read_tsv(path))[1]
    assert (last.field(1, "the label"), last.field(-2, "the text")) == ("d", "c")
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


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "input.txt"
    path.touch()
    with pytest.raises(InputError, match=r"input.txt: is empty; give it one example a line$"):
        next(read_sentences(str(path)))

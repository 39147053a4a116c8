import pytest

from official_bert.data.tables import read_sentences
from official_bert.io.errors import InputError


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

"""Text and JSON are read as they are, and what is neither is named with its first fault."""

import math

import pytest

from official_bert.io import reading
from official_bert.io.errors import InputError
from official_bert.io.reading import field

QUESTION = {"id": "q1", "answers": [], "title": None}


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a\u2028b\r\n".encode() + b"c\xffd\n\ne", ["a\u2028b", "cd", "", "e"]),
        (b"a\rb c\n\rd\r\r\n", ["ab c", "d"]),  # the original's reader drops every carriage return
        (b"\xc3\r\xa9\n", ["\u00e9"]),  # and reads UTF-8 afterwards
        (b"one\ttext\rof a table", ["one\ttextof a table"]),
        # No UTF-16, although its first character is a zero byte.
        (b"\0\nthe cat\n", ["\0", "the cat"]),
    ],
)
def test_lines_end_at_newlines_only_and_broken_bytes_are_left_out(tmp_path, data, lines):
    path = tmp_path / "text"
    path.write_bytes(data)
    assert list(reading.read_lines(path)) == lines


def test_json_is_read_with_and_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.json"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + '{"name": "\u00e9", "values": [1, 2.5, null]}'.encode())
        assert reading.read_json(str(path)) == {"name": "\u00e9", "values": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"data": [\n  {]}', "a.json: line 2, column 4: no JSON (Expecting property name"),
        (
            b"",
            "a.json: line 1, column 1: no JSON (Expecting value); download or create the file again",
        ),
        (b'{"data": "\xff"}', "a.json: byte 10 is no utf-8; save the file as UTF-8"),
        (b"[" * 100_000, "a.json: no JSON ("),
        (b'{"data": %s}' % (b"9" * 5000), "a.json: no JSON ("),
    ],
)
def test_an_error_names_the_first_fault_in_a_json_file(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as refused:
        reading.read_json(str(path))
    assert str(refused.value).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize(
    ("holder", "name", "kind", "message"),
    [
        (QUESTION, "qas", list, 'a.json: question 2: "qas" is missing; give it a list'),
        (QUESTION, "title", str, 'a.json: question 2: "title" is not a text; give it a text'),
        (
            QUESTION,
            "answers",
            dict,
            'a.json: question 2: "answers" is not an object; give it an object',
        ),
        (
            ["id"],
            "id",
            str,
            'a.json: question 2: is not an object; it should be one with the field "id"',
        ),
    ],
)
def test_an_error_names_the_object_the_field_and_the_type(holder, name, kind, message):
    assert field(QUESTION, "answers", list, "a.json: question 2") == []
    with pytest.raises(InputError) as refused:
        field(holder, name, kind, "a.json: question 2")
    assert str(refused.value) == message


def test_metrics_of_labels_with_an_equals_sign(tmp_path):
    path = tmp_path / "eval_results.txt"
    path.write_text("eval_f1_a = b = 0.5\neval_f1_ = 1 = nan\nglobal_step = 3\n")
    metrics = reading.read_metrics(str(path))
    assert math.isnan(metrics.pop("eval_f1_ = 1"))
    assert metrics == {"eval_f1_a = b": 0.5, "global_step": 3}
    path.write_text("no metric\n")
    with pytest.raises(ValueError, match="not enough values"):
        reading.read_metrics(str(path))


def test_the_last_lines_of_a_log(tmp_path):
    path = tmp_path / "log.txt"
    lines = [f"line {number}" for number in range(1000)]
    path.write_bytes("\n".join(lines).encode() + b"\nbad \xff\n")
    assert reading.read_last_lines(str(path), 3) == ["line 998", "line 999", "bad \ufffd"]

    # Of very long lines, fewer are read.
    path.write_text("a" * 5000 + "\n" + "b" * 5000)
    assert reading.read_last_lines(str(path), 2) == ["b" * 2000]

"""What a table of predictions contains, the readers of training tables read again."""

import pytest

from official_bert.data.table_formats import read_records
from official_bert.extensions.tables.table_writer import open_writer

HOSTILE = ['"', 'say "on"', "a,b", "", " x ", "'", "\\", "北京", '"a" b', "[1, 2]", "#", "="]
LINES = ["two\nlines", "a\ttab", "old\rMac", "Windows\r\nline", '"\n"', "\n"]


@pytest.mark.parametrize(
    ("name", "data_format", "is_quoted", "values"),
    [
        ("a.tsv", "tsv", False, HOSTILE),
        ("a.tsv", "tsv", True, HOSTILE + LINES),
        ("a.tsv.gz", "tsv", True, HOSTILE + LINES),
        ("a.csv", "csv", False, HOSTILE + LINES),
        ("a.csv.gz", "csv", False, HOSTILE + LINES),
        ("a.jsonl", "jsonl", False, HOSTILE + LINES),
    ],
)
def test_the_reader_reads_what_the_writer_writes(tmp_path, name, data_format, is_quoted, values):
    path = str(tmp_path / name)
    records = [
        {"text": value, "a label": value[::-1], "n": str(n)} for n, value in enumerate(values)
    ]
    with (
        open(path, "wb") as file,
        open_writer(file, path, data_format=data_format, is_quoted=is_quoted) as writer,
    ):
        writer.write(records[:4])
        writer.write(records[4:])
    read = read_records(path, "input_file", is_quoted=is_quoted)
    assert [record for _, record in read] == records

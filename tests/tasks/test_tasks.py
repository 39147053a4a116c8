"""Imperfect files, through the reader of every task whose files are tables."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from official_bert.data.tables import read_conll
from official_bert.io.errors import InputError
from official_bert.tasks.choice.examples import read_codah, read_swag
from official_bert.tasks.classification.glue import ColaProcessor, MrpcProcessor, XnliProcessor
from official_bert.tasks.classification.text import TextProcessor


def read_classifier(processor, set_name):
    """A function from a file to the examples that a processor reads."""
    read_set = getattr(processor, f"get_{set_name}_examples")

    def read(path):
        examples = read_set(str(path.parent))
        return [(one.text_a, one.text_b, one.label) for one in examples]

    return read


def read_choices(read_file):
    """A function from a file to the examples of a function, without their names."""

    def read(path):
        return [one[1:] for one in read_file(str(path), "dev")]

    return read


def read_sentences(path):
    sentences = read_conll(str(path)).sentences
    return [(one.words, one.tags) for one in sentences]


class Table(NamedTuple):
    """A kind of file: its reader, name and header, and a row.

    In the row, TEXT is in the place of a text and LABEL in that of a label.
    """

    read: Callable
    file: str
    header: str
    row: str
    label: str = "1"
    separator: str = "\t"


TABLES = {
    "CoLA": Table(
        read=read_classifier(ColaProcessor(), "train"),
        file="train.tsv",
        header="",
        row="s\tLABEL\t*\tTEXT\n",
    ),
    "MRPC": Table(
        read=read_classifier(MrpcProcessor(), "dev"),
        file="dev.tsv",
        header="h\n",
        row="LABEL\t1\t2\ta\tTEXT\n",
    ),
    "XNLI": Table(
        read=read_classifier(XnliProcessor(), "dev"),
        file="xnli.dev.tsv",
        header="h\n",
        row="zh\tLABEL\t\t\t\t\ta\tTEXT\n",
        label="neutral",
    ),
    "tsv": Table(
        read=read_classifier(TextProcessor("text", labels=["0", "1"]), "dev"),
        file="dev.tsv",
        header="text\tlabel\n",
        row="TEXT\tLABEL\n",
    ),
    "SWAG": Table(
        read=read_choices(read_swag),
        file="val.csv",
        header="sent1,sent2,ending0,ending1,ending2,ending3,label\n",
        row="a,b,TEXT,c,d,e,LABEL\n",
        separator=",",
    ),
    "CODAH": Table(
        read=read_choices(read_codah),
        file="dev.tsv",
        header="",
        row="c\ta\tTEXT\tb\tc\td\tLABEL\n",
    ),
    "CoNLL": Table(
        read=read_sentences,
        file="dev.conll",
        header="",
        row="TEXT NN LABEL\n\n",
        label="B-x",
        separator=" ",
    ),
}
DIRT = {
    "byte order mark": lambda text: "\ufeff" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "no last line end": lambda text: text.rstrip("\n"),
}


@pytest.fixture(params=TABLES)
def table(request) -> Table:
    """A kind of file whose row has a good label."""
    table = TABLES[request.param]
    return table._replace(row=table.row.replace("LABEL", table.label))


@pytest.fixture
def read(table, tmp_path):
    """A function from the text of a file to its examples."""
    path = tmp_path / table.file

    def read_text(text, encoding="utf-8"):
        path.write_bytes(text.encode(encoding))
        return table.read(path)

    return read_text


@pytest.mark.parametrize("kind", DIRT)
def test_dirt_changes_no_example(table, read, kind):
    text = table.header + table.row + table.row
    clean = read(text)
    assert len(clean) == 2
    dirty_text = DIRT[kind](text)
    assert read(dirty_text) == clean


def test_fields_may_be_long_and_hold_quotes(table, read):
    long_text = "x" * 1_000_000  # more than Python's csv takes if it is not told
    row = table.row.replace("TEXT", f'say"{long_text}')
    (example,) = read(table.header + row)
    assert f'say"{long_text}' in str(example)
    if table.separator == ",":  # CSV has quoting, and the end of an unfinished one can be anywhere
        unfinished_row = table.row.replace("TEXT", '"say')
        with pytest.raises(InputError, match=r"val.csv: line 2: .*; check the quotes up to here"):
            read(table.header + unfinished_row)


def test_unknown_labels_and_short_rows_are_named_with_their_line(table, read):
    good_text = table.header + table.row
    line = good_text.count("\n") + 1
    unknown_row = table.row.replace(table.label, "x")
    with pytest.raises(InputError, match=rf": line {line}: has the (label|tag) 'x'"):
        read(good_text + unknown_row)
    short_row, _, _ = table.row.partition(table.separator)
    with pytest.raises(InputError, match=rf": line {line}: has 1 columns"):
        read(good_text + short_row)


def test_encodings_that_are_none_are_named(table, read):
    text = table.header + table.row
    two_rows = text + table.row
    with pytest.raises(InputError, match=r': ends its lines with "\\r" alone'):
        read(two_rows.replace("\n", "\r"))
    with pytest.raises(InputError, match="is UTF-16; save it as UTF-8"):
        read(text, "utf-16")

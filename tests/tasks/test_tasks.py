"""Imperfect files, through the reader of every task whose files are tables."""

import pytest

from official_bert.data.tables import read_conll
from official_bert.io.errors import InputError
from official_bert.tasks.choice.examples import read_codah, read_swag
from official_bert.tasks.classification.glue import ColaProcessor, MrpcProcessor, XnliProcessor
from official_bert.tasks.classification.text import TextProcessor


def of_classifier(processor, set_name):
    def read(path):
        examples = getattr(processor, f"get_{set_name}_examples")(str(path.parent))
        return [(one.text_a, one.text_b, one.label) for one in examples]

    return read


def of_choices(read_file):
    return lambda path: [one[1:] for one in read_file(str(path), "dev")]


def of_conll(path):
    return [(one.words, one.tags) for one in read_conll(str(path)).sentences]


SWAG_HEADER = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"
# By task: reader, file, header, and a row with TEXT where a text stands and LABEL where a label
# does.
TABLES = {
    "CoLA": (of_classifier(ColaProcessor(), "train"), "train.tsv", "", "s\tLABEL\t*\tTEXT\n"),
    "MRPC": (of_classifier(MrpcProcessor(), "dev"), "dev.tsv", "h\n", "LABEL\t1\t2\ta\tTEXT\n"),
    "XNLI": (
        of_classifier(XnliProcessor(), "dev"),
        "xnli.dev.tsv",
        "h\n",
        "zh\tLABEL\t\t\t\t\ta\tTEXT\n",
    ),
    "tsv": (
        of_classifier(TextProcessor("text", labels=["0", "1"]), "dev"),
        "dev.tsv",
        "text\tlabel\n",
        "TEXT\tLABEL\n",
    ),
    "SWAG": (of_choices(read_swag), "val.csv", SWAG_HEADER, "a,b,TEXT,c,d,e,LABEL\n"),
    "CODAH": (of_choices(read_codah), "dev.tsv", "", "c\ta\tTEXT\tb\tc\td\tLABEL\n"),
    "CoNLL": (of_conll, "dev.conll", "", "TEXT NN LABEL\n\n"),
}
GOOD_LABEL = {"XNLI": "neutral", "CoNLL": "B-x"}
DIRT = {
    "byte order mark": lambda text: "\ufeff" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "no last line end": lambda text: text.rstrip("\n"),
}


@pytest.fixture(params=TABLES)
def table(request, tmp_path):
    """(name, function from the text of a file to its examples, header, row)."""
    read, file, header, row = TABLES[request.param]
    path = tmp_path / file

    def examples(text, encoding="utf-8"):
        path.write_bytes(text.encode(encoding))
        return read(path)

    return request.param, examples, header, row.replace("LABEL", GOOD_LABEL.get(request.param, "1"))


@pytest.mark.parametrize("kind", DIRT)
def test_dirt_changes_no_example(table, kind):
    _, examples, header, row = table
    text = header + row + row
    clean = examples(text)
    assert len(clean) == 2
    assert examples(DIRT[kind](text)) == clean


def test_fields_may_be_long_and_hold_quotes(table):
    name, examples, header, row = table
    long = "x" * 1_000_000  # more than Python's csv takes if it is not told
    (found,) = examples(header + row.replace("TEXT", f'say"{long}'))
    assert f'say"{long}' in str(found)
    if name == "SWAG":  # CSV has quoting, and the end of an unfinished one can be anywhere
        with pytest.raises(InputError, match=r"val.csv: line 2: .*; check the quotes up to here"):
            examples(header + row.replace("TEXT", '"say'))


def test_unknown_labels_and_short_rows_are_named_with_their_line(table):
    name, examples, header, row = table
    good = GOOD_LABEL.get(name, "1")
    line = header.count("\n") + row.count("\n") + 1
    with pytest.raises(InputError, match=rf": line {line}: has the (label|tag) 'x'"):
        examples(header + row + row.replace(good, "x"))
    separator = {"SWAG": ",", "CoNLL": " "}.get(name, "\t")
    with pytest.raises(InputError, match=rf": line {line}: has 1 columns"):
        examples(header + row + row.partition(separator)[0])


def test_encodings_that_are_none_are_named(table):
    _, examples, header, row = table
    with pytest.raises(InputError, match=r': ends its lines with "\\r" alone'):
        examples((header + row + row).replace("\n", "\r"))
    with pytest.raises(InputError, match="is UTF-16; save it as UTF-8"):
        examples(header + row, "utf-16")

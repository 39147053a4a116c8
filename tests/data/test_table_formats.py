"""The same rows in every format of tables, and files that cannot be read as one."""

import csv
import datetime
import decimal
import gzip
import io
import json
import sys

import pytest

from official_bert.data.table_formats import (
    choose_format,
    find_table,
    parse_label,
    read_rows,
    read_tagged,
)
from official_bert.data.tables import Row, read_conll
from official_bert.io.errors import InputError
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.classification.text import TextProcessor

PLAIN = [
    {"text": 'say "hi", she said', "label": "b"},
    {"text": "", "label": "a"},
    {"text": "é\u2028中 'x'", "label": "b"},
    {"text": " blanks ", "label": "10"},
]
HARD = [
    {"text": text, "label": "x"}
    for text in (
        'a, "b"',
        "two\nlines",
        "two\r\nlines\r\n",
        "a\rb",
        "a\ttab",
        '"',
        '""',
        "",
        " ",
        "\u00a0é中",
        '\n"\n,',
    )
]
needs_pyarrow = pytest.mark.needs_extra("pyarrow")
PARQUET = pytest.param("a.parquet", marks=needs_pyarrow)
TABLES = ["a.csv", "a.csv.gz", "a.jsonl", "a.json", "a.jsonl.gz", PARQUET]


def content(name: str, rows: list[dict], line_end: str = "\n") -> bytes:
    """A table as programs write it that know its format."""
    name = name.removesuffix(".gz")
    columns = list(rows[0])
    if name.endswith(".parquet"):
        import pyarrow
        from pyarrow import parquet

        file = pyarrow.BufferOutputStream()
        values = {column: [row[column] for row in rows] for column in columns}
        parquet.write_table(pyarrow.table(values), file)
        return file.getvalue().to_pybytes()
    if name.endswith(".csv"):
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, columns, lineterminator=line_end)
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode()
    if name.endswith(".tsv"):
        rows_with_header = [columns, *(row.values() for row in rows)]
        lines = ["\t".join(fields) + line_end for fields in rows_with_header]
        return "".join(lines).encode()
    lines = [json.dumps(row, ensure_ascii=False) + line_end for row in rows]
    return "".join(lines).encode()


def write(path, data: bytes | str):
    data = data if isinstance(data, bytes) else data.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def examples(named: str | None, folder=None, **settings):
    """Texts and labels of a training set."""
    settings = ClassificationSettings.from_values({"do_train": False, **settings})
    processor = TextProcessor.from_settings(settings)
    processor.named = {"train": named}
    train_examples = processor.get_train_examples(folder and str(folder))
    return [(example.text_a, example.label) for example in train_examples]


def pairs(rows):
    return [(row["text"], row["label"]) for row in rows]


@pytest.mark.parametrize("name", TABLES)
def test_fields_that_are_hard_to_write(tmp_path, name):
    path = write(tmp_path / name, content(name, HARD, "\r\n"))
    names, *rows = read_rows(path)
    assert names.fields == ["text", "label"]
    assert [row.fields for row in rows] == [list(row.values()) for row in HARD]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", *TABLES[:-1]])
def test_byte_order_marks_line_ends_and_gzip_change_no_example(tmp_path, name, mark, line_end):
    path = tmp_path / name.replace("a.", "train.")
    write(path, mark.encode() + content(name, PLAIN, line_end))
    assert examples(str(path)) == examples(None, tmp_path) == pairs(PLAIN)


@needs_pyarrow
def test_several_files_of_all_formats_are_one_set_with_the_columns_of_the_first(tmp_path):
    for number, name in enumerate(("1.csv", "part1.jsonl.gz", "part2.parquet", "4.tsv")):
        row = PLAIN[number]
        if number % 3 == 0:
            # In another order.
            row = {
                "more": "m",
                "label": row["label"],
                "text": row["text"],
            }
        write(tmp_path / name, content(name, [row]))
    names = f"{tmp_path}/part*,{tmp_path}/1.csv,{tmp_path}/4.tsv"
    first, second, third, fourth = PLAIN
    assert examples(names) == pairs([second, third, first, fourth])
    with pytest.raises(
        InputError,
        match=r"part1.jsonl.gz: has no column more, as .*/1.csv has; give files with equal",
    ):
        examples(f"{tmp_path}/1.csv,{tmp_path}/part*")
    with pytest.raises(InputError, match=r"^--train_file: no file matches '.*/other\*'; check"):
        examples(f"{tmp_path}/1.csv,{tmp_path}/other*")


def test_a_format_that_the_name_does_not_tell(tmp_path):
    path = write(tmp_path / "a,b.txt", content("a.csv", PLAIN))
    assert examples(path, data_format="csv") == pairs(PLAIN)
    with pytest.raises(
        InputError,
        match=r"a,b.txt: its name ends in none of .tsv, .csv, .*; give --data_format=tsv\|csv",
    ):
        choose_format(path)


def test_a_folder_with_two_files_for_a_set_is_ambiguous(tmp_path):
    for name in ("train.csv", "train.jsonl.gz", "dev.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(
        InputError,
        match=r": has train.csv and train.jsonl.gz; name the one to read with --train_file",
    ):
        find_table(str(tmp_path), "train")
    assert find_table(str(tmp_path), "train", "csv") == f"{tmp_path}/train.csv"
    assert find_table(str(tmp_path), "dev") == f"{tmp_path}/dev.parquet"
    (tmp_path / "TEST.JSONL.GZ").touch()
    path = find_table(str(tmp_path), "test")
    assert path == f"{tmp_path}/TEST.JSONL.GZ"
    assert choose_format(path) == "jsonl"
    (tmp_path / "Test.csv").touch()
    with pytest.raises(
        InputError, match=r": has Test.csv and TEST.JSONL.GZ; name the one to read with --test_file"
    ):
        find_table(str(tmp_path), "test")
    with pytest.raises(InputError, match=r"^--train_file: must be given, or --data_dir"):
        examples(None)


SCORE = {"label_type": "score"}
MULTI = {"label_type": "multi"}
JSON_LABELS = [
    pytest.param(3, {}, "3", id="number"),
    pytest.param(True, {}, "true", id="boolean"),
    pytest.param(1.5, SCORE, "1.5", id="score"),
    pytest.param(2, SCORE, "2", id="whole score"),
    pytest.param(["b, c", 7], MULTI, ("b, c", "7"), id="list"),
    pytest.param("x,y", MULTI, ("x", "y"), id="comma-separated text"),
    pytest.param([], MULTI, (), id="empty list"),
    pytest.param(None, MULTI, (), id="null"),
]


@pytest.mark.parametrize(("label", "settings", "expected"), JSON_LABELS)
def test_labels_are_values_of_json(tmp_path, label, settings, expected):
    row = {"label": label, "id": 1, "text": "a"}
    other_row = {"label": "9" if settings == SCORE else "z", "text": "b"}
    path = write(tmp_path / "a.jsonl", content("a.jsonl", [row, other_row]))
    first_example = examples(path, **settings)[0]
    assert first_example == ("a", expected)


GOOD = '{"text": "a", "label": "x"}\n'
UNUSABLE = [
    pytest.param(
        "a.csv",
        "text,label\na,b,x\n",
        "line 2: has 3 columns, the header 2; put texts with commas into quotes",
        id="many columns",
    ),
    pytest.param(
        "a.csv",
        "text,label\na,x\nb\n",
        "line 3: has 1 columns, the header 2",
        id="few columns",
    ),
    pytest.param(
        "a.csv",
        'text,label\n"a,x\nb,y\n',
        "line 3: unexpected end of data; check the quotes up to here",
        id="open quote",
    ),
    pytest.param(
        "a.csv",
        "text,label\na\rb,x\n",
        "line 2: new-line character seen in unquoted field",
        id="line end in a text",
    ),
    pytest.param(
        "a.csv",
        "text,text,label\na,b,x\n",
        "has several columns of this name; give its number",
        id="column twice",
    ),
    pytest.param(
        "a.csv",
        "text,kind\na,x\n",
        "--label_column=label: .* has no such column, only text, kind",
        id="no label column",
    ),
    pytest.param(
        "a.csv",
        "",
        "a.csv: holds no example",
        id="empty csv",
    ),
    pytest.param(
        "a.csv",
        "text,label\n",
        "a.csv: holds no example",
        id="csv without rows",
    ),
    pytest.param(
        "a.jsonl",
        "",
        "a.jsonl: holds no example",
        id="empty jsonl",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}["a"]\n',
        "line 2: is not an object; it should be one, in braces",
        id="list in place of an object",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}{{"text": "b"\n',
        r"line 2: no JSON \(.*\); give one JSON object a line",
        id="cut-off object",
    ),
    pytest.param(
        "a.jsonl",
        '{"text": "a", "text": "b", "label": "x"}',
        r"line 1: no JSON \(an object has a name twice",
        id="name twice",
    ),
    pytest.param(
        "a.jsonl",
        '{"text": ["a"], "label": "x"}',
        "line 1: --text_a_column=text is not a text; give it a text",
        id="list in place of a text",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}{{"label": "y"}}',
        "line 2: --text_a_column=text is missing; give it a text",
        id="missing text",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}{{"text": "b", "label": null}}',
        "line 2: has no label; complete the row",
        id="null label",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}{{"text": "b", "label": NaN}}',
        "line 2: has no label; complete the row",
        id="NaN label",
    ),
    pytest.param(
        "a.jsonl",
        f'{GOOD}{{"text": "b", "label": ["y"]}}',
        "line 2: the label is a list; .* --label_type=multi",
        id="list in place of a label",
    ),
    pytest.param(
        "a.jsonl",
        '{"text": "\\ud800", "label": "x"}',
        r"line 1: --text_a_column=text has '\\ud800', half of",
        id="half a character",
    ),
    pytest.param(
        "a.parquet",
        b"PAR1 and more",
        r"cannot be read as Parquet \(.*\); write it",
        marks=needs_pyarrow,
        id="broken parquet",
    ),
]


@pytest.mark.parametrize(("name", "data", "message"), UNUSABLE)
def test_tables_that_cannot_be_used(tmp_path, name, data, message):
    path = write(tmp_path / name, data)
    with pytest.raises(InputError, match=message):
        examples(
            path,
            text_a_column="text",
            label_column="label",
            labels=["x", "y"],
        )


@pytest.mark.parametrize("name", ["a.tsv", *TABLES])
@pytest.mark.parametrize("settings", [{}, {"label_type": "multi"}, {"abstain_below": 0.5}])
def test_an_unknown_label_has_its_file_and_line(tmp_path, name, settings):
    """In a development set it may be out of scope; in a training set it is a mistake."""
    unknown_row = {"text": "a", "label": "c"}
    path = write(tmp_path / name, content(name, [*PLAIN[2:], unknown_row]))
    if name == "a.parquet":
        place = "row 3"
    elif name.startswith(("a.tsv", "a.csv")):
        # The header is the first line.
        place = "line 4"
    else:
        place = "line 3"
    settings = ClassificationSettings.from_values({"labels": ["b", "10"], **settings})
    task = ClassificationTask.from_settings(TextProcessor, settings)
    task.processor.named = {"train": path}
    message = f"^{path}: {place}: has the label 'c', which is none of b, 10; correct it"
    with pytest.raises(InputError, match=message):
        task.processor.get_train_examples(None)


def test_a_table_that_names_its_columns_has_a_header(tmp_path):
    with pytest.raises(
        InputError,
        match=r"^--has_header=false: .*a.jsonl names its columns in each row; leave",
    ):
        examples(write(tmp_path / "a.jsonl", GOOD), has_header=False)
    assert examples(write(tmp_path / "a.csv", "b,x\na,y\n"), has_header=False) == [
        ("b", "x"),
        ("a", "y"),
    ]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        InputError,
        match=r"a.parquet: Parquet needs pyarrow, .*; pip install 'official-bert\[data\]'",
    ):
        examples(write(tmp_path / "a.parquet", b"PAR1"))


SENTENCES = [
    {"tokens": ["-DOCSTART-"], "ner_tags": ["O"]},
    {"tokens": ["EU", "Brussels", "a\u00a0b"], "ner_tags": ["I-ORG", "I-LOC", "B-LOC"]},
    {"tokens": [], "ner_tags": []},
    {"tokens": ["Paris"], "ner_tags": ["I-LOC"]},
]
CONLL = "-DOCSTART- O\n\nEU I-ORG\nBrussels I-LOC\na\u00a0b B-LOC\n\nParis I-LOC\n"


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", PARQUET])
def test_tokens_and_tags_are_read_as_the_columns_of_conll(tmp_path, name, labelled):
    read = read_tagged(write(tmp_path / name, content(name, SENTENCES)), "train_file", labelled)
    expected = read_conll(write(tmp_path / "a.conll", CONLL), labelled)
    sentences = [sentence[1:4] for sentence in read.sentences]
    expected_sentences = [sentence[1:4] for sentence in expected.sentences]
    assert sentences == expected_sentences
    assert read[2:] == expected[2:]
    capitals = [{name.upper(): value for name, value in row.items()} for row in SENTENCES]
    path = write(tmp_path / name, content(name, capitals))
    assert read_tagged(path, "train_file", labelled) == read


def test_tokens_without_tags(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"Tokens": ["a", "b"]}\n')
    assert read_tagged(path, "test_file", labelled=False).sentences[0].words == ["a", "b"]
    hidden = write(tmp_path / "hidden.jsonl", '{"tokens": ["a", "b"], "ner_tags": []}\n')
    assert read_tagged(hidden, "test_file", labelled=False).sentences[0].columns == [["a"], ["b"]]
    with pytest.raises(InputError, match="has 2 tokens and 0 ner_tags"):
        read_tagged(hidden, "dev_file")
    with pytest.raises(
        InputError,
        match=r"a.jsonl: has 1 columns, Tokens, and none called ner_tags or tags; name it so",
    ):
        read_tagged(path, "train_file")


def with_metadata(path, table, features):
    """Writes a table with what Hugging Face's library records of its columns."""
    from pyarrow import parquet

    metadata = (
        features if isinstance(features, str) else json.dumps({"info": {"features": features}})
    )
    parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), path)
    return str(path)


@needs_pyarrow
def test_numbers_of_labels_have_the_names_that_hugging_face_records(tmp_path):
    """-1 stands for a label that is not known."""
    import pyarrow

    names = {"names": ["O", "B-X"], "_type": "ClassLabel"}
    features = {
        "ner_tags": {"feature": names, "_type": "List"},
        "label": names,
        "tokens": {"_type": "List"},
    }
    columns = {
        "tokens": [["a", "b"]],
        "ner_tags": [[1, 0]],
        "label": [-1],
    }
    table = pyarrow.table(columns)
    for metadata, tags, label in ((features, ["B-X", "O"], None), ("[1]", [1, 0], -1)):
        path = with_metadata(tmp_path / "a.parquet", table, metadata)
        assert list(read_rows(path))[1].fields == [["a", "b"], tags, label]


@needs_pyarrow
@pytest.mark.parametrize("names", [None, {"0": "a"}, [], [1, 2], "ab"])
def test_names_of_labels_that_are_no_list_of_texts_are_not_read(tmp_path, names):
    import pyarrow

    path = with_metadata(
        tmp_path / "a.parquet", pyarrow.table({"label": [1]}), {"label": {"names": names}}
    )
    assert list(read_rows(path))[1].fields == [1]


@needs_pyarrow
def test_labels_of_other_kinds_than_their_recorded_names(tmp_path):
    import pyarrow

    features = {"label": {"names": ["x", "y"]}}
    table = pyarrow.table({"label": [0.5, 1.0, None]})
    path = with_metadata(tmp_path / "a.parquet", table, features)
    _, *rows = read_rows(path)
    assert [row.fields for row in rows] == [[0.5], [1.0], [None]]
    path = with_metadata(tmp_path / "a.parquet", pyarrow.table({"label": [0, 2]}), features)
    with pytest.raises(
        InputError, match="row 2: has the label 2, but the file names the labels 0 to 1"
    ):
        list(read_rows(path))


def test_labels_of_parquets_kinds_are_texts():
    row = Row("a.parquet", 1, [], "row")
    assert parse_label(row, decimal.Decimal("2.50")) == "2.50"
    assert parse_label(row, datetime.date(2024, 1, 31)) == "2024-01-31"
    with pytest.raises(InputError, match="row 1: the label is a list; give the row one label"):
        parse_label(row, ["a"])


@pytest.mark.parametrize(
    "text", ['[{"text": "a", "label": "x"}]', '[\n{"text": "a", "label": "x"}\n]']
)
def test_a_json_array_is_no_table_of_lines(tmp_path, text):
    with pytest.raises(
        InputError,
        match=r"a.json: line 1: begins a JSON array; write its objects without it, one a",
    ):
        examples(write(tmp_path / "a.json", text))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ner_tags": ["O"]}, "line 1: has 3 tokens and 1 ner_tags; give each token one tag"),
        ({"ner_tags": ["O", "X", "O"]}, "line 1: has the tag 'X'; tags are O, B-type and I-type"),
        (
            {"ner_tags": ["O", "B-Body Part", "O"]},
            "line 1: has the tag 'B-Body Part'; give types without blanks",
        ),
        (
            {"ner_tags": ["O", "B-a\tb", "O"]},
            r"line 1: has the tag 'B-a.tb'; give types without blanks",
        ),
        (
            {"tags": ["O", "O", "O"]},
            "each of the columns ner_tags and tags could be tags; rename all but one",
        ),
        (
            {"Tokens": ["O", "O", "O"]},
            "each of the columns tokens and Tokens could be tokens; rename all but one",
        ),
        ({"ner_tags": [0, 1, 0]}, "line 1: an element of ner_tags is not a text"),
        ({"ner_tags": None}, 'line 1: "ner_tags" is not a list; give it a list'),
        ({"tokens": ["a", "b c", "d"]}, "line 1: has the token 'b c'; give words without blanks"),
        ({"tokens": ["a", "", "d"]}, "line 1: has the token ''; give words without blanks"),
        ({"tokens": []}, "line 1: has 0 tokens and 3 ner_tags"),
    ],
)
def test_sentences_that_cannot_be_used(tmp_path, changes, message):
    path = write(tmp_path / "a.jsonl", content("a.jsonl", [SENTENCES[1] | changes]))
    with pytest.raises(InputError, match=message):
        read_tagged(path, "train_file")

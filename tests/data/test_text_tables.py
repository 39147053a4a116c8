"""Texts that belong together: the columns of tables in every form, lines, and several files."""

import json
import re

import pytest

from official_bert.data.text_tables import Example, read_examples
from official_bert.io.errors import InputError

QUESTION = {
    "query": "where is it",
    "positive": ["here", "there"],
    "negatives": ["then", "now"],
    "label": 1,
}


def read(path, content: str, **settings) -> list[Example]:
    path.write_text(content)
    return read_examples(str(path), "train_file", settings)


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        ("a.tsv", "Sentence1\tsentence2\tscore\na\tb\t2.5\n", {}, ("a", ("b",), (), "2.5")),
        (
            "a.csv",
            'question,answer,negative_1,negative_2\n"a, b",c,d,e\n',
            {},
            ("a, b", ("c",), ("d", "e"), ""),
        ),
        (
            "a.jsonl",
            json.dumps(QUESTION),
            {},
            ("where is it", ("here", "there"), ("then", "now"), "1"),
        ),
        (
            "a.tsv",
            "4\ta\tb\n",
            {
                "has_header": False,
                "label_column": "0",
                "anchor_column": "1",
                "positive_column": "2",
            },
            ("a", ("b",), (), "4"),
        ),
        (
            "a.tsv",
            'x\ty\n"a"\tb\n',
            {"anchor_column": "x", "positive_column": "y", "quoting": "csv"},
            ("a", ("b",), (), ""),
        ),
        (
            "a.tsv",
            "text\tx\ty\na\tb\tc\n",
            {"negative_columns": ["x", "y"]},
            ("a", (), ("b", "c"), ""),
        ),
        ("a.txt", "\n\n a text \n", {}, (" a text ", (), (), "")),
        ("a.txt", "text\tanswer\na\tb\n", {"data_format": "tsv"}, ("a", ("b",), (), "")),
        ("a.tsv", "Text\tAnswer\tNegative_1\na\tb\tc\n", {}, ("a", ("b",), ("c",), "")),
        (
            "a.csv",
            "anchor,positive,negative,negative_score,negative_id\na,b,c,0.83,17\n",
            {},
            ("a", ("b",), ("c",), ""),
        ),
        ("a.csv", "anchor,positive,label\na,b,0\n", {"label_column": ""}, ("a", ("b",), (), "")),
        (
            "a.csv",
            "Frage,Antwort\na,b\n",
            {"anchor_column": "frage", "positive_column": "ANTWORT"},
            ("a", ("b",), (), ""),
        ),
        ("a.csv", "sentence1,sentence2\na,b\n", {"anchor_column": "sentence2"}, ("b", (), (), "")),
    ],
)
def test_columns_of_usual_and_of_given_names(tmp_path, name, content, settings, expected):
    (found,) = read(tmp_path / name, content, **settings)
    assert found[1:] == expected
    line = max(1, content.count("\n"))
    assert found.where == f"{tmp_path / name}: line {line}"


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (
            "a,b",
            {"anchor_column": "a", "positive_column": "a"},
            "--positive_column=a: is the column of --anchor_column=a, too",
        ),
        (
            "text,b",
            {"positive_column": "b", "negative_columns": ["b"]},
            "--negative_columns=b: is the column of --positive_column=b, too",
        ),
        (
            "a,b",
            {"anchor_column": "a", "label_column": "a"},
            "--label_column=a: is the column of --anchor_column=a, too",
        ),
        (
            "text,question",
            {},
            "each of the columns text and question could be anchor; name the right one",
        ),
        ("Anchor,anchor", {}, "each of the columns Anchor and anchor could be anchor"),
        ("text,score,label", {}, "each of the columns score and label could be label"),
    ],
)
@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_columns_that_are_not_clear(tmp_path, ending, names, settings, message):
    names = names.split(",")
    if ending == ".jsonl":
        content = json.dumps(dict.fromkeys(names, "x"))
    else:
        separator = "\t" if ending == ".tsv" else ","
        header = separator.join(names)
        row = separator.join(["x"] * len(names))
        content = f"{header}\n{row}\n"
    with pytest.raises(InputError, match=re.escape(message)):
        read(tmp_path / f"a{ending}", content, **settings)


@pytest.mark.parametrize("label", ["1_0", "\u0663", "one", "inf"])
def test_scores_are_plain_numbers(label):
    with pytest.raises(InputError, match=f"^a: the label '{label}' is no number"):
        Example("a", "x", label=label).score()
    with pytest.raises(InputError, match=r"^a: has no label; give the pair a number"):
        Example("a", "x").score()
    scores = [Example("a", "x", label=text).score() for text in ("-1.5e1", "true", "True", "FALSE")]
    assert scores == [-15, 1, 1, 0]


@pytest.mark.parametrize("content", ["anchor\tpositive\na\tb\n", "a\n\nb\tc\n"])
def test_lines_that_are_rows_of_a_table_are_warned_of(tmp_path, content, caplog):
    last_example = read(tmp_path / "a.txt", content)[-1]
    assert last_example.anchor.endswith(content[-4:-1])
    assert ("a.txt: has a tab in each line" in caplog.text) == content.startswith("anchor")


def test_an_empty_file_is_not_called_a_table(tmp_path, caplog):
    with pytest.raises(InputError, match=r"a\.txt: holds no example"):
        read(tmp_path / "a.txt", "\n")
    assert "has a tab" not in caplog.text


def test_columns_of_lines_are_warned_of(tmp_path, caplog):
    read(tmp_path / "a.txt", "a\n", anchor_column="q", label_column="")
    sentence = (
        f"--anchor_column and --label_column: not read for {tmp_path}/a.txt, which has one text a "
        "line"
    )
    assert sentence in caplog.text
    with pytest.raises(InputError, match=r"a.tsv: line 3: has the names of the columns again, as"):
        read(tmp_path / "a.tsv", "anchor\tpositive\na\tb\nanchor\tpositive\n")


def test_several_files_are_one_set(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tanswer\na\tb\n")
    (tmp_path / "b.csv").write_text("positive,anchor\nd,c\n")
    found = read_examples(f"{tmp_path}/a.tsv,{tmp_path}/b.csv", "train_file", {})
    assert [one[1:3] for one in found] == [("a", ("b",)), ("c", ("d",))]
    (tmp_path / "a.tsv").rename(tmp_path / "a,[1].tsv")
    assert read_examples(f"{tmp_path}/*.?s?", "train_file", {}) == [
        found[0]._replace(where=f"{tmp_path}/a,[1].tsv: line 2"),
        found[1],
    ]


@pytest.mark.parametrize(
    ("label", "positives", "negatives", "scores"),
    [
        ([2, 1.5, -1], ["a"], ["b", "c"], [2, 1.5, -1]),
        ("2 1.5 -1", ["a", "b"], ["c"], [2, 1.5, -1]),
        (3, ["a", "b"], [], [3, 3]),
        # How much better the positive is.
        ([4, 5], ["a"], ["b", "c"], [0, -4, -5]),
        (4, ["a"], ["b"], [0, -4]),
    ],
)
def test_a_label_may_have_a_score_for_each_text(tmp_path, label, positives, negatives, scores):
    row = {"query": "q", "positive": positives, "negative": negatives, "label": label}
    (example,) = read(tmp_path / "a.jsonl", json.dumps(row))
    assert example.scores() == scores


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ([1, 2], "line 1: the label has 2 numbers, and the row 4 texts"),
        ("1 x 2 3", "line 1: the label 'x' is no number"),
        ("", "line 1: has no label"),
        ([1, "x"], "line 1: the label is a list"),
        ([], "line 1: the label is a list"),
    ],
)
def test_other_scores_are_refused(tmp_path, label, message):
    row = {"query": "q", "positive": ["a"], "negative": ["b", "c", "d"], "label": label}
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.jsonl", json.dumps(row))[0].scores()

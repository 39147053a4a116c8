"""Which column has which role, for all tasks."""

import re

import pytest

from official_bert.data.column_roles import Role, decide_columns
from official_bert.io.errors import InputError

ANCHOR = Role("anchor", ("anchor", "text"), is_required=True, flag="anchor_column")
POSITIVE = Role("positive", ("positive",), flag="positive_column")
NEGATIVE = Role("negative", ("negative", "negatives"), is_list=True, flag="negative_columns")
LABEL = Role("label", ("label", "score"), flag="label_column")
ROLES = (ANCHOR, POSITIVE, NEGATIVE, LABEL)


def decide(names: str, flag: str = "", **more):
    """The names of the columns of each role that has some."""
    assigned = dict(part.split("=") for part in flag.split(" ")) if flag else {}
    if "negative" in assigned:
        assigned["negative"] = assigned["negative"].split(",")
    columns = decide_columns("a.csv", names.split(","), ROLES, assigned, **more)
    return {
        role: [columns.name(number) for number in numbers]
        for role, numbers in columns.role_columns.items()
        if numbers
    }


@pytest.mark.parametrize(
    ("names", "flag", "expected"),
    [
        ("ANCHOR, Positive ", "", {"anchor": ["ANCHOR"], "positive": [" Positive "]}),
        (
            "anchor,negative_10,Negative,negatives_2",
            "",
            {"negative": ["negative_10", "Negative", "negatives_2"]},
        ),
        ("anchor,negative_score,negative_id,negativity,negative_1a,non-negative", "", {}),
        ("anchor,positive", "anchor=POSITIVE", {"anchor": ["positive"], "positive": None}),
        ("anchor,positive,score", "label=", {"positive": ["positive"], "label": None}),
        ("a,A,text", "positive=A", {"positive": ["A"]}),  # the exact name wins
        ("anchor,x,y", "negative=y,x", {"negative": ["y", "x"]}),
        # A name wins over a number.
        ("text,1,2", "positive=2 label=1", {"positive": ["2"], "label": ["1"]}),
        ("text,b,c", "positive=-1 label=1", {"positive": ["c"], "label": ["b"]}),
    ],
)
def test_roles(names, flag, expected):
    first_name, *_ = names.split(",")
    anchor = "text" if "text" in names else first_name
    roles = {"anchor": [anchor]} | expected
    assert decide(names, flag) == {role: columns for role, columns in roles.items() if columns}


@pytest.mark.parametrize(
    ("names", "flag", "message"),
    [
        (
            "text,Anchor,positive",
            "",
            "each of the columns text and Anchor could be anchor; name the right one, --anchor_column",
        ),
        (
            "anchor,label,score",
            "",
            "each of the columns label and score could be label; name the right one",
        ),
        ("anchor,Label,label", "", "each of the columns Label and label could be label"),
        (
            "anchor,b",
            "positive=b negative=b",
            "--negative_columns=b: is the column of --positive_column=b, too; give each",
        ),
        (
            "anchor,b",
            "positive=b label=-1",
            "--label_column=-1: is the column of --positive_column=b, too",
        ),
        (
            "anchor,b",
            "negative=b,B",
            "--negative_columns=B: is the column of --negative_columns=b, too",
        ),
        (
            "anchor,b",
            "positive=anchor",
            "--positive_column=anchor: is the column that anchor is read from; name that of anchor, "
            "too, --anchor_column=...",
        ),
        ("anchor,b", "anchor=", "--anchor_column=: is empty; name the column"),
        (
            "anchor,B,b",
            "positive=β",
            "--positive_column=β: a.csv has no such column, only anchor, B, b",
        ),
        (
            "anchor,Bb,bb",
            "positive=BB",
            "--positive_column=BB: a.csv has several columns of this name; give its num",
        ),
        (
            "x,y",
            "",
            "a.csv: none of its columns x, y has a usual name; name them, as in "
            "--anchor_column=question",
        ),
    ],
)
def test_columns_that_are_not_clear(names, flag, message):
    with pytest.raises(InputError) as refused:
        decide(names, flag)
    assert message in str(refused.value)


@pytest.mark.parametrize("delimiter", [";", "\t", ",", "|"])
def test_columns_of_another_format(delimiter):
    role = Role("text_a", ("text",), is_required=True, can_be_guessed=True, flag="text_a_column")
    names = [f"text{delimiter}label"]
    message = f"has one column, {names[0]!r}, which may be several with {delimiter!r} between them"
    with pytest.raises(InputError, match=re.escape(message)):
        decide_columns("a.csv", names, (role,))
    assert decide_columns("a.csv", names, (role,), {"text_a": "0"}).role_columns == {"text_a": [0]}
    assert decide_columns("a.csv", ["a text"], (role,)).guessed == {"text_a"}


def test_names_of_rows_are_never_guessed():
    role = Role("text_a", ("text",), is_required=True, can_be_guessed=True, flag="text_a_column")
    assert decide_columns("a.csv", ["ID", "review"], (role,)).role_columns == {"text_a": [1]}
    with pytest.raises(InputError, match=r"^a.csv: has 1 columns, id; name that of text_a, --"):
        decide_columns("a.csv", ["id"], (role,))


def test_one_line_says_what_is_read(caplog):
    caplog.set_level("INFO", logger="absl")
    roles = (
        Role("text_a", ("text",)),
        Role("label", ("label",)),
        Role("text_b", ("other",), is_read=False),
    )
    decide_columns("a.csv", ["Date", "Label", "Text", "id", "other"], roles)
    decide_columns("a.csv", ["text", *(str(number) for number in range(15))], roles)
    decide_columns("a.csv", ["anchor", "negative_1", "negative_2"], ROLES)
    assert caplog.messages == [
        "a.csv: Reading text_a=Text, label=Label; ignoring Date, id, other",
        "a.csv: Reading text_a=text; ignoring 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more",
        "a.csv: Reading anchor=anchor, negative=negative_1+negative_2",
    ]


def test_without_a_flag_the_remedy_is_to_rename():
    with pytest.raises(
        InputError, match=r"each of the columns tags and Tags could be tags; rename all but one$"
    ):
        decide_columns("a", ["tags", "Tags"], (Role("tags", ("tags",)),))
    with pytest.raises(
        InputError, match=r"^a: has 1 columns, x, and none called ner_tags or tags; name it so$"
    ):
        decide_columns("a", ["x"], (Role("tags", ("ner_tags", "tags"), is_required=True),))


def test_a_file_without_names_has_positions():
    text, label = (
        Role(name, is_required=True, position=number, flag=f"{name}_column")
        for name, number in (("text_a", 0), ("label", -1))
    )
    columns = decide_columns("a", (), (text, label), width=3)
    assert columns.role_columns == {"text_a": [0], "label": [2]}
    with pytest.raises(
        InputError,
        match=r"^a: text_a and label are one column, 0; name both, "
        r"--text_a_column=... --label_column=...$",
    ):
        decide_columns("a", (), (text, label), width=1)


@pytest.mark.parametrize(
    ("names", "number"),
    [
        ("anchor,id,positive", 1),
        ("anchor,Ticket ID,id", 1),
        ("order_id,anchor", 0),
        ("anchor,paid,valid", None),
        ("anchor,positive,label", None),
    ],
)
def test_the_column_that_names_the_rows(names, number):
    columns = decide_columns("a.csv", names.split(","), ROLES)
    assert columns.find_row_names() == number


def test_a_column_with_a_role_does_not_name_the_rows():
    columns = decide_columns("a.csv", ["id", "text"], ROLES, {"label": "id"})
    assert columns.find_row_names() is None


ROW_TEXT = Role("text_a", ("text",), is_required=True, position=0, can_be_guessed=True)


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [
        ("when,what", True),
        ("ticket id,what", True),  # of which the first would be the text
        ("id,what", False),  # the only column that is left
        ("what", False),
        ("when,text", False),  # a usual name
    ],
)
def test_a_text_is_not_guessed_in_place_of_the_column_of_the_training(names, is_refused):
    label = Role("label", ("label",), position=-1, can_be_guessed=True)
    columns = decide_columns("a.csv", names.split(","), [ROW_TEXT, label])
    if not is_refused:
        columns.refuse_guesses({"text_a": "Message"}, "name it")
        return
    message = f"a.csv: has no column Message, on which the model was trained, only {names}; name it"
    with pytest.raises(
        InputError, match=re.escape(message.replace(",", ", ").replace(",  ", ", "))
    ):
        columns.refuse_guesses({"text_a": "Message"}, "name it")
    columns.refuse_guesses({}, "name it")

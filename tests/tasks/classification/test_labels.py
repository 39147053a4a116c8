"""Labels of tables: several in one field, and probable mistakes."""

import pytest

from official_bert.data.tables import Row
from official_bert.io.errors import InputError
from official_bert.tasks.classification import labels
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import TextProcessor

ROW = Row("a.csv", 2, [])


def training_labels(values, label_type="multi", **settings):
    """The labels of the training set with these values in the column of the label."""
    flags = {"do_train": False, "label_type": label_type, **settings}
    processor = TextProcessor.from_settings(ClassificationSettings.from_values(flags))
    rows = [Row("train", 0, ["text", "label"], "row")]
    for number, value in enumerate(values):
        rows.append(Row("train", number + 1, [f"text {number}", value], "row"))
    processor.named = {"train": rows}
    return [example.label for example in processor.get_train_examples("")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("['a', 'b']", ["a", "b"]),
        (' ["a, b", "c"] ', ["a, b", "c"]),
        ("('a',)", ["a"]),
        ("{'b', 'a'}", ["a", "b"]),
        ("[]", []),
        ("set()", []),
        ("[1, 2]", [1, 2]),
        ("['it\\'s', \"b]\"]", ["it's", "b]"]),
        ("a,b", ["a", "b"]),
        ("[PER]", ["[PER]"]),
        ("[PER],[LOC]", ["[PER]", "[LOC]"]),
        ("(other)", ["(other)"]),
        ("{a}", ["{a}"]),
        ("(1)", ["(1)"]),
    ],
)
def test_printed_lists_are_lists(text, expected):
    assert labels.split_labels(ROW, text, ",") == expected


@pytest.mark.parametrize("text", ["['a' 'b']", "[1 0 1]", "[a, b]", "['a'\n 'b']", "['a', b]"])
def test_printed_lists_that_cannot_be_read(text):
    with pytest.raises(
        InputError,
        match=r"line 2: the label .* is a printed list that cannot be read; write the labels",
    ):
        labels.split_labels(ROW, text, ",")


def test_printed_and_real_lists_are_equal():
    assert (
        training_labels(["['a', 'b']", "['b']"])
        == training_labels([["a", "b"], ["b"]])
        == [("a", "b"), ("b",)]
    )
    assert training_labels([[0], [0, 1], []]) == [
        ("0",),
        ("0", "1"),
        (),
    ]  # labels that are called so


@pytest.mark.parametrize(
    "values",
    [
        [[1, 0, 1], [0, 1, 0]],
        [[1.0, 0.0], [0.0, 1.0]],
        [[True, False], [False, False]],
        ["1,0", "0,0"],
        ["[1, 0, 1]", "[0, 0, 0]"],
        ["1", "0"],  # a column for each label
        [1, 0],
    ],
)
def test_zeros_and_ones_are_not_names_of_labels(values):
    with pytest.raises(
        InputError, match="zeros or ones in place of labels; give the names of its labels"
    ):
        training_labels(values)


def test_zeros_and_ones_that_are_named():
    assert training_labels(["1", "0"], labels=["0", "1"]) == [("1",), ("0",)]
    assert training_labels([[1, 0], [0, 1]], labels=["x", "y"]) == [("x",), ("y",)]
    with pytest.raises(InputError, match="row 1: names the label 1 twice"):
        training_labels([[1, 0, 1], [0, 1, 0]], labels=["0", "1"])


@pytest.mark.parametrize(
    ("values", "separator", "message"),
    [
        pytest.param(
            ["a;b", "b"],
            ",",
            """'a;b' may be some; .* give --label_separator=";"$""",
            id="semicolon",
        ),
        pytest.param(
            ["a | b", "c|d"],
            ",",
            """'a \\| b' may be some; .* give --label_separator="\\|"$""",
            id="bar",
        ),
        pytest.param(
            ["a,b", "b"],
            ";",
            "'a,b' may be some; write them with ';' between them",
            id="comma",
        ),
        pytest.param(
            ["x y", "y", "x"],
            ",",
            """'x y' may be some; .* give --label_separator=" "$""",
            id="blank between labels",
        ),
    ],
)
def test_labels_with_another_separator_are_rejected(values, separator, message):
    with pytest.raises(InputError, match=message):
        training_labels(values, label_separator=separator)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(
            ["very good", "good"],
            [("very good",), ("good",)],
            id="a name of two words",
        ),
        pytest.param(
            ["a;b", "b,c"],
            [("a;b",), ("b", "c")],
            id="an example with several labels",
        ),
        pytest.param(["a", "b"], [("a",), ("b",)], id="no separator"),
    ],
)
def test_labels_may_contain_other_separators(values, expected):
    assert training_labels(values) == expected


@pytest.mark.parametrize("value", [["a"], "['a']", '["a", "b"]'])
def test_a_list_where_an_example_has_one_label(value):
    with pytest.raises(InputError, match=r"row 2: the label is a list; .* --label_type=multi"):
        training_labels(["x", value], "single")


@pytest.mark.parametrize("label", ["a\nb", "a\rb", "a\tb"])
@pytest.mark.parametrize("label_type", ["single", "multi"])
def test_labels_that_the_files_of_a_model_cannot_contain(label, label_type):
    with pytest.raises(
        InputError,
        match=r"train: the label .* has a tab or a line end, which the files of the model",
    ):
        training_labels([label, "c"], label_type)
    with pytest.raises(InputError, match=r"^--labels: the label .* has a tab or a line end"):
        TextProcessor.from_settings(ClassificationSettings.from_values({"labels": [label, "c"]}))


def test_labels_of_a_model_of_hugging_face_may_have_a_tab_where_no_file_is_written(tmp_path):
    processor = TextProcessor.from_settings(
        ClassificationSettings.from_values({"checkpoint_labels": ["a\tb", "c"]})
    )
    assert processor.get_labels() == ["a\tb", "c"]
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\tc\n")
    with pytest.raises(InputError, match=r"dev.tsv: the label 'a\\tb' has a tab or a line end"):
        processor.get_dev_examples(str(tmp_path))


def test_labels_with_other_signs_are_kept():
    assert training_labels(["a = b", " c  d ", "é\u2028x"], "single") == [
        "a = b",
        "c  d",
        "é\u2028x",
    ]
    with pytest.raises(InputError, match="the name of a label is empty"):
        TextProcessor("text", labels=["", "b"])


def test_labels_that_look_alike_are_warned_of(caplog):
    names = ["Pos", "pos", "neg", "1", "1.0", "01", "nan", "\u00e9", "e\u0301"]
    labels.warn_of_similar("a.csv", names)
    assert caplog.messages == [
        "a.csv: Pos and pos are different labels; write them alike if they are one",
        "a.csv: 1 and 1.0 and 01 are different labels; write them alike if they are one",
        "a.csv: \u00e9 and e\u0301 are different labels; write them alike if they are one",
        "a.csv: the label nan looks like a missing value; leave such rows out",
    ]


def test_nearly_as_many_labels_as_examples(caplog):
    labels.check_variety("a.csv", [str(number % 11) for number in range(22)], None)
    assert caplog.messages == []
    labels.check_variety("a.csv", [str(number % 12) for number in range(22)], None)
    assert "a.csv: 22 examples have 12 different labels" in caplog.text

"""The task of tables: columns, labels, and rows that cannot be used."""

import contextlib
import csv
import io
import json
import re

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import TextProcessor


@pytest.fixture
def write(tmp_path):
    def write_sets(**texts: str) -> str:
        for name, text in texts.items():
            (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
        return str(tmp_path)

    return write_sets


def make_processor(**settings) -> TextProcessor:
    """The processor of a run with these flags."""
    values = {"do_train": False} | settings
    return TextProcessor.from_settings(ClassificationSettings.from_values(values))


def test_columns_by_name_may_move_between_files(write):
    data_dir = write(
        train="id\ttext\tlabel\n1\tgood\tpos\n2\tbad\tneg\n",
        dev="label\ttext\npos\tfine\n",
        test="text\nwell\n",
    )
    processor = TextProcessor("text")
    assert processor.get_train_examples(data_dir) == [
        InputExample("train-1", "good", None, "pos"),
        InputExample("train-2", "bad", None, "neg"),
    ]
    assert processor.get_labels() == ["neg", "pos"]
    assert processor.get_dev_examples(data_dir) == [InputExample("dev-1", "fine", None, "pos")]
    assert processor.get_test_examples(data_dir) == [InputExample("test-1", "well", None, None)]
    assert (processor.metrics, processor.main_metric) == (
        ("accuracy", "precision", "recall", "f1"),
        "accuracy",
    )


def test_examples_have_the_line_and_the_id_of_their_rows(write):
    data_dir = write(
        train="Message\tTicket ID\tTeam\ngood\tT-7\tpos\nbad\tT-8\tneg\n",
        dev="Message\tTeam\nfine\tpos\n",
    )
    processor = make_processor(text_a_column="Message", label_column="Team", do_train=True)
    sources = [example.source for example in processor.get_train_examples(data_dir)]
    assert sources == [(2, "T-7"), (3, "T-8")]
    assert [example.source for example in processor.get_dev_examples(data_dir)] == [(2, "")]


@pytest.mark.parametrize(
    ("train", "flags", "test", "texts"),
    [
        pytest.param(
            "Message\tTeam\nx\ta\ny\tb\n",
            {},
            "Team\tMessage\tText\nc\tthis\tother\n",
            ("this", None),
            id="guessed columns",
        ),
        pytest.param(
            "m\tsentence2\tlabel\nx\tz\ta\ny\tz\tb\n",
            {"text_a_column": "m", "text_b_column": "sentence2"},
            "sentence2\tm\nother\tthis\n",
            ("this", "other"),
            id="pairs",
        ),
        pytest.param(
            "text\tsentence2\tlabel\nx\tz\ta\ny\tz\tb\n",
            {"text_b_column": ""},
            "sentence2\ttext\nother\tthis\n",
            ("this", None),
            id="no second text",
        ),
        pytest.param(
            "1\tx\ta\n2\ty\tb\n",
            {"text_a_column": "1", "has_header": False},
            "3\tthis\n",
            ("this", None),
            id="numbers",
        ),
        pytest.param(
            "Message\tTeam\nx\ta\ny\tb\n",
            {},
            "Sentence\tdate\nthis\tnow\n",
            ("this", None),
            id="a usual name in place of that of the training",
        ),
    ],
)
def test_a_later_run_reads_the_columns_of_the_training(write, train, flags, test, texts):
    data_dir = write(train=train, test=test)
    trained = make_processor(do_train=True, **flags)
    trained.get_train_examples(data_dir)
    record = json.loads(json.dumps(trained.settings()))
    for processor in (
        make_processor(**record),
        make_processor(**make_processor(**record).settings()),
    ):
        (example,) = processor.get_test_examples(data_dir)
        assert (example.text_a, example.text_b) == texts
    # A training does not read them.
    with_record = make_processor(do_train=True, **record | {"has_header": True})
    assert with_record.settings().get("columns") is None


def test_damaged_columns_of_a_record_are_refused():
    with pytest.raises(
        InputError, match=r"^task.json: columns is \[3\], which are no names by role"
    ):
        make_processor(columns=[3])


def test_pairs_by_number_without_a_header(write):
    data_dir = write(train="10\ta\tb\n9\tc\td\n", dev="9\te\tf\n")
    processor = TextProcessor("1", "-1", "0", has_header=False)
    assert processor.get_train_examples(data_dir) == [
        InputExample("train-0", "a", "b", "10"),
        InputExample("train-1", "c", "d", "9"),
    ]
    assert processor.get_labels() == ["9", "10"]  # numbers in their own order
    assert processor.get_dev_examples(data_dir) == [InputExample("dev-0", "e", "f", "9")]


def test_a_number_that_is_a_column_name_is_the_name(write):
    data_dir = write(test="1\t0\nnamed 1\tnamed 0\n")
    assert TextProcessor("0").get_test_examples(data_dir)[0].text_a == "named 0"


def test_several_labels_at_once(write):
    data_dir = write(train="text\tlabel\na\tx; y\nb\t\nc\tz;\n")
    processor = make_processor(
        text_a_column="text",
        label_column="label",
        label_separator=";",
        label_type="multi",
    )
    assert [example.label for example in processor.get_train_examples(data_dir)] == [
        ("x", "y"),
        (),
        ("z",),
    ]
    assert processor.get_labels() == ["x", "y", "z"]
    assert processor.main_metric == "micro_f1"
    with pytest.raises(
        InputError, match=r"train.tsv: line 2: has the label 'y', which is none of x, z; correct"
    ):
        TextProcessor(
            "text", labels=["x", "z"], is_multi_label=True, label_separator=";"
        ).get_train_examples(data_dir)


ONE_HOT = "text\tspam\thelp\nx\t1\t0\ny\t0\t1\n"
MULTI_HOT = "text\tspam\thelp\nx\t1\t1.0\ny\tfalse\t0\n"


def read_targets(data_dir, **flags):
    processor = make_processor(do_train=True, **flags)
    examples = processor.get_train_examples(data_dir)
    return processor.get_labels(), [example.label for example in examples]


def test_a_column_for_each_label(write):
    columns = {"label_column": "spam,Help"}
    data_dir = write(train=ONE_HOT, dev="Help\tspam\ttext\n1\t0\tz\n", test="text\nw\n")
    assert read_targets(data_dir, **columns) == (["spam", "help"], ["spam", "help"])
    trained = make_processor(do_train=True, **columns)
    trained.get_train_examples(data_dir)
    # A later run knows the columns.
    later = make_processor(checkpoint_labels=["spam", "help"], **trained.settings())
    (example,) = later.get_test_examples(data_dir)
    assert example.text_a == "w"
    with pytest.raises(InputError, match=r"dev.tsv: line 2: has the label 'Help', which is none"):
        later.get_dev_examples(data_dir)
    write(dev="help\tspam\ttext\n1\t0\tz\n")
    assert later.get_dev_examples(data_dir)[0].label == "help"
    multi = read_targets(write(train=MULTI_HOT), label_type="multi", **columns)
    assert multi == (["spam", "help"], [("spam", "help"), ()])
    # A column may have such a name.
    data_dir = write(train="text\tspam,help\nx\ta\ny\tb\n")
    assert read_targets(data_dir, label_column="spam,help") == (["a", "b"], ["a", "b"])


def test_a_vector_for_the_named_labels(write):
    data_dir = write(train="text\tlabel\nx\t[1, 0, 1]\ny\t0,0,0\n")
    flags = {"label_type": "multi", "labels": ["a", "b", "c"]}
    assert read_targets(data_dir, **flags)[1] == [("a", "c"), ()]


@pytest.mark.parametrize(
    ("train", "flags", "message"),
    [
        pytest.param(
            ONE_HOT,
            {},
            "the columns spam, help have zeros and ones; if they are the labels, give "
            "--label_column=spam,help, or else the column of the label$",
            id="no flag",
        ),
        pytest.param(
            MULTI_HOT,
            {},
            ".* give --label_column=spam,help --label_type=multi, or else",
            id="no flag for several",
        ),
        pytest.param(
            MULTI_HOT,
            {"label_column": "spam,help"},
            "line 2: 2 of the columns spam, help are 1; give the example one label, or add "
            "--label_type=multi$",
            id="several for one label",
        ),
        pytest.param(
            ONE_HOT.replace("0", "2"),
            {"label_column": "spam,help"},
            "line 2: the column help of a label has '2'; write 0 or 1$",
            id="another number",
        ),
        pytest.param(
            "text\tlabel\nx\t[1, 0]\ny\t[0, 1]\n",
            {"label_type": "multi"},
            "each example has 2 zeros or ones .* name those of the zeros and ones in their order, "
            "--labels=a,b$",
            id="vectors without names",
        ),
    ],
)
def test_zeros_and_ones_that_are_refused(write, train, flags, message):
    with pytest.raises(InputError, match=rf"train.tsv: {message}"):
        read_targets(write(train=train), **flags)


def test_scores(write):
    data_dir = write(train="text\tscore\na\t1.5\n", dev="text\tscore\nb\tlow\n")
    processor = TextProcessor("text", label_column="score", is_regression=True)
    assert processor.get_train_examples(data_dir)[0].label == "1.5"
    assert processor.get_labels() is None
    assert processor.metrics == ("pearson", "spearman")
    with pytest.raises(
        InputError, match=r"dev.tsv: line 2: has the score 'low', which is not a number"
    ):
        processor.get_dev_examples(data_dir)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        pytest.param(
            "",
            {"text_a_column": "body"},
            r"--text_a_column=body: .*has no such column, only text, label$",
            id="a column that the header lacks",
        ),
        pytest.param(
            "",
            {"text_a_column": "text", "has_header": False},
            r"--text_a_column=text: .*; give its number from 0",
            id="a name of a column without a header",
        ),
        pytest.param(
            "",
            {"text_a_column": "7", "labels": ["x", "y"]},
            r"line 2: has 2 columns, but --text_a_column=7 is expected in column 8",
            id="a number above the last column",
        ),
        pytest.param(
            "",
            {"labels": ["a"], "is_regression": True},
            "--labels: a regression has scores",
            id="labels of a regression",
        ),
        pytest.param(
            "",
            {"labels": ["a", "b", "a"]},
            "--labels=a,b,a: names a label twice",
            id="a label twice",
        ),
        pytest.param(
            "",
            {"is_multi_label": True, "label_separator": ""},
            "--label_separator=: is empty",
            id="an empty separator",
        ),
        # A label counted from the end of its row would be the text of this one.
        pytest.param(
            "sunny\n",
            {},
            r"line 3: has 1 columns, but --label_column=label is expected in column 2",
            id="a short row",
        ),
        pytest.param(
            "a\tb\tx\n",
            {},
            r"line 3: has 3 columns, the header 2; take the tabs out",
            id="a long row",
        ),
        pytest.param(
            "a\t \n",
            {},
            r"line 3: has no label; complete the row",
            id="a blank label",
        ),
        pytest.param(
            "",
            {"label_column": "text"},
            r"--label_column=text: is the column of --text_a_column=0, too",
            id="a label column that is the text",
        ),
        pytest.param(
            "",
            {"text_b_column": "1"},
            r"--label_column=-1: is the column of --text_b_column=1, too",
            id="a second text that is the label",
        ),
        pytest.param(
            "",
            {"text_a_column": None, "label_column": "0"},
            "--label_column=0: is the column that text_a is read from; name that of text_a",
            id="a label column with the usual name of the text",
        ),
        pytest.param(
            "b\ty\n",
            {"text_a_column": None, "text_b_column": "0"},
            "--text_b_column=0: is the column that text_a is read from;",
            id="a second text with the usual name of the first one",
        ),
    ],
)
def test_rows_and_settings_that_do_not_fit(write, rows, settings, message):
    data_dir = write(train=f"text\tlabel\nfine\tx\n{rows}")
    arguments = {"text_a_column": "0", "label_column": "-1"} | settings
    with pytest.raises(InputError, match=message):
        TextProcessor(**arguments).get_train_examples(data_dir)


def write_table(folder, ending: str, names: list[str], rows: list[str]):
    """Writes a training set in the format of an ending; a row has a letter for each column."""
    if ending == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    else:
        separator = "," if ending == ".csv" else "\t"
        lines = [separator.join(fields) for fields in (names, *rows)]
    (folder / f"train{ending}").write_text("".join(f"{line}\n" for line in lines))


ROWS = ["abc", "def", "ghc", "jbf"]


@pytest.mark.parametrize(
    ("header", "text_and_label"),
    [
        pytest.param("id\tText\tlabel", ("b", "c"), id="Text"),
        pytest.param("id\tsentence\tlabel", ("b", "c"), id="sentence"),
        pytest.param("label\tText\tdate", ("b", "a"), id="names before positions"),
        pytest.param("Label\tid\tbody", ("c", "a"), id="the text remains"),
        pytest.param("TEXT\t label \tdate", ("a", "b"), id="case and blanks"),
        pytest.param("text\tkind\tid", ("a", "b"), id="the label remains"),
    ],
)
@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_columns_are_recognized_by_their_names(tmp_path, ending, header, text_and_label):
    write_table(tmp_path, ending, header.split("\t"), ROWS)
    example = make_processor().get_train_examples(str(tmp_path))[0]
    assert (example.text_a, example.label) == text_and_label


@pytest.mark.parametrize(
    ("header", "message"),
    [
        pytest.param(
            "id\tkind\tReview Text",
            "has 3 columns, id, kind, Review Text; name that of text_a, --text_a_column=...",
            id="no text",
        ),
        pytest.param(
            "text\tkind\tdate",
            "has 3 columns, text, kind, date; name that of label, --label_column=...",
            id="no label",
        ),
        pytest.param(
            "text\tsentence\tlabel",
            "each of the columns text and sentence could be text_a; name the right one",
            id="two texts",
        ),
        pytest.param(
            "text\tlabel\tLABEL",
            "each of the columns label and LABEL could be label; name the right one",
            id="two labels",
        ),
        pytest.param(
            "sentence1\tsentence2\tlabel",
            "the column sentence2 is a second text; name it, --text_b_column=sentence2",
            id="a pair",
        ),
    ],
)
@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_columns_that_flags_have_to_name(tmp_path, ending, header, message):
    write_table(tmp_path, ending, header.split("\t"), ROWS)
    with pytest.raises(InputError, match=re.escape(message)):
        make_processor().get_train_examples(str(tmp_path))


def test_two_columns_without_usual_names_are_the_text_and_the_label_of_all_sets(write):
    data_dir = write(
        train="body\tkind\na\tx\nb\ty\n",
        dev="Kind\tBody\nx\tc\n".lower(),
        test="kind\tbody\nx\td\n",
    )
    processor = make_processor()
    assert [(one.text_a, one.label) for one in processor.get_train_examples(data_dir)] == [
        ("a", "x"),
        ("b", "y"),
    ]
    assert [(one.text_a, one.label) for one in processor.get_dev_examples(data_dir)] == [("c", "x")]
    assert [(one.text_a, one.label) for one in processor.get_test_examples(data_dir)] == [
        ("d", None)
    ]


@pytest.mark.parametrize(
    ("settings", "text_b"),
    [
        pytest.param({"text_b_column": ""}, None, id="no second text"),
        pytest.param({"text_b_column": "sentence2"}, "b", id="a second text"),
        pytest.param({"text_a_column": "sentence1"}, None, id="a first text"),
    ],
)
def test_flags_say_whether_a_second_text_is_read(write, settings, text_b):
    data_dir = write(train="sentence1\tSentence2\tlabel\na\tb\tx\nc\td\ty\n")
    processor = make_processor(**settings)
    assert processor.get_train_examples(data_dir)[0] == InputExample("train-1", "a", text_b, "x")


def test_a_column_with_another_label_for_each_example(write, caplog):
    rows = "".join(f"text {number}\t{number}\n" for number in range(4))
    data_dir = write(train=f"text\tnumber\n{rows}")
    with pytest.raises(
        InputError, match="4 examples have 4 different labels in the column number; name the column"
    ):
        make_processor().get_train_examples(data_dir)
    make_processor(label_column="number").get_train_examples(data_dir)
    assert "4 examples have 4 different labels; check --label_column" in caplog.text


def test_only_a_set_that_defines_the_labels_can_have_too_many(write, caplog):
    rows = "a\tx\nb\ty\nc\tz\n"
    data_dir = write(train=f"text\tlabel\n{rows}{rows}", dev=f"text\tlabel\n{rows}")
    processor = make_processor()
    processor.get_train_examples(data_dir)
    processor.get_dev_examples(data_dir)
    TextProcessor("text", labels=["x", "y", "z"]).get_train_examples(
        write(train=f"text\tlabel\n{rows}")
    )
    assert "different labels" not in caplog.text


def test_labels_before_texts_that_repeat(write):
    """Of two columns the first is guessed to be the text, and reviews are seldom the same."""
    rows = "".join(f"{number % 2}\treview {number % 18}\n" for number in range(20))
    with pytest.raises(
        InputError, match="20 examples have 18 different labels in the column review; name"
    ):
        make_processor().get_train_examples(write(train=f"kind\treview\n{rows}"))


def test_the_text_of_a_test_set_alone(write):
    """Without a training set only the names of the columns tell which is the text."""

    def texts(header: str, text_a_column: str | None = None):
        processor = make_processor(
            text_a_column=text_a_column,
            checkpoint_labels=["x", "y"],
        )
        data_dir = write(test=f"{header}\nx\tb c\ny\td\n")
        return [example.text_a for example in processor.get_test_examples(data_dir)]

    assert (
        texts("id\treview") == texts("\treview") == texts("kind\treview", "review") == ["b c", "d"]
    )
    assert texts("text\tother") == ["x", "y"]
    with pytest.raises(
        InputError,
        match=r"test.tsv: each text that would be read is a label, the first 'x'; name it",
    ):
        texts("kind\treview")


def test_both_texts_of_qnli(write):
    data_dir = write(train="question\tsentence\tlabel\tidx\na\tb\t0\t0\nc\td\t1\t1\n")
    with pytest.raises(
        InputError, match="the column question is a second text; name it, --text_b_column=question"
    ):
        make_processor().get_train_examples(data_dir)
    for column, text_b in (("question", "a"), ("", None)):
        processor = make_processor(text_b_column=column)
        assert processor.get_train_examples(data_dir)[0].text_b == text_b


def test_a_column_called_score_is_the_label_of_a_regression_only(write):
    data_dir = write(train="text\tscore\tsplit\na\t1\tx\nb\t2\ty\n")
    examples = make_processor(label_type="score").get_train_examples(data_dir)
    assert examples[0].label == "1"
    with pytest.raises(InputError, match="name that of label, --label_column="):
        make_processor(label_type="single").get_train_examples(data_dir)


EQUAL_SCORES = "text\tlabel\na\t3\nb\t3.0\n"


def test_equal_scores_of_an_evaluation_are_warned_of(write, caplog):
    make_processor(label_type="score").get_dev_examples(write(dev=EQUAL_SCORES))
    assert (
        "dev.tsv: all examples have the score 3, with which no correlation is defined"
        in caplog.text
    )


def test_equal_scores_alone_cannot_be_learned(write):
    data_dir = write(train=EQUAL_SCORES)
    processor = make_processor(label_type="score")
    with pytest.raises(
        InputError,
        match=r"train.tsv: all examples have the score 3, so that there is nothing to learn",
    ):
        processor.get_train_examples(data_dir)
    # A training set with other targets, such as a teacher's, may have equal scores.
    processor.allows_equal_scores = True
    assert len(processor.get_train_examples(data_dir)) == 2


@pytest.mark.parametrize("text", ["1_0", "\u0663", "0x1", "1,5", "inf", "nan"])
def test_scores_are_plain_numbers(write, text):
    data_dir = write(train=f"text\tlabel\na\t{text}\nb\t2\n")
    with pytest.raises(InputError, match=f"line 2: has the score {text!r}, which is not a number"):
        make_processor(label_type="score").get_train_examples(data_dir)


def test_the_header_of_a_second_file_is_refused(write):
    data_dir = write(train="text\tlabel\na\tx\nb\ty\ntext\tlabel\nc\tx\n")
    with pytest.raises(InputError, match=r"train.tsv: line 4: has the names of the columns again"):
        TextProcessor("text").get_train_examples(data_dir)


def test_missing_texts_are_warned_of(write, caplog):
    rows = "NaN\tx\n \tx\nnone\ty\nb\ty\n"
    TextProcessor("text").get_train_examples(write(train=f"text\tlabel\n{rows}"))
    assert "train.tsv: 2 of 4 texts are empty or look like a missing value, the first 'NaN'; l" in (
        caplog.text
    )
    caplog.clear()
    TextProcessor("text").get_test_examples(write(test="text\nnan\n"))
    assert "missing value" not in caplog.text


def test_a_set_with_one_label_is_warned_of(write, caplog):
    data_dir = write(dev="text\tlabel\na\tx\nb\tx\n")
    TextProcessor("text", labels=["x", "y"]).get_dev_examples(data_dir)
    assert "dev.tsv: all 2 examples have the label x" in caplog.text


def quoting_warnings(messages: list[str]) -> list[str]:
    return [message for message in messages if "give --quoting=csv" in message]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        pytest.param('fine\tx\n"say ""hi"""\ty\n', 3, id="quotes in a text"),
        pytest.param('"fine"\tx\nbad\ty\n"new\nline"\ty\n', 2, id="quotes in the first row"),
        pytest.param('fine\tx\n"new\nline"\ty\n', 3, id="a line end in a text"),
        pytest.param('fine\tx\n"a\ttab"\ty\n', 3, id="a tab in a text"),
    ],
)
def test_quoted_fields_need_quoting_csv(write, caplog, rows, line):
    data_dir = write(train=f"text\tlabel\n{rows}")
    # Some of the rows cannot be read without quoting, which is an error after the warning.
    with contextlib.suppress(InputError):
        make_processor(quoting="none").get_train_examples(data_dir)
    (warning,) = quoting_warnings(caplog.messages)
    assert f"train.tsv: line {line}: a field is in quotes" in warning
    examples = make_processor(quoting="csv").get_train_examples(data_dir)
    expected = list(csv.reader(io.StringIO(rows), delimiter="\t"))
    assert [[example.text_a, example.label] for example in examples] == expected


def test_quotes_within_a_text_are_not_warned_of(write, caplog):
    rows = '"Fine" it says\tx\nbad "\ty\n'
    data_dir = write(train=f"text\tlabel\n{rows}")
    make_processor(quoting="none").get_train_examples(data_dir)
    assert quoting_warnings(caplog.messages) == []


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        pytest.param(
            "sets/train.txt",
            "train.txt is there, but the task reads .tsv: convert it",
            id="another ending",
        ),
        pytest.param(
            "train.tsv",
            "/train.tsv is there: give its folder as --data_dir",
            id="beside the folder",
        ),
        pytest.param(
            "sets/other.tsv",
            "train.tsv: no such file; check the path",
            id="another name",
        ),
    ],
)
def test_a_file_of_another_form_or_beside_the_folder_is_named(tmp_path, file, sentence):
    (tmp_path / "sets").mkdir()
    (tmp_path / file).touch()
    with pytest.raises(InputError, match=re.escape(sentence)):
        TextProcessor("text").get_train_examples(str(tmp_path / "sets"))


def test_labels_of_flags_keep_their_order_and_others_come_from_the_training_set(write):
    assert TextProcessor("text", labels=["yes", "no"]).get_labels() == ["yes", "no"]
    with pytest.raises(InputError, match="--labels: are not known; name them"):
        TextProcessor("text").get_dev_examples(write(dev="text\tlabel\na\tx\n"))
    with pytest.raises(InputError, match=r"train.tsv: has no labels; check --label_column"):
        TextProcessor("text", is_multi_label=True).get_train_examples(
            write(train="text\tlabel\na\t\n")
        )


def test_labels_of_equal_numbers_have_an_order_and_blanks_do_not_count(write):
    data_dir = write(
        train="text\tlabel\n" + "".join(f"a\t{label}\n" for label in ("1", " 01", "10", "2 ", "1 "))
    )
    processor = TextProcessor("text")
    assert [example.label for example in processor.get_train_examples(data_dir)] == [
        "1",
        "01",
        "10",
        "2",
        "1",
    ]
    assert processor.get_labels() == ["01", "1", "2", "10"]

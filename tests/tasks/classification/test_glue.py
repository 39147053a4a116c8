"""The files of GLUE's and XNLI's tasks: columns, labels, metrics and submissions."""

from typing import NamedTuple

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.examples import InputExample


class TaskRows(NamedTuple):
    """A row of the labelled files of a task and one of its test file, with what is read of them."""

    labelled: str
    unlabelled: str
    text_a: str
    text_b: str | None = None
    label: str = "1"


ROWS = {
    "CoLA": TaskRows("src\t1\t*\tA b.", "5\tA b.", text_a="A b."),
    "SST-2": TaskRows("nice film \t1", "5\tnice film ", text_a="nice film "),
    "MRPC": TaskRows(
        "1\t11\t12\tA.\tB.",
        "5\t11\t12\tA.\tB.",
        text_a="A.",
        text_b="B.",
    ),
    "STS-B": TaskRows(
        "0\tg\tf\ty\to\ts1\ts2\tA.\tB.\t3.250",
        "5\tg\tf\ty\to\ts1\ts2\tA.\tB.",
        text_a="A.",
        text_b="B.",
        label="3.250",
    ),
    "QQP": TaskRows(
        "5\t1\t2\tA?\tB?\t1",
        "5\tA?\tB?",
        text_a="A?",
        text_b="B?",
    ),
    "MNLI": TaskRows(
        "5\tp\tq\tg\tb1\tb2\tp1\tp2\tA.\tB.\tl1\tneutral",
        "5\tp\tq\tg\tb1\tb2\tp1\tp2\tA.\tB.",
        text_a="A.",
        text_b="B.",
        label="neutral",
    ),
    "QNLI": TaskRows(
        "5\tA?\tB.\tnot_entailment",
        "5\tA?\tB.",
        text_a="A?",
        text_b="B.",
        label="not_entailment",
    ),
    "RTE": TaskRows(
        "5\tA.\tB.\tnot_entailment",
        "5\tA.\tB.",
        text_a="A.",
        text_b="B.",
        label="not_entailment",
    ),
    "WNLI": TaskRows("5\tA.\tB.\t1", "5\tA.\tB.", text_a="A.", text_b="B."),
}


def write(folder, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("name", ROWS)
def test_columns(name, tmp_path):
    rows = ROWS[name]
    header = "" if name == "CoLA" else "header\n"
    suffix = "_matched" if name == "MNLI" else ""
    text = f"{header}{rows.labelled}\n"
    texts = {
        "train": text,
        f"dev{suffix}": text,
        f"test{suffix}": f"index\n{rows.unlabelled}\n",
    }
    data_dir = write(tmp_path, **texts)
    processor = glue.PROCESSORS[name]()
    # MNLI names its examples; other examples have the number of their row.
    number = {"CoLA": 0, "MNLI": 5}.get(name, 1)
    test_number = 5 if name == "MNLI" else 1
    assert processor.get_train_examples(data_dir) == [
        InputExample(f"train-{number}", rows.text_a, rows.text_b, rows.label)
    ]
    assert processor.get_dev_examples(data_dir) == [
        InputExample(f"dev{suffix}-{number}", rows.text_a, rows.text_b, rows.label)
    ]
    first_label = (processor.get_labels() or ["0.0"])[0]
    assert processor.get_test_examples(data_dir) == [
        InputExample(f"test-{test_number}", rows.text_a, rows.text_b, first_label)
    ]


def write_dev_set_as_test_set(folder, name: str) -> str:
    file = "test_matched" if name == "MNLI" else "test"
    row = ROWS[name].labelled
    return write(folder, **{file: f"h\n{row}\n{row}\n"})


@pytest.mark.parametrize("name", ["CoLA", "SST-2", "QQP"])
def test_a_dev_set_as_the_test_set_is_rejected_where_its_texts_are_in_other_columns(tmp_path, name):
    data_dir = write_dev_set_as_test_set(tmp_path, name)
    with pytest.raises(
        InputError,
        match=r"test.tsv: each text, in column 2, is a number, the first 1; give the",
    ):
        glue.PROCESSORS[name]().get_test_examples(data_dir)


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"CoLA", "SST-2", "QQP"}))
def test_a_dev_set_as_the_test_set_is_read_where_its_texts_are_in_the_same_columns(tmp_path, name):
    data_dir = write_dev_set_as_test_set(tmp_path, name)
    examples = glue.PROCESSORS[name]().get_test_examples(data_dir)
    assert examples[1].text_a == ROWS[name].text_a


def test_metrics_and_the_order_of_labels():
    binary, entailment = ["0", "1"], ["entailment", "not_entailment"]
    three = ["contradiction", "entailment", "neutral"]
    assert {
        name: ([*processor.metrics], processor.main_metric, processor().get_labels())
        for name, processor in glue.PROCESSORS.items()
    } == {
        "CoLA": (["accuracy", "matthews"], "matthews", binary),
        "SST-2": (["accuracy"], "accuracy", binary),
        "MRPC": (["accuracy", "f1"], "f1", binary),
        "STS-B": (["pearson", "spearman"], "spearman", None),
        "QQP": (["accuracy", "f1"], "f1", binary),
        "MNLI": (["accuracy"], "accuracy", three),
        "QNLI": (["accuracy"], "accuracy", entailment),
        "RTE": (["accuracy"], "accuracy", entailment),
        "WNLI": (["accuracy"], "accuracy", binary),
        "AX": (["accuracy", "matthews"], "matthews", three),
    }


def test_qqp_skips_its_short_rows_and_no_other_task_does(tmp_path, caplog):
    good = ROWS["QQP"].labelled
    data_dir = write(
        tmp_path, train=f"h\n9\t1\t2\tA?\n\n{good}\textra\n9\t1\n{good}\n", test="h\n5\tA?\n"
    )
    guids = [example.guid for example in glue.QqpProcessor().get_train_examples(data_dir)]
    assert guids == ["train-3", "train-5"]  # rows of the file, with the header and blank lines
    assert caplog.messages[-1:] == [f"{data_dir}/train.tsv: skipped 2 rows with too few columns"]
    with pytest.raises(InputError, match=r"test.tsv: line 2: has 2 columns, but 3 are needed"):
        glue.QqpProcessor().get_test_examples(data_dir)
    rows = ROWS["MNLI"]
    with pytest.raises(InputError, match=r"train.tsv: line 3: has 10 columns, but 11 are needed"):
        glue.MnliProcessor().get_train_examples(
            write(tmp_path, train=f"h\n{rows.labelled}\n{rows.unlabelled}\n")
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("header\n", "holds no example; check the file$", id="no rows"),
        pytest.param(
            "h\n\n0\tg\tf\ty\to\ts1\ts2\tA.\tB.\tnan\n",
            "line 3: has the score 'nan', which is not a number; correct it$",
            id="a score of nan",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(InputError, match=f"train.tsv: {message}"):
        glue.StsbProcessor().get_train_examples(write(tmp_path, train=text))


def test_mismatched_sets_are_optional(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    row = ROWS["MNLI"].labelled
    test_row = ROWS["MNLI"].unlabelled
    data_dir = write(tmp_path, dev_matched=f"h\n{row}\n", test_matched=f"h\n{test_row}\n")
    processor = glue.MnliProcessor()
    assert list(processor.dev_sets(data_dir)) == list(processor.test_sets(data_dir)) == [""]
    assert caplog.messages == [
        f"{data_dir}: has no dev_mismatched.tsv; skipping it",
        f"{data_dir}: has no test_mismatched.tsv; skipping it",
    ]
    write(tmp_path, dev_mismatched=f"h\n{row}\n{row}\n", test_mismatched=f"h\n{test_row}\n")
    dev, test = processor.dev_sets(data_dir), processor.test_sets(data_dir)
    assert {suffix: [one.guid for one in examples] for suffix, examples in dev.items()} == {
        "": ["dev_matched-5"],
        "_mm": ["dev_mismatched-5", "dev_mismatched-5"],
    }
    assert [one.guid for one in test["_mm"]] == ["test_mismatched-5"]


@pytest.mark.parametrize("place", ["AX.tsv", "diagnostic/diagnostic.tsv"])
def test_ax_without_labels_is_only_predicted(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("index\tsentence1\tsentence2\n0\tA.\tB.\n")
    ax = glue.AxProcessor()
    assert ax.test_sets(str(tmp_path)) == {
        "": [InputExample("test-0", "A.", "B.", "contradiction")]
    }
    assert ax.dev_sets(str(tmp_path)) == {}
    with pytest.raises(
        InputError, match="has no column 'label' to evaluate with; predict it instead"
    ):
        ax.get_dev_examples(str(tmp_path))
    with pytest.raises(InputError, match="train a model on MNLI"):
        ax.get_train_examples(str(tmp_path))


def test_ax_with_labels_is_evaluated(tmp_path):
    with pytest.raises(InputError, match=r"has none of AX.tsv, diagnostic.tsv"):
        glue.AxProcessor().test_sets(str(tmp_path))
    data_dir = write(tmp_path, AX="index\tsentence1\tsentence2\tx\tlabel\n0\tA.\tB.\t\tneutral\n")
    assert glue.AxProcessor().dev_sets(data_dir) == {
        "": [InputExample("test-0", "A.", "B.", "neutral")]
    }


@pytest.mark.parametrize(
    ("name", "test_file", "predictions", "file", "answers"),
    [
        pytest.param("CoLA", "test", [1, 0, 1], "CoLA.tsv", ["1", "0", "1"], id="CoLA"),
        pytest.param(
            "STS-B", "test", [5.25, -0.5, 2.5], "STS-B.tsv", ["5", "0", "2.5"], id="STS-B"
        ),
        pytest.param(
            "MNLI",
            "test_matched",
            [2, 0, 1],
            "MNLI-m.tsv",
            ["neutral", "contradiction", "entailment"],
            id="MNLI",
        ),
        pytest.param(
            "MNLI",
            "test_mismatched",
            [1, 1, 1],
            "MNLI-mm.tsv",
            ["entailment"] * 3,
            id="MNLI_mm",
        ),
        pytest.param(
            "AX",
            "AX",
            [1, 1, 0],
            "AX.tsv",
            ["entailment", "entailment", "contradiction"],
            id="AX",
        ),
    ],
)
def test_submissions(tmp_path, name, test_file, predictions, file, answers):
    data_dir = write(tmp_path, **{test_file: "index\tsentence\n3\tA.\n4\tB.\n9\tC.\n"})
    path = glue.PROCESSORS[name]().write_submission(
        str(tmp_path / "out"),
        data_dir,
        np.array(predictions),
        suffix="_mm" if test_file == "test_mismatched" else "",
    )
    assert path == str(tmp_path / "out" / file)
    rows = [f"{index}\t{answer}\n" for index, answer in zip([3, 4, 9], answers, strict=True)]
    with open(path) as submission:
        assert submission.readlines() == ["index\tprediction\n", *rows]


XNLI_HEADER = "language\tgold_label\ts1\ts2\ts3\ts4\tsentence1\tsentence2\tpromptID"


@pytest.fixture
def xnli(tmp_path):
    (tmp_path / "multinli").mkdir()
    write(
        tmp_path / "multinli",
        **{
            "multinli.train.zh": (
                "premise\thypo\tlabel\n我 们\tb\tcontradictory\n我 们\td\tneutral\n"
            ),
            "multinli.train.de": "premise\thypo\tlabel\nwir sind\tb\tcontradictory\n",
        },
    )
    rows = [
        "de\tneutral\t\t\t\t\tA.\tB.\t1",
        "zh\tentailment\t\t\t\t\tC.\tD.\t2",
        "zh\tcontradiction\t\t\t\t\tE.\tF.\t3",
    ]
    dev, test = "\n".join([XNLI_HEADER, *rows]), "\n".join([XNLI_HEADER, rows[0], rows[2]])
    return write(tmp_path, **{"xnli.dev": dev, "xnli.test": test})


def test_xnli_is_chinese_by_default(xnli):
    processor = glue.XnliProcessor()
    assert processor.get_labels() == ["contradiction", "entailment", "neutral"]
    assert processor.get_train_examples(xnli) == [
        InputExample("train-1", "我 们", "b", "contradiction"),  # "contradictory" in the file
        InputExample("train-2", "我 们", "d", "neutral"),
    ]
    assert processor.get_dev_examples(xnli) == [
        InputExample("dev-2", "C.", "D.", "entailment"),
        InputExample("dev-3", "E.", "F.", "contradiction"),
    ]
    assert processor.get_test_examples(xnli) == [
        InputExample("test-2", "E.", "F.", "contradiction")
    ]


def test_xnli_in_another_language(xnli):
    processor = glue.XnliProcessor("de")
    assert processor.get_train_examples(xnli)[0].text_a == "wir sind"
    assert processor.get_dev_examples(xnli) == [InputExample("dev-1", "A.", "B.", "neutral")]
    with pytest.raises(
        InputError,
        match=r"xnli.dev.tsv: has no row in the language 'fr', but in de, zh; write --task_name=",
    ):
        glue.XnliProcessor("fr").get_dev_examples(xnli)

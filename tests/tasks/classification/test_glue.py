import numpy as np
import pytest
from absl import logging

from official_bert.io.errors import InputError
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.examples import InputExample
from tests.shared import GOLDEN, shared

# A row of each labelled file, with its own column numbers in the place of what nobody reads.
LABELLED = {
    "CoLA": ("src\t1\t*\tA b.", "A b.", None, "1"),
    "SST-2": ("nice film \t1", "nice film ", None, "1"),
    "MRPC": ("0\t11\t12\tA.\tB.", "A.", "B.", "0"),
    "STS-B": ("0\tg\tf\ty\to\ts1\ts2\tA.\tB.\t3.250", "A.", "B.", "3.250"),
    "QQP": ("5\t1\t2\tA?\tB?\t1", "A?", "B?", "1"),
    "MNLI": ("5\tp\tq\tg\tb1\tb2\tp1\tp2\tA.\tB.\tl1\tneutral", "A.", "B.", "neutral"),
    "QNLI": ("5\tA?\tB.\tnot_entailment", "A?", "B.", "not_entailment"),
    "RTE": ("5\tA.\tB.\tentailment", "A.", "B.", "entailment"),
    "WNLI": ("5\tA.\tB.\t1", "A.", "B.", "1"),
}
TEST = {
    "CoLA": ("5\tA b.", "A b.", None, "0"),
    "SST-2": ("5\tnice film", "nice film", None, "0"),
    "MRPC": ("5\t11\t12\tA.\tB.", "A.", "B.", "0"),
    "STS-B": ("5\tg\tf\ty\to\ts1\ts2\tA.\tB.", "A.", "B.", "0.0"),
    "QQP": ("5\tA?\tB?", "A?", "B?", "0"),
    "MNLI": ("5\tp\tq\tg\tb1\tb2\tp1\tp2\tA.\tB.", "A.", "B.", "contradiction"),
    "QNLI": ("5\tA?\tB.", "A?", "B.", "entailment"),
    "RTE": ("5\tA.\tB.", "A.", "B.", "entailment"),
    "WNLI": ("5\tA.\tB.", "A.", "B.", "0"),
}
METRICS = {
    "CoLA": (["accuracy", "matthews"], "matthews"),
    "SST-2": (["accuracy"], "accuracy"),
    "MRPC": (["accuracy", "f1"], "f1"),
    "STS-B": (["pearson", "spearman"], "spearman"),
    "QQP": (["accuracy", "f1"], "f1"),
    "MNLI": (["accuracy"], "accuracy"),
    "QNLI": (["accuracy"], "accuracy"),
    "RTE": (["accuracy"], "accuracy"),
    "WNLI": (["accuracy"], "accuracy"),
    "AX": (["accuracy", "matthews"], "matthews"),
}


@pytest.fixture
def logged(monkeypatch):
    lines = []
    for level in ("info", "warning"):
        monkeypatch.setattr(logging, level, lambda form, *values: lines.append(form % values))
    return lines


def write(folder, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("name", LABELLED)
def test_columns(name, tmp_path):
    row, *labelled = LABELLED[name]
    test_row, *unlabelled = TEST[name]
    header = "" if name == "CoLA" else "header\n"
    file = "_matched" if name == "MNLI" else ""
    text, test_text = f"{header}{row}\n", f"index\n{test_row}\n"
    data_dir = write(tmp_path, train=text, **{f"dev{file}": text, f"test{file}": test_text})
    processor = glue.PROCESSORS[name]()
    number = "0" if name == "CoLA" else "5" if name == "MNLI" else "1"
    assert processor.get_train_examples(data_dir) == [InputExample(f"train-{number}", *labelled)]
    assert processor.get_dev_examples(data_dir) == [InputExample(f"dev{file}-{number}", *labelled)]
    guid = "test-5" if name == "MNLI" else "test-1"
    assert processor.get_test_examples(data_dir) == [InputExample(guid, *unlabelled)]


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name):
    processor = glue.PROCESSORS[name]()
    assert (list(processor.metrics), processor.main_metric) == METRICS[name]
    assert processor.is_regression == (name == "STS-B")
    assert (processor.get_labels() is None) == (name == "STS-B")


def test_orders_of_labels():
    assert glue.MnliProcessor().get_labels() == ["contradiction", "entailment", "neutral"]
    assert glue.AxProcessor().get_labels() == ["contradiction", "entailment", "neutral"]
    assert glue.QnliProcessor().get_labels() == ["entailment", "not_entailment"]
    assert glue.ColaProcessor().get_labels() == ["0", "1"]


def test_every_task_is_there_by_its_name():
    assert all(name == processor.name for name, processor in glue.PROCESSORS.items())
    assert [processor.name for processor in glue.PROCESSORS.values()] == [*LABELLED, "AX"]


def test_qqp_skips_its_short_rows_and_no_other_task_does(tmp_path, logged):
    good = LABELLED["QQP"][0]
    data_dir = write(tmp_path, train=f"h\n9\t1\t2\tA?\n{good}\n9\t1\n{good}\n", test="h\n5\tA?\n")
    guids = [example.guid for example in glue.QqpProcessor().get_train_examples(data_dir)]
    assert guids == ["train-2", "train-4"]
    assert logged == [f"{data_dir}/train.tsv: skipped 2 rows with too few columns"]
    with pytest.raises(InputError, match=r"test.tsv: line 2: has 2 columns, but 3 are needed"):
        glue.QqpProcessor().get_test_examples(data_dir)
    with pytest.raises(InputError, match=r"train.tsv: line 3: has 6 columns, but 10 are needed"):
        glue.StsbProcessor().get_train_examples(write(tmp_path, train=f"h\n{LABELLED['STS-B'][0]}\n{good}\n"))


def test_mismatched_sets_are_read_when_they_are_there(tmp_path, logged):
    row, test_row = LABELLED["MNLI"][0], TEST["MNLI"][0]
    data_dir = write(tmp_path, dev_matched=f"h\n{row}\n", test_matched=f"h\n{test_row}\n")
    processor = glue.MnliProcessor()
    assert list(processor.dev_sets(data_dir)) == list(processor.test_sets(data_dir)) == [""]
    assert logged == [
        f"{data_dir}: has no dev_mismatched.tsv, which is left out",
        f"{data_dir}: has no test_mismatched.tsv, which is left out",
    ]
    write(tmp_path, dev_mismatched=f"h\n{row}\n{row}\n", test_mismatched=f"h\n{test_row}\n")
    dev, test = processor.dev_sets(data_dir), processor.test_sets(data_dir)
    assert {suffix: [one.guid for one in examples] for suffix, examples in dev.items()} == {
        "": ["dev_matched-5"],
        "_mm": ["dev_mismatched-5", "dev_mismatched-5"],
    }
    assert [one.guid for one in test["_mm"]] == ["test_mismatched-5"]


def test_a_missing_first_set_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"dev_matched.tsv: no such file"):
        glue.MnliProcessor().dev_sets(str(tmp_path))


@pytest.mark.parametrize("place", ["AX.tsv", "diagnostic.tsv", "AX/AX.tsv", "diagnostic/diagnostic.tsv"])
def test_ax_without_labels_is_only_predicted(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("index\tsentence1\tsentence2\n0\tA.\tB.\n")
    ax = glue.AxProcessor()
    assert ax.test_sets(str(tmp_path)) == {"": [InputExample("test-0", "A.", "B.", "contradiction")]}
    assert ax.dev_sets(str(tmp_path)) == {}
    with pytest.raises(InputError, match="has no column 'label' to evaluate with; predict it instead"):
        ax.get_dev_examples(str(tmp_path))
    with pytest.raises(InputError, match="train on MNLI"):
        ax.get_train_examples(str(tmp_path))


def test_ax_with_labels_is_evaluated(tmp_path):
    data_dir = write(tmp_path, AX="index\tsentence1\tsentence2\tx\tlabel\n0\tA.\tB.\t\tneutral\n")
    example = InputExample("test-0", "A.", "B.", "neutral")
    assert glue.AxProcessor().dev_sets(data_dir) == {"": [example]}
    assert glue.AxProcessor().get_dev_examples(data_dir) == [example]


def test_ax_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"has none of AX.tsv, diagnostic.tsv"):
        glue.AxProcessor().test_sets(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "suffix", "predictions", "file", "answers"),
    [
        ("CoLA", "", [1, 0, 1], "CoLA.tsv", ["1", "0", "1"]),
        ("STS-B", "", [5.25, -0.5, 2.5], "STS-B.tsv", ["5", "0", "2.5"]),
        ("RTE", "", [1, 0, 0], "RTE.tsv", ["not_entailment", "entailment", "entailment"]),
        ("MNLI", "", [2, 0, 1], "MNLI-m.tsv", ["neutral", "contradiction", "entailment"]),
        ("MNLI", "_mm", [1, 1, 1], "MNLI-mm.tsv", ["entailment"] * 3),
        ("AX", "", [1, 1, 0], "AX.tsv", ["entailment", "entailment", "contradiction"]),
    ],
)
def test_submissions(tmp_path, name, suffix, predictions, file, answers):
    test_file = {"MNLI": "test_matched", "MNLI_mm": "test_mismatched", "AX": "AX"}.get(name + suffix, "test")
    data_dir = write(tmp_path, **{test_file: "index\tsentence\n3\tA.\n4\tB.\n9\tC.\n"})
    processor = glue.PROCESSORS[name]()
    path = processor.write_submission(str(tmp_path / "out"), data_dir, np.array(predictions), suffix)
    assert path == str(tmp_path / "out" / file)
    with open(path) as written:
        rows = [f"{number}\t{answer}\n" for number, answer in zip([3, 4, 9], answers, strict=True)]
        assert written.readlines() == ["index\tprediction\n", *rows]


@pytest.mark.parametrize(
    ("name", "counts", "first", "last"),
    [
        ("CoLA", (8551, 1043, 1063), "1", "1"),
        ("SST-2", (67349, 872, 1821), "0", "0"),
        ("STS-B", (5749, 1500, 1379), "5.000", "0"),
    ],
)
@pytest.mark.needs_shared("data/glue")
def test_real_files(name, counts, first, last):
    data_dir = str(shared("data", "glue", name))
    processor = glue.PROCESSORS[name]()
    train = processor.get_train_examples(data_dir)
    sets = (train, processor.get_dev_examples(data_dir), processor.get_test_examples(data_dir))
    assert tuple(map(len, sets)) == counts
    assert (train[0].label, train[-1].label) == (first, last)


def test_the_originals_layouts():
    folder = GOLDEN / "scripts" / "glue"
    mnli = glue.MnliProcessor().get_dev_examples(str(folder / "MNLI"))
    assert [(one.guid, one.label) for one in (mnli[0], mnli[1], mnli[-1])] == [
        ("dev_matched-0", "neutral"),
        ("dev_matched-1", "entailment"),
        ("dev_matched-44", mnli[-1].label),
    ]
    assert mnli[1].text_a == "This rule is subtle."
    mrpc = glue.MrpcProcessor().get_dev_examples(str(folder / "MRPC"))
    assert [(one.guid, one.label) for one in (mrpc[0], mrpc[-1])] == [("dev-1", "0"), ("dev-45", "1")]
    cola = glue.ColaProcessor()
    dev, test = cola.get_dev_examples(str(folder / "CoLA")), cola.get_test_examples(str(folder / "CoLA"))
    assert [(one.guid, one.label) for one in (dev[0], dev[-1])] == [("dev-0", "0"), ("dev-44", "1")]
    assert [(one.guid, one.label) for one in (test[0], test[-1])] == [("test-1", "0"), ("test-21", "0")]
    for processor, name in ((cola, "CoLA"), (glue.MrpcProcessor(), "MRPC"), (glue.MnliProcessor(), "MNLI")):
        assert len(processor.get_train_examples(str(folder / name))) == 8
        assert len(processor.get_dev_examples(str(folder / name))) == 45
        assert len(processor.get_test_examples(str(folder / name))) == 21

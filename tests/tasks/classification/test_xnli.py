import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.glue import XnliProcessor

HEADER = "language\tgold_label\ts1\ts2\ts3\ts4\tsentence1\tsentence2\tpromptID"


@pytest.fixture
def data_dir(tmp_path):
    (tmp_path / "multinli").mkdir()
    for language, words in (("zh", "我 们"), ("de", "wir sind")):
        (tmp_path / "multinli" / f"multinli.train.{language}.tsv").write_text(
            f"premise\thypo\tlabel\n{words}\tb\tcontradictory\n{words}\td\tneutral\n", encoding="utf-8"
        )
    rows = [
        "de\tneutral\t\t\t\t\tA.\tB.\t1",
        "zh\tentailment\t\t\t\t\tC.\tD.\t2",
        "zh\tcontradiction\t\t\t\t\tE.\tF.\t3",
    ]
    (tmp_path / "xnli.dev.tsv").write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    (tmp_path / "xnli.test.tsv").write_text("\n".join([HEADER, rows[0], rows[2]]), encoding="utf-8")
    return str(tmp_path)


def test_chinese_by_default(data_dir):
    processor = XnliProcessor()
    assert processor.get_labels() == ["contradiction", "entailment", "neutral"]
    assert processor.get_train_examples(data_dir) == [
        InputExample("train-1", "我 们", "b", "contradiction"),  # "contradictory" in the file
        InputExample("train-2", "我 们", "d", "neutral"),
    ]
    assert processor.get_dev_examples(data_dir) == [
        InputExample("dev-2", "C.", "D.", "entailment"),
        InputExample("dev-3", "E.", "F.", "contradiction"),
    ]
    assert processor.get_test_examples(data_dir) == [InputExample("test-2", "E.", "F.", "contradiction")]


def test_another_language(data_dir):
    processor = XnliProcessor("de")
    assert processor.get_train_examples(data_dir)[0].text_a == "wir sind"
    assert processor.get_dev_examples(data_dir) == [InputExample("dev-1", "A.", "B.", "neutral")]


def test_a_language_that_is_not_there(data_dir):
    with pytest.raises(
        InputError, match=r"xnli.dev.tsv: has no row in the language 'fr', but in de, zh; write --task_name=XNLI-"
    ):
        XnliProcessor("fr").get_dev_examples(data_dir)
    with pytest.raises(InputError, match=r"multinli.train.fr.tsv: no such file"):
        XnliProcessor("fr").get_train_examples(data_dir)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("zh\tmaybe\t\t\t\t\tC.\tD.", "has the label 'maybe', which is none of contradiction, entailment, neutral"),
        ("zh\tneutral\t\t\t\t\tC.", "has 7 columns, but the hypothesis is expected in column 8"),
    ],
)
def test_rows_that_cannot_be_used(data_dir, tmp_path, row, message):
    (tmp_path / "xnli.dev.tsv").write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(InputError, match=rf"xnli.dev.tsv: line 2: {message}"):
        XnliProcessor().get_dev_examples(data_dir)

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor, Layout, read_layout

PAIRS = Layout(text_a=1, text_b=2, label=-1)
LABELS = ("no", "yes")


@pytest.fixture
def folder(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "train.tsv"
        path.write_bytes(text.encode())
        return str(path)

    return write


def test_rows_are_numbered_as_in_the_file(folder):
    path = folder('\ufeffid\ta\tb\tlabel\r\n\r\n7\tone "\ttwo\tno\r\n8\tthree\tfour\textra\tyes')
    assert read_layout(path, "train", PAIRS, LABELS) == [
        InputExample("train-2", 'one "', "two", "no"),  # below the header, row 0, and a blank line
        InputExample("train-3", "three", "four", "yes"),
    ]


@pytest.mark.parametrize(
    ("row", "labels", "message"),
    [
        ("1\ta\tno", LABELS, "has 3 columns, but 4 are needed; complete the row, or check that"),
        ("1\ta\tb\tNo", LABELS, "has the label 'No', which is none of no, yes; correct it or the layout$"),
        ("1\ta\tb\tnan", None, "has the score 'nan', which is no number; correct it$"),
    ],
)
def test_rows_that_cannot_be_used(folder, row, labels, message):
    path = folder(f"h\n\n{row}\n")
    with pytest.raises(InputError, match=rf"train.tsv: line 3: {message}"):
        read_layout(path, "train", PAIRS, labels)


@pytest.mark.parametrize("text", ["", "a\tb\tc\td\n"])
def test_a_file_without_examples(folder, text):
    with pytest.raises(InputError, match=r"train.tsv: holds no example; check the file$"):
        read_layout(folder(text), "train", PAIRS, LABELS)


def test_a_processor_of_the_users_own(folder):
    """As people derived theirs from the original's class."""

    class Own(DataProcessor):
        def get_dev_examples(self, data_dir):
            lines = self._read_tsv(data_dir)
            return [InputExample(f"dev-{i}", line[1], label=line[0]) for i, line in enumerate(lines)]

        def get_labels(self):
            return ["a", "b"]

    path = folder('a\t"one"\nb\ttwo\n')
    assert Own().dev_sets(path) == {
        "": [InputExample("dev-0", '"one"', label="a"), InputExample("dev-1", "two", label="b")]
    }
    with pytest.raises(NotImplementedError):
        Own().get_train_examples(path)
    assert Own._read_tsv(path, quotechar='"') == [["a", "one"], ["b", "two"]]

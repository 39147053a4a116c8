"""The tables of the log and the file of the matrix, with scores computed by hand."""

import numpy as np

from official_bert.tasks.classification.task import report_labels

# true: a a a a b b c; predicted: a a b c b a c
TARGETS, PREDICTIONS = np.array([0, 0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 2, 1, 0, 2])


def test_the_scores_and_the_matrix(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "confusion_matrix.tsv"
    report_labels(str(path), TARGETS, PREDICTIONS, ["a", "long label", "c"])
    assert caplog.messages == [
        "***** Results of each label *****",
        "  label       precision  recall      f1  examples",
        "  a              0.6667  0.5000  0.5714         4",  # 2/3, 2/4
        "  long label     0.5000  0.5000  0.5000         2",  # 1/2, 1/2
        "  c              0.5000  1.0000  0.6667         1",  # 1/2, 1/1
        "***** Confusion matrix: a row for each true label, a column for each predicted one *****",
        "              a  long label  c",
        "  a           2           1  1",
        "  long label  1           1  0",
        "  c           0           0  1",
        f"Wrote {path}",
    ]
    assert path.read_text() == "\ta\tlong label\tc\na\t2\t1\t1\nlong label\t1\t1\t0\nc\t0\t0\t1\n"


def test_a_wide_matrix_is_in_the_file_alone(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "confusion_matrix.tsv"
    report_labels(str(path), TARGETS, PREDICTIONS, list(range(13)))
    assert "Confusion matrix" not in caplog.text
    assert len(path.read_text().splitlines()) == 14

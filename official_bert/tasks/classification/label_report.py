"""What an evaluation shows of each label: its scores, and the confusion matrix."""

from collections.abc import Sequence

import numpy as np
from absl import logging

from official_bert.io import writing
from official_bert.metrics.classification import confusion_matrix, precision_recall_f1

# A terminal breaks the lines of wider matrices, which are in the file only.
_MAX_LOGGED_LABELS = 12


def report_labels(
    path: str, targets: np.ndarray, predictions: np.ndarray, labels: Sequence[object]
) -> None:
    """Log the scores of each label and the confusion matrix, and write the matrix as a TSV file.

    A line of the file counts the examples of a true label by the predicted label.

    Args:
        path: the file to write.
        targets: the true label ids, int[n].
        predictions: the predicted label ids, int[n].
        labels: the labels by id.
    """
    names = [str(label) for label in labels]
    matrix = confusion_matrix(targets, predictions, len(names))
    logging.info("***** Results of each label *****")
    _log_columns(score_rows(names, matrix))

    rows = [["", *names]]
    for name, counts in zip(names, matrix, strict=True):
        rows.append([name, *map(str, counts)])
    if len(names) <= _MAX_LOGGED_LABELS:
        logging.info(
            "***** Confusion matrix: a row for each true label, a column for each predicted one "
            "*****"
        )
        _log_columns(rows)
    with writing.replacing(path) as file:
        for row in rows:
            file.write("\t".join(row) + "\n")
    logging.info("Wrote %s", path)


def score_rows(names: Sequence[str], matrix: np.ndarray) -> list[list[str]]:
    """Return the table of the labels' scores; its first row has the names of the columns.

    Args:
        names: the labels by id.
        matrix: the numbers of examples by true and by predicted label, int[labels, labels].
    """
    num_correct = matrix.diagonal()
    num_predicted = matrix.sum(axis=0)
    num_examples = matrix.sum(axis=1)
    rows = [["label", "precision", "recall", "f1", "examples"]]
    for index, name in enumerate(names):
        scores = precision_recall_f1(
            num_correct[index],
            num_predicted[index],
            num_examples[index],
        )
        texts = [f"{score:.4f}" for score in scores.values()]
        rows.append([name, *texts, str(num_examples[index])])
    return rows


def _log_columns(rows: Sequence[Sequence[str]]):
    """Logs rows in aligned columns: the first column to the left, numbers to the right."""
    columns = zip(*rows, strict=True)
    name_width, *number_widths = [max(map(len, column)) for column in columns]
    for name, *numbers in rows:
        cells = [name.ljust(name_width)]
        for number, width in zip(numbers, number_widths, strict=True):
            cells.append(number.rjust(width))
        logging.info("  %s", "  ".join(cells))

"""What an evaluation says of each label: precision, recall and F1, and the confusion matrix.

In: the true and the predicted label of each example. Out: two tables in the log, and a file with the matrix.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from official_bert import writing
from official_bert.metrics.classification import confusion_matrix, precision_recall_f1

_MOST_COLUMNS = 12  # of labels in the log; a terminal breaks the lines of a wider matrix


def report_labels(path: str, targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]):
    """Logs the scores of each label and the confusion matrix, and writes the matrix as a TSV file.

    The first line and the first column of the file are labels; a line counts the examples of a true label by the label
    that was predicted.

    Args:
        path: the file.
        targets: int[n], ids of the true labels.
        predictions: int[n], ids of the predicted labels.
        labels: the names of the labels, in the order of the ids.
    """
    names = [str(label) for label in labels]
    matrix = confusion_matrix(targets, predictions, len(names))
    logging.info("***** Results of each label *****")
    scores = [
        precision_recall_f1(*counts)
        for counts in zip(matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1), strict=True)
    ]
    rows = [
        [name, *(f"{value:.4f}" for value in score.values()), count]
        for name, score, count in zip(names, scores, matrix.sum(axis=1), strict=True)
    ]
    _log_columns([["label", "precision", "recall", "f1", "examples"], *rows])
    rows = [["", *names], *([name, *counts] for name, counts in zip(names, matrix, strict=True))]
    if len(names) <= _MOST_COLUMNS:
        logging.info(
            "***** Confusion matrix: a row for each true label, a column for each predicted one *****"
        )
        _log_columns(rows)
    with writing.replacing(path) as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    logging.info("Wrote %s", path)


def _log_columns(rows: Iterable[Sequence]):
    """Logs rows in aligned columns: the first to the left, numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *others in texts:
        cells = [
            first.ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True)),
        ]
        logging.info("  %s", "  ".join(cells))

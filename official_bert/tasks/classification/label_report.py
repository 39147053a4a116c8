"""What an evaluation shows of each label: its scores, and the confusion matrix."""

from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from official_bert.io import writing
from official_bert.metrics.classification import confusion_matrix, precision_recall_f1

_MAX_COLUMNS = 12  # of a matrix in the log, because a terminal breaks wider lines


def report_labels(path: str, targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]):
    """Logs the scores of each label and the confusion matrix, and writes the matrix as a TSV file.

    A line of the file counts the examples of a true label by the predicted label.

    Args:
        path: the file to write.
        targets: the true label ids, int[n].
        predictions: the predicted label ids, int[n].
        labels: the labels by id.
    """
    names = [str(label) for label in labels]
    matrix = confusion_matrix(targets, predictions, len(names))
    num_correct, num_predicted = matrix.diagonal(), matrix.sum(axis=0)
    num_examples = matrix.sum(axis=1)
    logging.info("***** Results of each label *****")
    rows: list[Sequence] = [["label", "precision", "recall", "f1", "examples"]]
    for index, name in enumerate(names):
        scores = precision_recall_f1(num_correct[index], num_predicted[index], num_examples[index])
        texts = [f"{score:.4f}" for score in scores.values()]
        rows.append([name, *texts, num_examples[index]])
    _log_columns(rows)

    rows = [["", *names]]
    rows += [[name, *counts] for name, counts in zip(names, matrix, strict=True)]
    if len(names) <= _MAX_COLUMNS:
        logging.info(
            "***** Confusion matrix: a row for each true label, a column for each predicted one "
            "*****"
        )
        _log_columns(rows)
    with writing.replacing(path) as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    logging.info("Wrote %s", path)


def _log_columns(rows: Iterable[Sequence]):
    """Logs rows in aligned columns: the first one to the left, numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for name, *numbers in texts:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        logging.info("  %s", "  ".join([name.ljust(widths[0]), *cells]))

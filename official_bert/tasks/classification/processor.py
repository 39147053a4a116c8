"""The base class of processors, which read the files of a text classification or regression task."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from absl import logging

from official_bert.data.tables import Row, not_empty, parse_number, read_csv, read_tsv
from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import LARGEST_SCORE, InputExample
from official_bert.tasks.classification.settings import ClassificationSettings


class DataProcessor:
    """Reads the examples of a task and names its metrics.

    Attributes:
        metrics: names of the metrics, keys of the tables at the top of
            tasks/classification/task.py; "precision" brings the precision, recall and F1 of each
            label and, of more than two, their micro_ and macro_ averages.
        main_metric: the metric by which checkpoints are chosen.
        is_regression: whether labels are scores; then `get_labels` returns None.
        is_multi_label: whether an example has a tuple of any number of labels.
        has_pairs: whether an example may have a second text.
        needs_pairs: whether every example has a second text.
        allows_unknown_labels: whether a dev set may have labels that are none of the task's, and so are out
            of its scope.
        shuffle_buffer_size: as in tasks/base.py.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    main_metric: ClassVar[str] = "accuracy"
    is_regression = False
    is_multi_label = False
    has_pairs = True
    needs_pairs = False
    allows_unknown_labels = False
    shuffle_buffer_size: ClassVar[int] = 0

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self:
        """Makes the processor of a run or of an export.

        Args:
            settings: the flags of the run, or the recorded settings. What `settings` of this class
                has recorded is in their `values`.
        """
        return cls()

    def settings(self) -> dict[str, Any]:
        """Returns the flags, by name, without which another script could not make this processor
        again.
        """
        return {}

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the training examples."""
        raise NotImplementedError

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the examples for evaluation."""
        raise NotImplementedError

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the examples for prediction; their labels are ignored."""
        raise NotImplementedError

    def get_labels(self) -> list[str] | None:
        """Returns all labels, in the order of the model's outputs; None in regression."""
        raise NotImplementedError

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Reads every set for evaluation, by the suffix of its result files; the first suffix is
        "".
        """
        return {"": self.get_dev_examples(data_dir)}

    def test_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Reads every set for prediction, by the suffix of its result files; the first suffix is
        "".
        """
        return {"": self.get_test_examples(data_dir)}

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: str | None = None) -> list[list[str]]:
        """Returns the fields of every row; without `quotechar` a double quote is an ordinary
        character.
        """
        rows = read_tsv(input_file) if quotechar is None else read_csv(input_file, "\t", quotechar)
        return [row.fields for row in rows]


class Layout(NamedTuple):
    """The layout of a TSV file; columns count from 0, or from the end if negative.

    Attributes:
        label: column of the label; None in a test set.
        id_column: column whose value completes an example's name; None for the number of the row,
            counting the header.
    """

    text_a: int
    text_b: int | None = None
    label: int | None = None
    id_column: int | None = None
    has_header: bool = True

    def rows(self, path: str, labels: Sequence[str] | None = ()) -> list[Row]:
        """Reads the rows below the header; warns of a header that has one of the labels, or a
        score for None.
        """
        rows = list(read_tsv(path))
        if rows and self.has_header and self.label is not None:
            warn_of_lost_row(rows[0], self.label, labels)
        return rows[1:] if self.has_header else rows

    @property
    def num_columns(self) -> int:
        columns = [
            column for column in (self.text_a, self.text_b, self.id_column) if column is not None
        ]
        num_columns = max(columns) + 1
        if self.label is None:
            return num_columns
        return max(num_columns, self.label + 1) if self.label >= 0 else num_columns - self.label


def read_layout(
    path: str,
    guid: str,
    layout: Layout,
    labels: Sequence[str] | None,
    skip_short_rows: bool = False,
    other_names: Mapping[str, str] | None = None,
) -> list[InputExample]:
    """Reads the examples of a file, whose names begin with `guid`.

    A test set's examples get the first label, or "0.0" in regression, where `labels` is None.
    `other_names` are labels by their name in the file. Rows that lack a column are skipped with a
    warning or an error, by `skip_short_rows`.
    """
    num_columns = layout.num_columns
    examples = []
    num_short = 0
    for row in layout.rows(path, labels):
        if len(row.fields) < num_columns:
            if not skip_short_rows:
                raise row.error(
                    f"has {len(row.fields)} columns, but {num_columns} are needed; complete the "
                    "row, or check that the file has the layout of the task"
                )
            num_short += 1
            continue
        text_b = None if layout.text_b is None else row.fields[layout.text_b]
        if layout.label is None:
            label = labels[0] if labels else "0.0"
        else:
            label = row.fields[layout.label]
            label = checked_label(row, (other_names or {}).get(label, label), labels)
        name = row.line - 1 if layout.id_column is None else row.fields[layout.id_column]
        examples.append(InputExample(f"{guid}-{name}", row.fields[layout.text_a], text_b, label))
    if num_short:
        logging.warning("%s: skipped %d rows with too few columns", path, num_short)
    return not_empty(examples, path)


def warn_of_lost_row(header: Row, column: int, labels: Sequence[str] | None):
    """Warns of a first row that is taken for the header and looks like an example."""
    if not -len(header.fields) <= column < len(header.fields):
        return
    name = header.fields[column].strip()
    try:
        checked_label(header, name, labels)
    except InputError:
        return
    logging.warning(
        "%s: line %d is taken for the names of the columns, but that of the labels would be %r; "
        "give the file a header",
        header.path,
        header.line,
        name,
    )


def checked_label(row: Row, label: str, labels: Sequence[str] | None) -> str:
    """Returns the label of a row after validating that it is known or, if `labels` is None, a
    finite score.
    """
    if labels is None:
        score = parse_number(label)
        if not math.isfinite(score):
            raise row.error(f"has the score {label!r}, which is no number; correct it")
        if abs(score) > LARGEST_SCORE:
            raise row.error(
                f"has the score {label!r}, whose square is too large to train on; scale the scores "
                "to about 1"
            )
        return label
    if label not in labels:
        raise row.error(
            f"has the label {label!r}, which is none of {', '.join(labels)}; correct it or the "
            "layout"
        )
    return label

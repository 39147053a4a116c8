"""The base class of processors, which read the files of a classification or regression task."""

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
        metrics: the names of the metrics; the tables at the top of
            tasks/classification/output_kinds.py have them. "precision" adds the precision, recall
            and F1 of each label; with more than two labels also their micro and macro averages.
        main_metric: the metric by which checkpoints are chosen.
        is_regression: whether labels are scores; then `get_labels` returns None.
        is_multi_label: whether an example has a tuple of any number of labels.
        has_pairs: whether an example may have a second text.
        needs_pairs: whether every example has a second text.
        allows_unknown_labels: whether a dev set may have examples out of scope, whose labels are
            none of the task's.
        shuffle_buffer_size: as in tasks/base.py.
    """

    metrics: tuple[str, ...] = ("accuracy",)
    main_metric: str = "accuracy"
    is_regression = False
    is_multi_label = False
    has_pairs = True
    needs_pairs = False
    allows_unknown_labels = False
    shuffle_buffer_size: ClassVar[int] = 0

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self:
        """Make the processor of a run or of an export.

        Args:
            settings: the flags of the run, or the recorded settings. Their `values` have what the
                method `settings` of this class returned for the record.

        Returns:
            The processor.
        """
        return cls()

    def settings(self) -> dict[str, Any]:
        """Return the flags that a record needs, so that `from_settings` makes this processor again.

        Returns:
            The values by flag name.
        """
        return {}

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Read the training examples.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.
        """
        raise NotImplementedError

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Read the examples for evaluation.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.
        """
        raise NotImplementedError

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Read the examples for prediction; their labels are ignored.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.
        """
        raise NotImplementedError

    def get_labels(self) -> list[str] | None:
        """Return all labels, in the order of the model's outputs; None in regression."""
        raise NotImplementedError

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Read every set for evaluation.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.

        Returns:
            The sets by the suffix of their result files; the first suffix is "".
        """
        return {"": self.get_dev_examples(data_dir)}

    def test_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Read every set for prediction.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.

        Returns:
            The sets by the suffix of their result files; the first suffix is "".
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
        text_a: the column of the text, or of the first text of a pair.
        text_b: the column of the second text; None for single texts.
        label: the column of the label; None in a test set.
        id_column: the column whose value completes an example's name; None for the number of the
            row, counting the header.
        has_header: whether the first row has the names of the columns.
    """

    text_a: int
    text_b: int | None = None
    label: int | None = None
    id_column: int | None = None
    has_header: bool = True

    def rows(self, path: str, labels: Sequence[str] | None = ()) -> list[Row]:
        """Read the rows below the header, and warn of a header that looks like an example.

        Args:
            path: the file.
            labels: the labels of the task; None in regression.
        """
        rows = list(read_tsv(path))
        if rows and self.has_header and self.label is not None:
            warn_of_lost_row(rows[0], self.label, labels)
        return rows[1:] if self.has_header else rows

    @property
    def num_columns(self) -> int:
        """The least number of columns that a row needs."""
        optional_columns = (self.text_b, self.id_column)
        columns = [self.text_a, *(column for column in optional_columns if column is not None)]
        num_columns = max(columns) + 1
        if self.label is None:
            return num_columns
        if self.label < 0:
            return num_columns - self.label
        return max(num_columns, self.label + 1)


def read_layout(
    path: str,
    guid: str,
    layout: Layout,
    labels: Sequence[str] | None,
    skip_short_rows: bool = False,
    other_names: Mapping[str, str] | None = None,
) -> list[InputExample]:
    """Read the examples of a file.

    Args:
        path: the file.
        guid: the start of the examples' names.
        layout: the columns of the file.
        labels: the labels of the task; None in regression. The examples of a test set get the first
            label, or "0.0" in regression.
        skip_short_rows: whether rows that lack a column are skipped with a warning.
        other_names: name in the file -> label, for labels that the file names differently.

    Returns:
        The examples.

    Raises:
        InputError: a row lacks a column or has an invalid label, or the file has no examples.
    """
    num_columns = layout.num_columns
    label_names: Mapping[str, str] = other_names or {}
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
            label_name: str = row.fields[layout.label]
            label = check_label(row, label_names.get(label_name, label_name), labels)
        example_id = row.line - 1 if layout.id_column is None else row.fields[layout.id_column]
        text_a = row.fields[layout.text_a]
        examples.append(InputExample(f"{guid}-{example_id}", text_a, text_b, label))
    if num_short:
        logging.warning("%s: skipped %d rows with too few columns", path, num_short)
    return not_empty(examples, path)


def warn_of_lost_row(header: Row, column: int, labels: Sequence[str] | None) -> None:
    """Warn of a first row that is read as the header and looks like an example.

    Args:
        header: the first row.
        column: the column of the label; a negative one counts from the end.
        labels: the labels of the task; None in regression.
    """
    if not -len(header.fields) <= column < len(header.fields):
        return
    name = header.fields[column].strip()
    try:
        check_label(header, name, labels)
    except InputError:
        return
    logging.warning(
        "%s: line %d is read as the names of the columns, but the column of the labels would be "
        "called %r; give the file a header",
        header.path,
        header.line,
        name,
    )


def check_label(row: Row, label: str, labels: Sequence[str] | None) -> str:
    """Return the label of a row after validating it.

    Args:
        row: the row, for the error message.
        label: its label or score.
        labels: the labels of the task; None in regression.

    Raises:
        InputError: the label is none of the labels, or the score is not a usable number.
    """
    if labels is None:
        score = parse_number(label)
        if not math.isfinite(score):
            raise row.error(f"has the score {label!r}, which is not a number; correct it")
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

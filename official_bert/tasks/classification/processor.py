"""The files of a text classification or regression task: the base of every processor.

In: a data folder. Out: examples, checked against the labels.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from absl import logging

from official_bert.data.tables import Row, not_empty, read_csv, read_tsv
from official_bert.tasks.classification.examples import InputExample


class DataProcessor:
    """Examples of a task, and how it is scored.

    Attributes:
        metrics: names of the metrics, in the order of the results file.
        main_metric: the one by which checkpoints are chosen.
        is_regression: whether a label is a score; then `get_labels` gives None.
        is_multi_label: whether an example has any number of labels; they are a tuple in the example.
        has_pairs: whether an example may have a second text.
        needs_pairs: whether every example has one.
        shuffle_buffer_size: as in tasks/base.py.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    main_metric: ClassVar[str] = "accuracy"
    is_regression = False
    is_multi_label = False
    has_pairs = True
    needs_pairs = False
    shuffle_buffer_size: ClassVar[int] = 0

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The processor of a run; `settings` are its flags by name."""
        return cls()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Examples to learn from."""
        raise NotImplementedError

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Examples to evaluate on."""
        raise NotImplementedError

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Examples to predict; their labels mean nothing."""
        raise NotImplementedError

    def get_labels(self) -> list[str] | None:
        """All labels, in the order of the model's outputs; None in regression."""
        raise NotImplementedError

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Every set to evaluate on, by what its files' names end with; "" is the first."""
        return {"": self.get_dev_examples(data_dir)}

    def test_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        """Every set to predict, by what its files' names end with; "" is the first."""
        return {"": self.get_test_examples(data_dir)}

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: str | None = None) -> list[list[str]]:
        """Columns of every row; without `quotechar` a double quote is a character."""
        rows = read_tsv(input_file) if quotechar is None else read_csv(input_file, "\t", quotechar)
        return [row.fields for row in rows]


class Layout(NamedTuple):
    """Where the examples of a TSV file stand; columns count from 0, or from the end if negative.

    Attributes:
        file: its name in the data folder.
        guid: what the examples' names begin with.
        text_a: column of the text, or the first of a pair.
        text_b: column of the second.
        label: column of the label; None in a test set.
        id_column: column that the examples' names end with; None for the number of the row, counting the header.
        has_header: whether the first row names the columns.
    """

    file: str
    guid: str
    text_a: int
    text_b: int | None = None
    label: int | None = None
    id_column: int | None = None
    has_header: bool = True

    def rows(self, data_dir: str) -> list[Row]:
        """The rows below the header."""
        rows = list(read_tsv(os.path.join(data_dir, self.file)))
        return rows[1:] if self.has_header else rows

    @property
    def num_columns(self) -> int:
        """How many columns a row must have."""
        columns = [column for column in (self.text_a, self.text_b, self.id_column) if column is not None]
        num_columns = max(columns) + 1
        if self.label is None:
            return num_columns
        return max(num_columns, self.label + 1) if self.label >= 0 else num_columns - self.label


def read_layout(
    data_dir: str,
    layout: Layout,
    labels: Sequence[str] | None,
    skip_short_rows: bool = False,
    other_names: Mapping[str, str] | None = None,
) -> list[InputExample]:
    """The examples of a file.

    Args:
        data_dir: its folder.
        layout: where things stand in it.
        labels: all labels, or None in regression; a test set's examples get the first one, or "0.0".
        skip_short_rows: leave out rows that lack a column, and log how many, instead of refusing them.
        other_names: label in the file -> label, where they differ.

    Raises:
        InputError: no such file, nothing in it, a short row, an unknown label or a score that is no number.
    """
    path = os.path.join(data_dir, layout.file)
    num_columns = layout.num_columns
    examples = []
    num_short = 0
    for row in layout.rows(data_dir):
        if len(row.fields) < num_columns:
            if not skip_short_rows:
                raise row.error(
                    f"has {len(row.fields)} columns, but {num_columns} are needed; complete the row, or "
                    "check that the file has the layout of the task"
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
        examples.append(InputExample(f"{layout.guid}-{name}", row.fields[layout.text_a], text_b, label))
    if num_short:
        logging.warning("%s: skipped %d rows with too few columns", path, num_short)
    return not_empty(examples, path)


def checked_label(row: Row, label: str, labels: Sequence[str] | None) -> str:
    """The label of a row, if it is one.

    Args:
        row: for the error.
        label: as it stands there.
        labels: all labels, or None in regression.

    Raises:
        InputError: an unknown label, or a score that is no number.
    """
    if labels is None:
        try:
            if math.isfinite(float(label)):
                return label
        except ValueError:
            pass
        raise row.error(f"has the score {label!r}, which is no number; correct it")
    if label not in labels:
        raise row.error(
            f"has the label {label!r}, which is none of {', '.join(labels)}; correct it or the layout"
        )
    return label

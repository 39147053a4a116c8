"""A task of arbitrary tables: the user names the columns of the texts and of the label."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from absl import logging

from official_bert.data.table_formats import CSV, TSV, find_table, format_of, label_of, paths_of, read_rows, text_of
from official_bert.data.tables import Row, not_empty
from official_bert.io.errors import InputError
from official_bert.options.fields import parse_settings, without_flag
from official_bert.options.fine_tuning import COLUMNS, MULTI, SCORE, SINGLE, TextOptions
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor, checked_label, warn_of_lost_row

FILE_FLAGS = ("train_file", "dev_file", "test_file")
_TEXT_NAMES = ("text", "sentence", "sentence1")
_SECOND_NAMES = ("text_b", "sentence2")


class TextProcessor(DataProcessor):
    """The processor of a task whose files the user describes.

    A column is named as in the header, or by its number from 0 (negative: from the end). `text_a_column` is None for
    the one that is called a text, or the first of two. `labels` are None if the training file defines them. With
    `is_multi_label` an example may have several labels, or none; with `is_quoted` fields of TSV may be quoted as in
    CSV. `data_format` is None for that of each file's name.

    Attributes:
        named: set (train, dev, test) -> its files, separated by commas, or its rows below the names of the columns; a
            set that is absent, or None, is looked for in the folder.
    """

    named: Mapping[str, str | list[Row] | None] = MappingProxyType({})

    def __init__(
        self,
        text_a_column: str | None,
        text_b_column: str | None = None,
        label_column: str | None = "label",
        *,
        has_header: bool = True,
        labels: Sequence[str] | None = None,
        is_multi_label: bool = False,
        label_separator: str = ",",
        is_regression: bool = False,
        is_quoted: bool = False,
        data_format: str | None = None,
    ):
        if is_regression and labels:
            raise InputError("--labels: a regression has scores instead of labels; leave one of the two off")
        if is_multi_label and not label_separator:
            raise InputError("--columns: separator= is empty; give what stands between the labels of an example")
        if labels and len(set(labels)) < len(labels):
            raise InputError(f"--labels={','.join(labels)}: names a label twice")
        if labels and len(labels) == 1 and not is_multi_label:
            raise InputError(f"--labels={labels[0]}: is one label, and there is nothing to choose; name all labels")
        self._text_a, self._text_b, self._label = text_a_column, text_b_column, label_column
        self._has_header, self._is_quoted, self._data_format = has_header, is_quoted, data_format
        self.has_pairs = self.needs_pairs = text_b_column is not None
        self._labels = list(labels) if labels else None
        self._separator = label_separator
        self.is_multi_label, self.is_regression = is_multi_label, is_regression
        if is_regression:
            self.metrics, self.main_metric = ("pearson", "spearman"), "spearman"
        else:
            per_label = ("precision", "recall", "f1")
            self.metrics = per_label if is_multi_label else ("accuracy", *per_label)
            self.main_metric = "micro_f1" if is_multi_label else "accuracy"

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Makes the processor of the flags; an export has no columns and takes pairs as its record says, or both."""
        label_type, learnt = settings.get("label_type") or SINGLE, settings.get("checkpoint_labels")
        if label_type == SCORE and learnt:
            raise InputError(
                f"--label_type={SCORE}: the checkpoint was trained on labels ({', '.join(learnt)}), as labels.txt "
                "beside it says; leave the flag out"
            )
        given = settings.get("columns")
        named = parse_settings(given, COLUMNS) if given else {}
        columns = COLUMNS | named
        processor = cls(
            named.get("text_a"),
            columns["text_b"] or None,
            named.get("label"),
            has_header=_truth(columns["header"]),
            labels=settings.get("labels") or learnt,
            is_multi_label=label_type == MULTI,
            label_separator=columns["separator"],
            is_regression=label_type == SCORE,
            is_quoted=settings.get("quoting") == CSV,
            data_format=settings.get("data_format"),
        )
        if "columns" not in settings:
            num_texts = settings.get("num_texts")
            processor.has_pairs, processor.needs_pairs = num_texts != 1, num_texts == 2
        return processor

    def settings(self) -> dict[str, Any]:
        return {"label_type": SCORE if self.is_regression else MULTI if self.is_multi_label else SINGLE}

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the training examples, and takes the labels from them unless they were given."""
        table = self._table(data_dir, "train")
        if self._labels is None and not self.is_regression:
            self._labels = self._learnt_labels(table)
        return self._examples(table, "train")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self._examples(self._table(data_dir, "dev"), "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return self._examples(self._table(data_dir, "test"), "test", labelled=False)

    def get_labels(self) -> list[str] | None:
        if self.is_regression:
            return None
        if self._labels is None:
            raise InputError("--labels: are not known; name them, or read the training file first")
        return list(self._labels)

    def _table(self, data_dir: str | None, set_name: str) -> "_Table":
        given = self.named.get(set_name)
        if isinstance(given, list):
            return _Table(given)
        if given:
            paths = paths_of(given, f"{set_name}_file")
        elif data_dir:
            paths = [find_table(data_dir, set_name, self._data_format)]
        else:
            raise InputError(f"--{set_name}_file: must be given, or --data_dir")
        formats = [format_of(path, self._data_format) for path in paths]
        rows, *others = (self._rows(*file) for file in zip(paths, formats, strict=True))
        for more in others:
            rows = rows + (_in_columns_of(rows[0], more) if self._has_header else more)
        return _Table(rows, self._has_header, formats[0] == TSV)

    def _rows(self, path: str, data_format: str) -> list[Row]:
        """Reads a file; its first row has the names of the columns, if it has a header."""
        is_quoted = data_format == TSV and self._is_quoted
        rows = not_empty(list(read_rows(path, data_format, is_quoted)), path)
        if data_format == TSV and not is_quoted:
            _warn_of_quotes(rows)
        if not self._has_header and not rows[0].line:
            raise InputError(f"--columns: header=false: {path} names its columns in each row; leave it out")
        width = len(rows[0].fields)
        for row in rows[1:] if self._has_header else ():
            if len(row.fields) > width or (data_format == CSV and len(row.fields) < width):
                remedy = "put texts with commas into quotes" if data_format == CSV else "take the tabs out of its texts"
                raise row.error(f"has {len(row.fields)} columns, the header {width}; {remedy}")
        return rows

    def _learnt_labels(self, table: "_Table") -> list[str]:
        """Returns the labels that occur, sorted; as numbers if all of them are numbers."""
        labels_of = self._labels_of(table)
        found = {label for row in not_empty(table.rows, table.path) for label in labels_of(row)}
        if not found:
            raise InputError(f"{table.path}: holds no label; check the label of --columns")
        if len(found) == 1 and not self.is_multi_label:
            raise InputError(
                f"{table.path}: all examples have the label {found.pop()!r}, so that there is nothing to learn; check "
                "the label of --columns, or name all labels with --labels"
            )
        try:
            labels = sorted(found, key=lambda label: (int(label), label))
        except ValueError:
            labels = sorted(found)
        logging.info("%s: has the labels %s", table.path, ", ".join(labels))
        return labels

    def _examples(self, table: "_Table", guid: str, labelled: bool = True) -> list[InputExample]:
        first, second = table.text_column(self._text_a), self._text_b
        text_a = table.text(first, "text_a")
        text_b = table.text(second, "text_b") if second else lambda row: None
        if second and table.number(first, "text_a") == table.number(second, "text_b"):
            raise InputError(f"--columns: text_b={second} is the column of text_a={first}, too; name both")
        if self._text_a is None and not second:
            table.warn_of_second_text()
        unknown = () if self.is_multi_label else None  # the encoder turns () into a zero for each label
        target_of = self._target_of(table, self.takes_unknown and guid == "dev") if labelled else lambda row: unknown
        if labelled and table.header and table.header.line:
            label = table.number(table.label_column(self._label), "label")
            warn_of_lost_row(table.header, label, self.get_labels())
        examples = [
            InputExample(f"{guid}-{row.line - 1}", text_a(row), text_b(row), target_of(row)) for row in table.rows
        ]
        return not_empty(examples, table.path)

    def _target_of(self, table: "_Table", takes_unknown: bool) -> Callable[[Row], str | tuple[str, ...]]:
        """Returns a function from a row to the label, the labels or the score of its example."""
        labels, labels_of = self.get_labels(), self._labels_of(table)
        if self.is_multi_label:
            return lambda row: tuple(checked_label(row, label, labels) for label in labels_of(row))
        if takes_unknown:
            return lambda row: labels_of(row)[0]  # the encoder looks at it
        return lambda row: checked_label(row, *labels_of(row), labels)

    def _labels_of(self, table: "_Table") -> Callable[[Row], list[str]]:
        """Returns a function from a row to the values of its label column, without surrounding blanks."""
        column = table.label_column(self._label)
        field = table.column(column, "label")
        for flag, text in (("text_a", table.text_column(self._text_a)), ("text_b", self._text_b)):
            if text and table.number(text, flag) == table.number(column, "label"):
                raise InputError(
                    f"--columns: label={column} is the column of {flag}={text}, too; correct one of the two"
                )

        def several(row: Row) -> list[str]:
            found = field(row)
            parts = found.split(self._separator) if isinstance(found, str) else found
            parts = parts if isinstance(parts, list) else [parts]
            return [label for part in parts if (label := label_of(row, part))]

        def one(row: Row) -> list[str]:
            label = label_of(row, field(row))
            if not label:
                raise row.error("has no label; complete the row, or leave it out")
            return [label]

        return several if self.is_multi_label else one


def refuse_text_flags(settings: Mapping[str, Any], others: Collection[str] = ()):
    """Refuses the flags of this task, and others, in the run of another one, which would not read them."""
    usual = {field.name: without_flag(field) for field in dataclasses.fields(TextOptions)} | dict.fromkeys(others)
    for name, value in usual.items():
        if settings.get(name) not in (None, value):
            raise InputError(f"--{name}: only goes with --task_name=text, not {settings['task_name']}; leave it out")


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise InputError(f"--columns: header={text}: must be true or false")
    return text == "true"


def _in_columns_of(header: Row, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of another file, below its header, with the columns of the first one."""
    names, own = header.fields, rows[0].fields
    if missing := [name for name in names if name not in own]:
        raise InputError(
            f"{rows[0].path}: has no column {', '.join(missing)}, as {header.path} has; give files with equal columns"
        )
    columns = [(own.index(name), name) for name in names] if names != own else []
    return [row._replace(fields=[row.field(*one) for one in columns] or row.fields) for row in rows[1:]]


def _warn_of_quotes(rows: Sequence[Row]):
    """Warns of the first field in quotes, or with one where a tab or a line break may have cut it in two."""
    for row in rows:
        is_cut = len(row.fields) != len(rows[0].fields)
        if any(field.startswith('"') and (is_cut or '"' in field[1:][-1:]) for field in row.fields):
            logging.warning(
                "%s: line %d: a field is in quotes, which are read as characters; if the file quotes its fields as "
                "pandas and Excel do, give --quoting=csv",
                row.path,
                row.line,
            )
            return


class _Table:
    def __init__(self, rows: Sequence[Row], has_header: bool = True, is_tsv: bool = False):
        self.path = rows[0].path
        self.header = rows[0] if has_header else None
        self._names, self._is_tsv = self.header.fields if self.header else [], is_tsv
        self._width = len(rows[0].fields)
        self.rows = rows[1:] if has_header else rows

    def text_column(self, column: str | None) -> str:
        """Returns the given column of the first text, or the one whose name says that it is one."""
        named = [name for name in self._names if name.lower() in _TEXT_NAMES]
        if column is None and len(named) != 1 and self.header and self._width > 2:
            raise InputError(
                f"--columns: {self.path} has {self._width} columns, {', '.join(self._names)}; name that of the text, "
                "--columns=text_a=..."
            )
        return (named[0] if len(named) == 1 else COLUMNS["text_a"]) if column is None else column

    def label_column(self, column: str | None) -> str:
        """Returns the given column of the label, or the one of that name, or the last; in TSV always the last."""
        named = "label" in self._names and not self._is_tsv
        return ("label" if named else COLUMNS["label"]) if column is None else column

    def warn_of_second_text(self):
        """Warns of a column whose name says that it is the second text of a pair, which is not read."""
        for name in self._names:
            if name.lower() in _SECOND_NAMES:
                logging.warning("%s: the column %s is not read; name it, --columns=text_b=%s", self.path, name, name)

    def number(self, column: str, flag: str) -> int:
        """Returns the index of a column; it stays negative if it lies outside the first row."""
        if self._names.count(column) > 1:
            raise InputError(
                f"--columns: {flag}={column}: {self.path} has several columns of this name; give its number from 0"
            )
        if column in self._names:
            return self._names.index(column)
        try:
            number = int(column)
        except ValueError:
            found = f"its columns are {', '.join(self._names)}" if self._names else "give its number from 0"
            raise InputError(f"--columns: {flag}={column}: {self.path} names no such column; {found}") from None
        # Counted in the first row: a row that lacks a column has another last column.
        return number + self._width if -self._width <= number < 0 else number

    def column(self, column: str, flag: str) -> Callable[[Row], Any]:
        """Returns a function from a row to the field in a column; see `number`."""
        number = self.number(column, flag)
        return lambda row: row.field(number, f"--columns={flag}={column}")

    def text(self, column: str, flag: str) -> Callable[[Row], str]:
        """Returns a function from a row to the text in a column."""
        field = self.column(column, flag)
        return lambda row: text_of(row, field(row), f"--columns={flag}={column}")

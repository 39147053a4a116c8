"""A task of arbitrary tables: the user names the columns of the texts and of the label."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from absl import logging

from official_bert.data.column_roles import Columns, Role, decide_columns, fold_name
from official_bert.data.table_formats import (
    CSV,
    TSV,
    choose_format,
    expand_paths,
    find_table,
    parse_label,
    parse_text,
    read_rows,
    refuse_second_header,
)
from official_bert.data.tables import Row, not_empty
from official_bert.io.errors import InputError
from official_bert.options.fields import without_flag
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE, TextOptions
from official_bert.tasks.classification import labels as label_checks
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import (
    DataProcessor,
    check_label,
    warn_of_lost_row,
)
from official_bert.tasks.classification.settings import ClassificationSettings

FILE_FLAGS = ("train_file", "dev_file", "test_file")
_TEXT_A = Role(
    "text_a",
    ("text", "text_a", "sentence", "sentence1"),
    is_required=True,
    position=0,
    can_be_guessed=True,
    flag="text_a_column",
)
_TEXT_B = Role("text_b", ("text_b", "sentence2"), flag="text_b_column")
_LABEL = Role(
    "label",
    ("label", "labels"),
    is_required=True,
    position=-1,
    can_be_guessed=True,
    flag="label_column",
)
_SCORE = _LABEL._replace(usual_names=("label", "score"))


class TextProcessor(DataProcessor):
    """The processor of a task whose files the user describes.

    A column is named as in the header, in any case, or by its number from 0 (negative: from the
    end); None is for the one that has a usual name or is left; `text_b_column` is "" for single
    texts. `labels` are None if the training file defines them. With `is_multi_label` an example may
    have several labels, or none; with `is_quoted` fields of TSV may be quoted as in CSV.
    `data_format` is None for that of each file's name.

    Attributes:
        named: set (train, dev, test) -> its files, separated by commas, or its rows below the names
            of the columns; a set that is absent, or None, is looked for in the folder.
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
            raise InputError(
                "--labels: a regression has scores instead of labels; leave one of the two off"
            )
        if is_multi_label and not label_separator:
            raise InputError(
                "--label_separator=: is empty; give what separates the labels of an example"
            )
        if labels and len(set(labels)) < len(labels):
            raise InputError(f"--labels={','.join(labels)}: names a label twice")
        if labels and "" in labels:
            raise InputError("--labels: the name of a label is empty; give each label a name")
        if labels and len(labels) == 1 and not is_multi_label:
            raise InputError(
                f"--labels={labels[0]}: is one label, and there is nothing to choose; name all "
                "labels"
            )
        assigned = {"text_a": text_a_column, "text_b": text_b_column, "label": label_column}
        self._assigned = {role: column for role, column in assigned.items() if column is not None}
        self._guessed_names: dict[str, str] = {}  # of columns of the training set, by role
        self._label_role = _SCORE if is_regression else _LABEL
        self.allows_equal_scores = False
        self._has_header, self._is_quoted, self._data_format = has_header, is_quoted, data_format
        self.has_pairs = self.needs_pairs = bool(text_b_column)
        self._labels, self._learns_labels = list(labels) if labels else None, not labels
        self._separator = label_separator
        self.is_multi_label, self.is_regression = is_multi_label, is_regression
        if is_regression:
            self.metrics, self.main_metric = ("pearson", "spearman"), "spearman"
        else:
            per_label = ("precision", "recall", "f1")
            self.metrics = per_label if is_multi_label else ("accuracy", *per_label)
            self.main_metric = "micro_f1" if is_multi_label else "accuracy"

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self:
        """Makes the processor of a run or an export.

        An export has no columns. Its record says whether it reads texts, pairs, or both.
        """
        label_type = settings.label_type or SINGLE
        learnt_labels = settings.checkpoint_labels
        label_checks.check_names("--labels", settings.labels or ())
        if label_type == SCORE and learnt_labels:
            raise InputError(
                f"--label_type={SCORE}: the checkpoint was trained on labels "
                f"({', '.join(learnt_labels)}), as labels.txt beside it says; leave the flag out"
            )
        processor = cls(
            settings.text_a_column,
            settings.text_b_column,
            settings.label_column,
            has_header=settings.has_header,
            labels=settings.labels or learnt_labels,
            is_multi_label=label_type == MULTI,
            label_separator=settings.label_separator,
            is_regression=label_type == SCORE,
            is_quoted=settings.quoting == CSV,
            data_format=settings.data_format,
        )
        if settings.is_export:
            processor.has_pairs = settings.num_texts != 1
            processor.needs_pairs = settings.num_texts == 2
        return processor

    def settings(self) -> dict[str, Any]:
        label_type = MULTI if self.is_multi_label else SINGLE
        if self.is_regression:
            label_type = SCORE
        return ClassificationSettings(label_type=label_type).to_record()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the training examples, and takes the labels from them unless they were given."""
        table = self._table(data_dir, "train", self._label_role)
        if self._labels is None and not self.is_regression:
            self._labels = self._learnt_labels(table)
        # In the other sets the columns that were guessed are those of the same names, wherever they
        # are.
        columns = table.columns
        self._guessed_names = {role: columns.name(columns.number(role)) for role in columns.guessed}
        return self._examples(table, "train")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self._examples(self._table(data_dir, "dev", self._label_role), "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        label = self._label_role._replace(is_required=False, is_read=False)
        return self._examples(self._table(data_dir, "test", label), "test")

    def get_labels(self) -> list[str] | None:
        if self.is_regression:
            return None
        if self._labels is None:
            raise InputError("--labels: are not known; name them, or read the training file first")
        return list(self._labels)

    def _table(self, data_dir: str | None, set_name: str, label: Role) -> "_Table":
        """Reads the files of a set, and decides their columns; `label` is the role of that of
        the label.
        """
        rows = self._all_rows(data_dir, set_name)
        names = rows[0].fields if self._has_header else ()
        assigned = {
            role: name for role, name in self._guessed_names.items() if name in names
        } | self._assigned
        if not label.is_read and assigned.get("label") not in names:
            assigned.pop("label", None)
        if not label.is_read and not names:
            label = label._replace(position=None)
        second = _TEXT_B._replace(is_read=self.needs_pairs)
        columns = decide_columns(
            rows[0].path, names, (_TEXT_A, second, label), assigned, len(rows[0].fields)
        )
        unread = columns.number("text_b")
        if unread is None and "text_b" not in self._assigned:
            unread = _question_beside_sentence(names)
        if unread is not None and not second.is_read and "text_a" not in self._assigned:
            name = columns.name(unread)
            raise InputError(
                f"{columns.path}: the column {name} is a second text; name it, "
                f"{_TEXT_B.format_flag(name)}, or write {_TEXT_B.format_flag('')} for single texts"
            )
        return _Table(rows, columns)

    def _all_rows(self, data_dir: str | None, set_name: str) -> list[Row]:
        rows_or_file = self.named.get(set_name)
        if isinstance(rows_or_file, list):
            return rows_or_file
        if rows_or_file:
            paths = expand_paths(rows_or_file, f"{set_name}_file")
        elif data_dir:
            paths = [find_table(data_dir, set_name, self._data_format)]
        else:
            raise InputError(f"--{set_name}_file: must be given, or --data_dir")
        formats = [choose_format(path, self._data_format) for path in paths]
        rows, *others = (self._rows(*file) for file in zip(paths, formats, strict=True))
        for more in others:
            rows = rows + (_in_columns_of(rows[0], more) if self._has_header else more)
        return rows

    def _rows(self, path: str, data_format: str) -> list[Row]:
        """Reads a file; its first row has the names of the columns, if it has a header."""
        is_quoted = data_format == TSV and self._is_quoted
        rows = not_empty(list(read_rows(path, data_format, is_quoted)), path)
        if data_format == TSV and not is_quoted:
            _warn_of_quotes(rows)
        if not self._has_header and not rows[0].line:
            raise InputError(
                f"--has_header=false: {path} names its columns in each row; leave it out"
            )
        width = len(rows[0].fields)
        for row in rows[1:] if self._has_header else ():
            if len(row.fields) > width or (data_format == CSV and len(row.fields) < width):
                remedy = (
                    "put texts with commas into quotes"
                    if data_format == CSV
                    else "take the tabs out of its texts"
                )
                raise row.error(f"has {len(row.fields)} columns, the header {width}; {remedy}")
            refuse_second_header(row, rows[0].fields)
        return rows

    def _learnt_labels(self, table: "_Table") -> list[str]:
        """Returns the labels that occur, sorted; as numbers if all of them are numbers."""
        labels_of = self._labels_of(table)
        found = {label for row in not_empty(table.rows, table.path) for label in labels_of(row)}
        if not found:
            raise InputError(f"{table.path}: holds no label; check --label_column")
        if len(found) == 1 and not self.is_multi_label:
            raise InputError(
                f"{table.path}: all examples have the label {found.pop()!r}, so that there is "
                "nothing to learn; check --label_column, or name all labels with --labels"
            )
        try:
            labels = sorted(found, key=lambda label: (int(label), label))
        except ValueError:
            labels = sorted(found)
        if self.is_multi_label:
            label_lists = [labels_of(row) for row in table.rows]
            label_checks.refuse_multi_hot(table.path, label_lists)
            label_checks.refuse_other_separators(table.path, label_lists, self._separator)
        logging.info("%s: has the labels %s", table.path, ", ".join(labels))
        label_checks.warn_of_similar(table.path, labels)
        return labels

    def _examples(self, table: "_Table", guid: str) -> list[InputExample]:
        text_a, text_b = (
            table.text("text_a"),
            table.text("text_b") if self.needs_pairs else lambda row: None,
        )
        is_labelled = guid != "test"
        if is_labelled:
            label_checks.check_names(table.path, self.get_labels() or ())
        # The encoder turns () into a zero for each label.
        unknown = () if self.is_multi_label else None
        target_of = (
            self._target_of(table, self.allows_unknown_labels and guid == "dev")
            if is_labelled
            else lambda row: unknown
        )
        if is_labelled and table.header and table.header.line:
            warn_of_lost_row(table.header, table.columns.number("label"), self.get_labels())
        examples = [
            InputExample(f"{guid}-{row.line - 1}", text_a(row), text_b(row), target_of(row))
            for row in table.rows
        ]
        if "text_a" in table.columns.guessed and not self.is_regression:
            label_checks.refuse_labels_as_texts(
                table.path,
                [example.text_a for example in examples],
                self._labels or (),
                f"name it, {_TEXT_A.format_flag()}",
            )
        if is_labelled:
            texts = [text for example in examples for text in (example.text_a, example.text_b)]
            label_checks.warn_of_missing_texts(
                table.path, [text for text in texts if text is not None]
            )
        if is_labelled and not self.is_multi_label:
            self._check_variety(table, guid, [example.label for example in examples])
        return not_empty(examples, table.path)

    def _check_variety(self, table: "_Table", guid: str, labels: Sequence[str]):
        if self.is_regression:
            label_checks.check_scores(
                table.path, labels, can_train=guid == "dev" or self.allows_equal_scores
            )
        else:
            guessed = (
                table.columns.name(table.columns.number("label"))
                if "label" in table.columns.guessed
                else None
            )
            is_learnt = guid == "train" and self._learns_labels
            label_checks.check_variety(table.path, labels, guessed, is_learnt)

    def _target_of(
        self, table: "_Table", allows_unknown_labels: bool
    ) -> Callable[[Row], str | tuple[str, ...]]:
        """Returns a function from a row to the label, the labels or the score of its example."""
        labels, labels_of = self.get_labels(), self._labels_of(table)
        if self.is_multi_label:
            return lambda row: label_checks.check_repeated(
                row, [check_label(row, label, labels) for label in labels_of(row)]
            )
        if allows_unknown_labels:
            return lambda row: labels_of(row)[0]  # the encoder looks at it
        return lambda row: check_label(row, *labels_of(row), labels)

    def _labels_of(self, table: "_Table") -> Callable[[Row], list[str]]:
        """Returns a function from a row to the values of its label column, without surrounding
        blanks.
        """
        field = table.column("label")

        def several(row: Row) -> list[str]:
            parts = label_checks.split_labels(row, field(row), self._separator)
            return [label for part in parts if (label := parse_label(row, part))]

        def one(row: Row) -> list[str]:
            value = field(row)
            label_checks.refuse_list(row, value)
            label = parse_label(row, value)
            if not label:
                raise row.error("has no label; complete the row, or leave it out")
            return [label]

        return several if self.is_multi_label else one


def refuse_text_flags(settings: Mapping[str, Any], others: Collection[str] = ()):
    """Refuses the flags of this task, and others, in the run of another one, which would not
    read them.
    """
    usual = {
        field.name: without_flag(field) for field in dataclasses.fields(TextOptions)
    } | dict.fromkeys(others)
    for name, value in usual.items():
        if settings.get(name) not in (None, value):
            raise InputError(
                f"--{name}: only goes with --task_name=text, not {settings['task_name']}; leave it "
                "out"
            )


def _question_beside_sentence(names: Sequence[str]) -> int | None:
    """Returns the number of the question of QNLI's pairs as Hugging Face has them; None for
    other tables.
    """
    folded = [fold_name(name) for name in names]
    return folded.index("question") if {"question", "sentence"} <= set(folded) else None


def _in_columns_of(header: Row, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of another file, below its header, with the columns of the first one."""
    names, other_names = header.fields, rows[0].fields
    if names == other_names:
        return list(rows[1:])
    numbers = {fold_name(name): number for number, name in enumerate(other_names)}
    numbers |= {name: number for number, name in enumerate(other_names)}
    if missing := [name for name in names if not {name, fold_name(name)} & numbers.keys()]:
        raise InputError(
            f"{rows[0].path}: has no column {', '.join(missing)}, as {header.path} has; give files "
            "with equal columns"
        )
    columns = [
        (numbers[name] if name in numbers else numbers[fold_name(name)], name) for name in names
    ]
    return [row._replace(fields=[row.field(*column) for column in columns]) for row in rows[1:]]


def _warn_of_quotes(rows: Sequence[Row]):
    """Warns of the first field in quotes, or with one where a tab or a line break may have cut
    it in two.
    """
    for row in rows:
        is_cut = len(row.fields) != len(rows[0].fields)
        if any(field.startswith('"') and (is_cut or '"' in field[1:][-1:]) for field in row.fields):
            logging.warning(
                "%s: line %d: a field is in quotes, which are read as characters; if the file "
                "quotes its fields as pandas and Excel do, give --quoting=csv",
                row.path,
                row.line,
            )
            return


class _Table:
    """The rows of a set below the names of the columns, and the roles of the columns."""

    def __init__(self, rows: Sequence[Row], columns: Columns):
        self.path, self.columns = rows[0].path, columns
        self.header = rows[0] if columns.names else None
        self.rows = rows[1:] if columns.names else rows

    def column(self, role: str) -> Callable[[Row], Any]:
        """Returns a function from a row to the field of a role's column."""
        number = self.columns.number(role)
        flag = self._format_flag(role)
        return lambda row: row.field(number, flag)

    def text(self, role: str) -> Callable[[Row], str]:
        """Returns a function from a row to the text of a role's column."""
        field = self.column(role)
        flag = self._format_flag(role)
        return lambda row: parse_text(row, field(row), flag)

    def _format_flag(self, role: str) -> str:
        """Returns the flag that names a role's column, for messages."""
        return f"--{role}_column={self.columns.column_name(role)}"

"""A task of arbitrary tables: the user names the columns of the texts and of the label."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from absl import logging

from official_bert.data.column_roles import Columns, Role, decide_columns, fold_name
from official_bert.data.table_formats import (
    CSV,
    expand_paths,
    find_table,
    parse_label,
    parse_text,
)
from official_bert.data.tables import Row, not_empty
from official_bert.io.errors import InputError
from official_bert.options.fields import without_flag
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE, TextOptions
from official_bert.tasks.classification import labels as label_checks
from official_bert.tasks.classification.examples import InputExample, Source
from official_bert.tasks.classification.processor import (
    DataProcessor,
    check_label,
    warn_of_lost_row,
)
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.table_files import read_table_files

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

    Attributes:
        named: set (train, dev, test) -> its files, separated by commas, or its rows below the names
            of the columns. A set that is absent, or None, is a file of the folder.
        allows_equal_scores: whether a training set may have equal scores only.
        one_label_remedy: what users of a training set with one label are told to do.
    """

    one_label_remedy = "check --label_column, or name all labels with --labels"

    named: Mapping[str, str | list[Row] | None] = MappingProxyType({})

    def __init__(  # noqa: PLR0913 - each is named in a call
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
        """Make the processor of a task.

        A column is its name in the header, in any case, or its number from 0. Negative numbers
        count from the end. None stands for a column with a usual name, or for the one that remains.

        Args:
            text_a_column: the column of the text, or of the first text of a pair.
            text_b_column: the column of the second text; "" for single texts.
            label_column: the column of the label.
            has_header: whether the first row of a file has the names of the columns.
            labels: the labels in the order of the model's outputs; None if the training set defines
                them.
            is_multi_label: whether an example has any number of labels.
            label_separator: what separates the labels of an example.
            is_regression: whether the labels are scores.
            is_quoted: whether fields of TSV may be quoted as in CSV.
            data_format: the format of all files; None for the format of each name.

        Raises:
            InputError: the arguments contradict each other.
        """
        if is_regression and labels:
            raise InputError(
                "--labels: a regression has scores instead of labels; leave one of the two off"
            )
        if is_multi_label and not label_separator:
            raise InputError(
                "--label_separator=: is empty; give what separates the labels of an example"
            )
        _check_label_names(labels or (), is_multi_label)
        # Columns by role: those of the flags, and those of the training set.
        assigned = {"text_a": text_a_column, "text_b": text_b_column, "label": label_column}
        self._assigned = {role: column for role, column in assigned.items() if column is not None}
        self._training_columns: dict[str, str] = {}
        self._label_role = _SCORE if is_regression else _LABEL
        self._has_header = has_header
        self._is_quoted = is_quoted
        self._data_format = data_format
        self._labels = list(labels) if labels else None
        self._learns_labels = not labels
        self._separator = label_separator
        self.allows_equal_scores = False
        self.needs_pairs = bool(text_b_column)
        self.has_pairs = self.needs_pairs
        self.is_multi_label = is_multi_label
        self.is_regression = is_regression
        if is_regression:
            self.metrics = ("pearson", "spearman")
            self.main_metric = "spearman"
        elif is_multi_label:
            self.metrics = ("precision", "recall", "f1")
            self.main_metric = "micro_f1"
        else:
            self.metrics = ("accuracy", "precision", "recall", "f1")
            self.main_metric = "accuracy"

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self:
        """Make the processor of a run or of an export.

        Args:
            settings: the flags of the run, or the record. That of an export has no columns; it says
                whether the export reads texts, pairs, or both.

        Raises:
            InputError: the settings contradict each other.
        """
        label_type = settings.label_type or SINGLE
        checkpoint_labels = settings.checkpoint_labels
        label_checks.check_names("--labels", settings.labels or ())
        if label_type == SCORE and checkpoint_labels:
            raise InputError(
                f"--label_type={SCORE}: the checkpoint was trained on labels "
                f"({', '.join(checkpoint_labels)}), as labels.txt beside it says; leave the flag "
                "out"
            )
        columns = {} if settings.do_train else check_columns(settings.columns)
        text_b_column = settings.text_b_column
        if text_b_column is None:
            text_b_column = columns.get("text_b")
        processor = cls(
            settings.text_a_column,
            text_b_column,
            settings.label_column,
            has_header=settings.has_header is not False,
            labels=settings.labels or checkpoint_labels,
            is_multi_label=label_type == MULTI,
            label_separator=settings.label_separator,
            is_regression=label_type == SCORE,
            is_quoted=settings.quoting == CSV,
            data_format=settings.data_format,
        )
        processor._training_columns = dict(columns)
        if settings.is_export:
            processor.has_pairs = settings.num_texts != 1
            processor.needs_pairs = settings.num_texts == 2
        return processor

    def settings(self) -> dict[str, Any]:
        label_type = MULTI if self.is_multi_label else SINGLE
        if self.is_regression:
            label_type = SCORE
        settings = ClassificationSettings(
            label_type=label_type,
            columns=self._training_columns or None,
            has_header=None if self._has_header else False,
            quoting=CSV if self._is_quoted else None,
        )
        return settings.to_record()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Read the training examples, and learn the labels from them unless flags name them.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.
        """
        table = self._read_table(data_dir, "train", self._label_role)
        if self._labels is None and not self.is_regression:
            self._labels = self._learn_labels(table)
        # Other tables, also in later runs, have columns of the same names at any position. The
        # names of sets in memory are not those of the user.
        if not isinstance(self.named.get("train"), list):
            self._training_columns = table.column_names()
            if not self.needs_pairs:
                self._training_columns.pop("text_b", None)
            if self._assigned.get("text_b") == "":
                self._training_columns["text_b"] = ""
        return self._make_examples(table, "train")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self._make_examples(self._read_table(data_dir, "dev", self._label_role), "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        label_role = self._label_role._replace(is_required=False, is_read=False)
        return self._make_examples(self._read_table(data_dir, "test", label_role), "test")

    def get_labels(self) -> list[str] | None:
        if self.is_regression:
            return None
        if self._labels is None:
            raise InputError(
                "--labels: are not known; name them in the order of the model's outputs, or train "
                "with --do_train"
            )
        return list(self._labels)

    def _read_table(self, data_dir: str, set_name: str, label_role: Role) -> "_Table":
        """Reads the files of a set, and decides their columns."""
        rows = self.read_rows(data_dir, set_name)
        names = rows[0].fields if self._has_header else []
        assigned: dict[str, str | list[str]] = {}
        for role, column in self._training_columns.items():
            is_known = column in names or _split_columns(column, names)
            if is_known or not (names and column):
                assigned[role] = column
        assigned |= self._assigned
        if not label_role.is_read:
            if assigned.get("label") not in names:
                assigned.pop("label", None)
            if not names:
                label_role = label_role._replace(position=None)
        if label_role.is_read and "label" not in assigned:
            _refuse_indicators(rows, names, label_role)
        label_columns = _split_columns(assigned.get("label"), names)
        if label_columns:
            assigned["label"] = label_columns
            label_role = label_role._replace(is_list=True)
        columns = decide_columns(
            path=rows[0].path,
            names=names,
            roles=(_TEXT_A, _TEXT_B._replace(is_read=self.needs_pairs), label_role),
            assigned=assigned,
            width=len(rows[0].fields),
        )
        if "text_a" not in assigned:
            texts = {role: name for role, name in self._training_columns.items() if role != "label"}
            columns.refuse_guesses(texts, f"name it, {_TEXT_A.format_flag()}")
        if "text_a" not in assigned and not self.needs_pairs:
            self._refuse_second_text(columns)
        return _Table(rows, columns)

    def _refuse_second_text(self, columns: Columns):
        """Raises InputError for a table with a second text that nobody has named."""
        number = columns.number("text_b")
        if number is None and "text_b" not in self._assigned:
            number = _find_qnli_question(columns.names)
        if number is None:
            return
        name = columns.name(number)
        raise InputError(
            f"{columns.path}: the column {name} is a second text; name it, "
            f"{_TEXT_B.format_flag(name)}, or write {_TEXT_B.format_flag('')} for single texts"
        )

    @property
    def has_header(self) -> bool:
        """Whether the first row of a file has the names of the columns."""
        return self._has_header

    def read_rows(self, data_dir: str, set_name: str) -> list[Row]:
        """Read the rows of a set, below the names of the columns if it has them.

        Args:
            data_dir: the folder of the data set; "" if flags name every file.
            set_name: train, dev or test.

        Raises:
            InputError: a file is missing or cannot be read.
        """
        rows_or_files = self.named.get(set_name)
        if isinstance(rows_or_files, list):
            return rows_or_files
        if rows_or_files:
            paths = expand_paths(rows_or_files, f"{set_name}_file")
        elif data_dir:
            paths = [find_table(data_dir, set_name, self._data_format)]
        else:
            raise InputError(f"--{set_name}_file: must be given, or --data_dir")
        return read_table_files(paths, self._data_format, self._has_header, self._is_quoted)

    def _learn_labels(self, table: "_Table") -> list[str]:
        """Returns the labels that occur, sorted; as numbers if all of them are numbers."""
        if len(table.label_names) > 1:
            not_empty(table.rows, table.path)
            return list(table.label_names)
        distinct_labels: set[str] = set()
        for row in not_empty(table.rows, table.path):
            distinct_labels.update(self._read_labels(table, row))
        if not distinct_labels:
            raise InputError(f"{table.path}: has no labels; check --label_column")
        if len(distinct_labels) == 1 and not self.is_multi_label:
            raise InputError(
                f"{table.path}: all examples have the label {distinct_labels.pop()!r}, so that "
                f"there is nothing to learn; {self.one_label_remedy}"
            )
        try:
            labels = sorted(distinct_labels, key=lambda label: (int(label), label))
        except ValueError:
            labels = sorted(distinct_labels)
        if self.is_multi_label:
            label_lists = [self._read_labels(table, row) for row in table.rows]
            label_checks.refuse_multi_hot(table.path, label_lists)
            label_checks.refuse_other_separators(table.path, label_lists, self._separator)
        logging.info("%s: has the labels %s", table.path, ", ".join(labels))
        label_checks.warn_of_similar(table.path, labels)
        return labels

    def _make_examples(self, table: "_Table", set_name: str) -> list[InputExample]:
        """Makes the examples of a table, and checks their texts and labels."""
        is_labelled = set_name != "test"
        labels = None
        if is_labelled:
            labels = self.get_labels()
            label_checks.check_names(table.path, labels or ())
            if table.header and table.header.line and len(table.label_names) == 1:
                warn_of_lost_row(table.header, table.numbers["label"], labels)
        # The encoder turns () into a zero for each label.
        unknown = () if self.is_multi_label else None
        examples = []
        for row in table.rows:
            example = InputExample(
                guid=f"{set_name}-{row.line - 1}",
                text_a=table.text(row, "text_a"),
                text_b=table.text(row, "text_b") if self.needs_pairs else None,
                label=self._read_target(table, row, labels, set_name) if is_labelled else unknown,
                source=Source(row.line, table.row_id(row)),
            )
            examples.append(example)
        if "text_a" in table.columns.guessed and not self.is_regression:
            label_checks.refuse_labels_as_texts(
                table.path,
                texts=[example.text_a for example in examples],
                labels=self._labels or (),
                remedy=f"name it, {_TEXT_A.format_flag()}",
            )
        if is_labelled:
            _warn_of_missing_texts(table.path, examples)
            if not self.is_multi_label:
                self._check_variety(table, set_name, examples)
        return not_empty(examples, table.path)

    def _check_variety(self, table: "_Table", set_name: str, examples: Sequence[InputExample]):
        """Checks that labels or scores differ, and that they are no free texts."""
        labels = [example.label for example in examples if isinstance(example.label, str)]
        if self.is_regression:
            can_be_equal = set_name == "dev" or self.allows_equal_scores
            label_checks.check_scores(table.path, labels, can_be_equal)
            return
        guessed_name = None
        if "label" in table.columns.guessed:
            guessed_name = table.columns.column_name("label")
        label_checks.check_variety(
            table.path,
            labels,
            guessed_name,
            defines_labels=set_name == "train" and self._learns_labels,
        )

    def _read_target(
        self, table: "_Table", row: Row, labels: Sequence[str] | None, set_name: str
    ) -> str | tuple[str, ...]:
        """Returns the label, the labels or the score of a row after validating them."""
        row_labels = self._read_labels(table, row)
        if self.is_multi_label:
            for label in row_labels:
                check_label(row, label, labels)
            label_checks.refuse_repeated_bits(row, row_labels)
            return tuple(row_labels)
        (label,) = row_labels
        if self.allows_unknown_labels and set_name == "dev":
            return label  # The encoder finds out whether it is out of scope.
        return check_label(row, label, labels)

    def _read_labels(self, table: "_Table", row: Row) -> list[str]:
        """Returns the values of the label column without surrounding blanks.

        There is one of them, or any number in multi-label classification.
        """
        if len(table.label_names) > 1:
            bits = [parse_label(row, value) for value in table.label_fields(row)]
            return label_checks.read_indicators(row, bits, table.label_names, self.is_multi_label)
        value = table.field(row, "label")
        if self.is_multi_label:
            parts = label_checks.split_labels(row, value, self._separator)
            labels = [parse_label(row, part) for part in parts]
            if self._labels is not None:
                labels = label_checks.name_bits(labels, self._labels)
            return [label for label in labels if label]
        label_checks.refuse_list(row, value)
        label = parse_label(row, value)
        if not label:
            raise row.error("has no label; complete the row, or leave it out")
        return [label]


def refuse_text_flags(settings: Mapping[str, Any], others: Collection[str] = ()) -> None:
    """Reject the flags of this task in the run of another one, which would not read them.

    Args:
        settings: the values of the flags by name.
        others: further flags that the run would not read.

    Raises:
        InputError: a flag has another value than its default.
    """
    defaults = {field.name: without_flag(field) for field in dataclasses.fields(TextOptions)}
    defaults |= dict.fromkeys(others)
    for name, default in defaults.items():
        if settings.get(name) not in (None, default):
            raise InputError(
                f"--{name}: only goes with --task_name=text, not {settings['task_name']}; leave it "
                "out"
            )


def check_columns(columns: Any) -> dict[str, str]:
    """Return the columns that a record has, by role; none if it has none.

    Args:
        columns: the value in the record.

    Raises:
        InputError: the value is no mapping of texts to texts.
    """
    if columns is None:
        return {}
    if isinstance(columns, dict):
        parts = [*columns, *columns.values()]
        if all(isinstance(part, str) for part in parts):
            return columns
    raise InputError(
        f"task.json: columns is {columns!r:.60}, which are no names by role; restore what the "
        "training wrote"
    )


def _check_label_names(labels: Sequence[str], is_multi_label: bool):
    """Raises InputError for labels of --labels that no task can have."""
    if len(set(labels)) < len(labels):
        raise InputError(f"--labels={','.join(labels)}: names a label twice")
    if "" in labels:
        raise InputError("--labels: the name of a label is empty; give each label a name")
    if len(labels) == 1 and not is_multi_label:
        raise InputError(
            f"--labels={labels[0]}: is one label, and there is nothing to choose; name all labels"
        )


def _find_qnli_question(names: Sequence[str]) -> int | None:
    """Returns the number of the column question in QNLI's pairs from Hugging Face; None for other
    tables.
    """
    folded_names = [fold_name(name) for name in names]
    if "question" in folded_names and "sentence" in folded_names:
        return folded_names.index("question")
    return None


def _split_columns(value: str | list[str] | None, names: Sequence[str]) -> list[str]:
    """Returns the columns in the value of --label_column if it names several; else none."""
    if not isinstance(value, str) or "," not in value:
        return []
    folded_names = {fold_name(name) for name in names}
    columns = value.split(",")
    is_list = fold_name(value) not in folded_names
    if is_list and all(fold_name(column) in folded_names for column in columns):
        return columns
    return []


def _refuse_indicators(rows: Sequence[Row], names: Sequence[str], label_role: Role):
    """Raises InputError if no column has a usual name of the label, and several have bits."""
    if not names or any(fold_name(name) in label_role.usual_names for name in names):
        return
    columns = []
    for number in range(len(names)):
        values = [row.fields[number] if number < len(row.fields) else "" for row in rows[1:]]
        columns.append([str(value) for value in values])
    label_checks.refuse_indicators(rows[0].path, names, columns)


def _warn_of_missing_texts(path: str, examples: Sequence[InputExample]):
    texts = []
    for example in examples:
        texts.append(example.text_a)
        if example.text_b is not None:
            texts.append(example.text_b)
    label_checks.warn_of_missing_texts(path, texts)


class _Table:
    """The rows of a set below the names of the columns, and the roles of the columns.

    Attributes:
        path: the first file.
        columns: the roles of the columns.
        numbers: role -> the number of its column, for the roles that have one.
        header: the row of the names; None for a table without names.
        rows: the rows of the examples.
    """

    def __init__(self, rows: list[Row], columns: Columns):
        self.path = rows[0].path
        self.columns = columns
        self.header = rows[0] if columns.names else None
        self.rows = rows[1:] if columns.names else rows
        self.numbers: dict[str, int] = {}
        self._flags: dict[str, str] = {}
        for role in columns.role_columns:
            number = columns.number(role)
            if number is not None:
                self.numbers[role] = number
                self._flags[role] = f"--{role}_column={columns.name(number)}"
        self._id_number = columns.find_row_names()

    def column_names(self) -> dict[str, str]:
        """Returns the names of the columns by role, or their numbers in a table without names."""
        names = {role: self.columns.name(number) for role, number in self.numbers.items()}
        if self.label_names:
            names["label"] = ",".join(self.label_names)
        return names

    @property
    def label_names(self) -> list[str]:
        """The names of the columns of the label: one, or one for each label."""
        return [self.columns.name(number) for number in self.columns.role_columns["label"]]

    def label_fields(self, row: Row) -> list[Any]:
        """Returns the values of a row in the columns of the label."""
        numbers = self.columns.role_columns["label"]
        return [
            row.field(number, f"--label_column={self.columns.name(number)}") for number in numbers
        ]

    def field(self, row: Row, role: str) -> Any:
        """Returns the value of a row in the column of a role; raises InputError if it has none."""
        return row.field(self.numbers[role], self._flags[role])

    def row_id(self, row: Row) -> str:
        """Returns the value of a row in the column that names the rows; "" if there is none."""
        number = self._id_number
        if number is None or number >= len(row.fields):
            return ""
        return str(row.fields[number])

    def text(self, row: Row, role: str) -> str:
        """Returns the text of a row in the column of a role; raises InputError if it has none."""
        return parse_text(row, self.field(row, role), self._flags[role])

"""Texts that belong together or do not, read from tables or from lines.

In: tables with columns such as `question`, `answer` and `label`, or text with one sentence a line.
Out: an `Example` for each row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from official_bert.data import beir_folders, table_formats
from official_bert.data.column_roles import Role, decide_columns, fold_name
from official_bert.data.tables import Row, not_empty, numbered_lines, parse_number, plain_value
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type
from official_bert.options.fine_tuning import CSV
from official_bert.options.table_columns import USUAL_NAMES

ANCHOR, POSITIVE, NEGATIVE, LABEL = USUAL_NAMES
COLUMN_FLAGS = {
    ANCHOR: "anchor_column",
    POSITIVE: "positive_column",
    NEGATIVE: "negative_columns",
    LABEL: "label_column",
}
_ROLES = [
    Role(
        name,
        usual_names,
        is_required=name == ANCHOR,
        is_list=name == NEGATIVE,
        flag=COLUMN_FLAGS[name],
    )
    for name, usual_names in USUAL_NAMES.items()
]
_LINES = (".txt", ".txt.gz")
# Of JSON and Parquet, and in any case of pandas' and other programs' CSV.
_TRUTHS = {"true": "1", "false": "0"}


class Example(NamedTuple):
    """A text, those that belong to it and those that do not, and the label: the score of the
    pair, scores with blanks between them, or the class of the text.
    """

    where: str
    anchor: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    label: str = ""

    def score(self) -> float:
        """Returns the label as a number."""
        self._check_label()
        return self._parse_score(self.label)

    def scores(self) -> list[float]:
        """Returns a score for each positive, and then for each negative.

        A label of one number is the score of all positives if there are no negatives. With one
        positive, there may be a number for each negative: how much better the positive is.
        """
        self._check_label()
        scores = [self._parse_score(text) for text in self.label.split()]
        num_positives = len(self.positives)
        num_negatives = len(self.negatives)
        if len(scores) == num_positives + num_negatives:
            return scores
        if len(scores) == 1 and not num_negatives:
            return scores * num_positives
        if num_positives == 1 and len(scores) == num_negatives:
            return [0.0, *(-margin for margin in scores)]
        raise InputError(
            f"{self.where}: the label has {len(scores)} numbers, and the row "
            f"{num_positives + num_negatives} texts that are compared with the first one; give a "
            "list with a number for each, the positives first"
        )

    def _check_label(self):
        if not self.label:
            raise InputError(
                f"{self.where}: has no label; give the pair a number, or leave the row out"
            )

    def _parse_score(self, text: str) -> float:
        score = parse_number(_TRUTHS.get(text.casefold(), text))
        if math.isfinite(score):
            return score
        raise InputError(f"{self.where}: the label {text!r} is no number; correct it")


def make_examples(
    texts: Iterable[Any], labels: Iterable[Any] | None, set_name: str
) -> list[Example]:
    """Returns examples of data in memory.

    Args:
        texts: texts; or for each example a list or a tuple of a text, the one that belongs to it,
            and any number of others that do not.
        labels: the score of each pair, or the class of each text; None for no labels.
        set_name: the name of the set, for messages.

    Raises:
        InputError: an example is none, or there are not as many labels.
    """
    examples = []
    for number, value in enumerate(texts, 1):
        where = f"{set_name}: example {number}"
        columns = [value] if isinstance(value, str) else plain_value(value)
        is_list = isinstance(columns, list) and len(columns) > 0
        if not is_list or not all(isinstance(text, str) and text.strip() for text in columns):
            raise InputError(f"{where}: {value!r} is no text, and no list of texts; correct it")
        examples.append(Example(where, columns[0], tuple(columns[1:2]), tuple(columns[2:])))
    if labels is None:
        return not_empty(examples, set_name)
    values = [plain_value(label) for label in labels]
    label_texts = ["" if value is None else str(value) for value in values]
    if len(label_texts) != len(examples):
        raise InputError(
            f"{set_name}: {len(examples)} examples and {len(label_texts)} labels are given; give "
            "each example its label"
        )
    pairs = zip(examples, label_texts, strict=True)
    return not_empty([example._replace(label=label) for example, label in pairs], set_name)


def read_examples(
    flag_value: str, flag: str, settings: Mapping[str, Any], is_corpus: bool = False
) -> list[Example]:
    """Reads the files of a flag: tables, text with one sentence a line, or a folder of BEIR.

    Args:
        flag_value: the value of the flag: paths with commas between them, or a glob.
        flag: its name, for messages.
        settings: the flags that say how tables are read.
        is_corpus: whether a table may have positives alone, such as a column called passage; the
            anchors are "" then. The flags of columns are not for such a table.
    """
    assigned = {}
    for role, flag_name in COLUMN_FLAGS.items():
        if settings.get(flag_name) is not None:
            assigned[role] = settings[flag_name]
    paths = table_formats.expand_paths(flag_value, flag)
    lines = [
        path for path in paths if path.lower().endswith(_LINES) and not settings.get("data_format")
    ]
    examples = []
    for path in lines:
        if assigned:
            errors.warn(
                "%s: not read for %s, which has one text a line; for a table, give --data_format",
                " and ".join(f"--{COLUMN_FLAGS[role]}" for role in assigned),
                path,
            )
        examples += _read_lines(path)
    for path in paths:
        if path in lines:
            continue
        if beir_folders.is_beir_folder(path):
            examples += _read_beir_folder(path, flag)
        else:
            examples += _read_table(path, flag, assigned, settings, is_corpus)
    return not_empty(examples, flag_value)


def _read_lines(path: str) -> list[Example]:
    _warn_of_tabs(path)
    return [
        Example(f"{path}: line {line}", text)
        for line, text in numbered_lines(path, decompresses=True)
        if text.strip()
    ]


def _warn_of_tabs(path: str):
    """Warns of sentences that are the rows of a table."""
    lines = (text for _, text in numbered_lines(path, decompresses=True) if text.strip())
    first = next(lines, "")
    if "\t" in first and all("\t" in text for text in lines):
        errors.warn(
            "%s: has a tab in each line, which is read as one text; for a table, give "
            "--data_format=tsv",
            path,
        )


def _read_beir_folder(path: str, flag: str) -> list[Example]:
    """Returns the queries of a folder of BEIR; the first has the other documents as negatives."""
    queries, documents = beir_folders.read_beir_folder(path, flag)
    answers = {text for query in queries for text in query.answers}
    others = tuple(text for text in documents if text not in answers)
    examples = [Example(query.where, query.text, query.answers) for query in queries]
    examples[0] = examples[0]._replace(negatives=others)
    return examples


def _read_table(
    path: str,
    flag: str,
    assigned: Mapping[str, str | Sequence[str]],
    settings: Mapping[str, Any],
    is_corpus: bool,
) -> Iterator[Example]:
    is_quoted = settings.get("quoting") == CSV
    has_header = settings.get("has_header", True)
    columns: dict[str, list[str]] = {}
    names: list[str] | None = None
    for row, record in table_formats.read_records(
        path, flag, settings.get("data_format"), has_header, is_quoted
    ):
        if names != list(record):
            names = list(record)
            table_columns = decide_columns(
                row.path, names, _choose_roles(names, is_corpus), assigned
            )
            columns = {
                role: [names[number] for number in numbers]
                for role, numbers in table_columns.role_columns.items()
            }
        label = _parse_label(row, record[columns[LABEL][0]]) if columns[LABEL] else ""
        anchors, positives, negatives = (
            _texts(row, record, columns[key]) for key in (ANCHOR, POSITIVE, NEGATIVE)
        )
        if not columns[ANCHOR]:
            anchors = ("",)
        if len(anchors) != 1:
            raise row.error(
                f"{columns[ANCHOR][0]} is a list of {len(anchors)} texts; give it one text"
            )
        yield Example(row.where, anchors[0], positives, negatives, label)


def _choose_roles(names: Sequence[str], is_corpus: bool) -> list[Role]:
    """Returns the roles of a table's columns: a corpus with positives needs no anchor."""
    if not is_corpus:
        return _ROLES
    has_positives = any(fold_name(name) in USUAL_NAMES[POSITIVE] for name in names)
    roles = []
    for role in _ROLES:
        is_required = role.is_required and not has_positives
        roles.append(role._replace(is_required=is_required, flag=None))
    return roles


def _parse_label(row: Row, value: Any) -> str:
    """Returns the label of a row as text. Blanks separate the numbers of a list."""
    if isinstance(value, list) and value and all(has_type(number, float) for number in value):
        return " ".join(table_formats.parse_label(row, number) for number in value)
    return table_formats.parse_label(row, value)


def _texts(row: Row, record: Mapping[str, Any], columns: Iterable[str]) -> tuple[str, ...]:
    """Returns the texts of columns, each a text or, in JSON lines and Parquet, a list of texts."""
    texts = []
    for name in columns:
        for value in record[name] if isinstance(record[name], list) else [record[name]]:
            texts.append(table_formats.parse_text(row, value, name))
            if not texts[-1].strip():
                raise row.error(f"{name} is blank; give it a text, or leave the row out")
    return tuple(texts)

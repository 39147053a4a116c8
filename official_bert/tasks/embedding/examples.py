"""Examples of texts that belong together or do not, read from tables or lines, and their encoded
form for training.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from absl import logging

from official_bert.data import table_formats
from official_bert.data.column_roles import Role, decide_columns, fold_name
from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.tables import Row, not_empty, numbered_lines, parse_number
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.options.embedding import COLUMNS
from official_bert.options.fields import parse_settings
from official_bert.options.fine_tuning import CSV
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    from official_bert.tasks.embedding.losses import Loss

ANCHOR, POSITIVE, NEGATIVE, LABEL, HEADER = COLUMNS
_ROLES = [
    Role(name, COLUMNS[name], is_required=name == ANCHOR, is_list=name == NEGATIVE)
    for name in (ANCHOR, POSITIVE, NEGATIVE, LABEL)
]
_LINES = (".txt", ".txt.gz")
# Of JSON and Parquet, and in any case of pandas' and other programs' CSV.
_TRUTHS = {"true": "1", "false": "0"}


class Example(NamedTuple):
    """A text, those that belong to it and those that do not, and the score of the pair or the
    class of the text.
    """

    where: str
    anchor: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    label: str = ""

    def score(self) -> float:
        """Returns the label as a number."""
        if not self.label:
            raise InputError(
                f"{self.where}: has no label; give the pair a number, or leave the row out"
            )
        score = parse_number(_TRUTHS.get(self.label.casefold(), self.label))
        if math.isfinite(score):
            return score
        raise InputError(f"{self.where}: the label {self.label!r} is no number; correct it")


def read_examples(
    given: str, flag: str, settings: Mapping[str, Any], is_corpus: bool = False
) -> list[Example]:
    """Reads the files of a flag: tables, or text with one sentence a line.

    Args:
        given: the value of the flag.
        flag: its name, for messages.
        settings: the flags that say how tables are read.
        is_corpus: whether a table may have positives alone, such as a column called passage; the
            anchors are "" then. No --columns is for such a table.
    """
    named = (
        parse_settings(settings.get("columns") or "", COLUMNS) if settings.get("columns") else {}
    )
    paths = table_formats.paths_of(given, flag)
    lines = [
        path for path in paths if path.lower().endswith(_LINES) and not settings.get("data_format")
    ]
    for path in lines:
        if named:
            errors.warn(
                "--columns: is not read for %s, which has one text a line; for a table, give "
                "--data_format",
                path,
            )
        _warn_of_tabs(path)
    examples = [
        Example(f"{path}: line {line}", text)
        for path in lines
        for line, text in numbered_lines(path, decompresses=True)
        if text.strip()
    ]
    for path in paths:
        if path not in lines:
            examples += _read_tables(path, flag, named, settings, is_corpus)
    return not_empty(examples, given)


def _warn_of_tabs(path: str):
    """Warns of sentences that are the rows of a table."""
    if all("\t" in text for _, text in numbered_lines(path, decompresses=True) if text.strip()):
        errors.warn(
            "%s: has a tab in each line, which is read as one text; for a table, give "
            "--data_format=tsv",
            path,
        )


def _read_tables(
    given: str, flag: str, named: Mapping[str, str], settings: Mapping[str, Any], is_corpus: bool
) -> Iterator[Example]:
    assigned = {role: column for role, column in named.items() if role != HEADER}
    if named.get(HEADER, "true") not in ("true", "false"):
        raise InputError(f"--columns: header={named[HEADER]}: must be true or false")
    is_quoted, has_header = settings.get("quoting") == CSV, named.get(HEADER) != "false"
    columns, names, columns_flag = {}, None, None if is_corpus else "--columns"
    for row, record in table_formats.read_records(
        given, flag, settings.get("data_format"), has_header, is_quoted
    ):
        if names != list(record):
            names = list(record)
            decided = decide_columns(
                row.path, names, _roles_for(names, is_corpus), assigned, flag=columns_flag
            )
            columns = {
                role: [names[number] for number in numbers]
                for role, numbers in decided.by_role.items()
            }
        label = table_formats.label_of(row, record[columns[LABEL][0]]) if columns[LABEL] else ""
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


def _roles_for(names: Sequence[str], is_corpus: bool) -> list[Role]:
    """Returns the roles of a table's columns: a corpus with positives needs no anchor."""
    has_positives = any(fold_name(name) in COLUMNS[POSITIVE] for name in names)
    return (
        [role._replace(is_required=False) for role in _ROLES]
        if is_corpus and has_positives
        else _ROLES
    )


def _texts(row: Row, record: Mapping[str, Any], columns: Iterable[str]) -> tuple[str, ...]:
    """Returns the texts of columns, each a text or, in JSON lines and Parquet, a list of texts."""
    texts = []
    for name in columns:
        for value in record[name] if isinstance(record[name], list) else [record[name]]:
            texts.append(table_formats.text_of(row, value, name))
            if not texts[-1].strip():
                raise row.error(f"{name} is blank; give it a text, or leave the row out")
    return tuple(texts)


class TextRows:
    """The different texts of a set, in the order in which they come, and their rows."""

    def __init__(self):
        self._rows: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._rows)

    def __call__(self, text: str) -> int:
        """Returns the row of a text, which is a new one at its first call."""
        return self._rows.setdefault(text, len(self._rows))

    def encoded(self, tokenizer: FullTokenizer, max_seq_length: int) -> ModelInputs:
        """Returns the inputs of the model for all texts."""
        texts = counted(self.texts, "texts encoded")
        return ModelInputs(model_input_ids(tokenizer, text, None, max_seq_length) for text in texts)


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The training set: the texts of each example as rows of `inputs`, int32[n, N], and what the
    loss reads.
    """

    inputs: ModelInputs
    rows: np.ndarray
    further: Mapping[str, np.ndarray]  # by key, a value for each example
    targets: np.ndarray | None = None  # float32[texts, D]
    computed_features: ClassVar[tuple[str, ...]] = ("targets",)  # by the teacher

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of the longest text of each example."""
        return self.inputs.lengths[self.rows].max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch: encoder features, int32[b, N, length], and what the loss reads."""
        texts = self.rows[rows]
        features = self.inputs.features(texts.ravel(), length)
        batch = {name: values.reshape(*texts.shape, length) for name, values in features.items()}
        targets = {} if self.targets is None else {"targets": self.targets[texts]}
        return batch | targets | {name: values[rows] for name, values in self.further.items()}


def all_texts(examples: Iterable[Example]) -> TextRows:
    """Returns the texts of examples: of each its anchor, its positives and its negatives."""
    rows = TextRows()
    for example in examples:
        for text in (example.anchor, *example.positives, *example.negatives):
            rows(text)
    return rows


def rows_of_examples(
    examples: Sequence[Example], loss: Loss, name: str
) -> tuple[TextRows, np.ndarray]:
    """Returns the texts of a training set, and those of each example, int32[n, N], as the loss,
    called `name`, needs.

    An example with several positives is one for each of them.
    """
    fewest, most = loss.num_texts
    if most == 1:
        rows = all_texts(examples)
        return rows, np.repeat(
            np.arange(len(rows.texts), dtype=np.int32)[:, None], loss.repeats, axis=1
        )
    rows = TextRows()
    for example in examples:
        if not example.positives or len(example.negatives) < fewest - 2:
            needed = "an anchor, a positive and a negative text" if fewest == 3 else "two texts"
            raise InputError(
                f"{example.where}: --loss={name} needs {needed} in each example; name them with "
                "--columns"
            )
    numbers = sorted({len(example.negatives) for example in examples} - {0} or {0})
    num_negatives, num_before = min(most - 2, numbers[0]), len(examples)
    examples = [example for example in examples if len(example.negatives) >= num_negatives]
    if len(examples) < num_before or numbers[-1] > num_negatives:
        left_out = num_before - len(examples)
        logging.warning(
            "Negatives of an example: %d; left out with fewer: %d examples", num_negatives, left_out
        )
    listed = [
        [rows(example.anchor), rows(positive), *map(rows, example.negatives[:num_negatives])]
        for example in examples
        for positive in example.positives
    ]
    return rows, np.array(listed, np.int32)

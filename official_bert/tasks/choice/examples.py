"""Examples of multiple choice, read from tables of SWAG and the TSV files of CODAH, and their
encoded form.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.column_roles import Role, decide_columns, fold_name
from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.table_formats import (
    OTHER_ENDINGS,
    expand_paths,
    is_table,
    parse_label,
    parse_text,
    read_rows,
)
from official_bert.data.tables import Row, not_empty, read_csv, read_tsv
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer

NUM_CHOICES = 4
_MANY_EXAMPLES = 20
_SWAG_TEXTS = (
    "sent1",
    "sent2",
    *(f"ending{number}" for number in range(NUM_CHOICES)),
)
_CODAH_COLUMNS = (
    "category",
    "stem",
    *(f"ending {number}" for number in range(NUM_CHOICES)),
    "answer",
)
_LABELS = [str(number) for number in range(NUM_CHOICES)]
_is_ending = re.compile(r"ending\d+").fullmatch


class ChoiceExample(NamedTuple):
    """A context and its possible continuations; `label` is the index of the correct one, None if
    it is unknown.
    """

    guid: str
    context: str
    choices: tuple[str, ...]
    label: int | None = None


class ChoiceFiles(NamedTuple):
    """The file names of the sets in a folder, and the reader of a file: (path, guid prefix,
    labelled) -> examples.
    """

    names: dict[str, list[str]]
    read: Callable[[str, str, bool], list[ChoiceExample]]


@dataclasses.dataclass(frozen=True)
class EncodedChoices:
    """The encoded choices of all examples, one after another; `label_ids`, int32[n], is 0 for
    unknown labels.
    """

    inputs: ModelInputs
    label_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of the longest choice, including the special tokens."""
        return self.inputs.lengths.reshape(-1, NUM_CHOICES).max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of examples.

        Args:
            rows: int[b], the indices of the examples.
            length: the number of tokens to which each choice is padded.

        Returns:
            Encoder features, int32[b, choices, length], and `label_ids`, int32[b].
        """
        first_inputs = np.asarray(rows)[:, None] * NUM_CHOICES
        inputs = first_inputs + np.arange(NUM_CHOICES)  # [b, choices]
        features = self.inputs.features(inputs.ravel(), length)
        batch = {}
        for name, values in features.items():
            batch[name] = values.reshape(-1, NUM_CHOICES, length)
        batch["label_ids"] = self.label_ids[rows]
        return batch


def encoded_choices(
    examples: Sequence[ChoiceExample],
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> EncodedChoices:
    """Tokenizes every pair of context and choice and cuts it to `max_seq_length` tokens.

    Each pair is cut separately, the longer text first, so the context may be shorter in one choice
    than in another.

    Args:
        examples: the examples; an unknown label becomes 0.
        max_seq_length: the largest number of tokens of a pair, special tokens included.
        tokenizer: the tokenizer of the model.
    """
    return EncodedChoices(
        inputs=ModelInputs(
            model_input_ids(tokenizer, example.context, choice, max_seq_length)
            for example in counted(examples, "examples encoded")
            for choice in example.choices
        ),
        label_ids=np.array([example.label or 0 for example in examples], np.int32),
    )


def check_labels(path: str, labels: Sequence[int]) -> None:
    """Warns of a set of which all examples have one label, or none has the first.

    Args:
        path: the file of the set, for the messages.
        labels: the known labels of its examples.
    """
    if len(labels) > 1 and len(set(labels)) == 1:
        errors.warn("%s: all %d examples have the label %d", path, len(labels), labels[0])
    elif len(labels) >= _MANY_EXAMPLES and 0 not in labels:
        errors.warn(
            "%s: no example has the label 0, the first ending; subtract 1 from labels that count "
            "from 1",
            path,
        )


def read_swag(path: str, guid: str, labelled: bool = True) -> list[ChoiceExample]:
    """Reads the examples of SWAG.

    The context is the first sentence, a choice is the start of the second plus an ending.

    Args:
        path: the file. JSON lines and Parquet may be several files, as of a flag: paths with commas
            between them, or a glob.
        guid: the name of the set, with which the id of each example begins.
        labelled: whether the labels are needed and read.

    Raises:
        InputError: a column is missing or named twice, there are more endings, a row or a label has
            another form, or there is no example.
    """
    if is_table(path):
        file_examples = (
            _read_swag(read_rows(file), file, guid, labelled)
            for file in expand_paths(path, f"{guid}_file")
        )
        return list(itertools.chain.from_iterable(file_examples))
    return _read_swag(read_csv(path), path, guid, labelled)


def _read_swag(rows: Iterator[Row], path: str, guid: str, labelled: bool) -> list[ChoiceExample]:
    header = next(rows, None)
    names = header.fields if header else []
    required = (*_SWAG_TEXTS, "label") if labelled else _SWAG_TEXTS
    folded_names = [fold_name(name) for name in names]
    _check_swag_header(path, folded_names, required)
    roles = [Role(name, (name,)) for name in required]
    decided = decide_columns(path, names, roles)
    examples = []
    for number, row in enumerate(rows, start=1):
        if len(row.fields) != len(names):
            raise row.error(
                f"has {len(row.fields)} columns and the header {len(names)}; complete the row, and "
                "put texts with commas into quotes"
            )
        fields = {}
        for name in required:
            column = decided.role_columns[name][0]
            fields[name] = row.fields[column]
        texts = [parse_text(row, fields[name], name) for name in _SWAG_TEXTS]
        context, start, *endings = texts
        label = None
        if labelled:
            label = _label(row, parse_label(row, fields["label"]))
        example = ChoiceExample(
            guid=f"{guid}-{number}",
            context=context,
            choices=tuple(f"{start} {ending}" for ending in endings),
            label=label,
        )
        examples.append(example)
    return not_empty(examples, path)


def read_codah(path: str, guid: str, labelled: bool = True) -> list[ChoiceExample]:
    """Reads the examples of a file of CODAH.

    Its columns are category, stem, four endings and, if it is `labelled`, the number of the answer.

    Args:
        path: the TSV file, without a header.
        guid: the name of the set, with which the id of each example begins.
        labelled: whether the answers are needed and read. Without labels the column may be missing.

    Raises:
        InputError: a row has another number of columns, an answer is none of the choices or in
            place of an ending, or there is no example.
    """
    rows = list(read_tsv(path))
    names = _CODAH_COLUMNS
    num_fields = len(rows[0].fields) if rows else 0
    if not labelled and num_fields == len(names) - 1:
        names = names[:-1]
    examples = []
    for row in rows:
        if len(row.fields) != len(names):
            raise row.error(
                f"has {len(row.fields)} columns instead of {len(names)}: {', '.join(names)}; "
                "correct the row, and keep tabs out of the texts"
            )
        if names[-1] != "answer" and row.fields[-1] in _LABELS:
            raise row.error(
                f"has the answer {row.fields[-1]} instead of an ending; give it {NUM_CHOICES} "
                "endings"
            )
        _, context, *choices = row.fields[: 2 + NUM_CHOICES]
        example = ChoiceExample(
            guid=f"{guid}-{row.line - 1}",
            context=context,
            choices=tuple(choices),
            label=_label(row, row.fields[-1]) if labelled else None,
        )
        examples.append(example)
    return not_empty(examples, path)


_STEMS = {"train": "train", "dev": "val", "test": "test"}
SWAG = ChoiceFiles(
    {
        name: [f"{stem}{ending}" for ending in (".csv", *OTHER_ENDINGS)]
        for name, stem in _STEMS.items()
    },
    read_swag,
)
CODAH = ChoiceFiles(
    {name: [f"{name}.tsv"] for name in _STEMS},
    read_codah,
)
TASKS = {"swag": SWAG, "codah": CODAH}  # by name


def _check_swag_header(path: str, names: Sequence[str], required: Sequence[str]):
    missing = [name for name in required if name not in names]
    if missing:
        raise InputError(
            f"{path}: has no column {', '.join(missing)}; its first row must name SWAG's columns"
        )
    repeated = {name for name in names if name and names.count(name) > 1}
    if repeated:
        raise InputError(
            f"{path}: names the column {', '.join(sorted(repeated))} twice; name each column once"
        )
    others = [name for name in names if _is_ending(name) and name not in required]
    if others:
        raise InputError(
            f"{path}: has the column {', '.join(others)}, but there are {NUM_CHOICES} choices; "
            f"keep ending0 to ending{NUM_CHOICES - 1}"
        )


def _label(row: Row, text: str) -> int:
    if text not in _LABELS:
        raise row.error(
            f"has the label {text!r}, which is none of 0 to {NUM_CHOICES - 1}; correct it"
        )
    return int(text)

"""What labels of a user's table mean, and which of them cannot be meant.

Several labels of an example are a list of JSON, a text with separators, or a list as Python prints
it.
"""

import ast
import collections
import json
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from official_bert.data.tables import Row
from official_bert.io import errors
from official_bert.io.errors import InputError

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_ZERO_OR_ONE = {"0", "1", "0.0", "1.0", "false", "true"}
# What programs write for a value that is not there.
_MISSING = {"nan", "none", "null", "n/a", "<na>"}
_MISSING_TEXTS = {"", "nan", "<na>"}
_MANY_ROWS = 20
_SEPARATORS = (";", "|", ",", " ")
_strip_quoted = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"").sub
# Texts without a comma, as numpy prints them.
_are_neighbours = re.compile(r"[q\w]\s*q|q\s*\w").search


def split_labels(row: Row, value: Any, separator: str) -> list:
    """Returns the labels of an example, which may have several."""
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    printed = _printed_list(row, value.strip())
    return value.split(separator) if printed is None else printed


def refuse_list(row: Row, value: Any):
    """Raises InputError for a list where an example has one label."""
    printed = None
    if isinstance(value, str):
        text = value.strip()
        # Other brackets, and those of a text without quotes, may be parts of a label.
        if text[:1] == "[" and text[1:2] in ("'", '"'):
            printed = _printed_list(row, text)
    if isinstance(value, list) or printed is not None:
        raise row.error(
            "the label is a list; give the example one label, or add --label_type=multi"
        )


def _printed_list(row: Row, text: str) -> list | None:
    """Returns the elements of a list, a tuple or a set as Python or JSON writes it; None for
    another text.
    """
    if text == "set()":
        return []
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    inner = _strip_quoted("q", text[1:-1])
    if not re.search(r"[\[\]]", inner) and not _are_neighbours(inner):
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, (list, tuple, set)):
                return sorted(value, key=str) if isinstance(value, set) else list(value)
    # A label may have brackets: "[PER]"; what has several parts is a list.
    if text[0] == "[" and re.search(r"[q,\s]", inner) and "[" not in inner:
        raise row.error(
            f"the label {text!r} is a printed list that cannot be read; write the labels with "
            "separators, as in a,b"
        )
    return None


def check_repeated(row: Row, labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels of an example; raises InputError for zeros and ones that stand for all
    labels.
    """
    for label, count in collections.Counter(labels).items():
        if count > 1 and label in _ZERO_OR_ONE:
            raise row.error(f"names the label {label} twice; name each label of the example once")
    return tuple(labels)


def check_names(where: str, labels: Collection[str]):
    """Raises InputError for labels that labels.txt or confusion_matrix.tsv can't contain."""
    for label in labels:
        if re.search(r"[\t\r\n]", label):
            raise InputError(
                f"{where}: the label {label!r} has a tab or a line end, which the files of the "
                "model can't contain; take it out"
            )


def refuse_multi_hot(path: str, label_lists: Sequence[Sequence[str]]):
    """Raises InputError for labels that are 0 and 1, equally many in each example: columns of a
    table, not names.
    """
    lengths = {len(labels) for labels in label_lists}
    values = {label for labels in label_lists for label in labels}
    if len(lengths) == 1 and values <= _ZERO_OR_ONE:
        raise InputError(
            f"{path}: each example has {lengths.pop()} zeros or ones in place of labels; give the "
            "names of its labels, as in a,b or a JSON list, in one column"
        )


def refuse_other_separators(path: str, label_lists: Sequence[Sequence[str]], separator: str):
    """Raises InputError if no example has several labels and some labels have what others write
    between labels.
    """
    labels = sorted({label for labels in label_lists for label in labels})
    if any(len(labels) > 1 for labels in label_lists):
        return
    for other in _SEPARATORS:
        several = [
            label for label in labels if other in label and _is_several(label, other, labels)
        ]
        if several and other != separator:
            raise InputError(
                f"{path}: no example has several labels, but {several[0]!r} may be some; write "
                f'them with {separator!r} between them, or give --label_separator="{other}"'
            )


def _is_several(label: str, separator: str, labels: Collection[str]) -> bool:
    """Returns whether a label may be several: a name may have blanks, unless its words are
    labels, too.
    """
    return separator != " " or set(label.split()) <= set(labels)


def warn_of_similar(path: str, labels: Sequence[str]):
    """Warns of labels that differ in case, in the form of a number or in that of Unicode only,
    and of those that stand for no value.
    """
    alike = collections.defaultdict(list)
    for label in labels:
        folded = unicodedata.normalize("NFC", label).casefold()
        try:
            key = float(label)
        except ValueError:
            key = folded
        alike[key if key == key else folded].append(label)
    for names in alike.values():
        if len(names) > 1:
            errors.warn(
                "%s: %s are different labels; write them alike if they are one",
                path,
                " and ".join(names),
            )
    for label in labels:
        if label.casefold() in _MISSING:
            errors.warn(
                "%s: the label %s looks like a missing value; leave such rows out", path, label
            )


def warn_of_missing_texts(path: str, texts: Sequence[str]):
    """Warns of texts that are blank, or what pandas writes for a text that is not there."""
    missing = [text for text in texts if text.strip().casefold() in _MISSING_TEXTS]
    if missing:
        errors.warn(
            "%s: %d of %d texts are empty or look like a missing value, the first %r; leave such "
            "rows out",
            path,
            len(missing),
            len(texts),
            missing[0],
        )


def refuse_labels_as_texts(path: str, texts: Sequence[str], labels: Collection[str], remedy: str):
    """Raises InputError if all texts of a column that the file does not call a text are labels."""
    if labels and all(text.strip() in labels for text in texts):
        raise InputError(
            f"{path}: each text that would be read is a label, the first {texts[0]!r}; {remedy}"
        )


def check_variety(path: str, labels: Sequence[str], guessed: str | None, is_learnt: bool = True):
    """Warns of a set with one label and, if it defines the labels, of one with nearly as many
    labels as examples.

    Raises InputError in the second case if the column of the label, called `guessed`, was guessed.
    """
    distinct, number = len(set(labels)), len(labels)
    if number > 1 and distinct == 1:
        errors.warn("%s: all %d examples have the label %s", path, number, labels[0])
    if not is_learnt:
        return
    has_too_many = distinct == number > 2 or (number >= _MANY_ROWS and distinct > number / 2)
    if guessed is not None and has_too_many:
        raise InputError(
            f"{path}: {number} examples have {distinct} different labels in the column {guessed}; "
            "name the column of the label, --label_column=..."
        )
    if has_too_many:
        errors.warn(
            "%s: %d examples have %d different labels; check --label_column, or choose "
            "--label_type=score for numbers",
            path,
            number,
            distinct,
        )


def check_scores(path: str, scores: Sequence[str], can_train: bool):
    """Warns if all scores of a set are equal, or raises InputError where nothing can be learnt
    from them.
    """
    if len(scores) < 2 or len(set(map(float, scores))) > 1:
        return
    sentence = f"{path}: all examples have the score {scores[0]}"
    if not can_train:
        raise InputError(f"{sentence}, so that there is nothing to learn; check --label_column")
    errors.warn("%s, with which no correlation is defined", sentence)

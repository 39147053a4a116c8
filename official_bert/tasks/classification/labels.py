"""Reads the labels of a user's table, and finds those that are probably mistakes.

Several labels of an example are a list of JSON, a text with separators, or a list as Python prints
it.
"""

import ast
import collections
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from official_bert.data.tables import Row
from official_bert.io import errors
from official_bert.io.errors import InputError

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_ONES = {"1", "1.0", "true", "True"}
_ZERO_OR_ONE = _ONES | {"0", "0.0", "false", "False"}
# What programs write for a missing value.
_MISSING_LABELS = {"nan", "none", "null", "n/a", "<na>"}
_MISSING_TEXTS = {"", "nan", "<na>"}
# In a table of this many rows, labels for more than half of the examples are too many.
_MANY_ROWS = 20
_SEPARATORS = (";", "|", ",", " ")
_replace_quoted = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"").sub
# Elements without a comma between them, as numpy prints texts; q stands for a quoted text.
_find_neighbours = re.compile(r"[q\w]\s*q|q\s*\w").search


def split_labels(row: Row, value: Any, separator: str) -> list:
    """Return the labels of an example, which may have several.

    Args:
        row: the row, for the error message.
        value: the value of the label column: a text, or any value of JSON or Parquet.
        separator: what separates the labels of a text.

    Raises:
        InputError: the value is a printed list that cannot be read.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    elements = _parse_printed_list(row, value.strip())
    return value.split(separator) if elements is None else elements


def refuse_list(row: Row, value: Any) -> None:
    """Raise InputError for a list where an example has one label.

    Args:
        row: the row, for the error message.
        value: the value of the label column: a text, or any value of JSON or Parquet.
    """
    is_list = isinstance(value, list)
    if isinstance(value, str):
        text = value.strip()
        # Other brackets, and those of a text without quotes, may be parts of a label.
        if text.startswith(("['", '["')):
            is_list = _parse_printed_list(row, text) is not None
    if is_list:
        raise row.error(
            "the label is a list; give the example one label, or add --label_type=multi"
        )


def _parse_printed_list(row: Row, text: str) -> list | None:
    """Returns the elements of a list, a tuple or a set as Python or JSON writes it; None for
    another text.
    """
    if text == "set()":
        return []
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    inner = _replace_quoted("q", text[1:-1])
    has_inner_list = "[" in inner or "]" in inner
    if not has_inner_list and not _find_neighbours(inner):
        elements = _parse_elements(text)
        if elements is not None:
            return elements
    # A label may have brackets, as in "[PER]"; a text with several parts is a list.
    has_parts = re.search(r"[q,\s]", inner) is not None
    if text[0] == "[" and has_parts and "[" not in inner:
        raise row.error(
            f"the label {text!r} is a printed list that cannot be read; write the labels with "
            "separators, as in a,b"
        )
    return None


def _parse_elements(text: str) -> list | None:
    """Returns the elements of a list, a tuple or a set of JSON or Python; None for another text."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, set):
            return sorted(value, key=str)
        if isinstance(value, (list, tuple)):
            return list(value)
    return None


def name_bits(labels: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the names of the ones in a vector of zeros and ones; other labels as they are.

    Args:
        labels: the labels of an example, or a vector with an element for each label of the task.
        names: the labels of the task, in the order of the vector.
    """
    is_vector = len(labels) == len(names) and set(labels) <= _ZERO_OR_ONE
    if not is_vector or set(names) <= _ZERO_OR_ONE:
        return labels
    return [name for name, bit in zip(names, labels, strict=True) if bit in _ONES]


def read_indicators(
    row: Row, bits: Sequence[str], names: Sequence[str], is_multi_label: bool
) -> list[str]:
    """Return the labels of an example from a column of zeros and ones for each label.

    Args:
        row: the row, for the error message.
        bits: the values of the columns.
        names: their names, which are the labels.
        is_multi_label: whether an example has any number of labels.

    Raises:
        InputError: a value is neither zero nor one, or an example of one label has another number.
    """
    for bit, name in zip(bits, names, strict=True):
        if bit not in _ZERO_OR_ONE:
            raise row.error(f"the column {name} of a label has {bit!r}; write 0 or 1")
    labels = [name for bit, name in zip(bits, names, strict=True) if bit in _ONES]
    if not is_multi_label and len(labels) != 1:
        raise row.error(
            f"{len(labels)} of the columns {', '.join(names)} are 1; give the example one label, "
            "or add --label_type=multi"
        )
    return labels


def refuse_indicators(path: str, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Raise InputError for several columns of zeros and ones, which may be the labels.

    Args:
        path: the file, for the error message.
        names: the names of all columns.
        columns: the values of each column.
    """
    indicators = []
    bits = []
    for name, column in zip(names, columns, strict=True):
        if column and set(column) <= _ZERO_OR_ONE:
            indicators.append(name)
            bits.append([value in _ONES for value in column])
    if len(indicators) < 2:
        return
    has_one_each = all(sum(row) == 1 for row in zip(*bits, strict=True))
    flag = "" if has_one_each else " --label_type=multi"
    raise InputError(
        f"{path}: the columns {', '.join(indicators)} have zeros and ones; if they are the labels, "
        f"give --label_column={','.join(indicators)}{flag}, or else the column of the label"
    )


def refuse_repeated_bits(row: Row, labels: Sequence[str]) -> None:
    """Raise InputError for repeated zeros or ones, which stand for all labels of the task.

    Args:
        row: the row, for the error message.
        labels: the labels of the example.
    """
    for label, count in collections.Counter(labels).items():
        if count > 1 and label in _ZERO_OR_ONE:
            raise row.error(f"names the label {label} twice; name each label of the example once")


def check_names(where: str, labels: Collection[str]) -> None:
    """Raise InputError for labels that labels.txt or confusion_matrix.tsv can't contain.

    Args:
        where: the file or the flag that names the labels, for the error message.
        labels: the labels.
    """
    for label in labels:
        if re.search(r"[\t\r\n]", label):
            raise InputError(
                f"{where}: the label {label!r} has a tab or a line end, which the files of the "
                "model can't contain; take it out"
            )


def refuse_multi_hot(path: str, label_lists: Sequence[Sequence[str]]) -> None:
    """Raise InputError for equally many zeros and ones in each example, which are not names.

    Args:
        path: the file, for the error message.
        label_lists: the labels of each example.
    """
    lengths = {len(labels) for labels in label_lists}
    values = set(itertools.chain.from_iterable(label_lists))
    if len(lengths) == 1 and values <= _ZERO_OR_ONE:
        raise InputError(
            f"{path}: each example has {lengths.pop()} zeros or ones in place of labels; give the "
            "names of its labels, as in a,b or a JSON list, in one column, or name those of the "
            "zeros and ones in their order, --labels=a,b"
        )


def refuse_other_separators(
    path: str, label_lists: Sequence[Sequence[str]], separator: str
) -> None:
    """Raise InputError if no example has several labels, but a label contains another separator.

    Args:
        path: the file, for the error message.
        label_lists: the labels of each example.
        separator: what separates the labels of an example.
    """
    if any(len(labels) > 1 for labels in label_lists):
        return
    all_labels = set(itertools.chain.from_iterable(label_lists))
    for other in _SEPARATORS:
        if other == separator:
            continue
        for label in sorted(all_labels):
            if _may_be_several(label, other, all_labels):
                raise InputError(
                    f"{path}: no example has several labels, but {label!r} may be some; write "
                    f'them with {separator!r} between them, or give --label_separator="{other}"'
                )


def _may_be_several(label: str, separator: str, labels: Collection[str]) -> bool:
    """Returns whether a label may be several ones with a separator between them.

    A name may have blanks, unless all of its words are labels.
    """
    if separator == " ":
        return " " in label and all(word in labels for word in label.split())
    return separator in label


def warn_of_similar(path: str, labels: Sequence[str]) -> None:
    """Warn of labels that differ only in case or in the form of a number or of Unicode.

    Warn also of labels that look like a missing value.

    Args:
        path: the file, for the warning.
        labels: the labels.
    """
    alike = collections.defaultdict(list)
    for label in labels:
        alike[_comparison_key(label)].append(label)
    for names in alike.values():
        if len(names) > 1:
            errors.warn(
                "%s: %s are different labels; write them alike if they are one",
                path,
                " and ".join(names),
            )
    for label in labels:
        if label.casefold() in _MISSING_LABELS:
            errors.warn(
                "%s: the label %s looks like a missing value; leave such rows out", path, label
            )


def _comparison_key(label: str) -> float | str:
    """Returns a value that is equal for labels that may be the same one."""
    folded = unicodedata.normalize("NFC", label).casefold()
    try:
        number = float(label)
    except ValueError:
        return folded
    return folded if math.isnan(number) else number


def warn_of_missing_texts(path: str, texts: Sequence[str]) -> None:
    """Warn of texts that are blank, or what pandas writes for a missing text.

    Args:
        path: the file, for the warning.
        texts: the texts of all examples.
    """
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


def refuse_labels_as_texts(
    path: str, texts: Sequence[str], labels: Collection[str], remedy: str
) -> None:
    """Raise InputError if all texts of a guessed column are labels.

    Args:
        path: the file, for the error message.
        texts: the texts of all examples.
        labels: the labels of the task.
        remedy: what to do, for the error message.
    """
    if labels and all(text.strip() in labels for text in texts):
        raise InputError(
            f"{path}: each text that would be read is a label, the first {texts[0]!r}; {remedy}"
        )


def check_variety(
    path: str, labels: Sequence[str], guessed_name: str | None, defines_labels: bool = True
) -> None:
    """Warn of a set with one label, and of one with nearly as many labels as examples.

    Args:
        path: the file, for messages.
        labels: the label of each example.
        guessed_name: the name of the label column if it was guessed; None if the user named it.
        defines_labels: whether the set defines the labels of the task. Only such a set can have too
            many labels.

    Raises:
        InputError: the set has too many labels, and its label column was guessed.
    """
    num_distinct = len(set(labels))
    num_examples = len(labels)
    if num_examples > 1 and num_distinct == 1:
        errors.warn("%s: all %d examples have the label %s", path, num_examples, labels[0])
    all_differ = num_distinct == num_examples and num_examples > 2
    most_differ = num_distinct > num_examples / 2 and num_examples >= _MANY_ROWS
    if not defines_labels or not (all_differ or most_differ):
        return
    if guessed_name is not None:
        raise InputError(
            f"{path}: {num_examples} examples have {num_distinct} different labels in the column "
            f"{guessed_name}; name the column of the label, --label_column=..."
        )
    errors.warn(
        "%s: %d examples have %d different labels; check --label_column, or choose "
        "--label_type=score for numbers",
        path,
        num_examples,
        num_distinct,
    )


def check_scores(path: str, scores: Sequence[str], can_be_equal: bool) -> None:
    """Warn of a set with equal scores.

    Args:
        path: the file, for messages.
        scores: the score of each example.
        can_be_equal: whether such a set is of use. A training set is not.

    Raises:
        InputError: the scores are equal, but must not be.
    """
    if len(scores) < 2 or len(set(map(float, scores))) > 1:
        return
    sentence = f"{path}: all examples have the score {scores[0]}"
    if not can_be_equal:
        raise InputError(f"{sentence}, so that there is nothing to learn; check --label_column")
    errors.warn("%s, with which no correlation is defined", sentence)

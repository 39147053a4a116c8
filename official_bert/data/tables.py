"""Reads the rows of TSV and CSV files, each with the file and line that an error message names.

The readers remove a byte order mark and CRLF line ends, skip blank lines with a warning, and accept fields of any
length.
"""

import csv
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from absl import logging

from official_bert.io import reading
from official_bert.io.errors import InputError

T = TypeVar("T")

_MAX_FIELD_CHARACTERS = 2**31 - 1  # csv's own limit is 131,072


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        path: the file of the row.
        line: the number of its line, from 1; the last line where quoted fields span several lines.
        fields: the columns of the row.
    """

    path: str
    line: int
    fields: list[str]

    def field(self, column: int, name: str) -> str:
        """Returns a column of the row.

        Args:
            column: the index of the column from 0; a negative one counts from the end.

        Raises:
            InputError: the row has no such column.
        """
        try:
            return self.fields[column]
        except IndexError:
            number = column + 1 if column >= 0 else column
            raise self.error(
                f"has {len(self.fields)} columns, but {name} is expected in column {number}; complete the row "
                "or check the file's layout"
            ) from None

    def error(self, what: str) -> InputError:
        """Returns an error whose message names the file and the line."""
        return InputError(f"{self.path}: line {self.line}: {what}")


def read_tsv(path: str) -> Iterator[Row]:
    """Yields the rows of a tab-separated file without quoting; a double quote is an ordinary character.

    Raises:
        InputError: the file does not exist.
    """
    num_blank = 0
    for line, text in numbered_lines(path):
        if text.strip(" "):
            yield Row(path, line, text.split("\t"))
        else:
            num_blank += 1
    _log_blank(path, num_blank)


def read_csv(path: str, delimiter: str = ",", quotechar: str = '"') -> Iterator[Row]:
    """Yields the rows of a file whose quoted fields may hold delimiters and line ends.

    Raises:
        InputError: the file does not exist, or a quote is not closed.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    lines = (f"{text}\n" for _, text in numbered_lines(path))
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quotechar, strict=True)
    num_blank = 0
    try:
        for fields in reader:
            if fields:
                yield Row(path, reader.line_num, fields)
            else:
                num_blank += 1
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}; check the quotes up to here") from error
    _log_blank(path, num_blank)


def not_empty(examples: list[T], path: str) -> list[T]:
    """Returns the examples of a file.

    Raises:
        InputError: there is no example.
    """
    if not examples:
        raise InputError(f"{path}: holds no example; check the file")
    return examples


def numbered_lines(path: str, errors: Literal["ignore", "replace"] = "ignore") -> Iterator[tuple[int, str]]:
    """Yields the lines of a file with their numbers from 1, without byte order mark and line ends.

    Args:
        errors: the treatment of bytes that are not UTF-8, as in reading.read_lines.

    Raises:
        InputError: the file cannot be read, or is no UTF-8 text.
    """
    for line, text in enumerate(reading.read_lines(path, errors), start=1):
        if line == 1:
            text = text.removeprefix("\ufeff")
        yield line, text.rstrip("\r")


def _log_blank(path: str, num_blank: int):
    if num_blank:
        logging.warning("%s: skipped %d blank lines", path, num_blank)

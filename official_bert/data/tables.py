"""Rows of TSV and CSV files as the world has them, each with the place that an error names.

A byte order mark and CRLF are taken off, blank lines skipped and counted; fields may be of any length.
"""

import codecs
import csv
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from absl import logging

from official_bert import files
from official_bert.errors import InputError

T = TypeVar("T")

_MAX_FIELD_CHARACTERS = 2**31 - 1  # csv's own limit is 131,072


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        path: its file.
        line: its line from 1; the last one, where a quoted field spans several.
        fields: its columns.
    """

    path: str
    line: int
    fields: list[str]

    def field(self, column: int, name: str) -> str:
        """A column, counted from 0, or from the end if negative.

        Raises:
            InputError: a row that is too short; `name` says what was looked for.
        """
        try:
            return self.fields[column]
        except IndexError:
            place = column + 1 if column >= 0 else column
            raise self.error(
                f"has {len(self.fields)} columns, but {name} is expected in column {place}; complete the row "
                "or check the file's layout"
            ) from None

    def error(self, what: str) -> InputError:
        """An error that names the file and the line."""
        return InputError(f"{self.path}: line {self.line}: {what}")


def read_tsv(path: str) -> Iterator[Row]:
    """Rows of a tab-separated file without quoting: a double quote is a character.

    Raises:
        InputError: no such file.
    """
    num_blank = 0
    for line, text in numbered_lines(path):
        if text.strip(" "):
            yield Row(path, line, text.split("\t"))
        else:
            num_blank += 1
    _log_blank(path, num_blank)


def read_csv(path: str, delimiter: str = ",", quotechar: str = '"') -> Iterator[Row]:
    """Rows of a file whose quoted fields may hold delimiters and line ends.

    Raises:
        InputError: no such file, or quotes that do not match.
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
    """What was read of a file.

    Raises:
        InputError: nothing.
    """
    if not examples:
        raise InputError(f"{path}: holds no example; check the file")
    return examples


def numbered_lines(path: str, errors: Literal["ignore", "replace"] = "ignore") -> Iterator[tuple[int, str]]:
    """Numbers (from 1) and texts of the lines, without byte order mark and line ends.

    Args:
        path: of the file.
        errors: what becomes of bytes that are not UTF-8, beside a warning: left out, or U+FFFD in their place.

    Raises:
        InputError: no such file, one in UTF-16, or one whose lines end with "\\r" alone.
    """
    num_damaged = 0
    with files.open_file(path, "rb") as file:
        for line, data in enumerate(file, start=1):
            if line == 1:
                _check_encoding(path, data)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                num_damaged += 1
                text = data.decode("utf-8", errors)
            if line == 1:
                text = text.removeprefix("\ufeff")
            yield line, text.removesuffix("\n").rstrip("\r")
    if num_damaged:
        done = "left out" if errors == "ignore" else "replaced"
        logging.warning("%s: %s bytes that are not UTF-8 in %d lines", path, done, num_damaged)


def _check_encoding(path: str, first_line: bytes):
    """Refuses what would otherwise be read as one odd line, or as odd characters."""
    if first_line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or first_line[:2].count(0) == 1:
        raise InputError(f"{path}: is UTF-16; save it as UTF-8")
    if b"\r" in first_line[:-1] and not first_line.endswith(b"\n"):
        raise InputError(f'{path}: ends its lines with "\\r" alone; save it with "\\n" or "\\r\\n"')


def _log_blank(path: str, num_blank: int):
    if num_blank:
        logging.warning("%s: skipped %d blank lines", path, num_blank)

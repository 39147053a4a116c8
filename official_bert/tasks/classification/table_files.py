"""Reads the files of a set of examples as one table, whatever their formats."""

from collections.abc import Sequence

from absl import logging

from official_bert.data.column_roles import fold_name
from official_bert.data.table_formats import (
    CSV,
    TSV,
    choose_format,
    read_rows,
    refuse_second_header,
)
from official_bert.data.tables import Row, not_empty
from official_bert.io.errors import InputError


def read_table_files(
    paths: Sequence[str],
    data_format: str | None,
    has_header: bool,
    is_quoted: bool,
) -> list[Row]:
    """Read files as one table, with the columns of the first file.

    Args:
        paths: the files.
        data_format: the format of all files; None for the format of each name.
        has_header: whether the first row of a file has the names of the columns.
        is_quoted: whether fields of TSV may be quoted as in CSV.

    Returns:
        The rows. The first one has the names of the columns if the files have them.

    Raises:
        InputError: a file cannot be read or is empty, or lacks a column of the first file.
    """
    formats = [choose_format(path, data_format) for path in paths]
    rows: list[Row] = []
    for path, file_format in zip(paths, formats, strict=True):
        file_rows = _read_file(path, file_format, has_header, is_quoted)
        if rows and has_header:
            file_rows = _select_columns(file_rows, rows[0])
        rows += file_rows
    return rows


def _read_file(path: str, file_format: str, has_header: bool, is_quoted: bool) -> list[Row]:
    """Reads a file; its first row has the names of the columns, if it has a header."""
    is_quoted_tsv = file_format == TSV and is_quoted
    rows = not_empty(list(read_rows(path, file_format, is_quoted_tsv)), path)
    if file_format == TSV and not is_quoted:
        _warn_of_quotes(rows)
    if has_header:
        _check_widths(rows, file_format)
    elif not rows[0].line:
        raise InputError(f"--has_header=false: {path} names its columns in each row; leave it out")
    return rows


def _check_widths(rows: Sequence[Row], file_format: str):
    """Raises InputError for a row that does not have the columns of the header, or repeats it."""
    names = rows[0].fields
    width = len(names)
    for row in rows[1:]:
        num_fields = len(row.fields)
        is_short_csv = file_format == CSV and num_fields < width
        if num_fields > width or is_short_csv:
            remedy = "take the tabs out of its texts"
            if file_format == CSV:
                remedy = "put texts with commas into quotes"
            raise row.error(f"has {num_fields} columns, the header {width}; {remedy}")
        refuse_second_header(row, names)


def _select_columns(rows: Sequence[Row], header: Row) -> list[Row]:
    """Returns the rows of a file below its header, with the columns of the first file's header."""
    names = header.fields
    file_names = rows[0].fields
    if names == file_names:
        return list(rows[1:])
    # An exact name takes precedence over one that differs in case.
    numbers = {fold_name(name): number for number, name in enumerate(file_names)}
    for number, name in enumerate(file_names):
        numbers[name] = number
    columns = []
    missing = []
    for name in names:
        number = numbers.get(name, numbers.get(fold_name(name)))
        if number is None:
            missing.append(name)
        else:
            columns.append((number, name))
    if missing:
        raise InputError(
            f"{rows[0].path}: has no column {', '.join(missing)}, as {header.path} has; give files "
            "with equal columns"
        )
    selected = []
    for row in rows[1:]:
        fields = [row.field(number, name) for number, name in columns]
        selected.append(row._replace(fields=fields))
    return selected


def _warn_of_quotes(rows: Sequence[Row]):
    """Warns of the first field in quotes, or with one quote in a row that a tab or a line break
    may have cut in two.
    """
    for row in rows:
        is_cut = len(row.fields) != len(rows[0].fields)
        quoted_fields = [field for field in row.fields if field.startswith('"')]
        if any(is_cut or field[1:].endswith('"') for field in quoted_fields):
            logging.warning(
                "%s: line %d: a field is in quotes, which are read as characters; if the file "
                "quotes its fields as pandas and Excel do, give --quoting=csv",
                row.path,
                row.line,
            )
            return

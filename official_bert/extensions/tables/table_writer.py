"""Writes tables some rows at a time: TSV, CSV, JSON lines (all three also in gzip) and Parquet."""

import contextlib
import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from official_bert.data import table_formats
from official_bert.data.table_formats import CSV, JSON_LINES, PARQUET, TSV
from official_bert.extensions.tables.answer_columns import format_cell
from official_bert.io.errors import InputError, brief

Record = Mapping[str, Any]  # the values of a row by column


class TableWriter:
    """Writes rows into a file.

    Attributes:
        path: the file, for messages.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile, path: str):
        """Makes the writer of an open file.

        Args:
            file: the file.
            path: its name, for messages.
        """
        self._file = file
        self.path = path

    def write(self, records: Sequence[Record]) -> None:
        """Writes rows.

        Args:
            records: the values by column. The first row has all columns, in their order.

        Raises:
            InputError: the format cannot have a value.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Writes what remains; the file stays open."""


class _DelimitedWriter(TableWriter):
    """Writes CSV, or TSV with or without quotes."""

    def __init__(
        self,
        file: BinaryIO | gzip.GzipFile,
        path: str,
        delimiter: str,
        is_quoted: bool,
        has_header: bool,
    ):
        super().__init__(file, path)
        self._delimiter = delimiter
        self._is_quoted = is_quoted
        self._has_header = has_header
        self._names: list[str] = []

    def write(self, records: Sequence[Record]) -> None:
        rows = []
        if records and not self._names:
            self._names = list(records[0])
            if self._has_header:
                rows.append(self._names)
        for record in records:
            if new := [name for name in record if name not in self._names]:
                raise InputError(
                    f"{self.path}: a later row has the column {new[0]}, which the first rows "
                    "lack; write a file .jsonl"
                )
            rows.append([format_cell(record.get(name)) for name in self._names])
        lines: list[str] = []
        if self._is_quoted:
            # With this line end, fields that have one of its characters are quoted.
            text = io.StringIO(newline="")
            writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n")
            for row in rows:
                writer.writerow(row)
                lines.append(text.getvalue().removesuffix("\r\n") + "\n")
                text.seek(0)
                text.truncate()
        else:
            lines = [self._join(row) for row in rows]
        self._file.write("".join(lines).encode())

    def _join(self, cells: Sequence[str]) -> str:
        for name, cell in zip(self._names, cells, strict=True):
            if any(character in cell for character in "\t\r\n"):
                raise InputError(
                    f"{self.path}: a value of the column {name} has a tab or a line end, which a "
                    "TSV file without quotes can't contain; write a file .csv, or give "
                    "--quoting=csv"
                )
        return self._delimiter.join(cells) + "\n"


class _JsonLinesWriter(TableWriter):
    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            line = json.dumps(record, ensure_ascii=False, allow_nan=True, default=str)
            self._file.write(f"{line}\n".encode())


class _ParquetWriter(TableWriter):
    """Keeps all rows, and writes them when it is closed."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, path: str):
        super().__init__(file, path)
        self._pyarrow, self._parquet = table_formats.load_parquet(path)
        self._records: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        self._records += records

    def close(self) -> None:
        try:
            table = self._pyarrow.Table.from_pylist(self._records)
        except (self._pyarrow.ArrowException, ValueError, TypeError) as error:
            raise InputError(
                f"{self.path}: a column has values that Parquet can't contain ({brief(error)}); "
                "write a file .jsonl"
            ) from error
        # pyarrow would close the file.
        data = io.BytesIO()
        self._parquet.write_table(table, data)
        self._file.write(data.getvalue())


@contextlib.contextmanager
def open_writer(
    file: BinaryIO | gzip.GzipFile,
    path: str,
    data_format: str,
    is_quoted: bool = False,
    has_header: bool = True,
) -> Iterator[TableWriter]:
    """Yields the writer of a table, which it closes after the context, unless that has failed.

    Args:
        file: the open file.
        path: its name, for messages; with the ending .gz the data are compressed.
        data_format: a value of --data_format.
        is_quoted: whether fields of TSV are quoted as in CSV.
        has_header: whether the first line of TSV and CSV has the names of the columns.
    """
    compressed = None
    target = file
    if path.lower().endswith(".gz"):
        compressed = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        target = compressed
    writer = _make_writer(target, path, data_format, is_quoted, has_header)
    yield writer
    writer.close()
    if compressed is not None:
        compressed.close()


def _make_writer(
    file: BinaryIO | gzip.GzipFile,
    path: str,
    data_format: str,
    is_quoted: bool,
    has_header: bool,
) -> TableWriter:
    if data_format == JSON_LINES:
        return _JsonLinesWriter(file, path)
    if data_format == PARQUET:
        return _ParquetWriter(file, path)
    delimiters = {TSV: "\t", CSV: ","}
    return _DelimitedWriter(
        file,
        path,
        delimiter=delimiters[data_format],
        is_quoted=is_quoted or data_format == CSV,
        has_header=has_header,
    )

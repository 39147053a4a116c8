"""The input of official-bert predict as a table: the hook `predict_table`.

In: a table whose name ends in .csv, .tsv, .jsonl or .parquet. Out: the same table with the columns
of the answers. A .tsv whose first line names no column of texts has a request on each line, as in
earlier versions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from absl import logging

from official_bert import catalog
from official_bert.commands.predict import answer_each
from official_bert.commands.predict_mode import (
    STANDARD,
    InputTable,
    PredictMode,
    Window,
    input_name,
)
from official_bert.data.column_roles import Columns, fold_name
from official_bert.data.table_formats import (
    CSV,
    JSON_LINES,
    PARQUET,
    TSV,
    choose_format,
    read_records,
    read_rows,
)
from official_bert.data.tables import Row
from official_bert.extensions.tables.answer_columns import ERROR, choose_names, make_columns
from official_bert.extensions.tables.options import InputTableOptions
from official_bert.extensions.tables.table_writer import TableWriter, open_writer
from official_bert.extensions.tables.text_columns import (
    decide_text_columns,
    known_names,
    read_texts,
)
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.options.fields import format_flag
from official_bert.options.serving import STOP, PredictOptions
from official_bert.serving.predictor import WINDOW_BATCHES

_ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
_STANDARD_INPUT = "/dev/stdin"
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(InputTableOptions)}
Answer = Mapping[str, Any] | InputError


def find_table(options: PredictOptions) -> RequestTable | None:
    """Returns the input as a table; None if each of its lines is a request.

    Args:
        options: the flags of official-bert predict.

    Raises:
        InputError: a flag of tables is given for another input, or with --input_format.
    """
    flags = catalog.options_part(options, InputTableOptions)
    path = options.input_file
    has_ending = path.lower().removesuffix(".gz").endswith(_ENDINGS)
    is_table = flags.data_format is not None or has_ending
    if is_table and options.input_format is None:
        return RequestTable(options, flags)
    for name, value in vars(flags).items():
        if value == _DEFAULTS[name]:
            continue
        remedy = f"leave --input_format={options.input_format} out"
        if not is_table:
            remedy = f"name a file that ends in {', '.join(_ENDINGS)}, or give --data_format"
        flag = format_flag(name, value)
        raise InputError(f"{flag}: is for tables, and {input_name(options)} is none; {remedy}")
    return None


class _Request(NamedTuple):
    """A row of the table.

    Attributes:
        record: the values of the row by column.
        texts: the texts of its request; empty for an invalid one.
        error: why it is invalid.
    """

    record: Mapping[str, Any]
    texts: Sequence[str] = ()
    error: InputError | None = None


class RequestTable(InputTable):
    """A table whose rows are requests."""

    def __init__(self, options: PredictOptions, flags: InputTableOptions):
        """Decides the formats of the input and of the output.

        Args:
            options: the flags of the command.
            flags: those of tables.

        Raises:
            InputError: standard output cannot have the format, or the format ignores a flag.
        """
        self._options = options
        self._flags = flags
        self._path = options.input_file
        if self._path == STANDARD:
            self._path = _STANDARD_INPUT
        self._format = choose_format(self._path, flags.data_format)
        if flags.has_header is False and self._format in (JSON_LINES, PARQUET):
            raise InputError(
                f"--has_header=false: {input_name(options)} is {self._format}, which always names "
                "its fields; leave it out"
            )
        self._output_format = _choose_output_format(options.output_file, self._format)
        self._has_header = flags.has_header is not False
        self._is_quoted = flags.quoting == CSV
        self._num_cut = 0

    def start(self, mode: PredictMode) -> bool:
        """Reads the settings of the training; returns whether the file is a table of requests.

        Args:
            mode: the mode, whose model is loaded.
        """
        self._mode = mode
        settings = mode.predictor.model.record.settings
        if self._flags.has_header is None:
            self._has_header = settings.get("has_header") is not False
        if self._flags.quoting is None:
            self._is_quoted = settings.get("quoting") == CSV
        is_chosen = self._flags.data_format or self._flags.text_columns
        if self._format != TSV or is_chosen or not self._has_header:
            return True
        header = next(iter(read_rows(self._path, TSV, self._is_quoted)), None)
        if header is None or self._names_texts(header.fields):
            return True
        logging.info(
            "%s: Line 1 names no column of texts, so each line is a request; to read a table, give "
            "--text_columns",
            self._path,
        )
        return False

    def _names_texts(self, names: Sequence[str]) -> bool:
        """Returns whether some names have all columns of texts that a request needs."""
        folded = {fold_name(name) for name in names}
        predictor = self._mode.predictor
        required = predictor.columns[: predictor.num_required]
        return all(known_names(predictor, column) & folded for column in required)

    def windows(self) -> Iterator[Window]:
        """Yields the requests of all rows, some at a time."""
        for requests in self._read_windows():
            fields: list[dict[str, Any]] = [{} for _ in requests]
            for request, extra_fields in zip(requests, fields, strict=True):
                if "id" in request.record:
                    extra_fields["id"] = request.record["id"]
            yield Window([request.texts for request in requests], fields)

    def write_answers(self, file: BinaryIO) -> None:
        """Answers all rows, and writes the table with the columns of the answers.

        Args:
            file: the output.
        """
        options = self._options
        progress = Progress("rows", is_updated=options.output_file != STANDARD)
        num_rows = 0
        num_errors = 0
        with open_writer(
            file,
            options.output_file,
            data_format=self._output_format,
            is_quoted=self._is_quoted,
            has_header=self._has_header,
        ) as writer:
            # The first rows that are written name all columns, so that one of them has an answer.
            pending: list[tuple[_Request, Answer]] = []
            has_answer = False
            for requests in self._read_windows():
                answered = self._answer(requests)
                errors = [answer for _, answer in answered if isinstance(answer, InputError)]
                num_rows += len(requests)
                num_errors += len(errors)
                pending += answered
                has_answer = has_answer or len(errors) < len(requests)
                if has_answer:
                    self._write(pending, writer)
                    pending = []
                file.flush()
                progress(num_rows)
            self._write(pending, writer)
        name = input_name(options)
        if not num_rows:
            raise InputError(f"{name}: has no row below the names of the columns; check the file")
        if num_errors:
            logging.warning("%s: %d of %d rows are no requests", name, num_errors, num_rows)
        if self._num_cut:
            logging.warning(
                "%s: the model truncates the texts of %d of %d rows", name, self._num_cut, num_rows
            )

    def _answer(self, requests: Sequence[_Request]) -> list[tuple[_Request, Answer]]:
        """Returns some requests with their answers, or with an error in place of one."""
        answer_all = self._mode.answers
        if self._options.on_error != STOP:
            answer_all = functools.partial(answer_each, answer_all)
        valid = [request.texts for request in requests if request.error is None]
        answers = iter(list(answer_all(valid)))
        return [(request, request.error or next(answers)) for request in requests]

    def _write(self, answered: Sequence[tuple[_Request, Answer]], writer: TableWriter):
        """Writes the rows of requests with the columns of their answers."""
        if not answered:
            return
        added = []
        for _, answer in answered:
            columns: dict[str, Any] = {}
            if not isinstance(answer, InputError):
                columns = make_columns(answer, self._flags.all_probabilities)
            added.append(columns)
        all_columns = dict.fromkeys(itertools.chain.from_iterable(added))
        if self._options.on_error != STOP:
            all_columns[ERROR] = None
            for (_, answer), columns in zip(answered, added, strict=True):
                columns[ERROR] = str(answer) if isinstance(answer, InputError) else None
        first_request, _ = answered[0]
        names = choose_names(all_columns, list(first_request.record), writer.path)
        records = []
        for (request, _), columns in zip(answered, added, strict=True):
            values = {names[column]: columns.get(column) for column in all_columns}
            records.append({**request.record, **values})
        writer.write(records)

    def _read_windows(self) -> Iterator[list[_Request]]:
        rows = iter(self._read_requests())
        window_size = self._options.batch_size * WINDOW_BATCHES
        while window := list(itertools.islice(rows, window_size)):
            yield window

    def _read_requests(self) -> Iterator[_Request]:
        """Yields the rows; without --on_error=report, an invalid one raises InputError."""
        names: list[str] = []
        columns: Columns | None = None
        for row, record in read_records(
            self._path,
            "input_file",
            self._format,
            has_header=self._has_header,
            is_quoted=self._is_quoted,
        ):
            if columns is None:
                names = list(record)
                columns = self._decide_columns(names)
            if list(record) != names:
                raise row.error("has other columns than the first file; give files with equal ones")
            try:
                texts = read_texts(self._mode.predictor, row, record, columns)
                self._mode.check(texts)
            except InputError as error:
                if self._options.on_error == STOP:
                    raise self._make_row_error(row, error) from None
                yield _Request(record, error=error)
                continue
            self._num_cut += self._mode.predictor.is_cut(texts)
            yield _Request(record, texts)

    def _make_row_error(self, row: Row, error: InputError) -> InputError:
        """Returns the error that ends the job, for an invalid row."""
        sentence = str(error).removeprefix(f"{row.where}: ")
        remedy = "correct it"
        if self._mode.writes_answers:
            remedy += ", or give --on_error=report to continue"
        return InputError(f"{row.where}: {sentence}; {remedy}")

    def _decide_columns(self, names: list[str]) -> Columns:
        has_names = self._has_header or self._format in (JSON_LINES, PARQUET)
        return decide_text_columns(
            self._mode.predictor,
            input_name(self._options),
            names,
            has_names=has_names,
            text_columns=self._flags.text_columns,
        )


def _choose_output_format(output_file: str, input_format: str) -> str:
    """Returns the format of the output: that of its ending, or else that of the input."""
    if output_file == STANDARD and input_format == PARQUET:
        raise InputError("--output_file=-: Parquet is not for standard output; name a file")
    try:
        return choose_format(output_file)
    except InputError:  # The name ends in something else.
        return input_format

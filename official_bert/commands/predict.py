"""Answers lines of text: the runner of official-bert predict.

In: a model, and lines from a file or a pipe. Out: a JSON object for each line, in order, or the
file of a mode (predict_mode.py). Available lines are answered at once: a line that is typed at a
terminal gets its answer, and a long file is answered in batches of similar length.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from absl import logging

from official_bert import catalog
from official_bert.commands.predict_mode import (
    InputTable,
    PredictMode,
    Window,
    input_name,
)
from official_bert.data.column_roles import fold_name
from official_bert.io import files, operating_system, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.options.serving import JSON, STANDARD, STOP, PredictOptions
from official_bert.serving.predictor import WINDOW_BATCHES, Predictor, setting_fields
from official_bert.training.distribution import log_devices

# Further names of columns with texts, which a table may have in its first line.
_TEXT_NAMES = ("text", "sentence", "sentence1", "sentence2")
_BYTES_AT_ONCE = 1 << 16  # the capacity of a pipe


def run(options: PredictOptions) -> None:
    """Answers every line of the input.

    Args:
        options: the flags of the command.

    Raises:
        InputError: the model or a file cannot be used, or a line is not a valid request.
    """
    setting_names = {field.name for field in setting_fields()}
    settings = {name: value for name, value in vars(options).items() if name in setting_names}
    mode = _choose_mode(options)
    _check_files(options, mode)
    table = _find_table(options)
    with contextlib.ExitStack() as stack:
        # Open the input before the model is loaded, so that a wrong path ends the job at once.
        if options.input_file == STANDARD:
            lines_in = sys.stdin.buffer
        else:
            lines_in = stack.enter_context(files.open_file(options.input_file, "rb"))
        predictor = Predictor(settings.pop("model"), **settings)
        log_devices()
        mode.start(predictor)
        if table is not None and not table.start(mode):
            table = None
        if not mode.writes_answers:
            mode.consume(_read_windows(lines_in, mode) if table is None else table.windows())
            mode.finish()
            return

        # Write an answer for each line or row.
        if options.output_file == STANDARD:
            lines_out = stack.enter_context(_open_standard_output())
        else:
            lines_out = stack.enter_context(writing.replacing(options.output_file, "wb"))
        if table is None:
            _answer_lines(lines_in, lines_out, mode)
        else:
            table.write_answers(lines_out)
        mode.finish()
    if options.output_file != STANDARD:
        logging.info("Wrote %s", options.output_file)


def _choose_mode(options: PredictOptions) -> PredictMode:
    """Returns the mode that the flags choose; raises InputError for two modes."""
    possible_modes = [make_mode(options) for make_mode in catalog.hooks("predict_mode")]
    modes = [mode for mode in possible_modes if mode]
    if len(modes) > 1:
        raise InputError(
            f"{modes[1].flag}: does not go with {modes[0].flag}; leave one of them out"
        )
    return modes[0] if modes else PredictMode(options)


def _find_table(options: PredictOptions) -> InputTable | None:
    """Returns the input as a table of an extension; None if each line is a request."""
    tables = (make_table(options) for make_table in catalog.hooks("predict_table"))
    return next((table for table in tables if table is not None), None)


def read_available_lines(file: BinaryIO, max_lines: int) -> Iterator[list[bytes]]:
    """Reads as many lines at a time as are available without waiting.

    Args:
        file: the file. A pipe or a terminal must not have been read before.
        max_lines: the maximum number of lines at a time.

    Yields:
        Some lines, without their ends.
    """
    lines: list[bytes] = []
    parts: list[bytes] = []  # of the line whose end has not been read
    for data in _read_chunks(file):
        first, *others = data.split(b"\n")
        parts.append(first)
        if others:
            lines.append(b"".join(parts))
            *complete, last = others
            lines += complete
            parts = [last]
        while len(lines) >= max_lines:
            yield lines[:max_lines]
            del lines[:max_lines]
        if lines and not _has_more(file):
            yield lines
            lines = []
    last_line = b"".join(parts)
    if last_line:
        lines.append(last_line)
    if lines:
        yield lines


Requests = Sequence[Sequence[str]]


def warn_about_other_format(
    first_line: bytes, columns: Sequence[str], options: PredictOptions
) -> None:
    """Warns about an input that looks like JSON, CSV or a table with a header; its lines are texts.

    The lines of a log may look so on purpose.

    Args:
        first_line: the first line of the input, in UTF-8.
        columns: the names of the texts of a request.
        options: the flags of the command. With --input_format=json nothing is checked.
    """
    if options.input_format == JSON:
        return
    name = input_name(options)
    if name.lower().endswith(".csv"):
        logging.warning(
            "%s: each line is read as a text, with its quotes; leave --input_format out to read a "
            "table",
            name,
        )
    if _is_json_object(first_line):
        logging.warning(
            "%s: line 1 is a JSON object and is read as a text; --input_format=json reads its "
            "fields",
            name,
        )
    fields = first_line.decode("utf-8-sig", "replace").split("\t")
    if {fold_name(field) for field in fields} <= {*columns, *_TEXT_NAMES}:
        logging.warning(
            "%s: line 1 is read as a text and may be the names of columns; leave it out", name
        )


def _is_json_object(line: bytes) -> bool:
    if not line.lstrip(b"\xef\xbb\xbf ").startswith(b"{"):
        return False
    try:
        reading.parse_json(line, has_lines=False)
    except InputError:
        return False
    return True


class _Lines(NamedTuple):
    """The requests in some lines of the input.

    Attributes:
        requests: the texts of each valid request, in order.
        errors: row of a line -> its error, for the lines that are no valid requests.
        extra_fields: for each line, the fields of its answer that do not come from the model.
    """

    requests: list[Sequence[str]]
    errors: dict[int, InputError]
    extra_fields: list[dict[str, Any]]


def _read_windows(lines_in: BinaryIO, mode: PredictMode) -> Iterator[Window]:
    """Yields the requests of all lines, some at a time; raises InputError for an invalid line."""
    options = mode.options
    progress = Progress("lines")
    num_lines = 0
    for lines in read_available_lines(lines_in, options.batch_size * WINDOW_BATCHES):
        if not num_lines:
            warn_about_other_format(lines[0], mode.predictor.columns, options)
        parsed = _parse_lines(lines, num_lines, mode)
        for row, error in parsed.errors.items():
            raise _make_line_error(mode, num_lines + row, error)
        yield Window(parsed.requests, parsed.extra_fields)
        num_lines += len(lines)
        progress(num_lines)


def _parse_lines(lines: Sequence[bytes], num_before: int, mode: PredictMode) -> _Lines:
    """Returns the requests in some lines, which `num_before` lines precede.

    Without --on_error=report it stops at the first error.
    """
    parsed = _Lines([], {}, [{} for _ in lines])
    for row, line in enumerate(lines):
        try:
            texts = _parse_line(line, num_before + row, mode, parsed.extra_fields[row])
            parsed.requests.append(texts)
        except InputError as error:
            parsed.errors[row] = error
            if mode.options.on_error == STOP:
                break
    return parsed


def _parse_line(
    line: bytes, index: int, mode: PredictMode, extra_fields: dict[str, Any]
) -> Sequence[str]:
    """Returns the texts of the request in a line.

    Args:
        line: the line without its end.
        index: its index in the input, from 0.
        mode: the mode, which checks the request.
        extra_fields: a dictionary to which the fields are added that the answer gets in addition,
            also if the request is invalid.

    Raises:
        InputError: the line is not a valid request.
    """
    predictor = mode.predictor
    text = _decode(line, is_first=index == 0)
    if mode.options.input_format == JSON:
        fields = _parse_object(text, predictor.columns)
        if "id" in fields:
            extra_fields["id"] = fields["id"]
        _warn_about_unread_fields(fields, index + 1, mode)
        texts = read_texts(fields, predictor)
    else:
        texts = text.split("\t")
    mode.check(texts)
    if predictor.is_cut(texts):
        extra_fields["truncated"] = True
    return texts


def _warn_about_unread_fields(request: dict, line_number: int, mode: PredictMode):
    """Warns about the first request with fields that neither the model nor its answer has."""
    columns = mode.predictor.columns
    request_fields = (*columns, "id")
    names = [name for name in request if name != "id" and fold_name(name) not in columns]
    if names and not mode.has_warned_about_fields:
        mode.has_warned_about_fields = True
        logging.warning(
            "%s: line %d: Ignoring the fields %s, here and in later lines; a request has %s",
            input_name(mode.options),
            line_number,
            ", ".join(names),
            ", ".join(request_fields),
        )


def _make_line_error(mode: PredictMode, index: int, error: InputError) -> InputError:
    """Returns the error that ends the job, for a line with an index from 0."""
    alternative = ", or give --on_error=report to continue" if mode.writes_answers else ""
    where = f"{input_name(mode.options)}: line {index + 1}"
    return InputError(f"{where}: {error}; correct it{alternative}")


def _answer_lines(lines_in: BinaryIO, lines_out: BinaryIO, mode: PredictMode):
    """Writes an answer or, with --on_error=report, an error for each line."""
    options = mode.options
    is_conversation = STANDARD in (options.input_file, options.output_file)
    progress = Progress("lines", is_updated=not is_conversation)
    stops = options.on_error == STOP
    answer_all = mode.answers if stops else functools.partial(answer_each, mode.answers)
    num_lines = 0
    num_errors = 0
    for lines in read_available_lines(lines_in, options.batch_size * WINDOW_BATCHES):
        if not num_lines:
            warn_about_other_format(lines[0], mode.predictor.columns, options)
        parsed = _parse_lines(lines, num_lines, mode)
        answers = answer_all(parsed.requests)
        for row in range(len(parsed.requests) + len(parsed.errors)):
            error = parsed.errors.get(row)
            if error and stops:
                lines_out.flush()
                raise _make_line_error(mode, num_lines + row, error)
            answer = error or next(answers)
            extra_fields = parsed.extra_fields[row]
            try:
                line = _encode_answer(answer, extra_fields)
            except InputError as error:
                if stops:
                    raise
                parsed.errors[row] = error
                line = _encode_answer(error, extra_fields)
            lines_out.write(line)
        lines_out.flush()
        num_lines += len(lines)
        num_errors += len(parsed.errors)
        progress(num_lines)
    if num_errors:
        logging.warning(
            "%s: %d of %d lines are no requests", input_name(options), num_errors, num_lines
        )


def _decode(line: bytes, is_first: bool) -> str:
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start + 1} is no UTF-8") from None
    return text.removeprefix("\ufeff") if is_first else text


def _parse_object(line: str, columns: Sequence[str]) -> dict:
    content = reading.parse_json(line, has_lines=False, object_pairs_hook=reading.distinct_fields)
    if not isinstance(content, dict):
        raise InputError(f"no JSON object; give one with the fields {', '.join(columns)}")
    try:
        _encode_json(content.get("id"))
    except ValueError:
        raise InputError("the field id has NaN, Infinity or half of a surrogate pair") from None
    return content


def _group_by_column(fields: dict, columns: Sequence[str]) -> dict:
    """Returns the texts of a request by column; the case of a name does not matter."""
    column_texts = {}
    for name, value in fields.items():
        column = fold_name(name)
        if column in column_texts and column in columns:
            raise InputError(f"two fields are called {column}, in any case; keep one")
        column_texts[column] = value
    if "text_b" in column_texts and columns == ("text_a",) and column_texts["text_b"] is not None:
        raise InputError("the model reads text_a alone; leave text_b out")
    return column_texts


def read_texts(fields: dict, predictor: Predictor) -> list[str]:
    """Returns the texts of a request in the order of the columns.

    Args:
        fields: the fields of a request by name, in any case. Other fields are not read.
        predictor: the model, which knows its columns, and which of them a request must have.

    Raises:
        InputError: a required field is missing or a field is not text, two fields have the same
            column, or there is a second text for a model of single texts.
    """
    column_texts = _group_by_column(fields, predictor.columns)
    required = predictor.columns[: predictor.num_required]
    missing = [name for name in required if column_texts.get(name) is None]
    if missing:
        raise InputError(f"the fields {', '.join(missing)} are missing")
    texts = []
    for name in predictor.columns:
        text = column_texts.get(name)
        if text is None:
            continue
        if not isinstance(text, str):
            raise InputError(f"the field {name} is no text")
        texts.append(text)
    return texts


def answer_each(answer_all: Callable, requests: Requests) -> Iterator[dict | InputError]:
    """Yields an answer or an error for each request.

    If the model refuses some of the requests, it gets each of them alone.

    Args:
        answer_all: a function from requests to their answers, which may raise InputError.
        requests: the texts of each request.
    """
    try:
        yield from list(answer_all(requests))
        return
    except InputError as error:
        if len(requests) == 1:
            yield error
            return
    for request in requests:
        yield from answer_each(answer_all, [request])


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _encode_answer(answer: dict | InputError, extra_fields: dict) -> bytes:
    """Returns the line of an answer with its further fields. An error only gets the id."""
    if isinstance(answer, InputError):
        id_field = {name: value for name, value in extra_fields.items() if name == "id"}
        fields = id_field | {"error": str(answer)}
    else:
        fields = extra_fields | answer
    try:
        return _encode_json(fields) + b"\n"
    except ValueError:
        raise InputError(
            "the model gives numbers that are not finite; its checkpoint is corrupt, or its "
            "training diverged"
        ) from None


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yields the data of a file; a chunk of a pipe or a terminal is the data that is available."""
    # A remote file lacks read1. It never waits for input.
    read = getattr(file, "read1", file.read)
    while True:
        try:
            data = read(_BYTES_AT_ONCE)
        except OSError as error:  # such as that of a folder as standard input
            raise InputError(
                f"the input cannot be read ({error.strerror}); give another --input_file"
            ) from error
        if not data:
            return
        yield data


def _has_more(file: BinaryIO) -> bool:
    """Returns whether the next read returns without waiting."""
    if not hasattr(file, "fileno"):
        return True
    return operating_system.has_input(file.fileno())


def _check_files(options: PredictOptions, mode: PredictMode):
    """Checks that the standard streams are open, and that the output replaces no file in use."""
    for path, flag, stream in (
        (options.input_file, "input_file", sys.__stdin__),
        (options.output_file, "output_file", sys.__stdout__),
    ):
        if path == STANDARD and stream is None:
            name = flag.removesuffix("_file")
            raise InputError(f"--{flag}=-: standard {name} is closed; name a file")
    if mode.output_file == STANDARD:
        return
    input_file = "/dev/stdin" if options.input_file == STANDARD else options.input_file
    files_in_use = {
        **mode.files_read,
        "input_file": [input_file],
        "model": list_model_files(options.model),
    }
    writing.keep_apart([mode.output_file], files_in_use)


def list_model_files(model: str) -> list[str]:
    """Lists the files in the folder of a model, which no output may replace.

    Args:
        model: the folder.
    """
    paths: list[str] = []
    for pattern in ("*", "*/*", "*/*/*"):
        paths += files.matching(pattern, model)
    return [path for path in paths if not files.is_folder(path)]


@contextlib.contextmanager
def _open_standard_output() -> Iterator[BinaryIO]:
    """Yields standard output. If its reader closes the pipe, as `| head` does, the job ends
    quietly.
    """
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        # Data that is not yet flushed goes to another file, so that Python reports no error at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            hint = writing.find_remedy(error) or "name a file with --output_file"
            raise InputError(
                f"standard output: cannot be written ({error.strerror}); {hint}"
            ) from error

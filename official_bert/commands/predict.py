"""Answers lines of text: the runner of official-bert predict.

In: an exported model, and lines from a file or a pipe. Out: a JSON object for each line, in order,
or the file of a mode (predict_mode.py). Available lines are answered at once: a line typed at a
terminal gets its answer, a long file is answered in batches of similar length.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from absl import logging

from official_bert import catalog
from official_bert.commands.predict_mode import STANDARD, PredictMode, Window, input_name
from official_bert.data.column_roles import fold_name
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.options.serving import JSON, STOP, PredictOptions
from official_bert.serving.predictor import WINDOW_BATCHES, Predictor, setting_fields
from official_bert.training import cpu_heap
from official_bert.training.distribution import log_devices

# Of columns of tables, beside those of the requests.
_TEXT_NAMES = ("text", "sentence", "sentence1", "sentence2")
_BYTES_AT_ONCE = 1 << 16  # the capacity of a pipe


def run(options: PredictOptions):
    """Answers every line of the input."""
    names = {field.name for field in setting_fields()}
    settings = {name: value for name, value in vars(options).items() if name in names}
    mode = _chosen_mode(options)
    _check_files(options, mode)
    with contextlib.ExitStack() as stack:
        if options.input_file == STANDARD:
            lines_in = sys.stdin.buffer
        else:
            lines_in = stack.enter_context(files.open_file(options.input_file, "rb"))
        cpu_heap.tune()
        predictor = Predictor(settings.pop("model"), **settings)
        log_devices()
        mode.start(predictor)
        if not mode.writes_answers:
            mode.consume(_windows(lines_in, mode))
            mode.finish()
            return
        if options.output_file == STANDARD:
            lines_out = stack.enter_context(_standard_output())
        else:
            lines_out = stack.enter_context(writing.replacing(options.output_file, "wb"))
        _answer_lines(lines_in, lines_out, mode)
        mode.finish()
    if options.output_file != STANDARD:
        logging.info("Wrote %s", options.output_file)


def _chosen_mode(options: PredictOptions) -> PredictMode:
    """Returns what the flags choose to do with the input; raises InputError for two modes at once."""
    modes = [mode for make in catalog.hooks("predict_mode") if (mode := make(options))]
    if len(modes) > 1:
        raise InputError(
            f"{modes[1].flag}: does not go with {modes[0].flag}; leave one of them out"
        )
    return modes[0] if modes else PredictMode(options)


def read_available_lines(file: BinaryIO, most: int) -> Iterator[list[bytes]]:
    """Yields the lines of a file without their ends, as many at a time as are available without
    waiting.

    A pipe or a terminal must not have been read before.
    """
    lines, unfinished = [], []
    for data in _reads(file):
        first, *others = data.split(b"\n")
        unfinished.append(first)
        if others:
            lines.append(b"".join(unfinished))
            *complete, last = others
            lines += complete
            unfinished = [last]
        while len(lines) >= most:
            yield lines[:most]
            del lines[:most]
        if lines and not _has_more(file):
            yield lines
            lines = []
    last_line = b"".join(unfinished)
    if lines or last_line:
        yield lines + ([last_line] if last_line else [])


Requests = Sequence[Sequence[str]]


def _warn_of_other_format(first_line: bytes, columns: Sequence[str], options: PredictOptions):
    """Warns of JSON lines, CSV and the names of columns that are read as texts, as those of a
    log may be on purpose.
    """
    if options.input_format == JSON:
        return
    name = input_name(options)
    if name.lower().endswith(".csv"):
        logging.warning(
            "%s: each line is read as a text, with its quotes; write texts or JSON lines", name
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


def _windows(lines_in: BinaryIO, mode: PredictMode) -> Iterator[Window]:
    """Yields the requests of all lines, some at a time; raises InputError for a line that is none."""
    options, progress, num_lines = mode.options, Progress("lines"), 0
    for lines in read_available_lines(lines_in, options.batch_size * WINDOW_BATCHES):
        if not num_lines:
            _warn_of_other_format(lines[0], mode.predictor.columns, options)
        requests, errors, further = _parsed(lines, num_lines, mode)
        for row, error in errors.items():
            raise _stopped(mode, num_lines + row, error)
        yield Window(requests, further)
        num_lines += len(lines)
        progress(num_lines)


def _parsed(
    lines: Sequence[bytes], num_before: int, mode: PredictMode
) -> tuple[list[Sequence[str]], dict[int, InputError], list[dict]]:
    """Returns the requests of lines, the errors of others by row, and the fields of answers that
    are not the model's.

    It stops at the first error unless --on_error=report; `num_before` lines came before.
    """
    options, predictor = mode.options, mode.predictor
    requests, errors, further = [], {}, [{} for _ in lines]
    is_json = options.input_format == JSON
    for row, line in enumerate(lines):
        try:
            line = _decoded(line, is_first=not num_before and not row)
            if is_json:
                fields = _json_object(line, predictor.columns)
                further[row] |= {"id": fields["id"]} if "id" in fields else {}
                _warn_of_unread_fields(fields, num_before + row + 1, mode)
            texts = _read_texts(fields, predictor) if is_json else line.split("\t")
            mode.check(texts)
            further[row] |= {"truncated": True} if predictor.is_cut(texts) else {}
            requests.append(texts)
        except InputError as error:
            errors[row] = error
            if options.on_error == STOP:
                break
    return requests, errors, further


def _warn_of_unread_fields(request: dict, line_number: int, mode: PredictMode):
    """Warns of the first request with fields that neither the model nor its answer has."""
    request_fields = (*mode.predictor.columns, "id")
    names = [
        name for name in request if name != "id" and fold_name(name) not in request_fields[:-1]
    ]
    if names and not mode.has_warned_of_fields:
        mode.has_warned_of_fields = True
        logging.warning(
            "%s: line %d: Ignoring the fields %s, here and in later lines; a request has %s",
            input_name(mode.options),
            line_number,
            ", ".join(names),
            ", ".join(request_fields),
        )


def _stopped(mode: PredictMode, row: int, error: InputError) -> InputError:
    """Returns the error of a line, from 0, that ends the job."""
    alternative = ", or give --on_error=report to go on" if mode.writes_answers else ""
    where = f"{input_name(mode.options)}: line {row + 1}"
    return InputError(f"{where}: {error}; correct it{alternative}")


def _answer_lines(lines_in: BinaryIO, lines_out: BinaryIO, mode: PredictMode):
    options = mode.options
    is_conversation = STANDARD in (options.input_file, options.output_file)
    progress, num_lines, num_bad = Progress("lines", is_updated=not is_conversation), 0, 0
    stops = options.on_error == STOP
    answer_all = mode.answers if stops else functools.partial(_answers, mode.answers)
    for lines in read_available_lines(lines_in, options.batch_size * WINDOW_BATCHES):
        if not num_lines:
            _warn_of_other_format(lines[0], mode.predictor.columns, options)
        requests, errors, further = _parsed(lines, num_lines, mode)
        answers = answer_all(requests)
        for row in range(len(requests) + len(errors)):
            if row in errors and stops:
                lines_out.flush()
                raise _stopped(mode, num_lines + row, errors[row])
            answer = errors[row] if row in errors else next(answers)
            try:
                line = _json_line(answer, further[row])
            except InputError as error:
                if stops:
                    raise
                errors[row], line = error, _json_line(error, further[row])
            lines_out.write(line)
        lines_out.flush()
        num_lines += len(lines)
        num_bad += len(errors)
        progress(num_lines)
    if num_bad:
        logging.warning(
            "%s: %d of %d lines are no requests", input_name(options), num_bad, num_lines
        )


def _decoded(line: bytes, is_first: bool) -> str:
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start + 1} is no UTF-8") from None
    return text.removeprefix("\ufeff") if is_first else text


def _json_object(line: str, columns: Sequence[str]) -> dict:
    content = reading.parse_json(line, has_lines=False, object_pairs_hook=reading.distinct_fields)
    if not isinstance(content, dict):
        raise InputError(f"no JSON object; give one with the fields {', '.join(columns)}")
    try:
        _encoded(content.get("id"))
    except ValueError:
        raise InputError("the field id has NaN, Infinity or half of a surrogate pair") from None
    return content


def _group_by_column(fields: dict, columns: Sequence[str]) -> dict:
    """Returns the texts of a request by column; names match without regard to case, as those of
    tables do.
    """
    column_texts = {}
    for name, value in fields.items():
        column = fold_name(name)
        if column in column_texts and column in columns:
            raise InputError(f"two fields are called {column}, in any case; keep one")
        column_texts[column] = value
    if "text_b" in column_texts and columns == ("text_a",) and column_texts["text_b"] is not None:
        raise InputError("the model reads text_a alone; leave text_b out")
    return column_texts


def _read_texts(fields: dict, predictor: Predictor) -> list[str]:
    column_texts = _group_by_column(fields, predictor.columns)
    missing = [
        name
        for name in predictor.columns[: predictor.num_required]
        if column_texts.get(name) is None
    ]
    if missing:
        raise InputError(f"the fields {', '.join(missing)} are missing")
    texts = {
        name: column_texts[name] for name in predictor.columns if column_texts.get(name) is not None
    }
    if others := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise InputError(f"the field {others[0]} is no text")
    return list(texts.values())


def _answers(answers_to: Callable, requests: Requests) -> Iterator[dict | InputError]:
    """Yields an answer or an error for each request: where the model refuses some, each is asked
    for alone.
    """
    try:
        yield from list(answers_to(requests))
        return
    except InputError as error:
        if len(requests) == 1:
            yield error
            return
    for request in requests:
        yield from _answers(answers_to, [request])


def _encoded(value) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _json_line(answer: dict | InputError, further: dict) -> bytes:
    """Returns the line of an answer, with its further fields, of which `truncated` is only of a
    model's answer.
    """
    if isinstance(answer, InputError):
        answer, further = (
            {"error": str(answer)},
            {name: further[name] for name in further if name == "id"},
        )
    try:
        return _encoded(further | answer) + b"\n"
    except ValueError:
        raise InputError(
            "the model gives numbers that are not finite; its checkpoint is corrupt, or its "
            "training diverged"
        ) from None


def _reads(file: BinaryIO) -> Iterator[bytes]:
    """Yields the data of `file` in chunks; a chunk of a pipe or a terminal is the data that is
    available.
    """
    read = getattr(file, "read1", file.read)  # a remote file lacks read1, and never waits for input
    while True:
        try:
            data = read(_BYTES_AT_ONCE)
        except OSError as error:  # a folder as standard input, for instance
            raise InputError(
                f"the input cannot be read ({error.strerror}); give another --input_file"
            ) from error
        if not data:
            return
        yield data


def _has_more(file: BinaryIO) -> bool:
    """Tells whether the next read returns without waiting."""
    if not hasattr(file, "fileno"):
        return True
    return bool(select.select([file.fileno()], [], [], 0)[0])


def _check_files(options: PredictOptions, mode: PredictMode):
    """Checks that the standard streams in use are open, and that the output is no input and no
    file of the model.
    """
    for path, flag, stream in (
        (options.input_file, "input_file", sys.__stdin__),
        (options.output_file, "output_file", sys.__stdout__),
    ):
        if path == STANDARD and stream is None:
            name = flag.removesuffix("_file")
            raise InputError(f"--{flag}=-: standard {name} is closed; name a file")
    if mode.output_file == STANDARD:
        return
    writing.keep_apart(
        [mode.output_file],
        {
            **mode.files_read,
            "input_file": ["/dev/stdin" if options.input_file == STANDARD else options.input_file],
            "model": list_model_files(options.model),
        },
    )


def list_model_files(model: str) -> list[str]:
    """Returns the files in the folder of a model, which no output may replace."""
    paths = [path for depth in ("*", "*/*", "*/*/*") for path in files.matching(depth, model)]
    return [path for path in paths if not files.is_folder(path)]


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Yields standard output; the job ends quietly when its reader closes the pipe, as after `|
    head`.
    """
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        # Redirects data that is not yet flushed, so that Python reports no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            remedy = writing.remedy_of(error) or "name a file with --output_file"
            raise InputError(
                f"standard output: cannot be written ({error.strerror}); {remedy}"
            ) from error

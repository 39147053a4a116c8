"""Defines what official-bert predict does with the lines of its input: `PredictMode`.

By default the model answers every line. An extension with a flag of its own, such as --score, does
something else: its hook `predict_mode` returns an instance of a subclass.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, NamedTuple

from official_bert.io.errors import InputError
from official_bert.options.serving import STANDARD, STOP, PredictOptions
from official_bert.serving.predictor import Predictor


class Window(NamedTuple):
    """The requests of a few lines.

    Attributes:
        requests: the texts of each line.
        extra_fields: fields that the answer to each line gets in addition to the mode's: `id` and
            `truncated`, if the line has them.
    """

    requests: list[Sequence[str]]
    extra_fields: list[dict[str, Any]]


class PredictMode:
    """Answers every line by the model.

    The command makes a mode before it opens any file, so that the mode's `__init__` can refuse
    conflicting flags. It then calls `start` and, for some lines at a time, `check` and `answers`.
    With `writes_answers = False` it calls `consume` instead. In the end it calls `finish`.

    Attributes:
        flag: the flag that chooses the mode, with its hyphens. Two modes are refused.
        writes_answers: whether the mode answers lines. Otherwise it reads the whole input and
            writes a file of its own, and an invalid line ends the job.
        options: the flags of the command.
        predictor: the model, after `start`.
        has_warned_about_fields: whether a warning has named the ignored fields of a request.
    """

    flag: ClassVar[str] = ""
    writes_answers: ClassVar[bool] = True

    predictor: Predictor
    has_warned_about_fields = False

    def __init__(self, options: PredictOptions):
        """Makes a mode.

        Args:
            options: the flags of the command.

        Raises:
            InputError: two flags conflict.
        """
        self.options = options

    @property
    def output_file(self) -> str:
        """The file that is written; "-" is standard output."""
        return self.options.output_file

    @property
    def files_read(self) -> Mapping[str, list[str]]:
        """The files that the mode reads, by flag; the output must not replace them."""
        return {}

    def start(self, predictor: Predictor) -> None:
        """Prepares the answers.

        Args:
            predictor: the model.

        Raises:
            InputError: the model cannot give such answers.
        """
        self.predictor = predictor

    def check(self, texts: Sequence[str]) -> None:
        """Checks a request.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: the model cannot answer it.
        """
        self.predictor.check(texts)

    def answers(self, requests: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Answers some requests, all of which have passed `check`.

        Args:
            requests: the texts of each request.

        Yields:
            The answer to each request.
        """
        return self.predictor.answers_to_checked(requests)

    def consume(self, windows: Iterable[Window]) -> None:
        """Reads the requests of all lines and writes the mode's file.

        Args:
            windows: the requests, some at a time.
        """
        raise NotImplementedError

    def finish(self) -> None:
        """Logs a summary after the last answer."""


class FileMode(PredictMode):
    """A mode that reads the whole input and writes one file of its own."""

    writes_answers = False

    def __init__(self, options: PredictOptions, path: str):
        """Makes a mode.

        Args:
            options: the flags of the command.
            path: the file to write, the value of the mode's flag.

        Raises:
            InputError: a flag of the answers is there.
        """
        super().__init__(options)
        self._path = path
        if options.output_file != STANDARD:
            raise InputError(
                f"--output_file: does not go with {self.flag}, the one file that is written; leave "
                "it out"
            )
        if options.on_error != STOP:
            raise InputError(
                f"--on_error=report: does not go with {self.flag}, which has no place for errors; "
                "leave it out"
            )

    @property
    def output_file(self) -> str:
        """The file that is written."""
        return self._path


class InputTable(abc.ABC):
    """An input file that an extension reads as a table, and writes with the answers.

    The hook `predict_table` returns one. The command calls `start` when the model is loaded, then
    `windows` or `write_answers`.
    """

    @abc.abstractmethod
    def start(self, mode: PredictMode) -> bool:
        """Reads the names of the columns.

        Args:
            mode: the mode, whose model is loaded.

        Returns:
            Whether the file is a table of requests. Otherwise, each line is a request.

        Raises:
            InputError: the columns of a request are missing.
        """

    @abc.abstractmethod
    def windows(self) -> Iterator[Window]:
        """Yields the requests of all rows, some at a time.

        Raises:
            InputError: a row is not a valid request.
        """

    @abc.abstractmethod
    def write_answers(self, file: BinaryIO) -> None:
        """Answers the rows by the mode, and writes the table with the answers.

        Args:
            file: the output.

        Raises:
            InputError: a row is not a valid request, or the output cannot have the answer.
        """


def input_name(options: PredictOptions) -> str:
    """Returns the name of the input for messages.

    Args:
        options: the flags of the command.
    """
    return "standard input" if options.input_file == STANDARD else options.input_file

"""Reads a text file whose lines are texts or pairs of texts, and logs the first example of a set."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.io import reading
from official_bert.io.errors import InputError

_SHOWN_TOKENS = 20


def log_example(tokens: Sequence[str], is_first: bool, details: Callable[[], Iterable[str]]):
    """Logs an example."""
    if logging.level_debug():
        logging.debug("*** Example ***")
        for line in details():
            logging.debug("%s", line)
    elif is_first:
        more = " ..." if len(tokens) > _SHOWN_TOKENS else ""
        logging.info("First example: %s%s", " ".join(tokens[:_SHOWN_TOKENS]), more)


_match_pair = re.compile(r"(.*) \|\|\| (.*)").fullmatch  # greedy: splits at the last separator


class Sentence(NamedTuple):
    """A line of the file.

    Attributes:
        line_index: the index of the line, from 0.
        text_a: the text, or the first text of a pair.
        text_b: the second text of a pair, or None.
    """

    line_index: int
    text_a: str
    text_b: str | None


def read_sentences(path: str) -> Iterator[Sentence]:
    """Yields the examples of a file; a blank line is a text without words.

    Raises:
        InputError: the file does not exist or is empty.
    """
    line_index = -1
    for line_index, line in enumerate(reading.read_lines(path)):
        text = line.strip()
        pair = _match_pair(text)
        yield Sentence(line_index, *(pair.groups() if pair else (text, None)))
    if line_index < 0:
        raise InputError(f"{path}: is empty; give it one example a line")

"""Reads the examples of feature extraction: each line of a text file is one text or a pair of texts."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from official_bert import reading
from official_bert.errors import InputError

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

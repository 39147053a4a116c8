"""Examples of feature extraction: lines of a text file, each one text or a pair."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from official_bert import files
from official_bert.errors import InputError

_match_pair = re.compile(r"(.*) \|\|\| (.*)").fullmatch  # greedy: at the last bars


class Sentence(NamedTuple):
    """A line of the file.

    Attributes:
        line_index: number of the line, from 0.
        text_a: the text, or the first of a pair.
        text_b: the second, or None.
    """

    line_index: int
    text_a: str
    text_b: str | None


def read_sentences(path: str) -> Iterator[Sentence]:
    """Reads the lines one by one; a blank line is a text without words.

    Raises:
        InputError: no such file, or a file without a line.
    """
    line_index = -1
    for line_index, line in enumerate(files.read_lines(path)):
        text = line.strip()
        pair = _match_pair(text)
        yield Sentence(line_index, *(pair.groups() if pair else (text, None)))
    if line_index < 0:
        raise InputError(f"{path}: is empty; give it one example a line")

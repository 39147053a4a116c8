"""Distributes the documents of a corpus over text files, one for each shard, without loading the corpus.

In: text files with one sentence on each line and a blank line between documents. Out: such files, too; document k of
the corpus is whole in file k mod n, after the earlier documents of that file. For processes that read the files apart
there are the numbers of the documents instead.
"""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from official_bert.io import files, reading, writing

_CHARACTERS_HELD = 1 << 24


def distribute(
    input_files: Sequence[str],
    paths: Sequence[str],
    on_progress: Callable[[int], None] = lambda documents: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> int:
    """Writes the files of all shards and returns the number of documents.

    As in the original, a document goes on across the end of a file: only a blank line ends it.

    Raises:
        InputError: a file cannot be read, or the disk is full.
    """
    held = collections.defaultdict(list)  # lines by path: hundreds of files would be too many to keep open
    num_held, num_documents, in_document = 0, 0, False
    lines = held[paths[0]]
    for name in input_files:
        for line in read_lines(name):
            line = line.strip()
            if not line:
                in_document = False
                continue
            if not in_document:
                if num_held >= _CHARACTERS_HELD:
                    _append(held)
                    num_held = 0
                    on_progress(num_documents)
                lines = held[paths[num_documents % len(paths)]]
                lines.append("")  # the end of the document before
                num_documents += 1
                in_document = True
            lines.append(line)
            num_held += len(line) + 1
            if num_held >= 2 * _CHARACTERS_HELD:  # within a very long document
                _append(held)
                num_held = 0
    _append(held)
    return num_documents


class FileDocuments(NamedTuple):
    """The documents of a file, seen for itself.

    Attributes:
        num_documents: the number of documents.
        begins_inside: whether the first line has text, so that the document before may go on in it.
        ends_inside: whether the last line has text; None for a file without lines, which ends nothing.
    """

    num_documents: int
    begins_inside: bool
    ends_inside: bool | None


def look_through(lines: Iterable[str]) -> FileDocuments:
    """Counts the documents of a file."""
    num_documents, begins_inside, inside = 0, False, None
    for line in lines:
        has_text = bool(line.strip())
        if inside is None:
            begins_inside = has_text
        num_documents += has_text and not inside
        inside = has_text
    return FileDocuments(num_documents, begins_inside, inside)


def first_numbers(found: Sequence[FileDocuments]) -> list[int]:
    """Returns the number of the first document of each file in the corpus, which counts from 0.

    A file that goes on with the document before begins with the number of that one.
    """
    numbers, count, inside = [], 0, False
    for file in found:
        goes_on = inside and file.begins_inside
        numbers.append(count - goes_on)
        count += file.num_documents - goes_on
        inside = inside if file.ends_inside is None else file.ends_inside
    return numbers


def documents_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields the lines of each document of a file."""
    for has_text, group in itertools.groupby(map(str.strip, lines), key=bool):
        if has_text:
            yield list(group)


def _append(held: dict[str, list[str]]):
    """Appends the lines to their files, and empties the lists."""
    for path, lines in held.items():
        if lines:
            with writing.saying_why(path), files.open_file(path, "ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            lines.clear()

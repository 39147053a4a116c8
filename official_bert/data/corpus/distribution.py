"""Distributes the documents of a corpus over text files, one for each shard, without loading the corpus.

In: text files with one sentence on each line and a blank line between documents. Out: such files, too; document k of
the corpus is whole in file k mod n, after the earlier documents of that file.
"""

import collections
from collections.abc import Callable, Iterable, Sequence

from official_bert import files, reading, writing

_CHARACTERS_HELD = 1 << 24


def distribute(
    input_files: Sequence[str],
    paths: Sequence[str],
    on_progress: Callable[[int], None] = lambda documents: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> int:
    """Writes the files of all shards and returns the number of documents.

    As in the original, a document goes on across the end of a file: only a blank line ends it.

    Args:
        input_files: the corpus.
        paths: the files to write, which are appended to.
        on_progress: called from time to time with the number of documents so far.
        read_lines: yields the lines of a file of the corpus.

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


def _append(held: dict[str, list[str]]):
    """Appends the lines to their files, and empties the lists."""
    for path, lines in held.items():
        if lines:
            with writing.saying_why(path), files.open_file(path, "ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            lines.clear()

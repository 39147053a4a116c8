"""Reads and writes files in the column format of CoNLL.

In: files with one word on each line, its tag (IOB1 or IOB2, also called BIO) in the last column, and blank lines
between sentences. Out: sentences with IOB2 tags, and prediction files for conlleval.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.data.tables import not_empty, numbered_lines
from official_bert.io import writing
from official_bert.io.errors import InputError

IOB1, IOB2 = "IOB1", "IOB2"
_DOCUMENT_START = "-DOCSTART-"
_columns_of = re.compile(r"[^ \t]+").findall  # other white space may be part of a word
is_tag = re.compile(r"O|[BI]-.+").fullmatch


class Sentence(NamedTuple):
    """A sentence of a file.

    Attributes:
        line: the number of its first line, from 1.
        document: the number of its document, from 0; a -DOCSTART- line begins a new document.
        columns: the columns of each line, as they stand in the file.
        tags: the IOB2 tag of each word; None if the tags were not read.
    """

    line: int
    document: int
    columns: list[list[str]]
    tags: list[str] | None

    @property
    def words(self) -> list[str]:
        return [columns[0] for columns in self.columns]


class ConllFile(NamedTuple):
    """The content of a file.

    Attributes:
        path: the path of the file.
        sentences: the sentences in order, without the -DOCSTART- lines.
        scheme: the scheme of the tags in the file, IOB1 or IOB2; IOB2 if it has no tags.
        has_documents: whether the file has -DOCSTART- lines.
    """

    path: str
    sentences: list[Sentence]
    scheme: str
    has_documents: bool


def read_conll(path: str, labelled: bool = True) -> ConllFile:
    """Reads a file, and detects and logs the scheme of its tags.

    Bytes that are not UTF-8 become U+FFFD.

    Args:
        path: a file whose lines have equally many columns, separated by runs of spaces or tabs.
        labelled: whether the last column must be a tag and is read as one.

    Raises:
        InputError: the file does not exist or is empty, a line has another number of columns than the first, or a tag
            is neither O nor B-type nor I-type.
    """
    blocks, has_documents = _blocks(path)
    sentences = [Sentence(line, document, columns, None) for line, document, columns in blocks]
    not_empty(sentences, path)
    num_columns = len(sentences[0].columns[0])
    if labelled and num_columns < 2:
        raise InputError(f"{path}: line {sentences[0].line}: has no tag; give each token its tag in the last column")
    for sentence in sentences:
        for line, columns in enumerate(sentence.columns, start=sentence.line):
            if len(columns) != num_columns:
                raise InputError(
                    f"{path}: line {line}: has {len(columns)} columns and the lines before {num_columns}; separate "
                    "columns, and only them, by spaces or tabs"
                )
            if labelled and not is_tag(columns[-1]):
                raise InputError(
                    f"{path}: line {line}: has the tag {columns[-1]!r}; tags are O, B-type and I-type (IOB1 or IOB2)"
                )
    written = [[columns[-1] for columns in sentence.columns] for sentence in sentences]
    if not labelled:
        has_tags = num_columns > 1 and all(is_tag(tag) for tags in written for tag in tags)
        return ConllFile(path, sentences, _logged_scheme(path, written) if has_tags else IOB2, has_documents)
    tagged = [sentence._replace(tags=to_iob2(tags)) for sentence, tags in zip(sentences, written, strict=True)]
    return ConllFile(path, tagged, _logged_scheme(path, written), has_documents)


def write_predictions(path: str, source: ConllFile, predicted: Iterable[Sequence[str]]):
    """Writes a copy of a file that has the predicted tags as an additional last column, as conlleval expects.

    The predicted tags are written in the scheme of the file. -DOCSTART- lines are left out, because conlleval would
    count them as tokens.

    Args:
        path: the new file.
        source: the file that the predictions are for.
        predicted: the predicted IOB2 tags of each sentence.

    Raises:
        InputError: the new file cannot be written.
    """
    with writing.replacing(path) as file:
        for sentence, tags in zip(source.sentences, predicted, strict=True):
            for columns, tag in zip(sentence.columns, in_scheme(tags, source.scheme), strict=True):
                file.write(f"{' '.join(columns)} {tag}\n")
            file.write("\n")


def in_scheme(tags: Sequence[str], scheme: str) -> Sequence[str]:
    """Converts IOB2 tags to the scheme of a file."""
    return to_iob1(tags) if scheme == IOB1 else tags


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Converts tags of either scheme to IOB2, where every chunk begins with B-."""
    previous = ["O", *tags]
    return [
        f"B{tag[1:]}" if tag[0] == "I" and tag[1:] != before[1:] else tag
        for before, tag in zip(previous, tags, strict=False)
    ]


def to_iob1(tags: Sequence[str]) -> list[str]:
    """Converts IOB2 tags to IOB1, where a chunk begins with B- only if it directly follows one of its own type."""
    previous = ["O", *tags]
    return [
        f"I{tag[1:]}" if tag[0] == "B" and tag[1:] != before[1:] else tag
        for before, tag in zip(previous, tags, strict=False)
    ]


def _blocks(path: str) -> tuple[list[tuple[int, int, list[list[str]]]], bool]:
    """Returns the first line, document and columns of every sentence, and whether there are -DOCSTART- lines."""
    blocks = []
    document, has_documents, inside = 0, False, False
    for line, text in numbered_lines(path, "replace"):  # a word that is all invalid bytes stays in its line
        columns = _columns_of(text)
        if columns and columns[0] == _DOCUMENT_START:
            document, has_documents, inside = document + 1, True, False
        elif not columns:
            inside = False
        else:
            if not inside:
                blocks.append((line, document, []))
                inside = True
            blocks[-1][-1].append(columns)
    return blocks, has_documents


def _logged_scheme(path: str, sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of a file's tags and logs it.

    The scheme is IOB1 if no chunk begins with B- but those that directly follow one of their own type, and a chunk
    begins with I-.
    """
    begun = {"B": 0, "I": 0}
    for tags in sentences:
        for before, tag in zip(["O", *tags], tags, strict=False):
            if tag != "O" and tag[1:] != before[1:]:
                begun[tag[0]] += 1
    if begun["I"] and not begun["B"]:
        logging.info("%s: tags are IOB1", path)
        return IOB1
    logging.info("%s: tags are IOB2 (BIO)", path)
    if begun["I"]:
        logging.warning("%s: %d chunks begin with I-; they are read as if with B-", path, begun["I"])
    return IOB2

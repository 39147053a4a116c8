"""Files in CoNLL's columns: a token a line, its tag in the last column, blank lines between sentences.

In: files with tags in IOB1 or IOB2 (BIO). Out: sentences with IOB2 tags; and predictions as conlleval reads them.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging

from official_bert import files
from official_bert.data.tables import not_empty, numbered_lines
from official_bert.errors import InputError

IOB1, IOB2 = "IOB1", "IOB2"
_DOCUMENT_START = "-DOCSTART-"
_columns_of = re.compile(r"[^ \t]+").findall  # other white space may be part of a token
_is_tag = re.compile(r"O|[BI]-.+").fullmatch


class Sentence(NamedTuple):
    """Consecutive lines of a file.

    Attributes:
        line: number of the first one, from 1.
        document: which document it is in; new ones begin at -DOCSTART- lines.
        columns: of each line, as they stand in the file.
        tags: of each token, in IOB2; None if they were not read.
    """

    line: int
    document: int
    columns: list[list[str]]
    tags: list[str] | None

    @property
    def words(self) -> list[str]:
        return [columns[0] for columns in self.columns]


class ConllFile(NamedTuple):
    """What a file holds.

    Attributes:
        path: its path.
        sentences: in order, without the -DOCSTART- lines.
        scheme: IOB1 or IOB2, how its tags are written; IOB2 if it has none.
        has_documents: whether there are -DOCSTART- lines.
    """

    path: str
    sentences: list[Sentence]
    scheme: str
    has_documents: bool


def read_conll(path: str, labelled: bool = True) -> ConllFile:
    """Reads a file; the scheme of its tags is found out, and logged. Bytes that are not UTF-8 become U+FFFD.

    Args:
        path: columns are separated by runs of spaces or tabs, and equally many in every line.
        labelled: whether the last column must be a tag, and is read.

    Raises:
        InputError: no such file, nothing in it, a line with another number of columns than the first, or a tag that
            is neither O nor B-type nor I-type.
    """
    blocks, has_documents = _blocks(path)
    sentences = [Sentence(line, document, columns, None) for line, document, columns in blocks]
    not_empty(sentences, path)
    num_columns = len(sentences[0].columns[0])
    if labelled and num_columns < 2:
        raise InputError(
            f"{path}: line {sentences[0].line}: has no tag; give each token its tag in the last column"
        )
    for sentence in sentences:
        for line, columns in enumerate(sentence.columns, start=sentence.line):
            if len(columns) != num_columns:
                raise InputError(
                    f"{path}: line {line}: has {len(columns)} columns and the lines before {num_columns}; separate "
                    "columns, and only them, by spaces or tabs"
                )
            if labelled and not _is_tag(columns[-1]):
                raise InputError(
                    f"{path}: line {line}: has the tag {columns[-1]!r}; tags are O, B-type and I-type (IOB1 or IOB2)"
                )
    written = [[columns[-1] for columns in sentence.columns] for sentence in sentences]
    if not labelled:
        has_tags = num_columns > 1 and all(_is_tag(tag) for tags in written for tag in tags)
        return ConllFile(path, sentences, _logged_scheme(path, written) if has_tags else IOB2, has_documents)
    tagged = [
        sentence._replace(tags=to_iob2(tags)) for sentence, tags in zip(sentences, written, strict=True)
    ]
    return ConllFile(path, tagged, _logged_scheme(path, written), has_documents)


def write_predictions(path: str, source: ConllFile, predicted: Iterable[Sequence[str]]):
    """Writes the columns of a file with one more, as conlleval reads it: the predicted tag, last.

    The predicted tags take the scheme of the file. -DOCSTART- lines are left out: conlleval would count them as
    tokens.

    Args:
        path: the new file.
        source: what was predicted.
        predicted: IOB2 tags of each sentence.

    Raises:
        InputError: a file that cannot be written.
    """
    with files.replacing(path) as file:
        for sentence, tags in zip(source.sentences, predicted, strict=True):
            for columns, tag in zip(sentence.columns, in_scheme(tags, source.scheme), strict=True):
                file.write(f"{' '.join(columns)} {tag}\n")
            file.write("\n")


def in_scheme(tags: Sequence[str], scheme: str) -> Sequence[str]:
    """IOB2 tags in the scheme of a file."""
    return to_iob1(tags) if scheme == IOB1 else tags


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Tags of either scheme, with a B- at the beginning of every chunk."""
    previous = ["O", *tags]
    return [
        f"B{tag[1:]}" if tag[0] == "I" and tag[1:] != before[1:] else tag
        for before, tag in zip(previous, tags, strict=False)
    ]


def to_iob1(tags: Sequence[str]) -> list[str]:
    """IOB2 tags, with a B- only at the beginning of a chunk that follows one of its own type."""
    previous = ["O", *tags]
    return [
        f"I{tag[1:]}" if tag[0] == "B" and tag[1:] != before[1:] else tag
        for before, tag in zip(previous, tags, strict=False)
    ]


def _blocks(path: str) -> tuple[list[tuple[int, int, list[list[str]]]], bool]:
    """First line, document and columns of every sentence; whether there are -DOCSTART- lines."""
    blocks = []
    document, has_documents, inside = 0, False, False
    for line, text in numbered_lines(path, "replace"):  # a word of such bytes alone keeps its line
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
    """IOB1 if chunks that follow none of their type begin with I-, and none with B-."""
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

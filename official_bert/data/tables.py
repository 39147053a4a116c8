"""Reads the files of users: rows of TSV and CSV, lines of text or pairs, and the columns of CoNLL,
also written.

The readers remove a byte order mark, and name the file and line in their errors.
"""

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from absl import logging

from official_bert.data.tag_schemes import (
    IOB2,
    convert_chunks,
    convert_schemes,
    logged_scheme,
    restore_scheme,
)
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError

T = TypeVar("T")
_Block = tuple[int, int, list[list[str]]]  # a sentence's first line, document and columns

_MAX_FIELD_CHARACTERS = 2**31 - 1  # csv's own limit is 131,072
_OTHER_FORMS = (".tsv", ".csv", ".jsonl", ".json", ".txt", ".tsv.gz")
DOCUMENT_START = "-DOCSTART-"
_match_pair = re.compile(r"(.*) \|\|\| (.*)").fullmatch  # greedy: splits at the last separator
_split_columns = re.compile(r"[^ \t]+").findall  # other white space may be part of a word
_is_number = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?").fullmatch
is_tag = re.compile(r"O|[BI](-.+)?").fullmatch  # B and I alone have no type
TAG_FORMS = (
    "tags are O, B-type and I-type, or B and I (IOB1 or IOB2), or all those of BIOES, BILOU or BMES"
)


class Row(NamedTuple):
    """A row of a table; its line counts from 1 and is the last one where quoted fields span several
    lines.

    Fields are texts; of JSON lines and Parquet, which has rows in place of lines (`unit`), any
    values.
    """

    path: str
    line: int
    fields: list
    unit: str = "line"

    def field(self, column: int, name: str) -> Any:
        """Returns the value of a column.

        Args:
            column: the number of the column, counted from 0 or, if negative, from the end.
            name: the name of the value, for the error.

        Raises:
            InputError: the row has no such column.
        """
        try:
            return self.fields[column]
        except IndexError:
            number = column + 1 if column >= 0 else column
            raise self.error(
                f"has {len(self.fields)} columns, but {name} is expected in column {number}; "
                "complete the row or check the file's layout"
            ) from None

    def error(self, what: str) -> InputError:
        """Returns an error whose message names the file and the line.

        Args:
            what: what is wrong, and what to do.
        """
        return InputError(f"{self.where}: {what}")

    @property
    def where(self) -> str:
        return f"{self.path}: {self.unit} {self.line}"


def read_tsv(path: str, decompresses: bool = False) -> Iterator[Row]:
    """Yields the rows of a tab-separated file without quoting; a double quote is an ordinary
    character.

    Args:
        path: the file.
        decompresses: whether a gzip file is decompressed. Otherwise, it is an error.

    Raises:
        InputError: there is no such file, or it does not look like UTF-8 text.
    """
    check_there(path)
    num_blank = 0
    for line, text in numbered_lines(path, decompresses=decompresses):
        if text.strip(" "):
            yield Row(path, line, text.split("\t"))
        else:
            num_blank += 1
    log_blank(path, num_blank)


def read_csv(
    path: str,
    delimiter: str = ",",
    quotechar: str = '"',
    decompresses: bool = False,
    keeps_returns: bool = False,
) -> Iterator[Row]:
    """Yields the rows of a file whose quoted fields may contain delimiters and line ends.

    Args:
        path: the file.
        delimiter: the character between two fields.
        quotechar: the character around a quoted field.
        decompresses: whether a gzip file is decompressed.
        keeps_returns: whether each "\\r" stays, as in `read_lines`.

    Raises:
        InputError: there is no such file, or its quotes are wrong.
    """
    check_there(path)
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    numbered = numbered_lines(path, decompresses=decompresses, keeps_returns=keeps_returns)
    lines = (f"{text}\n" for _, text in numbered)
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=quotechar,
        strict=True,
    )
    num_blank = 0
    try:
        for fields in reader:
            if fields:
                yield Row(path, reader.line_num, fields)
            else:
                num_blank += 1
    except csv.Error as error:
        raise InputError(
            f"{path}: line {reader.line_num}: {error}; check the quotes up to here"
        ) from error
    log_blank(path, num_blank)


def check_there(path: str) -> None:
    """Checks that no other file is meant by the path of a missing one.

    Args:
        path: the path of a table.

    Raises:
        InputError: there is no such file, but one in another form, or one beside the folder.
    """
    if files.exists(path):
        return
    stem, suffix = os.path.splitext(path)
    folder, name = os.path.split(path)
    for candidate in (stem + form for form in _OTHER_FORMS if form != suffix):
        if files.exists(candidate):
            raise InputError(
                f"{path}: no such file; {candidate} is there, but the task reads {suffix}: convert "
                "it"
            )
    beside = os.path.join(os.path.dirname(folder), name)
    if files.exists(beside):
        raise InputError(f"{path}: no such file; {beside} is there: give its folder as --data_dir")


def not_empty(examples: list[T], path: str) -> list[T]:
    """Returns the examples of a file, of which there has to be one at least.

    Args:
        examples: the examples.
        path: the file, for the error.

    Raises:
        InputError: there is no example.
    """
    if not examples:
        raise InputError(f"{path}: holds no example; check the file")
    return examples


def numbered_lines(
    path: str,
    undecodable: Literal["ignore", "replace"] = "ignore",
    decompresses: bool = False,
    keeps_returns: bool = False,
) -> Iterator[tuple[int, str]]:
    """Yields the lines of `read_lines` with their numbers from 1, without a byte order mark.

    Args:
        path: the file, local or remote.
        undecodable: whether bytes that are not UTF-8 are left out ("ignore") or become U+FFFD
            ("replace").
        decompresses: whether a gzip file is decompressed. Otherwise, it is an error.
        keeps_returns: whether each "\\r" stays.

    Raises:
        InputError: the file cannot be read, or does not look like UTF-8 text.
    """
    lines = reading.read_lines(path, undecodable, decompresses, keeps_returns)
    for line, text in enumerate(lines, start=1):
        if line == 1:
            text = text.removeprefix("\ufeff")
        yield line, text


def parse_number(text: str) -> float:
    """Returns the number of a text; NaN for another text, for infinity and for forms that only
    Python reads, as 1_0.

    Args:
        text: the text; blanks around the number are ignored.
    """
    number = float(text) if _is_number(text.strip()) else math.nan
    return number if math.isfinite(number) else math.nan


def plain_value(value: Any) -> Any:
    """Returns a value of pandas or numpy as JSON has it; None for a missing one.

    Args:
        value: the value; those of an array, or of another collection, become a list.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(one) for one in value]
    return None if _is_missing(value) else value


def _is_missing(value: Any) -> bool:
    """Returns whether a value is NaN, or pandas' NaT or NA."""
    try:
        return bool(value != value)
    except TypeError:  # NA compared with itself is NA, which is neither true nor false.
        return True


def log_blank(path: str, num_blank: int) -> None:
    """Warns of the blank lines of a file, if there are any.

    Args:
        path: the file.
        num_blank: the number of the lines, which were skipped.
    """
    if num_blank:
        logging.warning("%s: skipped %d blank lines", path, num_blank)


class TextLine(NamedTuple):
    """A line with a text, or with the two of a pair."""

    line_index: int  # from 0
    text_a: str
    text_b: str | None


def read_sentences(path: str) -> Iterator[TextLine]:
    """Yields the lines of a file, of which a blank one is a text without words, for feature
    extraction.

    Args:
        path: the file; the two texts of a pair have " ||| " between them.

    Raises:
        InputError: the file is empty or cannot be read.
    """
    line_index = -1
    for line_index, line in enumerate(reading.read_lines(path)):
        text = line.strip()
        pair = _match_pair(text)
        if pair:
            yield TextLine(line_index, text_a=pair[1], text_b=pair[2])
        else:
            yield TextLine(line_index, text_a=text, text_b=None)
    if line_index < 0:
        raise InputError(f"{path}: is empty; give it one example a line")


class Sentence(NamedTuple):
    """A sentence of a CoNLL file.

    Attributes:
        line: the number of its first line, from 1.
        document: the number of its document, from 0; a -DOCSTART- line begins a new document.
        tags: the IOB2 tag of each word; None if the tags were not read.
        place: where all words stand in a table; "" if each has a line of its own.
    """

    line: int
    document: int
    columns: list[list[str]]
    tags: list[str] | None
    place: str = ""

    @property
    def words(self) -> list[str]:
        return [columns[0] for columns in self.columns]


class ConllFile(NamedTuple):
    """The content of a CoNLL file; `scheme` is that of its tags, IOB1 or IOB2, and IOB2 if it
    has no tags.
    """

    path: str
    sentences: list[Sentence]
    scheme: str
    has_documents: bool


def read_conll(path: str, labelled: bool = True) -> ConllFile:
    """Reads a file of one word with its columns on each line, and logs the scheme of the tags in
    the last column.

    The columns are separated by runs of spaces or tabs; bytes that are not UTF-8 become U+FFFD.

    Args:
        path: the file.
        labelled: whether the last column must be a tag (IOB1 or IOB2, also called BIO, with or
            without types, or another scheme of tag_schemes.py) and is read as one.

    Raises:
        InputError: there is no sentence, a line has another number of columns than the first one,
            or a tag is missing or has another form.
    """
    blocks, has_documents = _blocks(path)
    sentences = [Sentence(line, document, columns, None) for line, document, columns in blocks]
    not_empty(sentences, path)
    num_columns = len(sentences[0].columns[0])
    if labelled and num_columns < 2:
        raise InputError(
            f"{path}: line {sentences[0].line}: has no tag; give each token its tag in the last "
            "column"
        )
    for sentence in sentences:
        for line, columns in enumerate(sentence.columns, start=sentence.line):
            if len(columns) != num_columns:
                raise InputError(
                    f"{path}: line {line}: has {len(columns)} columns and the lines before "
                    f"{num_columns}; separate columns, and only them, by spaces or tabs"
                )
    if labelled:
        sentences = _convert_tags(path, sentences)
    sentences = _drop_word_numbers(path, sentences, num_columns - labelled)
    written = [[columns[-1] for columns in sentence.columns] for sentence in sentences]
    if not labelled:
        scheme = IOB2
        if num_columns > 1 and all(is_tag(tag) for tags in written for tag in tags):
            scheme = logged_scheme(path, written)
        return ConllFile(path, sentences, scheme, has_documents)
    tagged = [
        sentence._replace(tags=convert_chunks(tags, IOB2))
        for sentence, tags in zip(sentences, written, strict=True)
    ]
    scheme = logged_scheme(path, written)
    return ConllFile(path, tagged, scheme, has_documents)


def _convert_tags(path: str, sentences: Sequence[Sentence]) -> list[Sentence]:
    """Returns the sentences with tags of IOB1 or IOB2 in the last column."""
    tags = [[columns[-1] for columns in sentence.columns] for sentence in sentences]
    converted = []
    for sentence, new_tags in zip(sentences, convert_schemes(path, tags), strict=True):
        columns = []
        for line, (words, tag) in enumerate(
            zip(sentence.columns, new_tags, strict=True), start=sentence.line
        ):
            if not is_tag(tag):
                raise InputError(f"{path}: line {line}: has the tag {tag!r}; {TAG_FORMS}")
            columns.append([*words[:-1], tag])
        converted.append(sentence._replace(columns=columns))
    return converted


def write_predictions(
    path: str,
    source: ConllFile,
    predicted: Iterable[Sequence[str]],
) -> None:
    """Writes a copy of a file with predicted tags as an additional last column for conlleval.

    -DOCSTART- lines are left out, because conlleval would count them as tokens.

    Args:
        path: the file to write.
        source: the file to copy; the tags are written in its scheme.
        predicted: the IOB2 tags of the words of each sentence.
    """
    with writing.replacing(path) as file:
        for sentence, tags in zip(source.sentences, predicted, strict=True):
            written_tags = restore_scheme(tags, source.scheme)
            for columns, tag in zip(sentence.columns, written_tags, strict=True):
                file.write(f"{' '.join(columns)} {tag}\n")
            file.write("\n")


def _drop_word_numbers(path: str, sentences: list[Sentence], num_columns: int) -> list[Sentence]:
    """Returns the sentences without their first column, if that counts the words of each sentence.

    Args:
        path: the file, for the warning.
        sentences: the sentences.
        num_columns: the number of the columns beside the tag.
    """
    if num_columns < 2 or max(len(sentence.columns) for sentence in sentences) < 2:
        return sentences
    for first in (0, 1):
        if all(_counts_words(sentence, first) for sentence in sentences):
            logging.warning(
                "%s: the first column counts the words from %d, and is ignored", path, first
            )
            return [
                sentence._replace(columns=[columns[1:] for columns in sentence.columns])
                for sentence in sentences
            ]
    return sentences


def _counts_words(sentence: Sentence, first: int) -> bool:
    """Returns whether the words of a sentence are the numbers from `first` on."""
    words = sentence.words
    numbers = range(first, first + len(words))
    return words == list(map(str, numbers))


def _blocks(path: str) -> tuple[list[_Block], bool]:
    """Returns the first line, document and columns of every sentence, and whether there are
    -DOCSTART- lines.
    """
    blocks = []
    document = 0
    has_documents = False
    inside = False
    # A word that is all invalid bytes stays in its line.
    for line, text in numbered_lines(path, "replace"):
        columns = _split_columns(text)
        if columns and columns[0] == DOCUMENT_START:
            document += 1
            has_documents = True
            inside = False
        elif not columns:
            inside = False
        else:
            if not inside:
                blocks.append((line, document, []))
                inside = True
            blocks[-1][-1].append(columns)
    return blocks, has_documents

"""Reads the text of a corpus in any of its forms.

In: a file, plain or gzip: lines of text; pages as WikiExtractor writes them, between <doc ...> and </doc>; or JSON
lines with a field `text`, as WikiExtractor --json and many web corpora have them. Out: lines with one sentence each,
and a blank line between documents.
"""

import functools
import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from official_bert.data.pretraining.sentence_splitter import split_sentences
from official_bert.io import errors, files, reading
from official_bert.io.errors import InputError
from official_bert.options.data_tools import RecordsOptions
from official_bert.options.shared import JSON_LINES, TEXT, WIKIEXTRACTOR

_BEGIN = re.compile(r'<doc\b(?P<attributes>(?:[^>"]|"[^"]*")*)>\s*')
_TITLE = re.compile(r'\btitle="([^"]*)"')
_END = "</doc>"
_LONG_CHARACTERS = 10_000

LineReader = Callable[[str], Iterator[str]]


def line_reader(input_format: str, splits_sentences: bool = False, open_file: Callable = files.open_file) -> LineReader:
    """Returns a function that yields the lines of a file.

    Returns:
        A function of a file's name. The lines that it yields have no "\\n"; a document of the other forms than TEXT
        ends with a blank line, and has no other. It raises an InputError that names the file and the line for a file
        that does not have the form.
    """
    return functools.partial(_lines, TEXT_FORMATS[input_format], splits_sentences, open_file)


def reader_of(options: RecordsOptions, open_file: Callable = files.open_file) -> LineReader:
    """Returns the reader of the corpus."""
    return line_reader(options.input_format, options.split_sentences, open_file)


def _lines(
    documents_of: Callable[[str, Iterable[str]], Iterator[str]], splits_sentences: bool, open_file: Callable, path: str
) -> Iterator[str]:
    lines = documents_of(path, reading.read_lines(path, "ignore", True, open_file))
    if splits_sentences:
        # A blank line stays one.
        lines = itertools.chain.from_iterable(split_sentences(line) or [""] for line in lines)
    num_long = 0
    for line in lines:
        num_long += len(line) > _LONG_CHARACTERS
        yield line
    if num_long:
        errors.warn(
            "%s: %d lines have more than %d characters, of which a sequence takes the first or the last words only; "
            "put one sentence on each line, or give --split_sentences",
            path,
            num_long,
            _LONG_CHARACTERS,
        )


def _of_text(path: str, lines: Iterable[str]) -> Iterator[str]:
    yield from lines


def _of_wikiextractor(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the paragraphs of every page; the title, which is no sentence, and blank lines are left out."""
    title, number = None, 0
    is_inside = has_paragraphs = False
    for number, line in enumerate(lines, start=1):
        begin = _BEGIN.match(line)
        if begin:
            if is_inside:
                raise InputError(f"{path}: line {number}: <doc> before the </doc> of the page before; extract it again")
            found = _TITLE.search(begin["attributes"])
            title = found and html.unescape(found[1])
            is_inside, has_paragraphs = True, False
            line = line[begin.end() :]
        ends = line.rstrip().endswith(_END)
        paragraph = html.unescape(line.rstrip().removesuffix(_END)).strip()
        if not is_inside:
            if line.strip():
                raise InputError(
                    f"{path}: line {number}: text outside of <doc ...> and </doc>; this is no output of WikiExtractor, "
                    f"give --input_format={TEXT}"
                )
            continue
        is_title = not has_paragraphs and paragraph == title
        if paragraph and not is_title:
            has_paragraphs = True
            yield paragraph
        if ends:
            is_inside = False
            yield ""
    if is_inside:
        raise InputError(f"{path}: ends without </doc>; extract it again, it is not complete")


def _of_json_lines(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the paragraphs of the text of every line; a first paragraph that repeats the title is left out."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            page = reading.parse_json(line, has_lines=False)
        except InputError as error:
            raise InputError(f"{path}: line {number}: {error}; give one JSON object a line") from error
        text = page.get("text") if isinstance(page, dict) else None
        if not isinstance(text, str):
            raise InputError(f'{path}: line {number}: has no field "text" with a text; give objects that have one')
        paragraphs = [paragraph.strip() for paragraph in text.split("\n") if paragraph.strip()]
        if paragraphs and paragraphs[0] == page.get("title"):
            del paragraphs[0]
        yield from paragraphs
        yield ""


# Name, which is a choice of --input_format, -> a function of a file's name and its lines to the lines of documents.
TEXT_FORMATS = {TEXT: _of_text, WIKIEXTRACTOR: _of_wikiextractor, JSON_LINES: _of_json_lines}

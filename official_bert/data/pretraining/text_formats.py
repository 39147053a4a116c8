"""Reads the text of a corpus in any of its forms.

In: a file, plain or gzip: lines of text; pages of WikiExtractor, between <doc ...> and </doc>; JSON
lines with a field `text`; or the lines of a book. Out: lines with one sentence each, and a blank
line between documents.
"""

import functools
import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from official_bert.io import errors, reading
from official_bert.io.errors import InputError
from official_bert.options.shared import JSON_LINES, PROSE, TEXT, WIKIEXTRACTOR

_BEGIN = re.compile(r'<doc\b(?P<attributes>(?:[^>"]|"[^"]*")*)>\s*')
_TITLE = re.compile(r'\btitle="([^"]*)"')
_END = "</doc>"
_LONG_CHARACTERS = 10_000
_BLANKS = " \t\f\v\r\ufeff"  # the last one is the byte order mark

LineReader = Callable[[str], Iterator[str]]  # a function of a file's name

# A mark of the end, the quotes and brackets that close behind it, white space, and what can begin a
# sentence.
_BOUNDARY = re.compile(
    r"""(?<![.!?…])(?P<mark>[.!?…]+)['"’”»)\]]*\s++(?=['"‘“„«(\[¿¡]*+(?P<next>[^\W_]))"""
    r"""|(?P<wide>[。！？]+[」』”’）]*)\s*"""
)
_LAST_WORD = re.compile(r"(?s:.*[\s(\[\"“‘])?(.*)")

# Words that a full stop abbreviates, in lower case and without it; a name or a number follows.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st rev hon gen col lt sgt capt cmdr adm gov sen rep pres jr sr mt ft
    vs cf etc ca approx no nos vol vols fig figs eq ch chap sec p pp pt ed eds trans al
    e.g i.e viz op cit dept univ
    inc ltd co corp bros jan feb mar apr jun jul aug sep sept oct nov dec
    bzw z.b d.h usw nr str hr fr mme mlle
    """.split()  # noqa: SIM905 - a list of one-word literals would fill the page
)
# Of these, those that also end a sentence, if the next word has a capital.
_MAY_END = frozenset({"etc", "al", "inc", "ltd", "co", "corp", "jr", "sr", "usw", "dept", "univ"})
_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J, or U.S


def line_reader(input_format: str, splits_sentences: bool = False) -> LineReader:
    """Returns a function that yields a file's lines; except in TEXT, a document has one blank line,
    at its end.

    Args:
        input_format: the form of the files, a key of TEXT_FORMATS.
        splits_sentences: whether each line is split into its sentences; by default it is not.

    Returns:
        A function of a file's name. It raises InputError if the file cannot be read or has another
        form.
    """
    return functools.partial(_lines, TEXT_FORMATS[input_format], splits_sentences)


def ending_documents(read_lines: LineReader) -> LineReader:
    """Returns a function that yields a file's lines and a blank line, which ends the last document.

    Args:
        read_lines: a function of a file's name that yields its lines.
    """
    return functools.partial(_lines_and_blank, read_lines)


def _lines_and_blank(read_lines: LineReader, path: str) -> Iterator[str]:
    yield from read_lines(path)
    yield ""


def _lines(
    read_paragraphs: Callable[[str, Iterable[str]], Iterator[str]],
    splits_sentences: bool,
    path: str,
) -> Iterator[str]:
    lines = read_paragraphs(path, reading.read_lines(path, decompresses=True))
    if splits_sentences:
        # A blank line stays one.
        lines = itertools.chain.from_iterable(split_sentences(line) or [""] for line in lines)
    num_long = 0
    for line in lines:
        num_long += len(line) > _LONG_CHARACTERS
        yield line
    if num_long:
        errors.warn(
            "%s: %d %s have more than %d characters, of which a sequence takes the first or the "
            "last words only; put one sentence on each line%s",
            path,
            num_long,
            "sentences" if splits_sentences else "lines",
            _LONG_CHARACTERS,
            ""
            if splits_sentences or read_paragraphs is _read_prose
            else ", or give --split_sentences",
        )


def _read_text(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines as they are, with a warning if the first one is of another form."""
    for number, line in enumerate(lines):
        if not number:
            _warn_of_other_form(path, line)
        yield line


@functools.cache
def _warn_of_other_form(path: str, first_line: str):
    """Warns once of a file that may be JSON lines, pages of WikiExtractor or a table."""
    start, remedy = first_line.lstrip(_BLANKS), ""
    if start.startswith('{"'):
        what, remedy = "a JSON object", f"; --input_format={JSON_LINES} reads its field text"
    elif _BEGIN.match(start):
        what, remedy = (
            "the beginning of a page",
            f"; --input_format={WIKIEXTRACTOR} reads the pages",
        )
    elif path.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        what, remedy = "a row of a table", "; write the texts alone into a file, one a line"
    else:
        return
    errors.warn("%s: line 1 may be %s, and is read as a text%s", path, what, remedy)


def _read_wikiextractor(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the paragraphs of every page; the title, which is no sentence, and blank lines are
    left out.
    """
    title, number = None, 0
    is_inside = has_paragraphs = False
    for number, line in enumerate(lines, start=1):
        begin = _BEGIN.match(line)
        if begin:
            if is_inside:
                raise InputError(
                    f"{path}: line {number}: <doc> before the </doc> of the page before; extract "
                    "it again"
                )
            title_match = _TITLE.search(begin["attributes"])
            title = title_match and html.unescape(title_match[1])
            is_inside, has_paragraphs = True, False
            line = line[begin.end() :]
        ends = line.rstrip().endswith(_END)
        paragraph = html.unescape(line.rstrip().removesuffix(_END)).strip()
        if not is_inside:
            if line.strip():
                raise InputError(
                    f"{path}: line {number}: text outside of <doc ...> and </doc>; this is no "
                    f"output of WikiExtractor, give --input_format={TEXT}"
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


def _read_json_lines(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the paragraphs of the text of every line; a first paragraph that repeats the title
    is left out.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            page = reading.parse_json(line, has_lines=False)
        except InputError as error:
            raise InputError(
                f"{path}: line {number}: {error}; give one JSON object a line"
            ) from error
        text = page.get("text") if isinstance(page, dict) else None
        if not isinstance(text, str):
            raise InputError(
                f'{path}: line {number}: has no field "text" with a text; give objects that have '
                "one"
            )
        if half := reading.half_pair_in(text):
            raise InputError(
                f'{path}: line {number}: the field "text" has {half}; write both halves, or leave '
                "it out"
            )
        paragraphs = [paragraph.strip() for paragraph in text.split("\n") if paragraph.strip()]
        if paragraphs and paragraphs[0] == page.get("title"):
            del paragraphs[0]
        yield from paragraphs
        yield ""


def _read_prose(path: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the sentences of a book, which may go over several lines, but not over a blank one."""
    unfinished = ""
    for line in lines:
        text = line.strip(_BLANKS)
        *sentences, unfinished = split_sentences(f"{unfinished} {text}") or [""]
        yield from sentences
        # A page without an end of a sentence would be looked through again with every line.
        if unfinished and (not text or len(unfinished) > _LONG_CHARACTERS):
            yield unfinished
            unfinished = ""
    yield from filter(None, [unfinished])
    yield ""


# Name, which is a choice of --input_format, -> a function of a file's name and its lines to the
# lines of documents.
TEXT_FORMATS = {
    TEXT: _read_text,
    WIKIEXTRACTOR: _read_wikiextractor,
    JSON_LINES: _read_json_lines,
    PROSE: _read_prose,
}


def split_sentences(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph; none for a blank one.

    The rules look at the mark, and at what stands before and behind it. Pre-training needs segments
    of text rather than a grammarian's sentences, so that a wrong boundary does little harm.

    Args:
        paragraph: a text of a European or East Asian language.
    """
    sentences, start, before = [], 0, 0
    for boundary in _BOUNDARY.finditer(paragraph):
        words, before = paragraph[before : boundary.start()], boundary.end()
        if boundary["wide"] is None and not _ends_sentence(words, boundary):
            continue
        sentences.append(paragraph[start : boundary.end()].strip())
        start = boundary.end()
    sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(words: str, boundary: re.Match) -> bool:
    """Tells whether a mark with white space behind it, after these words, ends a sentence."""
    following = boundary["next"]
    if following.islower():
        return False
    if boundary["mark"] != ".":
        return True
    last_word = _LAST_WORD.fullmatch(words)
    assert last_word is not None  # The pattern matches every text.
    word = last_word[1].lstrip("'").lower()
    if word in _ABBREVIATIONS:
        return word in _MAY_END and following.isupper()
    # An initial of a name, as in J. Smith; "I" is a word, and "U.S." ends sentences as often as
    # not.
    is_initial = bool(_INITIAL.fullmatch(word)) and word != "i"
    return not is_initial or "." in word

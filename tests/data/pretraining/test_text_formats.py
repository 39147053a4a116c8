"""The same three documents in every form give the same lines; sentences of paragraphs are split."""

import dataclasses
import gzip
import json
import re

import pytest

from official_bert.data.pretraining import text_formats
from official_bert.data.pretraining.text_formats import TEXT_FORMATS, line_reader, split_sentences
from official_bert.io.errors import InputError
from official_bert.options.shared import CorpusOptions

PAGES = {
    "Cats & dogs": ["Cats sleep. Dogs run.", "Both eat < much >."],
    "Rain": ["It rains."],
    "A page of its title": [],
}
LINES = ["Cats sleep. Dogs run.", "Both eat < much >.", "", "It rains.", "", ""]
TEXT = "Cats sleep. Dogs run.\nBoth eat < much >.\n\nIt rains.\n\n\n"
WIKIEXTRACTOR = """<doc id="1" url="https://example.org/1" title="Cats &amp; dogs">
Cats &amp; dogs

Cats sleep. Dogs run.

Both eat &lt; much &gt;.

</doc>
<doc id="2" url="https://example.org/2" title="Rain">
It rains.
</doc>

<doc id="3" url="https://example.org/3" title="A page of its title">
A page of its title</doc>
"""
JSON_LINES = "".join(
    json.dumps(
        {
            "title": title,
            "text": "\n\n".join([title, *paragraphs] if title != "Rain" else paragraphs),
        }
    )
    + "\n"
    for title, paragraphs in PAGES.items()
)
FORMS = {"text": TEXT, "wikiextractor": WIKIEXTRACTOR, "json_lines": JSON_LINES}


def lines_of(path, content: str | bytes, *arguments, **keywords) -> list[str]:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    return list(line_reader(*arguments, **keywords)(str(path)))


def test_the_formats_are_the_choices_of_the_flag():
    (flag,) = (field for field in dataclasses.fields(CorpusOptions) if field.name == "input_format")
    assert tuple(TEXT_FORMATS) == flag.metadata["choices"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_every_form_gives_the_same_lines(tmp_path, form, compress):
    assert lines_of(tmp_path / "file", compress(FORMS[form].encode()), form) == LINES


@pytest.mark.parametrize("form", FORMS)
def test_paragraphs_are_split_and_blank_lines_stay(tmp_path, form):
    split = ["Cats sleep.", "Dogs run.", "Both eat < much >.", "", "It rains.", "", ""]
    assert lines_of(tmp_path / "file", FORMS[form], form, splits_sentences=True) == split


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_book_is_one_document_of_sentences(tmp_path, end):
    """Wrapped lines are joined, also after Mr.; a heading ends at a blank line; the byte order
    mark goes.
    """
    book = [
        "\ufeffTHE BOOK",
        "",
        "CHAPTER I",
        " ",
        "He met Mr.",
        "Stubbs there. It was",
        "late. So he",
        "",
        "left.",
    ]
    sentences = [
        "THE BOOK",
        "CHAPTER I",
        "He met Mr. Stubbs there.",
        "It was late.",
        "So he",
        "left.",
        "",
    ]
    assert lines_of(tmp_path / "file", end.join(book), "prose") == sentences
    assert lines_of(tmp_path / "file", end.join(book), "prose", splits_sentences=True) == sentences
    assert lines_of(tmp_path / "file", "", "prose") == [""]


def test_a_book_without_ends_of_sentences_is_cut(tmp_path):
    found = lines_of(tmp_path / "file", "some words\n" * 3000, "prose")
    assert [len(line.split()) for line in found] == [1820, 1820, 1820, 540, 0]
    assert all(line.startswith("some") for line in found[:-1])


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        (
            "wikiextractor",
            "Just text.\n",
            "line 1: text outside of <doc ...> and </doc>; this is no output of",
        ),
        (
            "wikiextractor",
            '<doc id="1">\na\n<doc id="2">\n',
            "line 3: <doc> before the </doc> of the page before",
        ),
        (
            "wikiextractor",
            '<doc id="1">\na\n',
            "ends without </doc>; extract it again, it is not complete",
        ),
        ("json_lines", '{"text": "a"}\n{"text"\n', "line 2: no JSON"),
        ("json_lines", '{"title": "a"}\n', 'line 1: has no field "text" with a text'),
        ("json_lines", '{"text": 3}\n', 'line 1: has no field "text" with a text'),
        ("text", gzip.compress(b"It rains.\n" * 1000, mtime=0)[:-12], "is a corrupt gzip file"),
        (
            "text",
            gzip.compress("It rains.\n".encode("utf-16"), mtime=0),
            "is UTF-16; save it as UTF-8",
        ),
    ],
)
def test_what_has_another_form_is_refused_by_file_and_line(tmp_path, form, content, sentence):
    with pytest.raises(InputError, match=r"file: ") as raised:
        lines_of(tmp_path / "file", content, form)
    assert sentence in str(raised.value)


def test_bytes_that_are_not_utf8_are_left_out(tmp_path):
    assert lines_of(tmp_path / "file", b"good\nb\xffad\n", "text") == ["good", "bad"]


@pytest.mark.parametrize(
    ("name", "line", "warning"),
    [
        ("a", '{"text": "a b"}', "a JSON object, and is read as a text; --input_format=json_lines"),
        ("b", '<doc id="1">', "the beginning of a page, and .* --input_format=wikiextractor reads"),
        ("c.CSV", "id,text", "a row of a table, and is read as a text; write the texts alone into"),
        ("d", "{a, b} is a set", None),
    ],
)
def test_another_form_is_warned_of_once(tmp_path, caplog, name, line, warning):
    for _ in range(2):
        assert lines_of(tmp_path / name, f"{line}\nmore\n", "text") == [line, "more"]
    assert len(caplog.messages) == bool(warning)
    assert not warning or re.search(f"{name}: line 1 may be {warning}", caplog.text)


def test_lines_that_are_no_sentences_are_warned_of(tmp_path, caplog):
    text = "A sentence of words. " * 1000
    content = f"{text}\nshort\n{text}\n"
    assert lines_of(tmp_path / "file", content, "text") == [text, "short", text]
    assert "file: 2 lines have more than 10000 characters" in caplog.text
    assert "give --split_sentences" in caplog.text
    caplog.clear()
    assert len(lines_of(tmp_path / "file", text, "text", splits_sentences=True)) == 1000
    assert not caplog.text
    lines_of(tmp_path / "file", f"{text.lower()}\n", "text", splits_sentences=True)
    assert "1 sentences have more than 10000 characters" in caplog.text
    assert "give --split_sentences" not in caplog.text


def test_the_words_before_a_mark_are_looked_at_once(monkeypatch):
    """In a line without the end of a sentence, what stands before each mark would grow with the
    line.
    """
    looked_at = []
    monkeypatch.setattr(
        text_formats, "_ends_sentence", lambda words, boundary: looked_at.append(words)
    )
    split_sentences("the cat sat. " * 1000)
    assert looked_at == ["the cat sat"] * 999


@pytest.mark.parametrize(
    "sentences",
    [
        [],
        ["No mark at all"],
        ["The cat sat.", "The dog ran!", "Did it?"],
        ["Is it true?!", "Nobody knows."],
        ['He said "Stop."', "Then he left."],
        ["(It was late.)", "“Why?” she asked.", "¿Por qué?", "¡No!", "Ça va."],
        ["Mr. Smith met Dr. Jones at St. Mary's.", "They talked."],
        ["J. R. Miller wrote it.", "So did I.", "We read it."],
        ["It costs 3.50 euros, i.e. little.", "See fig. 3 on p. 12 for more."],
        ["He came from the U.S. in 1990.", "She stayed."],
        ["They sell fruit, nuts, etc. at the market.", "We sell bread etc.", "You buy."],
        ["Version 2.21 is out.", "7 people use it.", "3.14 is not pi."],
        ["猫坐着。", "狗跑了！", "「为什么？」", "没人知道"],
        ["Es gibt z.B. Brot usw. im Laden.", "Gut."],
    ],
)
def test_sentences_are_found_again_in_their_paragraph(sentences):
    separator = "" if any("。" in sentence for sentence in sentences) else " "
    assert split_sentences(separator.join(sentences)) == sentences


def test_white_space_around_sentences_is_left_out_and_none_inside():
    assert split_sentences("  One  word.\t\tTwo words. ") == ["One  word.", "Two words."]
    assert split_sentences(" \t ") == []

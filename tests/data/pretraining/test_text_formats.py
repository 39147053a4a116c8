"""The same three documents in every form give the same lines."""

import dataclasses
import gzip
import json

import pytest

from official_bert.data.pretraining.text_formats import TEXT_FORMATS, line_reader
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
    json.dumps({"title": title, "text": "\n\n".join([title, *paragraphs] if title != "Rain" else paragraphs)}) + "\n"
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


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        ("wikiextractor", "Just text.\n", "line 1: text outside of <doc ...> and </doc>; this is no output of"),
        ("wikiextractor", '<doc id="1">\na\n<doc id="2">\n', "line 3: <doc> before the </doc> of the page before"),
        ("wikiextractor", '<doc id="1">\na\n', "ends without </doc>; extract it again, it is not complete"),
        ("json_lines", '{"text": "a"}\n{"text"\n', "line 2: no JSON"),
        ("json_lines", '{"title": "a"}\n', 'line 1: has no field "text" with a text'),
        ("json_lines", '["a"]\n', 'line 1: has no field "text" with a text'),
        ("json_lines", '{"text": 3}\n', 'line 1: has no field "text" with a text'),
        ("text", gzip.compress(b"It rains.\n" * 1000, mtime=0)[:-12], "is a damaged gzip file"),
        ("text", gzip.compress(b"It rains.\n" * 1000, mtime=0)[:40] + b"\0" * 9, "is a damaged gzip file"),
        ("text", gzip.compress("It rains.\n".encode("utf-16"), mtime=0), "is UTF-16; save it as UTF-8"),
    ],
)
def test_what_has_another_form_is_refused_by_file_and_line(tmp_path, form, content, sentence):
    with pytest.raises(InputError, match=r"file: ") as raised:
        lines_of(tmp_path / "file", content, form)
    assert sentence in str(raised.value)


def test_bytes_that_are_not_utf8_are_left_out(tmp_path):
    assert lines_of(tmp_path / "file", b"good\nb\xffad\n", "text") == ["good", "bad"]


def test_lines_that_are_no_sentences_are_warned_of(tmp_path, caplog):
    text = "A sentence of words. " * 1000
    assert lines_of(tmp_path / "file", f"{text}\nshort\n{text}\n", "text") == [text, "short", text]
    assert "file: 2 lines have more than 10000 characters" in caplog.text
    assert "give --split_sentences" in caplog.text
    caplog.clear()
    assert len(lines_of(tmp_path / "file", text, "text", splits_sentences=True)) == 1000
    assert not caplog.text

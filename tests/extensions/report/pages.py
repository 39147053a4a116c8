"""Reads the page of a report with html.parser, and checks that it is whole."""

import collections
import html.parser
import pathlib
import re

EMPTY_TAGS = {"meta", "br"}
# What a page that needs no network has in no attribute. An xmlns is a name, and no link.
_LINKS = ("src", "href", "action", "data", "poster", "srcset")


class ReadPage(html.parser.HTMLParser):
    """The content of a page.

    Attributes:
        ids: the ids of all elements.
        links: the values of all attributes that load something.
        headings: the texts of the headings h2.
        tables: the rows of each table, each a list of the texts of its cells.
        pictures: the number of elements svg.
        tags: how many elements there are of each tag.
        handlers: the attributes that run code.
        text: all texts but those of scripts and styles.
    """

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.tags = collections.Counter()
        self.handlers: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"
        assert len(set(self.ids)) == len(self.ids), "ids are unique"

    @property
    def pictures(self) -> int:
        return self.tags["svg"]

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in _LINKS:
                self.links.append(value)
            if name.startswith("on"):
                self.handlers.append(name)
        if tag not in EMPTY_TAGS:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if {"script", "style"} & {*self._open}:
            assert not re.search(r"@import|url\(|https?://", data)
            return
        self.text += data
        if {"td", "th"} & {*self._open}:
            self.tables[-1][-1][-1] += data
        if "h2" in self._open:
            self.headings[-1] += data

    def find_table(self, head: str) -> list[list[str]]:
        """Returns the rows of the table whose first column has a head, without the heads."""
        matches = [rows for rows in self.tables if rows[0][0] == head]
        assert len(matches) == 1, (head, [rows[0] for rows in self.tables])
        return matches[0][1:]


def read_page(path: pathlib.Path) -> ReadPage:
    """Returns a page after checking what holds for all of them: it needs no network, every table
    has as many cells in each row as heads, and every picture is in the folder of pictures, too.
    """
    page = ReadPage(path.read_text(encoding="utf-8"))
    assert all(link.startswith("#section-") for link in page.links), page.links
    assert page.handlers == []
    for rows in page.tables:
        assert len(rows) > 1, rows
        assert {len(row) for row in rows} == {len(rows[0])}
    names = {name.removeprefix("picture-") for name in page.ids if name.startswith("picture-")}
    assert len(names) == page.pictures
    if names:
        files = {file.name for file in (path.parent / "report_pictures").iterdir()}
        assert {f"{name}.svg" for name in names} <= files
    return page

"""HTML that cannot contain what users wrote: every text is escaped, unless it is `Markup`."""

import html
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

_EMPTY_TAGS = {"br", "meta"}


class Markup(str):
    """A text that is HTML already. `element` and the functions on top of it make it."""


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        content: what the reader sees.
        value: what the column is sorted by.
    """

    content: str
    value: float | str


class MarkedPart(NamedTuple):
    """A part of a text that is marked.

    Attributes:
        start: its first character.
        end: the character behind it.
        name: what it is, which is shown behind it; "" for nothing.
        attributes: those of the element, such as `class_` or `style`.
    """

    start: int
    end: int
    name: str = ""
    attributes: Mapping[str, str] = MappingProxyType({})


def escape(text: object) -> Markup:
    """Returns a text as HTML.

    Args:
        text: the text. `Markup` stays as it is.
    """
    return text if isinstance(text, Markup) else Markup(html.escape(str(text)))


def join(parts: Iterable[object], separator: str = "") -> Markup:
    """Returns parts of a page as one.

    Args:
        parts: texts, which are escaped, or Markup.
        separator: HTML between them.
    """
    return Markup(separator.join(map(escape, parts)))


def element(tag: str, *children: object, **attributes: str) -> Markup:
    """Returns an element.

    Args:
        tag: its name.
        *children: texts, which are escaped, or Markup.
        **attributes: the attributes; `class_` is "class", and other underscores are hyphens.
    """
    pairs = [
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
    ]
    head = f"<{tag}{''.join(pairs)}>"
    return Markup(head if tag in _EMPTY_TAGS else f"{head}{join(children)}</{tag}>")


def mark_text(text: str, parts: Iterable[MarkedPart]) -> Markup:
    """Returns a text with marked parts.

    Args:
        text: the text.
        parts: the parts. One that overlaps an earlier one is left out.
    """
    pieces: list[object] = []
    end = 0
    for part in sorted(parts, key=lambda part: part.start):
        if part.start < end:
            continue
        name = element("b", part.name) if part.name else ""
        marked = text[part.start : part.end]
        pieces += [
            text[end : part.start],
            element("mark", marked, name, **part.attributes),
        ]
        end = part.end
    return join([*pieces, text[end:]])


def make_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Returns a table that the reader can sort by each column.

    Args:
        heads: the heads of the columns.
        rows: the cells of the rows: texts, numbers, Markup, or `Cell` for another order. Numbers
            are aligned to the right.
    """
    head_cells = [
        element(
            "th",
            head,
            scope="col",
            tabindex="0",
        )
        for head in heads
    ]
    body_rows = [element("tr", *map(_make_cell, row)) for row in rows]
    head = element("thead", element("tr", *head_cells))
    return element(
        "div",
        element(
            "table",
            head,
            element("tbody", *body_rows),
            class_="sortable",
        ),
        class_="scroll",
    )


def _make_cell(content: object) -> Markup:
    value = None
    if isinstance(content, Cell):
        content, value = content
    elif isinstance(content, int | float):
        value = content
        content = f"{content:.4g}" if isinstance(content, float) else f"{content:,}"
    attributes = {} if value is None else {"data_value": str(value)}
    if isinstance(value, int | float):
        attributes["class_"] = "number"
    return element("td", content, **attributes)

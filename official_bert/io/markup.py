"""HTML that cannot contain what users wrote: every text is escaped, unless it is `Markup`."""

import html
from collections.abc import Iterable, Sequence
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

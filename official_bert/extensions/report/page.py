"""The page of a report: one HTML file that needs no network, and the files of its pictures."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import NamedTuple

from absl import logging

from official_bert.extensions.report.drawing import Picture, has_matplotlib
from official_bert.io import files, writing
from official_bert.io.markup import Markup, element, join

PAGE_FILE = "report.html"
PICTURES_FOLDER = "report_pictures"
_STYLE = """
:root { color-scheme: light dark; --text: #1f2933; --quiet: #52606d; --page: #f5f7fa;
  --panel: #fff; --line: #e4e7eb; --soft: #f0f4f8; --link: #0b5cad; --mark: #cfe8fc;
  --missed: #fde3cf; --right: #d3f2e3; --warning: #fff3d6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e7eb; --quiet: #a9b4c0; --page: #12171d; --panel: #1b222b; --line: #323f4b;
    --soft: #26303b; --link: #7cb8f5; --mark: #1f4e79; --missed: #7a4217; --right: #1d5c3f;
    --warning: #574313; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  margin: 0; }
main { max-width: 1260px; margin: 0 auto; padding: 16px 24px 64px; }
h1 { margin: 16px 0 4px; font-size: 28px; overflow-wrap: anywhere; }
h2 { margin: 0 0 8px; font-size: 19px; }
h3 { margin: 16px 0 4px; font-size: 15px; }
p { margin: 4px 0 12px; max-width: 75ch; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 12px 0 20px; }
a { color: var(--link); }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 16px 20px; margin: 0 0 16px; }
.row { display: flex; flex-wrap: wrap; gap: 16px 24px; align-items: flex-start;
  margin: 0 0 12px; }
.tile { background: var(--soft); border-radius: 8px; padding: 8px 16px; min-width: 104px; }
.tile b { display: block; font-size: 22px; overflow-wrap: anywhere; }
.tile span { color: var(--quiet); }
figure { margin: 0; max-width: 100%; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; background: #fff;
  border-radius: 6px; margin: 0 0 4px; }
.scroll { overflow: auto; max-height: 480px; margin: 4px 0 12px; }
table { border-collapse: collapse; font-size: 14px; }
th { position: sticky; top: 0; background: var(--soft); text-align: left; cursor: pointer;
  white-space: nowrap; }
th::after { content: " \\2195"; color: var(--quiet); }
th[aria-sort=ascending]::after { content: " \\2191"; color: var(--text); }
th[aria-sort=descending]::after { content: " \\2193"; color: var(--text); }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
td { unicode-bidi: plaintext; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--soft); padding: 12px; border-radius: 8px; overflow-x: auto; }
.marked { line-height: 2.3; }
mark { padding: 3px 5px; border-radius: 5px; background: var(--mark); color: inherit; }
mark.missed { background: var(--missed); }
mark.right { background: var(--right); }
mark b { font-size: 10px; margin-left: 5px; letter-spacing: 0.03em; }
.note { color: var(--quiet); }
.warning { background: var(--warning); border-radius: 8px; padding: 8px 12px; }
button { font: inherit; font-size: 12px; border: 1px solid var(--line); border-radius: 5px;
  background: var(--panel); cursor: pointer; color: var(--quiet); }
@media (max-width: 600px) {
  main { padding: 8px 10px 32px; }
  section { padding: 12px; }
}
"""
# A click on a head sorts its table; a second click reverses the order. Each picture can be saved.
_SCRIPT = """
for (const head of document.querySelectorAll("table.sortable th")) {
  const sort = () => {
    const column = [...head.parentNode.children].indexOf(head);
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => {
      const cell = row.children[column];
      const text = cell.dataset.value ?? cell.textContent;
      return text.trim() !== "" && !isNaN(text) ? Number(text) : text;
    };
    const compare = (one, other) => {
      const a = key(one), b = key(other);
      if (typeof a === "number" && typeof b === "number") return a - b;
      return String(a).localeCompare(String(b), undefined, {numeric: true});
    };
    const rows = [...body.rows].sort(compare);
    body.append(...(down ? rows.reverse() : rows));
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
for (const figure of document.querySelectorAll("figure")) {
  const button = document.createElement("button");
  button.textContent = "Save as PNG";
  button.addEventListener("click", () => {
    const svg = figure.querySelector("svg"), image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * svg.width.baseVal.value;
      canvas.height = 2 * svg.height.baseVal.value;
      const context = canvas.getContext("2d");
      context.fillStyle = "#fff";
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      const link = document.createElement("a");
      link.download = figure.id + ".png";
      link.href = canvas.toDataURL("image/png");
      link.click();
    };
    const text = new XMLSerializer().serializeToString(svg);
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  });
  figure.append(button);
}
"""


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: its heading.
        parts: texts, Markup and pictures in their order.
    """

    title: str
    parts: list[str | Markup | Picture]


class Page(NamedTuple):
    """A page.

    Attributes:
        title: its heading.
        subtitle: the line below the heading.
        sections: the parts.
    """

    title: str
    subtitle: str
    sections: list[Section]

    def to_html(self) -> str:
        """Returns the page as the content of an HTML file."""
        links = []
        bodies = []
        for number, section in enumerate(self.sections, start=1):
            anchor = f"section-{number}"
            links.append(element("a", section.title, href=f"#{anchor}"))
            heading = element("h2", section.title)
            bodies.append(element("section", heading, *_to_elements(section.parts), id=anchor))
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", self.title),
            element("style", Markup(_STYLE)),
        )
        content = element(
            "main",
            element("h1", self.title),
            element("p", self.subtitle, class_="note"),
            element("nav", *links),
            *bodies,
        )
        body = element("body", content, element("script", Markup(_SCRIPT)))
        return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"

    def pictures(self) -> list[Picture]:
        """Returns all pictures of the page."""
        parts = [part for section in self.sections for part in section.parts]
        return [part for part in parts if isinstance(part, Picture)]

    def write(self, path: str) -> None:
        """Writes the page, and its pictures into the folder `report_pictures` beside it.

        Args:
            path: the file of the page.

        Raises:
            InputError: a file cannot be written.
        """
        with writing.replacing(path) as file:
            file.write(self.to_html())
        logging.info("Wrote %s", path)
        pictures = self.pictures()
        if not pictures:
            return
        folder = os.path.join(os.path.dirname(path), PICTURES_FOLDER)
        files.make_folder(folder)
        for picture in pictures:
            with writing.replacing(os.path.join(folder, f"{picture.name}.svg")) as file:
                file.write(picture.to_svg())
            if has_matplotlib():
                content = io.BytesIO()
                picture.write_png(content)
                with writing.replacing(os.path.join(folder, f"{picture.name}.png"), "wb") as file:
                    file.write(content.getvalue())
        if not has_matplotlib():
            logging.info(
                "%s has its pictures as SVG; for PNG, too, pip install matplotlib and repeat "
                "official-bert report",
                folder,
            )


def _to_elements(parts: Iterable[str | Markup | Picture]) -> list[Markup]:
    """Returns parts as elements; adjacent pictures are side by side."""
    elements: list[Markup] = []
    figures: list[Markup] = []
    for part in [*parts, ""]:
        if isinstance(part, Picture):
            figures.append(element("figure", part.to_svg(), id=f"picture-{part.name}"))
            continue
        if figures:
            elements.append(element("div", *figures, class_="row"))
            figures = []
        if part:
            elements.append(part if isinstance(part, Markup) else element("p", part))
    return elements


def make_tiles(values: Iterable[tuple[str, str]]) -> Markup:
    """Returns figures in large letters side by side.

    Args:
        values: what each figure is, and the figure.
    """
    tiles = [
        element("div", element("b", value), element("span", name), class_="tile")
        for name, value in values
    ]
    return element("div", join(tiles), class_="row")

"""Makes the site of the pages: README and the like become pages, and links to other files of the
repository their text.

In: docs/, README.md, CONTRIBUTING.md, CHANGELOG.md. Out: the pages that mkdocs builds; mkdocs.yml
    names this file.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")  # or an image


def on_files(files, config):
    for source, page in PAGES.items():
        text = _relinked((ROOT / source).read_text(encoding="utf-8"), ".", "")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri in PAGES.values():
        return markdown
    return _relinked(
        markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)), page.file.src_uri
    )


def _relinked(markdown: str, folder: str, page: str) -> str:
    """A page whose links fit the site.

    Args:
        markdown: the page.
        folder: where it lies in the repository.
        page: its path on the site; "" is a page at the top.
    """

    def relinked(link: re.Match) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        on_site = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if on_site is None or not on_site.endswith((".md", ".png")):
            return text
        start = posixpath.dirname(page) or "."
        return f"{mark}[{text}]({posixpath.relpath(on_site, start)}{anchor})"

    return LINK.sub(relinked, markdown)

"""Writes the pages of the site: README and the like become pages, and links fit the site.

Zensical then builds the site out of them, as mkdocs.yml says. `make docs` runs both.

In: docs/, README.md, CONTRIBUTING.md, CHANGELOG.md, and the variable REPOSITORY of the environment,
    the web address of the repository. Out: build/pages.
"""

import os
import pathlib
import posixpath
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
NOT_ON_THE_SITE = {"docs/package_index.md"}
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")  # or an image


def list_sources(root: pathlib.Path) -> dict[str, str]:
    """Returns the paths of all files of the site, by their paths in the repository."""
    sources = dict(PAGES)
    for path in sorted((root / "docs").rglob("*")):
        source = path.relative_to(root).as_posix()
        is_page = path.suffix in (".md", ".png", ".css", ".js")
        if is_page and source not in NOT_ON_THE_SITE:
            sources[source] = source.removeprefix("docs/")
    return sources


def relink(
    markdown: str, source: str, sources: dict[str, str], repository: str
) -> str:
    """Returns a page with links that fit the site.

    A link to a file that is not on the site leads to the repository; without a repository, its
    text remains.

    Args:
        markdown: the page.
        source: its path in the repository.
        sources: the paths on the site by the paths in the repository.
        repository: the web address of the repository, or "".
    """

    def relink_one(link: re.Match) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target:
            return link[0]
        path = posixpath.normpath(
            posixpath.join(posixpath.dirname(source), target)
        )
        if path in sources:
            folder = posixpath.dirname(sources[source]) or "."
            return f"{mark}[{text}]({posixpath.relpath(sources[path], folder)}{anchor})"
        if repository:
            return f"[{text}]({repository}/blob/main/{path}{anchor})"
        return text

    return LINK.sub(relink_one, markdown)


def write_pages(root: pathlib.Path, folder: pathlib.Path, repository: str):
    """Writes all files of the site into a folder, in place of its files."""
    shutil.rmtree(folder, ignore_errors=True)
    sources = list_sources(root)
    for source, page in sources.items():
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            markdown = (root / source).read_text(encoding="utf-8")
            path.write_text(
                relink(markdown, source, sources, repository), encoding="utf-8"
            )
        else:
            shutil.copyfile(root / source, path)


if __name__ == "__main__":
    write_pages(
        ROOT, ROOT / "build" / "pages", os.environ.get("REPOSITORY", "")
    )

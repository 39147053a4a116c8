"""The site that `make docs` builds: links between its pages, the navigation, the search without a
server. Zensical, which only `make docs` installs, checks the links once more.
"""

import pathlib
import re
import runpy
import shutil

import pytest

from tests.browser import dump_page, needs_chromium
from tests.shared import ROOT

SITE = runpy.run_path(str(ROOT / "docs" / "_site.py"))
SOURCES = {
    "README.md": "index.md",
    "docs/report.md": "report.md",
    "docs/reports/index.md": "reports/index.md",
    "docs/map.png": "map.png",
}
REPOSITORY = "https://git.example/bert"
HTML_PAGE = """<!doctype html><html><body><script src="iframe-worker.js"></script><script>
const worker = new Worker("doubler.js");
worker.onmessage = (event) => {
  document.title += " " + event.data.number;
  if (event.data.number === 4) worker.postMessage({ number: 21 });
};
worker.postMessage({ number: 2 });
</script></body></html>"""
WORKER = "self.onmessage = (event) => self.postMessage({ number: 2 * event.data.number });"


def relink(markdown: str, source: str, repository: str = "") -> str:
    return SITE["relink"](markdown, source, SOURCES, repository)


@pytest.mark.parametrize(
    ("markdown", "source", "expected"),
    [
        ("[r](docs/report.md#how)", "README.md", "[r](report.md#how)"),
        ("![m](docs/map.png)", "README.md", "![m](map.png)"),
        ("[r](../report.md)", "docs/reports/index.md", "[r](../report.md)"),
        ("[r](../../README.md)", "docs/reports/index.md", "[r](../index.md)"),
        ("[r](https://x.org/a.md)", "README.md", "[r](https://x.org/a.md)"),
        ("[r](#how)", "README.md", "[r](#how)"),
    ],
)
def test_links_between_pages(markdown, source, expected):
    assert relink(markdown, source) == expected
    assert relink(markdown, source, REPOSITORY) == expected


def test_links_to_other_files_lead_to_the_repository_if_it_has_an_address():
    markdown = "See [it](../../tests/a.py) and ![this](../b.svg)."
    source = "docs/reports/index.md"
    assert relink(markdown, source) == "See it and this."
    linked = relink(markdown, source, REPOSITORY)
    assert linked == (
        f"See [it]({REPOSITORY}/blob/main/tests/a.py) and [this]({REPOSITORY}/blob/main/docs/b.svg)."
    )


def test_pages_are_written_in_place_of_older_ones(tmp_path):
    (tmp_path / "old.md").write_text("old")
    SITE["write_pages"](ROOT, tmp_path, "")
    sources = SITE["list_sources"](ROOT)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert written == set(sources.values())
    assert "](report.md)" in (tmp_path / "index.md").read_text(encoding="utf-8")


def test_the_navigation_has_every_page_once():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    _, _, navigation = config.partition("\nnav:\n")
    pages = re.findall(r"([\w/]+\.md)$", navigation, re.MULTILINE)
    results = "reports/experiments_"  # the report on experiments links to these
    expected = [
        page
        for page in SITE["list_sources"](ROOT).values()
        if page.endswith(".md") and not page.startswith(results)
    ]
    assert sorted(pages) == sorted(expected)


def test_pages_load_the_script_for_the_search_in_files():
    """Without a script of this name, the generator would load one from the network."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "polyfills: [assets/iframe-worker.js]" in config
    assert "assets/iframe-worker.js" in SITE["list_sources"](ROOT).values()


@needs_chromium
def test_a_worker_runs_on_a_page_that_is_a_file(tmp_path: pathlib.Path):
    shutil.copy(ROOT / "docs" / "assets" / "iframe-worker.js", tmp_path)
    (tmp_path / "doubler.js").write_text(WORKER)
    page = tmp_path / "page.html"
    page.write_text(HTML_PAGE)
    dump = dump_page(page)
    assert re.findall("<title>(.*?)</title>", dump) == ["4 42"]

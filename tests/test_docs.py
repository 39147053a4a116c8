"""The pages: links lead somewhere, guides are short, every public name and every promise's test is there."""

import ast
import functools
import pathlib
import re
import subprocess

import pytest

import official_bert
from tests.shared import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(page: pathlib.Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_guides_are_short():
    lengths = {page.name: page.read_text(encoding="utf-8").count("\n") for page in GUIDES}
    assert {name: length for name, length in lengths.items() if length > 150} == {}


def test_the_reference_and_the_type_checkers_have_every_public_name():
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: official_bert\.(\w+)$", reference, re.MULTILINE)) == official_bert.__all__
    source = ast.parse((ROOT / "official_bert" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in source.body if isinstance(node, ast.If))
    imported = {alias.name: node.module for node in checked.body for alias in node.names}
    assert imported == official_bert._PUBLIC
    assert sorted(imported) == official_bert.__all__


RELIABILITY = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_the_tests_of_the_promises_exist():
    """A file's name stands before the names of its tests."""
    file, defined, count = "", set(), 0
    for name in re.findall(r"`((?:\w+/)*test_\w+(?:\.py)?)`", RELIABILITY):
        if name.endswith(".py"):
            source = (ROOT / "tests" / name).read_text(encoding="utf-8")
            file, defined = name, set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        else:
            count += 1
            assert name in defined, f"{file} has no {name}"
    assert count > 25


def test_every_promise_names_a_test():
    promises = re.findall(r"^\*\*.*?(?=\n\n(?:\*\*|#|Not promised)|\Z)", RELIABILITY, re.DOTALL | re.MULTILINE)
    assert len(promises) > 15
    for promise in promises:
        assert re.search(r"`(\w+/)*test_\w+(\.py)?`", promise), promise


@pytest.mark.long
@pytest.mark.needs_program("curl", "git", "make")
def test_the_first_hour_of_a_user(tmp_path):
    """tests/first_hour.sh runs docs/first_hour.md and the commands that the quickstart prints, as they stand there."""
    clone = tmp_path / "official_bert"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    finished = subprocess.run([clone / "tests" / "first_hour.sh"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
    assert finished.stdout.endswith("The first hour went well.\n")

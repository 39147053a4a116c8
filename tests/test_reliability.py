"""docs/reliability.md: every paragraph that promises something names tests, and those tests exist."""

import re

from tests.shared import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_the_tests_of_the_page_exist():
    """A file's name stands before the names of its tests."""
    file, defined, count = "", set(), 0
    for name in re.findall(r"`((?:\w+/)*test_\w+(?:\.py)?)`", PAGE):
        if name.endswith(".py"):
            source = (ROOT / "tests" / name).read_text(encoding="utf-8")
            file, defined = name, set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        else:
            count += 1
            assert name in defined, f"{file} has no {name}"
    assert count > 25


def test_every_promise_names_a_test():
    promises = re.findall(r"^\*\*.*?(?=\n\n(?:\*\*|#|Not promised)|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert len(promises) > 15
    for promise in promises:
        assert re.search(r"`(\w+/)*test_\w+(\.py)?`", promise), promise

"""docs/reliability.md: every paragraph that promises something names tests, and those tests exist."""

import re

from tests.shared import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_the_tests_of_the_page_exist():
    sources = {
        path.relative_to(ROOT / "tests").as_posix(): path.read_text() for path in ROOT.glob("tests/**/*.py")
    }
    assert set(re.findall(r"`(\w+/[\w/]+\.py)`", PAGE)) <= set(sources)
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(sources.values()), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 30
    assert named <= defined


def test_every_promise_names_a_test():
    promises = re.findall(r"^\*\*.*?(?=\n\n(?:\*\*|#|Not promised)|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert len(promises) > 15
    for promise in promises:
        assert re.search(r"`(test_\w+|\w+/test_\w+\.py)`", promise), promise

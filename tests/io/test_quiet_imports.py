"""TensorFlow's start-up messages are hidden in Python, unless the environment asks for them."""

import os
import subprocess
import sys

import pytest

from official_bert.io import quiet_imports
from tests.shared import ROOT

PROGRAM = """
from official_bert import BertModel
import os, sys
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], file=sys.stderr)
"""


@pytest.mark.parametrize("level", [None, "0"])
def test_python_imports_the_package_quietly(level):
    environment = dict(os.environ)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    *messages, used_level = ended.stderr.splitlines()
    assert used_level == (level or "3")
    assert bool(messages) == (level == "0")


def test_an_import_that_fails_shows_what_was_hidden(monkeypatch, capfd):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with quiet_imports.quiet_imports():
        os.write(2, b"hidden\n")

    def fail_to_import():
        os.write(2, b"the reason\n")
        raise ImportError

    with pytest.raises(ImportError), quiet_imports.quiet_imports():
        fail_to_import()
    assert capfd.readouterr().err == "the reason\n"

"""The Makefile in a folder of its own: the list of targets, and what `make clean` deletes."""

import os
import re
import shutil
import subprocess

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.needs_program("make")


def make(folder, *targets: str) -> str:
    """Runs make as a user does, also where the tests are run by `make test`, which tells its children so."""
    shutil.copy(ROOT / "Makefile", folder)
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    finished = subprocess.run(["make", *targets], cwd=folder, env=alone, capture_output=True, text=True, check=True)
    return finished.stdout


def test_make_alone_prints_every_target(tmp_path):
    (targets,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = [line.split(maxsplit=2) for line in make(tmp_path).splitlines()]
    assert [line[:2] for line in lines] == [["make", target] for target in targets.split()]
    assert all(len(line) == 3 for line in lines), "a target without an explanation"


def test_clean_keeps_trained_models(tmp_path):
    for name in (".venv/bin/python", "build/lib", "x.egg-info/PKG-INFO", "quickstart_output/model/checkpoint"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    make(tmp_path, "clean")
    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert kept == {"Makefile", "quickstart_output/model/checkpoint"}

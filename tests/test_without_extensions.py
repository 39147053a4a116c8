"""The core without one of its extensions, without half of them, and without all, in copies of the
repository.

A copy has the tracked files without the folders of the extensions and those of their tests.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from official_bert import catalog
from tests.shared import ROOT

NAMES = sorted(
    path.parent.name for path in (ROOT / "official_bert/extensions").glob("*/__init__.py")
)
ALL = "all"


def halves() -> dict[str, list[str]]:
    """The extensions whose number has a one at a binary digit, and those with a zero there.

    Of any two extensions, one half has the first without the second.
    """
    parts = {}
    for digit in range((len(NAMES) - 1).bit_length()):
        for bit in (0, 1):
            names = [name for number, name in enumerate(NAMES) if number >> digit & 1 == bit]
            parts[f"digit {digit} is {bit}"] = names
    return parts


# Without TensorFlow: the records, the flags of each command, and the help of one that extensions
# add flags to.
HELP = """
import sys
from official_bert import catalog
from official_bert.cli import commands, flags, help_text
from official_bert.options.fields import flag_fields
print(*sorted(record.name for record in catalog.extensions()))
for name in catalog.commands():
    options_class = catalog.options_class(name)
    fields = flag_fields(options_class)
    headings = [help_text.find_heading(options_class, field) for field in fields]
    assert headings, name
assert "tensorflow" not in sys.modules
sys.argv = ["official-bert", "run_classifier", "--helpfull"]
commands.main()
"""
# With TensorFlow: every module of the core.
IMPORTS = """
import importlib, pkgutil
import official_bert
for module in pkgutil.walk_packages(official_bert.__path__, "official_bert."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from official_bert import Predictor, catalog
assert catalog.extensions() == ()
"""


def copy_without(removed: list[str], folder: pathlib.Path) -> pathlib.Path:
    """Copies the tracked files to a folder, without some extensions."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    places = [
        f"{place}/{each}/"
        for place in ("official_bert/extensions", "tests/extensions")
        for each in removed
    ]
    for path in filter(None, listed.split("\0")):
        if path.startswith(tuple(places)) or not (ROOT / path).exists():
            continue
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    return folder


def run_in(folder: pathlib.Path, *command: str, timeout_secs: float = 300) -> str:
    # A copy has neither the folder `shared` nor the environments .venv-*.
    dropped = ("REQUIRE_SHARED", "REQUIRE_EXTRAS")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    finished = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return finished.stdout


def test_each_folder_of_an_extension_has_a_record_of_its_name():
    records = {record.name for record in catalog.extensions()}
    assert set(NAMES) <= records


@pytest.mark.needs_program("git")
@pytest.mark.parametrize("name", [*NAMES, ALL])
def test_without_an_extension_every_command_has_its_help(name, tmp_path):
    removed = NAMES if name == ALL else [name]
    folder = copy_without(removed, tmp_path)
    names, *text = run_in(folder, "-c", HELP).splitlines()
    assert names.split() == sorted(set(NAMES) - set(removed))
    assert any("--train_batch_size" in line for line in text)


@pytest.mark.needs_program("git")
def test_without_all_extensions_every_module_can_be_imported(tmp_path):
    run_in(copy_without(NAMES, tmp_path), "-c", IMPORTS)


def test_of_any_two_extensions_a_half_has_one_alone():
    alone = {
        (first, second)
        for names in halves().values()
        for first in names
        for second in set(NAMES) - set(names)
    }
    assert alone == set(itertools.permutations(NAMES, 2))


@pytest.mark.long
@pytest.mark.needs_program("git")
@pytest.mark.parametrize("removed", [*halves().values(), NAMES], ids=[*halves(), ALL])
def test_without_extensions_the_tests_of_the_core_pass(removed, tmp_path):
    """With the halves, each extension is absent once while any other is there."""
    folder = copy_without(removed, tmp_path)
    output = run_in(folder, "-m", "pytest", "-m", "core", timeout_secs=3000)
    (num_passed,) = re.findall(r"^(\d+) passed", output, re.MULTILINE)
    assert int(num_passed) > 1000

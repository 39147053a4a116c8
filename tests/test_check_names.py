"""tools/check_names.py: which names `make lint` refuses."""

import importlib.util
import subprocess
import sys

import pytest

from tests.shared import ROOT

SCRIPT = ROOT / "tools" / "check_names.py"
GOOD = (
    "def load_weights(path, *, known_labels):\n    num_files = known_labels\n    return num_files\n"
)


def load_script():
    spec = importlib.util.spec_from_file_location("check_names", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_names = load_script()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("found", "contains 'found'"),
        ("_given_vectors", "contains 'given'"),
        ("has_own_input", "contains 'own'"),
        ("OwnLines", "contains 'own'"),
        ("said", "contains 'said'"),
        ("taught_by", "contains 'taught'"),
        ("of_texts", "starts with 'of'"),
        ("_OF_CLASSIFIERS", "starts with 'of'"),
        ("in_scope", "starts with 'in'"),
        ("InMemoryModel", "starts with 'in'"),
        ("_as_numpy", "starts with 'as'"),
        ("by_label", "starts with 'by'"),
        ("made", "starts with 'made'"),
        ("kept_back", "starts with 'kept'"),
        ("known", "does not say what the value is"),
        ("bounds_of", "contains 'of'"),
        ("_labels_of_windows", "contains 'of'"),
    ],
)
def test_refuses(name, reason):
    assert check_names.explain_refusal(name).startswith(reason)


@pytest.mark.parametrize(
    "name",
    [
        "foundation",
        "owner",
        "input_ids",
        "InputExample",
        "assert_rank",
        "is_in_range",
        "bytes_per_step",
        "known_labels",
        "self",
        "_",
        "__init__",
        "warn_of_truncation",
        "is_out_of_time",
        "offset",
        "profile",
    ],
)
def test_accepts(name):
    assert check_names.explain_refusal(name) is None


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "found: int = 1",
        "self.found = 1",
        "def found(): pass",
        "async def found(): pass",
        "class Found: pass",
        "def find(found): pass",
        "def find(*, found=1): pass",
        "lambda found: 1",
        "for found in []: pass",
        "[1 for found in []]",
        "if (found := 1): pass",
        "with open('x') as found: pass",
        "import os as found",
        "try: pass\nexcept OSError as found: pass",
        "match 1:\n    case found: pass",
        "match 1:\n    case [*found]: pass",
        "match 1:\n    case {**found}: pass",
    ],
)
def test_reads_every_definition(source):
    (name,) = (name for name in check_names.list_names(source) if "found" in name.text.lower())
    assert name.line == source[: source.lower().index("found")].count("\n") + 1


def test_reads_no_use():
    source = "print(found, self.found, find(found=1), 'found')\nimport found\n"
    assert list(check_names.list_names(source)) == []


def run(*paths):
    command = [sys.executable, SCRIPT, *paths]
    return subprocess.run(command, capture_output=True, text=True)


def test_prints_each_name_and_fails(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "by_label.py").write_text(f"{GOOD}found = found = 1\n")
    finished = run(tmp_path)
    assert finished.returncode == 1
    assert finished.stdout.splitlines() == [
        f"{tmp_path}/by_label.py:1: by_label: starts with 'by'",
        f"{tmp_path}/by_label.py:4: found: contains 'found'",
        "2 names do not say what their value is. Name the value instead.",
    ]


def test_passes_plain_names(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    finished = run(tmp_path / "good.py")
    assert (finished.returncode, finished.stdout) == (0, "")


def test_each_exception_has_a_reason_and_is_needed():
    exceptions = dict(check_names.EXCEPTIONS)
    check_names.EXCEPTIONS.clear()
    try:
        for name, reason in exceptions.items():
            assert reason
            assert check_names.explain_refusal(name), f"{name} passes without an exception"
    finally:
        check_names.EXCEPTIONS.update(exceptions)

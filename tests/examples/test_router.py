"""The router in C answers lines of text as a call of the export does."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import c_runner, exported
from tests.serving.answers import signatures_of
from tests.shared import ROOT

ROUTER = ROOT / "examples" / "router"
TEXTS = ["The cat sat on the mat.", "", "A train left the station at noon.", "Zürich 東京 \t!"]


def write_names(version) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROUTER / "write_names.py", version],
        capture_output=True,
        text=True,
        check=False,
    )


def build(version, folder):
    """Compiles the router for an export; returns the program."""
    names = write_names(version)
    assert names.returncode == 0, names.stderr
    (folder / "names.h").write_text(names.stdout)
    c_runner.compile_program(ROUTER / "router.c", folder / "router")
    return folder / "router"


def run(program, version, text: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [program, version],
        input=text.encode(),
        capture_output=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
        timeout=300,
    )


@pytest.mark.needs_program("cc")
def test_each_line_gets_the_answer_of_the_export(tmp_path_factory, tmp_path):
    version = exported.shared_export(tmp_path_factory, "mrpc", export_text=True).path
    program = build(version, tmp_path)
    # The last line has no end.
    finished = run(program, version, "\n".join(TEXTS))
    assert finished.returncode == 0, finished.stderr
    lines = [line.split("\t") for line in finished.stdout.decode().splitlines()]
    serve = signatures_of(version)["serving_text"]
    inputs = {"text_a": tf.constant(TEXTS)}
    if "text_b" in serve.structured_input_signature[1]:
        inputs["text_b"] = tf.constant([""] * len(TEXTS))
    expected = serve(**inputs)
    assert [label for label, _ in lines] == [one.decode() for one in expected["label"].numpy()]
    np.testing.assert_allclose(
        [float(probability) for _, probability in lines],
        expected["probabilities"].numpy().max(axis=1),
        atol=2e-6,
    )


def test_an_export_of_another_kind_is_named(tmp_path_factory):
    version = exported.shared_export(tmp_path_factory, "mrpc").path
    finished = write_names(version)
    assert finished.returncode == 1
    assert "is no export of a classifier with one label that reads raw text" in finished.stderr

"""Runs tests/first_hour.sh: docs/first_hour.md and the commands that the quickstart prints, as they stand there."""

import subprocess

import pytest

from tests.shared import ROOT


@pytest.mark.long
@pytest.mark.needs_program("curl", "git", "make")
def test_the_first_hour_of_a_user(tmp_path):
    clone = tmp_path / "official_bert"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    finished = subprocess.run([clone / "tests" / "first_hour.sh"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
    assert finished.stdout.endswith("The first hour went well.\n")


def test_the_page_has_every_step():
    page = (ROOT / "docs" / "first_hour.md").read_text()
    for script in (
        "make quickstart", "run_classifier.py", "predict.py", "export_saved_model.py", "serving_server.py",
        "serving_client.py", "convert_checkpoint.py", "run_pretraining.py", "extract_features.py",
    ):  # fmt: skip
        assert script in page

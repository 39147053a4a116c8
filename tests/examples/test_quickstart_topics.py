"""Tests the quickstart's classification task."""

import csv
import subprocess
import sys

from tests.shared import ROOT


def test_the_files_hold_every_sentence_once_under_its_label(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "quickstart_topics.py"), f"--data_dir={tmp_path / 'data'}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {}
    for name in ("train", "dev"):
        with (tmp_path / "data" / f"{name}.tsv").open(encoding="utf-8") as file:
            header, *rows[name] = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        assert header == ["sentence", "part"]
        assert {label for _, label in rows[name]} == {"classes", "debugger", "statements", "text"}
        assert f"{name}.tsv: {len(rows[name])} sentences" in said
    sentences = [sentence for part in rows.values() for sentence, _ in part]
    assert len(set(sentences)) == len(sentences)
    assert abs(len(rows["dev"]) / len(sentences) - 0.2) < 0.001
    labels = dict(rows["train"] + rows["dev"])
    assert labels["The module pdb defines an interactive source code debugger for Python programs."] == "debugger"
    assert labels["Function and class definitions are also syntactically compound statements."] == "statements"

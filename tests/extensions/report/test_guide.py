"""docs/report.md: its commands run as they are written."""

import re
import shlex

from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from tests import toy
from tests.extensions.report.pages import read_page
from tests.scripts import run_here
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


def write_report(words: list[str]):
    """Runs official-bert report with the words of a command line."""
    folders = [word for word in words if not word.startswith("--")]
    flags = dict(word.removeprefix("--").split("=", 1) for word in words[len(folders) :])
    run(ReportOptions(folders=tuple(folders), **flags))


def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy.make_bert_base_dir(tmp_path / "model")
    (tmp_path / "intents").mkdir()
    for part in ("train", "dev"):
        rows = "the cat sat\tanimal\n" * 20 + "a train left\tvehicle\n" * 12
        toy.write_text(tmp_path / "intents", f"text\tintent\n{rows}", f"{part}.tsv")
    blocks = "".join(re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL))
    text = blocks.replace("\\\n", "").replace("$MODEL", "model").replace("/tmp", str(tmp_path))
    for line in text.splitlines():
        program, name, *words = shlex.split(line)
        if program == "python":
            run_here(name, *words)
        else:
            assert (program, name) == ("official-bert", "report")
            write_report(words)
    assert "Calibration" in read_page(tmp_path / "reported" / "report.html").headings
    comparison = read_page(tmp_path / "comparison.html")
    assert comparison.find_table("flags")[0][:2] == ["the same flags", "2"]


def test_the_guide_names_the_sections():
    for heading in (
        "Training",
        "Confusion matrix",
        "Calibration",
        "When to abstain",
        "Mistakes",
        "Map of the embeddings",
        "Lengths",
        "Speed",
    ):
        assert heading in PAGE, heading

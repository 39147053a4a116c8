"""The picture of a run: which curve is in which panel, and a PNG file from the script."""

import json
import struct
import sys

import pytest

from official_bert.commands import plot_run
from official_bert.io.errors import InputError
from official_bert.options.running import PlotOptions
from tests.scripts import run_script

ROWS = [
    {"step": 10, "loss": 7.0, "masked_lm_accuracy": 0.1, "learning_rate": 1e-4, "examples_per_second": 5.0},
    {"step": 20, "loss": 6.0, "masked_lm_accuracy": 0.2, "learning_rate": 5e-5, "examples_per_second": 5.0},
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    evaluated = {"step": 20, "loss": 6.5, "eval_loss": 6.4, "eval_f1": 0.3}
    (tmp_path / "eval_history.jsonl").write_text(json.dumps(evaluated) + "\n")
    return tmp_path


def test_every_figure_has_its_panel():
    training = {"loss": {1: 7.0}, "learning_rate": {1: 0.1}, "accuracy": {1: 0.5}, "examples_per_second": {1: 9.0}}
    evaluation = {"loss": {1: 6.0}, "eval_loss": {1: 6.0}, "eval_f1": {1: 0.25}}
    assert plot_run.panels_of(training, evaluation) == {
        "loss": {"loss": {1: 7.0}, "loss (evaluation)": {1: 6.0}},
        "accuracy and other scores": {"accuracy": {1: 0.5}, "f1 (evaluation)": {1: 0.25}},
        "learning rate": {"learning_rate": {1: 0.1}},
    }
    assert list(plot_run.panels_of({"loss": {1: 7.0}}, {})) == ["loss"]


@pytest.mark.needs_extra("matplotlib")
def test_the_script_writes_a_picture(folder, tmp_path):
    finished = run_script("plot_run.py", f"--output_dir={folder}")
    data = (folder / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (990, 990)  # three panels of 3 inches at 110 dots an inch
    assert f"Wrote {folder / 'plot.png'}" in finished.stderr


def test_a_missing_matplotlib_is_said_with_the_remedy(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"needs matplotlib.*pip install -r requirements-plots.txt"):
        plot_run.run(PlotOptions(output_dir=str(folder)))
    assert not (folder / "plot.png").exists()

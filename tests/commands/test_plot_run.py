"""The figures of a run, their panels, and a PNG file."""

import struct
import sys

import numpy as np
import pytest

from official_bert.commands import plot_run
from official_bert.io.errors import InputError
from official_bert.options.running import PlotOptions
from official_bert.tasks.temperature import write_reliability
from official_bert.training import run_log
from official_bert.training.reporting import write_eval_results
from tests.scripts import run_here


@pytest.fixture
def run(tmp_path):
    for step in (10, 20, 30):
        run_log.write(str(tmp_path), run_log.TRAIN, {"step": step, "loss": 1.0 / step, "learning_rate": 0.5})
    write_eval_results(str(tmp_path), {"loss": 0.5, "f1": 0.25}, 30)
    return tmp_path


def test_the_figures_of_a_training(run):
    expected = {"loss": {10: 0.1, 20: 0.05, 30: 1 / 30}, "learning_rate": dict.fromkeys((10, 20, 30), 0.5)}
    assert plot_run.training_figures(str(run)) == expected


def test_evaluations_during_training_come_before_those_after_it(run):
    found = plot_run.evaluation_figures(str(run))
    assert found == {"loss": {30: 0.5}, "f1": {30: 0.25}, "global_step": {30: 30.0}}
    for step, value in ((7, 0.5), (14, None)):
        run_log.write(str(run), run_log.EVALUATION, {"step": step, "f1": value})
    assert plot_run.evaluation_figures(str(run)) == {"f1": {7: 0.5}}


def test_a_folder_without_figures_is_refused(tmp_path):
    assert plot_run.evaluation_figures(str(tmp_path)) == {}
    with pytest.raises(InputError, match=r"has no run\.jsonl of a training; give the --output_dir"):
        plot_run.training_figures(str(tmp_path))


def test_every_figure_has_its_panel():
    training = {"loss": {1: 7.0}, "learning_rate": {1: 0.1}, "accuracy": {1: 0.5}, "examples_per_second": {1: 9.0}}
    training |= {"tokens_per_second": {1: 400.0}, "gradient_norm": {1: 3.0}}
    training |= {"memory_mb": {1: 900.0}, "gpu_memory_mb": {1: 70.0}}
    evaluation = {"loss": {1: 6.0}, "eval_loss": {1: 6.0}, "eval_f1": {1: 0.25}}
    assert plot_run.panels_of(training, evaluation) == {
        "loss": {"loss": {1: 7.0}, "loss (evaluation)": {1: 6.0}},
        "accuracy and other scores": {"accuracy": {1: 0.5}, "f1 (evaluation)": {1: 0.25}},
        "learning rate": {"learning_rate": {1: 0.1}},
        "norm of the gradient": {"gradient_norm": {1: 3.0}},
        "tokens a second": {"tokens_per_second": {1: 400.0}},
        "memory, MB": {"memory_mb": {1: 900.0}, "gpu_memory_mb": {1: 70.0}},
    }
    assert list(plot_run.panels_of({"loss": {1: 7.0}}, {})) == ["loss"]


@pytest.mark.needs_extra("matplotlib")
def test_the_script_writes_a_picture(run):
    finished = run_here("plot_run.py", f"--output_dir={run}")
    data = (run / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (990, 990)  # three panels of 3 inches at 110 dots an inch
    assert f"Wrote {run / 'plot.png'}" in finished.stderr


def test_a_missing_matplotlib_is_said_with_the_remedy(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"needs matplotlib.*pip install -r requirements-plots.txt"):
        plot_run.run(PlotOptions(output_dir=str(run)))
    assert not (run / "plot.png").exists()


def test_a_calibrated_model_has_a_reliability_diagram(run):
    assert plot_run.reliability_diagram(str(run)) == {}
    logits, targets = np.log(np.array([[0.95, 0.05], [0.15, 0.85], [0.7, 0.3]])), np.array([0, 0, 0])
    path = run / "reliability.tsv"
    write_reliability(str(run), "", logits, targets, 2.0)
    ((title, curves),) = plot_run.reliability_diagram(str(run)).items()
    assert title == "accuracy by probability"
    points = {0.7: 1.0, 0.85: 0.0, 0.95: 1.0}  # each in a bin of its own
    found = np.array(sorted(curves["as trained"].items()))
    assert found == pytest.approx(np.array(sorted(points.items())))
    halves = {1 / (1 + (1 / key - 1) ** 0.5): value for key, value in points.items()}  # of half the logits
    wanted = sorted(halves.items())
    assert np.array(sorted(curves["calibrated"].items())) == pytest.approx(np.array(wanted))
    run_here("plot_run.py", f"--output_dir={run}")
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")
    path.write_text("counts\tshares\n1\tx\n")
    with pytest.raises(InputError, match=r"reliability.tsv: is no table of a calibration; remove it"):
        plot_run.reliability_diagram(str(run))

"""The picture of a table: our points with error bars and the paper's, or curves over the steps."""

import contextlib
import dataclasses

import numpy as np
import pytest

from official_bert.jobs.experiments import picture
from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Settings, make_plan
from official_bert.jobs.experiments.results import Value
from tests.shared import ROOT

pytestmark = pytest.mark.needs_extra("matplotlib")
CATALOGUE = read_catalogue(str(ROOT / "experiments"))


@pytest.fixture
def axes(monkeypatch):
    """The panels of the next picture, which is not written."""
    from matplotlib.figure import Figure

    kept = []

    @contextlib.contextmanager
    def panels(path, title, count, share_x=True):
        figure = Figure()
        kept.extend(np.atleast_1d(figure.subplots(count)))
        yield list(kept)

    monkeypatch.setattr(picture, "panels", panels)
    return kept


def plan_and_values(name: str, scale: str):
    encoders = {name: {"num_hidden_layers": 2} for name in ("base", "large")}
    settings = Settings(seeds=2, encoders=encoders)
    plan = make_plan(read_experiment(name, CATALOGUE), CATALOGUE.scale(scale), CATALOGUE, settings)
    return plan, [Value(cell, 10.0 * cell.seed, 1.0) for cell in plan.cells]


def test_points_beside_the_papers(axes):
    plan, values = plan_and_values("table5", "paper")
    picture.draw("x.png", plan, values)
    assert [axis.get_ylabel() for axis in axes] == ["MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"]
    points, bars = axes[0].containers[0].lines[0], axes[0].containers[0].lines[2][0]
    np.testing.assert_allclose(points.get_ydata(orig=False), [15.0] * 4)
    deviation = np.std([10.0, 20.0], ddof=1)
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [15.0 - deviation, 15.0 + deviation])
    (paper,) = [line for line in axes[0].lines if line.get_label() == "paper"]
    np.testing.assert_allclose(paper.get_ydata(), [84.4, 83.9, 82.1, 82.1])


def test_what_does_not_compare_has_an_axis_of_its_own(axes):
    plan, values = plan_and_values("table5", "tiny")
    picture.draw("x.png", plan, values)
    figure = axes[0].figure
    ours, papers = figure.axes[: len(axes)], figure.axes[len(axes) :]
    assert [axis.get_ylabel() for axis in ours] == ["STS-B for MNLI-m", "CoLA for QNLI", "SST-2", "SQuAD"]
    assert [axis.get_ylabel() for axis in papers] == [
        f"paper, {name}" for name in ("MNLI-m", "QNLI", "SST-2", "SQuAD")
    ]
    np.testing.assert_allclose(papers[0].lines[0].get_ydata(), [84.4, 83.9, 82.1, 82.1])
    for axis, paper in zip(ours, papers, strict=True):
        assert not any(line.get_label() == "paper" for line in axis.lines)
        assert paper.get_shared_x_axes().joined(axis, paper)
        assert [text.get_text() for text in axis.get_legend().get_texts()] == ["ours", "paper"]


@pytest.mark.parametrize(("name", "own_axes"), [("table1", []), ("table4", ["paper, SWAG"])])
def test_given_models_compare_with_the_paper_on_its_own_tasks(axes, name, own_axes):
    plan, values = plan_and_values(name, "small")
    picture.draw("x.png", plan, values)
    assert [axis.get_ylabel() for axis in axes[0].figure.axes[len(axes) :]] == own_axes
    shown = [line for line in axes[0].lines if line.get_label() == "paper"]
    assert bool(shown) != bool(own_axes)


SHARES = [0.2, 0.4, 0.6, 0.8, 1.0]


def test_curves_over_the_steps(axes):
    plan, values = plan_and_values("figure5", "tiny")
    values = [
        dataclasses.replace(value, value=value.value + 100 * value.cell.column.column.at) for value in values
    ]
    picture.draw("x.png", plan, values)
    (axis,) = axes
    assert axis.get_ylabel() == "STS-B for MNLI"
    assert axis.get_legend_handles_labels()[1] == ["Masked LM", "Left to right"]
    line = axis.containers[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(orig=False), np.multiply(SHARES, plan.num_steps))
    np.testing.assert_allclose(line.get_ydata(orig=False), [35.0, 55.0, 75.0, 95.0, 115.0])


@pytest.mark.parametrize("scale", ["tiny", "paper"])
def test_curves_beside_the_papers_numbers(axes, scale):
    """With an axis of their own at the scale tiny only, and in the colour of their row."""
    plan, values = plan_and_values("figure5", scale)
    picture.draw("x.png", plan, values)
    (axis,) = axes
    *_, beside = axis.figure.axes
    assert (beside is axis) == (scale == "paper")
    assert beside.get_ylabel() == ("MNLI" if scale == "paper" else "paper, MNLI")
    for name, curve, number in zip(
        ("Masked LM", "Left to right"), axis.containers, (84.4, 82.1), strict=True
    ):
        (paper,) = [line for line in beside.lines if line.get_label() == f"{name}, paper"]
        np.testing.assert_allclose(paper.get_xydata(), [[plan.num_steps, number]])
        assert paper.get_color() == curve.lines[0].get_color()
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["Masked LM", "Masked LM, paper", "Left to right", "Left to right, paper"]


def plan_of(columns: str, tmp_path):
    """The plan of a row that is pre-trained at the scale tiny, and a value for each cell."""
    text = 'title = "t"\nsource = "s"\n[[rows]]\nlabel = "BERT"\nsize = "12/768/12"\n'
    (tmp_path / "own.toml").write_text(f"columns = [{columns}]\n{text}")
    experiment = read_experiment(str(tmp_path / "own.toml"), CATALOGUE)
    plan = make_plan(experiment, CATALOGUE.scale("tiny"), CATALOGUE, Settings(seeds=1))
    return plan, [Value(cell, 10.0, 1.0) for cell in plan.cells]


def test_a_measure_has_a_curve(axes, tmp_path):
    columns = ", ".join(f'{{ label = "{share}", measure = "perplexity", at = {share} }}' for share in SHARES)
    plan, values = plan_of(columns, tmp_path)
    picture.draw("x.png", plan, values)
    (axis,) = axes
    assert axis.get_ylabel() == "perplexity"
    assert len(axis.figure.axes) == 1
    line = axis.containers[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(orig=False), np.multiply(SHARES, plan.num_steps))


@pytest.mark.parametrize(
    "second",
    [
        'task = "CoLA", at = 1.0',
        'task = "SST-2"',
        'task = "SST-2", at = 1.0, metric = "eval_loss"',
        'task = "SST-2", at = 1.0, fine_tuning = { learning_rate = 1e-3 }',
        'measure = "perplexity", at = 1.0',
    ],
)
def test_columns_that_show_different_things_have_panels(axes, tmp_path, second):
    first = '{ label = "at 20 %", task = "SST-2", at = 0.2 }'
    plan, values = plan_of(f'{first}, {{ label = "other", {second} }}', tmp_path)
    picture.draw("x.png", plan, values)
    assert [axis.get_ylabel() for axis in axes] == ["at 20 %", "other"]


def test_the_axis_has_room_for_the_finite_values_only(axes):
    plan, values = plan_and_values("table6", "tiny")
    assert values[0].cell.column.task is None  # a perplexity
    picture.draw("x.png", plan, [dataclasses.replace(values[0], value=np.inf), *values[1:]])
    axes[0].figure.canvas.draw()
    assert max(map(abs, axes[0].get_ylim())) < 100


def test_the_file_is_a_png(tmp_path):
    plan, values = plan_and_values("table6", "tiny")
    picture.draw(str(tmp_path / "a.png"), plan, values[:3])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")

"""Pictures: ticks, places, and what is drawn of odd values."""

import itertools
import math
import re

import numpy as np
import pytest

from official_bert.extensions.report.charts import (
    Chart,
    Mark,
    Series,
    draw_bars,
    draw_curves,
    draw_dots,
    draw_heat_map,
    make_ticks,
)
from official_bert.extensions.report.drawing import Box, Dot, Line, Text

CHART = Chart("name", "What it shows", "step", "loss")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 97, [20, 40, 60, 80]),
        (-1e-5, 2e-5, [-1e-5, 0, 1e-5, 2e-5]),
        (1e6, 3e6, [1e6, 1.5e6, 2e6, 2.5e6, 3e6]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(low, high, ticks):
    assert make_ticks(low, high) == pytest.approx(ticks)


def select(picture, kind):
    return [shape for shape in picture.shapes if isinstance(shape, kind)]


def test_a_curve_stays_inside_its_axes():
    curve = Series("one", [1, 2, 3, 4], [5.0, math.nan, math.inf, 1.0])
    picture = draw_curves(CHART, [curve], [Mark(4, 1.0, "the best")])
    (line,) = [line for line in select(picture, Line) if line.width == 2.0]
    assert len(line.points) == 2, "values that are not finite are left out"
    (left, top), (right, bottom) = line.points
    assert 0 < left < right < picture.width
    assert 0 < top < bottom < picture.height
    assert len([dot for dot in select(picture, Dot) if dot.radius == 3.0]) == 2
    texts = {text.text for text in select(picture, Text)}
    assert {"one", "step", "loss", "the best"} <= texts


@pytest.mark.parametrize("ys", [[], [3.0], [3.0, 3.0], [0.0, 0.0], [math.nan], [-1e30, 1e30]])
def test_odd_curves_have_pictures(ys):
    svg = draw_curves(CHART, [Series("", range(len(ys)), ys)]).to_svg()
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "nan" not in svg


def test_very_long_curves_are_thinned_out():
    """A page of a long pre-training stays small; weights and dots keep their places."""
    steps = range(100_000)
    picture = draw_curves(CHART, [Series("", steps, [float(step) for step in steps])])
    (line,) = [line for line in select(picture, Line) if line.width == 2.0]
    assert len(line.points) == 2000
    points = np.zeros((5000, 2))
    dots = select(draw_dots(CHART, points, ["a"] * 5000, [""] * 5000), Dot)
    assert len(dots) == 1667


def test_bars_are_as_high_as_their_counts():
    picture = draw_bars(CHART, [0.5, 4.5, 8.5], [10, 5])
    first, second = select(picture, Box)
    assert first.height == pytest.approx(2 * second.height)
    assert first.tip == "1 to 4: 10"
    assert first.x + first.width < second.x


def test_groups_have_colours():
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    picture = draw_dots(CHART, points, ["a", "b", "a"], ["x", "y", "z"])
    colors = [dot.color for dot in select(picture, Dot)]
    assert colors[0] == colors[2] != colors[1]
    assert [dot.tip for dot in select(picture, Dot)] == ["x", "y", "z"]


def test_a_heat_map_counts_and_colours():
    matrix = np.array([[9, 1], [0, 0]])
    picture = draw_heat_map("name", "description", ["long " * 9, "b"], matrix)
    boxes = select(picture, Box)
    assert [box.color for box in boxes] == ["#1a80ba", "#fbefe6", "#f3f5f8", "#f3f5f8"]
    assert boxes[1].tip.endswith("predicted as b: 1 (10.0%)")
    texts = [text.text for text in select(picture, Text)]
    assert "long long long long l…" in texts
    assert {"9", "1"} <= {*texts}
    assert "0" not in texts
    for box, shape in itertools.product(boxes, select(picture, Text)):
        if shape.text in ("9", "1"):
            continue
        is_left = shape.x <= box.x or shape.y <= box.y
        assert is_left, "labels are not on cells"


@pytest.mark.needs_extra("matplotlib")
def test_a_png_has_the_shapes(tmp_path):
    """Dark pixels of the text, blue ones of the curve, and white ones at the corners."""
    from matplotlib import image

    picture = draw_curves(CHART, [Series("", [0, 1], [0.0, 1.0])])
    path = tmp_path / "picture.png"
    with open(path, "wb") as file:
        picture.write_png(file)
    pixels = image.imread(path)[..., :3]
    assert pixels.shape[:2] == (2 * picture.height, 2 * picture.width)
    assert (pixels[0, 0] == 1).all()
    blue = np.abs(pixels - np.array([0, 114, 178]) / 255).max(axis=-1) < 0.02
    assert blue.sum() > 500
    rows, columns = np.nonzero(blue)
    assert np.corrcoef(rows, columns)[0, 1] < -0.99, "the curve rises"


def test_texts_in_pictures_are_escaped():
    name = "<script>&\"'"
    svg = draw_curves(CHART._replace(description=name), [Series(name, [0, 1], [0, 1])]).to_svg()
    assert "<script" not in svg
    assert len(re.findall("&lt;script&gt;&amp;", svg)) >= 2

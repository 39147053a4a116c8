"""Charts: curves, bars, dots and heat maps as pictures."""

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from official_bert.extensions.report.drawing import (
    BLACK,
    COLORS,
    GRAY,
    LIGHT,
    WHITE,
    Box,
    Dot,
    Line,
    Picture,
    Text,
    shorten,
)

Range = tuple[float, float]

_WIDTH = 560.0
_HEIGHT = 320.0
# The room around the axes.
_LEFT = 76.0
_RIGHT = 16.0
_TOP = 16.0
_BOTTOM = 48.0
_LEGEND_HEIGHT = 20.0
_LEGEND_COLUMNS = 2
_LONGEST_NAME = 32  # in a legend
_MARGIN = 0.08  # of the range of the values
_NUM_TICKS = 5
_FAINT = "#a9c9e2"
_EMPTY = "#f3f5f8"  # a cell without examples
_SMALL = 11.0  # the size of the numbers at an axis
_LONGEST_LABEL = 22
_MOST_POINTS = 2000  # of a curve or of groups
_MOST_DOTS = 40  # of a curve; more would touch each other
# The sizes of a heat map: of a cell, and of all cells of a row.
_LARGEST_CELL = 44.0
_SMALLEST_CELL = 18.0
_MAP_WIDTH = 660.0
_DARK_SHARE = 0.55  # a cell with a larger share of its row has white digits


class Series(NamedTuple):
    """A curve of a chart.

    Attributes:
        name: its name in the legend; "" for none.
        xs: the first coordinates.
        ys: the second coordinates; those that are not finite are left out.
        is_faint: whether it is a thin line.
        weights: the shares of the data at the points, from 0 to 1, which are the areas of their
            dots; empty for equal dots.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    is_faint: bool = False
    weights: Sequence[float] = ()


class Mark(NamedTuple):
    """A point of a chart that has a text."""

    x: float
    y: float
    text: str


class Chart(NamedTuple):
    """What a chart shows, and the names of its axes.

    Attributes:
        name: the name of its files.
        description: what it shows, in a few words.
        x_label: the name of the horizontal axis.
        y_label: the name of the vertical axis.
        has_diagonal: whether both axes are from 0 to 1, with the diagonal between them.
    """

    name: str
    description: str
    x_label: str
    y_label: str
    has_diagonal: bool = False


class _Axes:
    """A picture with two axes, and the places of values in it."""

    def __init__(
        self,
        chart: Chart,
        x_range: Range,
        y_range: Range,
        legend: Mapping[str, str] = MappingProxyType({}),
    ):
        legend_rows = math.ceil(len(legend) / _LEGEND_COLUMNS)
        self._top = _TOP + _LEGEND_HEIGHT * legend_rows
        height = _HEIGHT - _TOP + self._top
        self._bottom = height - _BOTTOM
        self._right = _WIDTH - _RIGHT
        self._x_range = _widen(x_range)
        self._y_range = _widen(y_range)
        if not chart.has_diagonal and min(y_range) != 0:
            self._y_range = _add_margins(self._y_range)
        self.picture = Picture(chart.name, chart.description, _WIDTH, height)
        self._draw_axes(chart)
        self._draw_legend(legend)

    def _draw_axes(self, chart: Chart):
        add = self.picture.add
        for value in make_ticks(*self._y_range):
            y = self.y(value)
            add(
                Line([(_LEFT, y), (self._right, y)], LIGHT),
                Text(
                    _LEFT - 8,
                    y + 4,
                    format_tick(value),
                    anchor="end",
                    size=_SMALL,
                    color=GRAY,
                ),
            )
        for value in make_ticks(*self._x_range):
            x = self.x(value)
            add(
                Line([(x, self._bottom), (x, self._bottom + 4)], GRAY),
                Text(
                    x,
                    self._bottom + 18,
                    format_tick(value),
                    anchor="middle",
                    size=_SMALL,
                    color=GRAY,
                ),
            )
        corner = (_LEFT, self._bottom)
        middle_x = (_LEFT + self._right) / 2
        middle_y = (self._top + self._bottom) / 2
        add(
            Line([(_LEFT, self._top), corner, (self._right, self._bottom)], GRAY),
            Text(
                middle_x,
                self._bottom + 38,
                chart.x_label,
                anchor="middle",
            ),
            Text(
                16,
                middle_y,
                chart.y_label,
                anchor="middle",
                degrees=90.0,
            ),
        )
        if chart.has_diagonal:
            add(Line([corner, (self._right, self._top)], GRAY, dash=True))

    def _draw_legend(self, legend: Mapping[str, str]):
        column_width = (self._right - _LEFT) / _LEGEND_COLUMNS
        for number, (name, color) in enumerate(legend.items()):
            row, column = divmod(number, _LEGEND_COLUMNS)
            x = _LEFT + column * column_width
            y = _TOP + _LEGEND_HEIGHT * row
            self.picture.add(
                Line(
                    [(x, y - 4), (x + 18, y - 4)],
                    color,
                    width=3.0,
                ),
                Text(
                    x + 24,
                    y,
                    shorten(name, _LONGEST_NAME),
                    size=_SMALL,
                ),
            )

    def x(self, value: float) -> float:
        """Returns the place of a value of the horizontal axis."""
        low, high = self._x_range
        share = (value - low) / (high - low)
        return _LEFT + share * (self._right - _LEFT)

    def y(self, value: float) -> float:
        """Returns the place of a value of the vertical axis."""
        low, high = self._y_range
        share = (value - low) / (high - low)
        return self._bottom - share * (self._bottom - self._top)

    def add_mark(self, mark: Mark):
        """Adds a ring and a text, at the side of it that has room."""
        x = self.x(mark.x)
        y = self.y(mark.y)
        is_right = x > (_LEFT + self._right) / 2
        has_room_above = y - 14 > self._top
        self.picture.add(
            Dot(x, y, 6.5, BLACK, mark.text),
            Dot(x, y, 4.0, WHITE, mark.text),
            Text(
                x,
                y - 12 if has_room_above else y + 22,
                mark.text,
                anchor="end" if is_right else "start",
                is_bold=True,
            ),
        )


def draw_curves(
    chart: Chart,
    curves: Sequence[Series],
    marks: Sequence[Mark] = (),
) -> Picture:
    """Returns a chart of curves. Those of few points also have dots.

    Args:
        chart: the names.
        curves: the curves.
        marks: points with texts.
    """
    finite_curves = [_select_finite(curve) for curve in curves]
    x_range = y_range = (0.0, 1.0)
    if not chart.has_diagonal:
        x_range = _find_range([x for curve in finite_curves for x in curve.xs])
        y_range = _find_range([y for curve in finite_curves for y in curve.ys])
    colors = [
        _FAINT if curve.is_faint else _choose_color(number)
        for number, curve in enumerate(finite_curves)
    ]
    pairs = zip(finite_curves, colors, strict=True)
    legend = {curve.name: color for curve, color in pairs if curve.name}
    axes = _Axes(chart, x_range, y_range, legend)
    for curve, color in zip(finite_curves, colors, strict=True):
        points = [(axes.x(x), axes.y(y)) for x, y in zip(curve.xs, curve.ys, strict=True)]
        axes.picture.add(Line(points, color, width=1.0 if curve.is_faint else 2.0))
        if len(points) <= _MOST_DOTS:
            _add_dots(axes, curve, points, color)
    for mark in marks:
        axes.add_mark(mark)
    return axes.picture


def _add_dots(
    axes: _Axes,
    curve: Series,
    points: Sequence[tuple[float, float]],
    color: str,
):
    weights = curve.weights or [0.0] * len(points)
    values = zip(curve.xs, curve.ys, weights, strict=True)
    for place, (x, y, weight) in zip(points, values, strict=True):
        tip = f"{curve.name} ({x:.4g}, {y:.4g})".strip()
        if curve.weights:
            tip += f": {weight:.1%} of the predictions"
        radius = 3.0 + 10.0 * math.sqrt(weight)
        axes.picture.add(Dot(*place, radius, color, tip))


def draw_bars(chart: Chart, edges: Sequence[float], counts: Sequence[float]) -> Picture:
    """Returns a histogram.

    Args:
        chart: the names.
        edges: the n + 1 borders of the bars.
        counts: the n heights.
    """
    highest = max([*counts, 1])
    axes = _Axes(chart, (edges[0], edges[-1]), (0.0, 1.05 * highest))
    for (low, high), count in zip(itertools.pairwise(edges), counts, strict=True):
        left = axes.x(low)
        top = axes.y(count)
        axes.picture.add(
            Box(
                left + 0.5,
                top,
                width=max(axes.x(high) - left - 1, 1.0),
                height=axes.y(0.0) - top,
                color=COLORS[0],
                tip=f"{math.ceil(low)} to {math.floor(high)}: {count:,}",
            )
        )
    return axes.picture


def draw_dots(
    chart: Chart,
    points: np.ndarray,
    groups: Sequence[str],
    tips: Sequence[str],
) -> Picture:
    """Returns a chart of points, with a colour for each group; of very many, some are left out.

    Args:
        chart: the names.
        points: float[n, 2].
        groups: the name of the group of each point; "" for no groups.
        tips: the text of each point.
    """
    stride = -(-len(points) // _MOST_POINTS) or 1
    points, groups, tips = points[::stride], groups[::stride], tips[::stride]
    names = list(dict.fromkeys(groups))
    axes = _Axes(
        chart,
        _add_margins(_find_range(points[:, 0])),
        _find_range(points[:, 1]),
        legend={name: _choose_color(number) for number, name in enumerate(names) if name},
    )
    for (x, y), group, tip in zip(points, groups, tips, strict=True):
        color = _choose_color(names.index(group))
        axes.picture.add(Dot(axes.x(x), axes.y(y), 3.5, color, tip))
    return axes.picture


def draw_heat_map(
    name: str,
    description: str,
    labels: Sequence[str],
    matrix: np.ndarray,
) -> Picture:
    """Returns a confusion matrix: a row for each true label, a column for each predicted one.

    Args:
        name: the name of its files.
        description: what it shows.
        labels: the names of rows and columns.
        matrix: the counts, int[n, n].
    """
    size = min(max(_MAP_WIDTH / len(labels), _SMALLEST_CELL), _LARGEST_CELL)
    texts = [shorten(label, _LONGEST_LABEL) for label in labels]
    text_width = 7.0 * max(map(len, texts))
    left = max(24.0 + text_width, 110.0)
    top = 38.0 + 0.72 * text_width
    side = size * len(labels)
    picture = Picture(
        name,
        description,
        width=left + side + 0.72 * text_width,
        height=top + side + 14.0,
    )
    picture.add(
        Text(
            left - 8,
            top - 8,
            "true \\ predicted",
            anchor="end",
            size=_SMALL,
            color=GRAY,
        )
    )
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    for row, text in enumerate(texts):
        y = top + (row + 0.5) * size
        x = left + (row + 0.5) * size
        picture.add(
            Text(
                left - 8,
                y + 4,
                text,
                anchor="end",
            ),
            Text(
                x + 3,
                top - 8,
                text,
                degrees=45.0,
            ),
        )
    for (row, column), count in np.ndenumerate(matrix):
        share = float(shares[row, column])
        x = left + column * size
        y = top + row * size
        picture.add(
            Box(
                x + 0.5,
                y + 0.5,
                size - 1,
                size - 1,
                _mix(COLORS[0] if row == column else COLORS[1], share) if count else _EMPTY,
                tip=f"{labels[row]} predicted as {labels[column]}: {count} ({share:.1%})",
            )
        )
        if count:
            digits = str(count)
            font_size = min(12.0, 1.5 * size / max(len(digits), 2))
            picture.add(
                Text(
                    x + size / 2,
                    y + size / 2 + font_size / 3,
                    digits,
                    anchor="middle",
                    size=font_size,
                    color=WHITE if share > _DARK_SHARE else BLACK,
                )
            )
    return picture


def make_ticks(low: float, high: float) -> list[float]:
    """Returns about five round numbers in a range.

    Args:
        low: its lower end.
        high: its upper end, which is larger.
    """
    rough_step = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough_step))
    steps = [factor * power for factor in (1, 2, 5, 10)]
    step = next(step for step in steps if step >= rough_step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def format_tick(value: float) -> str:
    """Returns a number at an axis.

    Args:
        value: the number.
    """
    is_large = abs(value) >= 10_000
    return f"{value:,.0f}" if is_large else f"{value:.4g}"


def _select_finite(curve: Series) -> Series:
    """Returns the points of a curve that are finite; of very many, some are left out."""
    is_finite = [math.isfinite(y) for y in curve.ys]
    xs = list(itertools.compress(curve.xs, is_finite))
    ys = list(itertools.compress(curve.ys, is_finite))
    stride = -(-len(xs) // _MOST_POINTS) or 1
    return curve._replace(xs=xs[::stride], ys=ys[::stride])


def _find_range(values: Sequence[float] | np.ndarray) -> Range:
    if not len(values):
        return (0.0, 1.0)
    return float(min(values)), float(max(values))


def _widen(limits: Range) -> Range:
    """Returns a range that is not empty."""
    low, high = limits
    if high > low:
        return limits
    margin = abs(low) / 2 or 1.0
    return low - margin, high + margin


def _add_margins(limits: Range) -> Range:
    """Returns a range with room above and below the values."""
    low, high = limits
    margin = _MARGIN * (high - low)
    return low - margin, high + margin


def _choose_color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _mix(color: str, share: float) -> str:
    """Returns a colour between white and another one."""
    channels = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    mixed = [round(255 + (channel - 255) * share) for channel in channels]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)

"""Draws points with their names as an SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from official_bert.io.markup import Markup, element

_WIDTH, _HEIGHT = 820, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 20, 50
_RADIUS = 5
_NUM_TICKS = 5
_GRAY, _BLUE, _BLACK = "#7b8794", "#0072b2", "#1f2933"


class PicturePoint(NamedTuple):
    """A point of the picture.

    Attributes:
        x: its value on the axis from left to right.
        y: its value on the axis from bottom to top.
        name: its name.
        is_filled: whether it is drawn filled.
    """

    x: float
    y: float
    name: str
    is_filled: bool


class _Axis(NamedTuple):
    """The values of an axis, and the pixels of its ends."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Returns the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        length = self.end - self.start
        return self.start + share * length

    def ticks(self) -> list[float]:
        """Returns the values that are written at the axis."""
        step = (self.high - self.low) / (_NUM_TICKS - 1)
        return [self.low + number * step for number in range(_NUM_TICKS)]


def draw_points(points: Sequence[PicturePoint], x_name: str, y_name: str) -> str:
    """Draw points.

    Args:
        points: the points, at least one.
        x_name: the name of the axis from left to right, which begins at 0.
        y_name: the name of the axis from bottom to top.

    Returns:
        The SVG picture.
    """
    highest_x = max(point.x for point in points)
    x_axis = _Axis(0.0, 1.1 * highest_x or 1.0, _LEFT, _WIDTH - _RIGHT)
    values = [point.y for point in points]
    margin = 0.1 * (max(values) - min(values)) or 0.01
    y_axis = _Axis(min(values) - margin, max(values) + margin, _HEIGHT - _BOTTOM, _TOP)
    shapes = _draw_axes(x_axis, y_axis, x_name, y_name)
    for point in points:
        x = x_axis.place(point.x)
        y = y_axis.place(point.y)
        shapes += _draw_point(point, x, y)
    return element(
        "svg",
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        font_family="sans-serif",
        font_size="12",
    )


def _draw_axes(x_axis: _Axis, y_axis: _Axis, x_name: str, y_name: str) -> list[Markup]:
    left, right = x_axis.start, x_axis.end
    bottom, top = y_axis.start, y_axis.end
    shapes = [
        _draw_line(left, bottom, right, bottom),
        _draw_line(left, bottom, left, top),
    ]
    for value in x_axis.ticks():
        place = x_axis.place(value)
        shapes.append(_draw_text(place, bottom + 18, _format(value), "middle"))
    for value in y_axis.ticks():
        place = y_axis.place(value)
        shapes.append(_draw_text(left - 8, place + 4, _format(value), "end"))
    middle = (left + right) / 2
    shapes.append(_draw_text(middle, _HEIGHT - 8, x_name, "middle"))
    shapes.append(_draw_text(left + 8, top, y_name, "start"))
    return shapes


def _format(value: float) -> str:
    return f"{value:.3g}"


def _draw_point(point: PicturePoint, x: float, y: float) -> list[Markup]:
    color = _BLUE if point.is_filled else _GRAY
    fill = color if point.is_filled else "none"
    tip = element("title", f"{point.name}: {point.x:.2f}, {point.y:.4f}")
    circle = element(
        "circle",
        tip,
        cx=_pixels(x),
        cy=_pixels(y),
        r=str(_RADIUS),
        fill=fill,
        stroke=color,
    )
    name = _draw_text(x + 2 * _RADIUS, y + 4, point.name, "start")
    return [circle, name]


def _draw_line(x: float, y: float, end_x: float, end_y: float) -> Markup:
    return element(
        "line",
        x1=_pixels(x),
        y1=_pixels(y),
        x2=_pixels(end_x),
        y2=_pixels(end_y),
        stroke=_GRAY,
    )


def _draw_text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element(
        "text",
        text,
        x=_pixels(x),
        y=_pixels(y),
        text_anchor=anchor,
        fill=_BLACK,
    )


def _pixels(length: float) -> str:
    return f"{length:.1f}"

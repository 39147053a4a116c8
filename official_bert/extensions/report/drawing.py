"""Pictures of lines, boxes, dots and texts, as SVG and as PNG.

A picture is a list of shapes in pixels. `to_svg` needs no package, and the browser chooses fonts
for every script. `write_png` draws the same shapes by matplotlib, where it is installed.
"""

import dataclasses
import importlib.util
import warnings
from typing import Any, BinaryIO, NamedTuple

from official_bert.io.markup import Markup, element

BLACK = "#1f2933"
GRAY = "#7b8794"
LIGHT = "#e4e7eb"
WHITE = "#ffffff"
# Colours that differ also for readers who are colour-blind (Okabe and Ito, 2008).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#8c564b")
_PIXELS_PER_INCH = 100
_POINTS_PER_PIXEL = 72 / _PIXELS_PER_INCH
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}


class Line(NamedTuple):
    """A line through points; dashed if `dash`."""

    points: list[tuple[float, float]]
    color: str = BLACK
    width: float = 1.0
    dash: bool = False


class Box(NamedTuple):
    """A filled rectangle with a text that appears when the mouse is on it."""

    x: float
    y: float
    width: float
    height: float
    color: str
    tip: str = ""


class Dot(NamedTuple):
    """A filled circle with a text that appears when the mouse is on it."""

    x: float
    y: float
    radius: float
    color: str
    tip: str = ""


class Text(NamedTuple):
    """A text whose start, middle or end is at a point, in degrees against the horizontal."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    size: float = 12.0
    color: str = BLACK
    is_bold: bool = False
    degrees: float = 0.0


Shape = Line | Box | Dot | Text


@dataclasses.dataclass
class Picture:
    """A picture.

    Attributes:
        name: the name of its files, without their ending.
        description: what it shows, for readers who do not see it.
        width: the width in pixels.
        height: the height in pixels.
        shapes: the shapes; later ones cover earlier ones.
    """

    name: str
    description: str
    width: float
    height: float
    shapes: list[Shape] = dataclasses.field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Adds shapes.

        Args:
            *shapes: the shapes, which cover the earlier ones.
        """
        self.shapes.extend(shapes)

    def to_svg(self) -> Markup:
        """Returns the picture as an element of a page, or as the content of an SVG file."""
        return element(
            "svg",
            element("title", self.description),
            *(_to_svg(shape) for shape in self.shapes),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            width=f"{self.width:g}",
            height=f"{self.height:g}",
            role="img",
            font_family="system-ui, sans-serif",
        )

    def write_png(self, file: BinaryIO) -> None:
        """Writes the picture as PNG, which needs matplotlib.

        Args:
            file: the file to write.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        size = (self.width / _PIXELS_PER_INCH, self.height / _PIXELS_PER_INCH)
        figure = Figure(figsize=size, facecolor=WHITE)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        for order, shape in enumerate(self.shapes):
            _draw(axes, shape, order)
        with warnings.catch_warnings():
            # A glyph that no installed font has becomes a box. The page has the letter.
            warnings.filterwarnings("ignore", "Glyph|.*font", UserWarning)
            figure.savefig(file, format="png", dpi=2 * _PIXELS_PER_INCH)


def has_matplotlib() -> bool:
    """Returns whether pictures can be written as PNG."""
    return importlib.util.find_spec("matplotlib") is not None


def shorten(text: str, length: int) -> str:
    """Returns a text with at most some characters; an ellipsis replaces its end.

    Args:
        text: the text.
        length: the largest number of characters.
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _to_svg(shape: Shape) -> Markup:
    match shape:
        case Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            dash = {"stroke_dasharray": "5 4"} if shape.dash else {}
            return element(
                "polyline",
                points=points,
                fill="none",
                stroke=shape.color,
                stroke_width=f"{shape.width:g}",
                stroke_linejoin="round",
                **dash,
            )
        case Box():
            return element(
                "rect",
                _make_tip(shape.tip),
                x=f"{shape.x:.1f}",
                y=f"{shape.y:.1f}",
                width=f"{shape.width:.1f}",
                height=f"{shape.height:.1f}",
                fill=shape.color,
            )
        case Dot():
            return element(
                "circle",
                _make_tip(shape.tip),
                cx=f"{shape.x:.1f}",
                cy=f"{shape.y:.1f}",
                r=f"{shape.radius:g}",
                fill=shape.color,
            )
    turn = {}
    if shape.degrees:
        turn["transform"] = f"rotate({-shape.degrees:g} {shape.x:.1f} {shape.y:.1f})"
    return element(
        "text",
        shape.text,
        x=f"{shape.x:.1f}",
        y=f"{shape.y:.1f}",
        text_anchor=shape.anchor,
        font_size=f"{shape.size:g}",
        font_weight="600" if shape.is_bold else "400",
        fill=shape.color,
        **turn,
    )


def _make_tip(tip: str) -> Markup:
    return element("title", tip) if tip else Markup()


def _draw(axes: Any, shape: Shape, order: int):
    """Draws a shape by matplotlib; shapes of a higher order cover others."""
    from matplotlib import patches

    match shape:
        case Line():
            xs, ys = zip(*shape.points, strict=True) if shape.points else ((), ())
            axes.plot(
                xs,
                ys,
                color=shape.color,
                linewidth=shape.width * _POINTS_PER_PIXEL,
                linestyle=(0, (5, 4)) if shape.dash else "-",
                solid_joinstyle="round",
                zorder=order,
            )
        case Box():
            corner = (shape.x, shape.y)
            rectangle = patches.Rectangle(corner, shape.width, shape.height, color=shape.color)
            axes.add_patch(rectangle).set(linewidth=0, zorder=order)
        case Dot():
            circle = patches.Circle((shape.x, shape.y), shape.radius, color=shape.color)
            axes.add_patch(circle).set(linewidth=0, zorder=order)
        case Text():
            axes.text(
                shape.x,
                shape.y,
                shape.text,
                ha=_ALIGNMENTS[shape.anchor],
                va="baseline",
                fontsize=shape.size * _POINTS_PER_PIXEL,
                color=shape.color,
                fontweight="bold" if shape.is_bold else "normal",
                rotation=shape.degrees,
                rotation_mode="anchor",
                parse_math=False,
                zorder=order,
            )

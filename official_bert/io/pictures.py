"""Draws panels into a PNG file; the one module that imports matplotlib, and only when it draws."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from official_bert.io import writing
from official_bert.io.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextlib.contextmanager
def panels(path: str, title: str, num_panels: int, share_x: bool = True) -> Iterator[list[Axes]]:
    """Yields the panels of a new picture, one above the other; the file is there when the block ends."""
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(
            f"the picture needs matplotlib, which cannot be imported ({error}); pip install -r requirements-plots.txt"
        ) from None
    matplotlib.use("Agg")  # needs no display
    import matplotlib.pyplot as plt

    with writing.replacing(path, "wb") as file:
        figure, axes = plt.subplots(
            num_panels, 1, sharex=share_x, squeeze=False, figsize=(9, 3 * num_panels), layout="constrained"
        )
        figure.suptitle(title)
        yield list(axes[:, 0])
        figure.savefig(file, format="png", dpi=110)
        plt.close(figure)

"""Draws the curves of a run: the runner of plot_run.py.

In: an output folder of a training script. Out: a PNG file with a panel each for losses, accuracies and learning rate.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from absl import logging

from official_bert import writing
from official_bert.errors import InputError
from official_bert.jobs.run_figures import Curves, evaluation_figures, training_figures
from official_bert.options.plot_run import PlotOptions

_NOT_DRAWN = ("examples_per_second", "global_step", "masked_lm_perplexity")
_SAME_AS_LOSS = ("eval_loss",)  # the original's second key of the same quantity


def run(options: PlotOptions):
    """Draws a run.

    Raises:
        InputError: the folder has no figures, matplotlib is missing, or the picture cannot be written.
    """
    training, evaluation = training_figures(options.output_dir), evaluation_figures(options.output_dir)
    path = options.plot_file or os.path.join(options.output_dir, "plot.png")
    with writing.replacing(path, "wb") as file:
        _draw(file, os.path.basename(os.path.abspath(options.output_dir)), panels_of(training, evaluation))
    logging.info("Wrote %s", path)


def panels_of(training: Curves, evaluation: Curves) -> dict[str, Curves]:
    """Sorts the curves into panels: title of a panel -> label of a curve -> its points.

    Args:
        training: the figures of the training.
        evaluation: those of the evaluations, whose labels say so.
    """
    panels: dict[str, Curves] = {"loss": {}, "accuracy and other scores": {}, "learning rate": {}}
    places: dict[str, Callable[[str], bool]] = {
        "loss": lambda name: name.endswith("loss"),
        "learning rate": lambda name: name == "learning_rate",
        "accuracy and other scores": lambda name: True,
    }
    for curves, form in ((training, "{}"), (evaluation, "{} (evaluation)")):
        for name, points in curves.items():
            if name not in (*_NOT_DRAWN, *_SAME_AS_LOSS):
                title = next(title for title, is_here in places.items() if is_here(name))
                panels[title][form.format(name.removeprefix("eval_"))] = points
    return {title: curves for title, curves in panels.items() if curves}


def _draw(file, title: str, panels: dict[str, Curves]):
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(
            f"the picture needs matplotlib, which cannot be imported ({error}); pip install -r requirements-plots.txt"
        ) from None
    matplotlib.use("Agg")  # needs no display
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(panels), 1, sharex=True, squeeze=False, figsize=(9, 3 * len(panels)), layout="constrained"
    )
    figure.suptitle(title)
    for axis, (name, curves) in zip(axes[:, 0], panels.items(), strict=True):
        for label, points in curves.items():
            is_evaluation = label.endswith("(evaluation)")
            axis.plot(
                *zip(*sorted(points.items()), strict=True), label=label, marker="o" if is_evaluation else ""
            )
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
        axis.legend()
    axes[-1, 0].set_xlabel("step")
    figure.savefig(file, format="png", dpi=110)
    plt.close(figure)

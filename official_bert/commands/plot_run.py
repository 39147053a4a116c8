"""Draws the curves of a run: the runner of plot_run.py.

In: an output folder of a training script. Out: a PNG file with a panel for each unit: losses, accuracies, learning
rate, norm of the gradient, speed, memory.
"""

import math
import os
from collections.abc import Iterable, Mapping

from absl import logging

from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.pictures import panels
from official_bert.metrics.calibration import RELIABILITY_FILE
from official_bert.options.running import PlotOptions
from official_bert.training import run_log

Curves = dict[str, dict[int, float]]


def training_figures(output_dir: str) -> Curves:
    curves = _curves(run_log.read(output_dir, run_log.TRAIN))
    if not curves:
        raise InputError(
            f"{output_dir}: has no {run_log.FILE} of a training; give the --output_dir of a run with --do_train"
        )
    return curves


def evaluation_figures(output_dir: str) -> Curves:
    """Returns the figures of the evaluations during training or, without any, of the last one after it."""
    curves, path = _curves(run_log.read(output_dir, run_log.EVALUATION)), os.path.join(output_dir, "eval_results.txt")
    if curves or not files.exists(path):
        return curves
    results = {name: float(value) for name, value in (line.split(" = ") for line in reading.read_lines(path))}
    return _curves([results | {"step": int(results["global_step"])}])


def _curves(rows: Iterable[Mapping]) -> Curves:
    curves: Curves = {}
    for row in rows:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                curves.setdefault(name, {})[row["step"]] = value
    return curves


_SCORES = "accuracy and other scores"
_PANELS = {
    "loss": ("loss",),
    _SCORES: (),
    "learning rate": ("learning_rate",),
    "norm of the gradient": ("gradient_norm",),
    "tokens a second": ("tokens_per_second",),
    "memory, MB": ("memory_mb",),
    "loss scale": ("loss_scale",),
    "skipped updates": ("skipped_updates",),
}  # title -> how the names of its curves end; all other curves are scores
_RELIABILITY = "accuracy by probability"
_NOT_DRAWN = ("examples_per_second", "global_step", "masked_lm_perplexity")
_SAME_AS_LOSS = ("eval_loss",)  # the original's second key of the same quantity


def run(options: PlotOptions):
    training, evaluation = training_figures(options.output_dir), evaluation_figures(options.output_dir)
    path = options.plot_file or os.path.join(options.output_dir, "plot.png")
    contents = panels_of(training, evaluation) | reliability_diagram(options.output_dir)
    _draw(path, os.path.basename(os.path.abspath(options.output_dir)), contents)
    logging.info("Wrote %s", path)


def panels_of(training: Curves, evaluation: Curves) -> dict[str, Curves]:
    """Sorts the curves into panels: title of a panel -> label of a curve -> its points."""
    panels: dict[str, Curves] = {title: {} for title in _PANELS}
    for curves, form in ((training, "{}"), (evaluation, "{} (evaluation)")):
        for name, points in curves.items():
            if name not in (*_NOT_DRAWN, *_SAME_AS_LOSS):
                title = next((title for title, ends in _PANELS.items() if name.endswith(ends)), _SCORES)
                panels[title][form.format(name.removeprefix("eval_"))] = points
    return {title: curves for title, curves in panels.items() if curves}


def reliability_diagram(output_dir: str) -> dict[str, Curves]:
    """Returns the panel of a calibrated model, whose x axis has probabilities; none for other models."""
    path = os.path.join(output_dir, RELIABILITY_FILE.format(""))
    if not files.exists(path):
        return {}
    names, *rows = (line.split("\t") for line in reading.read_lines(path))
    try:
        bins = [dict(zip(names, map(float, row), strict=True)) for row in rows]
        curves = {
            label: {one[f"confidences{end}"]: one[f"shares{end}"] for one in bins if one[f"counts{end}"]}
            for label, end in (("as trained", ""), ("calibrated", "_calibrated"))
        }
    except (ValueError, KeyError):
        raise InputError(f"{path}: is no table of a calibration; remove it, or run the evaluation again") from None
    return {_RELIABILITY: curves | {"as it should be": {0.0: 0.0, 1.0: 1.0}}}


def _draw(path: str, title: str, contents: dict[str, Curves]):
    has_diagram = _RELIABILITY in contents
    with panels(path, title, len(contents), share_x=not has_diagram) as axes:
        for axis, (name, curves) in zip(axes, contents.items(), strict=True):
            for label, points in curves.items():
                marker = "o" if label.endswith("(evaluation)") else ""
                axis.plot(*zip(*sorted(points.items()), strict=True), label=label, marker=marker)
            axis.set_ylabel(name)
            axis.grid(alpha=0.3)
            axis.legend()
        axes[-1 - has_diagram].set_xlabel("step")
        if has_diagram:
            axes[-1].set_xlabel("probability")

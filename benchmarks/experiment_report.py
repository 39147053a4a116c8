#!/usr/bin/env python3
"""Makes the pages and pictures of the experiments, and the tables of their report, of the result
lines.

In: the .jsonl files that official-bert run_experiment --scale=SCALE writes, in
    docs/reports/experiments_SCALE.
Out: .md files beside them, equal to what that script writes of finite numbers; .png files, each run
as a dot and each row's mean with its standard deviation, and the digest of the lines in the file;
and in docs/reports/experiments.md what stands between `<!-- desk/table5 -->` and `<!-- end -->`,
for each scale and experiment.

    make report-experiments
"""

import hashlib
import json
import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert.extensions.experiments import table
from official_bert.extensions.experiments.columns import ShownColumn
from official_bert.extensions.experiments.declarations import (
    find_scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.plan import Plan, make_plan
from official_bert.metrics.summaries import summarize

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENCODERS = ("base",)  # The models that were given have this name of the paper.
REPORTS = ROOT / "docs/reports"
REPORT = REPORTS / "experiments.md"
FOLDER_PREFIX = "experiments_"


def list_result_files() -> list[pathlib.Path]:
    """Returns the files with result lines of all scales."""
    return sorted(REPORTS.glob(f"{FOLDER_PREFIX}*/*.jsonl"))


def name_scale(path: pathlib.Path) -> str:
    """Returns the scale of a file with result lines."""
    return path.parent.name.removeprefix(FOLDER_PREFIX)


def name_mark(path: pathlib.Path) -> str:
    """Returns the line of the report below which the tables of a file stand."""
    return f"<!-- {name_scale(path)}/{path.stem} -->"


def read_results(path: pathlib.Path) -> tuple[Plan, table.Values, table.Results]:
    """Returns the plan of an experiment, and what its result lines say."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    runs = {line["step"]: line for line in lines if "step" in line}
    cell_values = {
        (line["arm"], line["column"], line["seed"]): line["value"]
        for line in lines
        if "step" not in line
    }
    catalogue = read_catalogue(str(ROOT / "official_bert/extensions/experiments/tables"))
    experiment = read_experiment(path.stem, catalogue)
    scale = find_scale(name_scale(path), catalogue)
    num_seeds = max(scale.seeds, *(line["seed"] or 1 for line in lines))
    plan = make_plan(experiment, scale, catalogue, ENCODERS, num_seeds)
    values = {
        cell: float(value)
        for cell in plan.cells
        if (value := cell_values.pop((cell.row, cell.column.heading, cell.seed), None)) is not None
    }
    results = {step: runs.pop(step.name, None) for step in plan.steps}
    if cell_values or runs:
        sys.exit(
            f"{path}: has lines that the experiment has no place for, the first "
            f"{next(iter([*cell_values, *runs]))}"
        )
    return plan, values, results


def make_page(path: pathlib.Path) -> str:
    """Returns the page of the result lines of an experiment."""
    return table.format_page(*read_results(path))


def compute_digest(path: pathlib.Path) -> str:
    """Returns what the picture of the result lines has in its file, so that one of other lines
    is noticed.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def draw(path: pathlib.Path) -> None:
    """Draws a panel for each column of an experiment, in which each row has a line, or its
    curves over the training.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    plan, values, _ = read_results(path)
    figure = (curves if plan.columns[0].declared.at else dots)(pyplot, plan, values)
    figure.savefig(
        path.with_suffix(".png"),
        dpi=100,
        metadata={"Software": None, "Description": compute_digest(path)},
    )
    pyplot.close(figure)


def list_run_values(values: table.Values, row: str, column: ShownColumn) -> list[float]:
    return [value for cell, value in values.items() if (cell.row, cell.column) == (row, column)]


def dots(pyplot, plan: Plan, values: table.Values):
    """Returns a figure with a panel for each column: a dot for each run, a bar for mean and
    deviation.
    """
    from matplotlib import ticker

    sizes = [plan.scale.sizes.get(row.size, row.label) for row in plan.rows]
    names = (
        sizes
        if len(set(sizes)) == len(sizes)
        else [textwrap.fill(row.label, 18) for row in plan.rows]
    )
    size = (1.2 + 2 * len(plan.columns), 0.8 + 0.45 * len(plan.rows))
    figure, (panels,) = pyplot.subplots(
        1, len(plan.columns), sharey=True, figsize=size, layout="constrained", squeeze=False
    )
    for panel, column in zip(panels, plan.columns, strict=True):
        for place, row in enumerate(plan.rows):
            row_values = list_run_values(values, row.label, column)
            if not row_values:
                continue  # no run of it is finished
            mean, deviation, count = summarize(row_values)
            panel.plot(
                row_values, [place] * count, "o", color="tab:blue", alpha=0.4, markeredgewidth=0
            )
            panel.errorbar(
                mean, place, xerr=deviation, fmt="|", color="black", markersize=9, capsize=3
            )
        panel.set_title(textwrap.fill(column.heading, 18), fontsize="medium")
        panel.grid(axis="x", alpha=0.3)
        if column.metric == table.PERPLEXITY:
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter("")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def curves(pyplot, plan: Plan, values: table.Values):
    """Returns a figure with a panel for each measure: a line for each row, a dot for each run."""

    def name_measure(column):
        return column.task and column.task.name, column.metric

    measures = {name_measure(column): column.heading.split(" at ")[0] for column in plan.columns}
    size = (1.5 + 3 * len(measures), 3)
    figure, (panels,) = pyplot.subplots(
        1, len(measures), figsize=size, layout="constrained", squeeze=False
    )
    for panel, measure in zip(panels, measures, strict=True):
        columns = [column for column in plan.columns if name_measure(column) == measure]
        for number, row in enumerate(plan.rows):
            share_values = {
                100 * each.declared.at: row_values
                for each in columns
                if (row_values := list_run_values(values, row.label, each))
            }
            means = [summarize(row_values)[0] for row_values in share_values.values()]
            # None of a single run.
            deviations = [summarize(row_values)[1] or 0.0 for row_values in share_values.values()]
            panel.errorbar(
                [*share_values], means, deviations, color=f"C{number}", capsize=3, label=row.label
            )
            for share, row_values in share_values.items():
                panel.plot(
                    [share] * len(row_values),
                    row_values,
                    "o",
                    color=f"C{number}",
                    alpha=0.4,
                    markeredgewidth=0,
                )
        panel.set_title(measures[measure], fontsize="medium")
        panel.set_xlabel("updates, % of the training")
        panel.grid(alpha=0.3)
    panels[0].legend()
    return figure


def cut_tables(page: str) -> str:
    """Returns the table of a page, and that of an ablation's differences from its first row."""
    first, second, *_ = page.split("\n## ")
    parts = [first[first.index("\n|") :]]
    if not second.startswith("Times"):
        parts.append(second[second.index("\n|") :])
    return "\n\n".join(part.strip() for part in parts)


def main():
    report = REPORT.read_text(encoding="utf-8")
    for path in list_result_files():
        draw(path)
        page = make_page(path)
        path.with_suffix(".md").write_text(page, encoding="utf-8")
        mark = name_mark(path)
        between = re.compile(rf"({mark}\n).*?(\n<!-- end -->)", re.DOTALL)
        report, count = between.subn(
            lambda marks, page=page: f"{marks[1]}\n{cut_tables(page)}\n{marks[2]}", report
        )
        if count != 1:
            sys.exit(f"{REPORT}: has no place for {path}; add the lines {mark} and <!-- end -->")
    REPORT.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()

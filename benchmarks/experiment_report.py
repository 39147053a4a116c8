#!/usr/bin/env python3
"""Makes the pages of docs/reports/experiments_desk, and the tables in docs/reports/experiments.md, of the result lines.

In: table*.jsonl, which run_experiment.py --scale=desk writes, in docs/reports/experiments_desk. Out: table*.md beside
them, equal to what that script writes of finite numbers, and in docs/reports/experiments.md what stands between
`<!-- table5 -->` and `<!-- end -->`, for each of them.

    make report-experiments
"""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert.cli.commands import COMMANDS
from official_bert.experiments import table
from official_bert.experiments.declarations import read_catalogue, read_experiment, scale_of
from official_bert.experiments.plan import make_plan

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES, REPORT = ROOT / "docs/reports/experiments_desk", ROOT / "docs/reports/experiments.md"


def page_of(path: pathlib.Path) -> str:
    """Returns the page of the result lines of an experiment."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    runs = {line["step"]: line for line in lines if "step" in line}
    found = {(line["arm"], line["column"], line["seed"]): line["value"] for line in lines if "step" not in line}
    catalogue = read_catalogue(str(ROOT / "experiments"))
    plan = make_plan(read_experiment(path.stem, catalogue), scale_of("desk", catalogue), catalogue, COMMANDS)
    values = {
        cell: float(value)
        for cell in plan.cells
        if (value := found.pop((cell.row, cell.column.heading, cell.seed), None)) is not None
    }
    results = {step: runs.pop(step.name, None) for step in plan.steps}
    if found or runs:
        sys.exit(f"{path}: has lines that the experiment has no place for, the first {next(iter([*found, *runs]))}")
    return table.markdown(plan, values, results)


def table_of(page: str) -> str:
    """Returns the table of a page, and that of the differences from its first row."""
    first, differences, *_ = page.split("\n## ")
    parts = (first[first.index("\n|") :], differences[differences.index("\n|") :])
    return "\n\n".join(part.strip() for part in parts)


def main():
    report = REPORT.read_text(encoding="utf-8")
    for path in sorted(PAGES.glob("*.jsonl")):
        page = page_of(path)
        path.with_suffix(".md").write_text(page, encoding="utf-8")
        between = re.compile(rf"(<!-- {path.stem} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        report, count = between.subn(lambda marks, page=page: f"{marks[1]}\n{table_of(page)}\n{marks[2]}", report)
        if count != 1:
            sys.exit(f"{REPORT}: has no place for {path.stem}; add <!-- {path.stem} --> and <!-- end -->")
    REPORT.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()

"""The table: its arithmetic against values computed here, its pages, and those that are
committed.
"""

import json
import math

import numpy as np
import pytest

from benchmarks import experiment_report
from official_bert.extensions.experiments import table
from official_bert.extensions.experiments.plan import Plan
from official_bert.extensions.experiments.steps import Layout
from official_bert.extensions.experiments.table import Summary, difference, summarize
from tests.experiment_data import TWO_ROWS, plan_of

LAYOUT = Layout("out/steps", "data", {"base": "x"})


@pytest.fixture
def plan(tmp_path) -> Plan:
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    return plan_of(str(tmp_path / "two.toml"), "small")


def result(secs: float = 1.0, is_resumed: bool = False, **metrics) -> dict:
    ran = {"commit": "abc123", "command": "python run_x.py"}
    return {"secs": secs, "is_resumed": is_resumed, "metrics": metrics} | ran


def page_of(plan: Plan, results: dict) -> str:
    results = dict.fromkeys(plan.steps) | results
    values, _ = table.collect_values(plan, results, LAYOUT)
    return table.format_page(plan, values, results)


def test_summaries_and_differences():
    first, other = [80.0, 81.0, 83.0], [78.0, 77.0, 79.5]
    found = summarize(first)
    np.testing.assert_allclose(
        (found.mean, found.deviation), (np.mean(first), np.std(first, ddof=1))
    )
    gap, errors = difference(summarize(first), summarize(other))
    error = np.sqrt(np.var(first, ddof=1) / 3 + np.var(other, ddof=1) / 3)
    np.testing.assert_allclose((gap, errors), (np.mean(other) - np.mean(first), gap / error))
    # Nobody knows the error of one run or of equal runs.
    assert difference(Summary(1.0, None, 1), Summary(3.0, 0.1, 3)) == (2.0, None)
    assert difference(Summary(1.0, 0.0, 2), Summary(3.0, 0.0, 2)) == (2.0, None)
    huge, small = summarize([1e300, 3e300]), summarize([1.0, 2.0])  # whose squares are no float64
    np.testing.assert_allclose(
        difference(small, huge)[1], 2e300 / (np.sqrt(2) * 1e300 / np.sqrt(2))
    )


def test_the_perplexity_is_that_of_the_loss():
    for name in ("masked_lm_loss", "next_token_loss"):
        np.testing.assert_allclose(
            table.metric_value({name: 1.5, "loss": 2.0}, "perplexity"), np.exp(1.5)
        )


def test_the_page(plan):
    cells = [
        cell for cell in plan.cells if cell.column.task and (cell.row, cell.seed) != ("No NSP", 3)
    ]
    scores = [0.40, 0.42, 0.44, 0.41, 0.42]
    results = {
        cell.step: result(18.0, eval_spearman=score)
        for cell, score in zip(cells, scores, strict=True)
    }
    first, second, *_ = [step for step in plan.steps if step.kind == "pretraining"]
    page = page_of(plan, results | {first: result(1800.0, is_resumed=True), second: result(1925.4)})
    for text in (
        "\n| BERT | – | 3.5 | 42.0 ± 2.0 (3) | 85.8 |\n| No NSP | – | – | 41.5 ± 0.7 (2) | – |\n",
        # -0.5 / sqrt(2^2 / 3 + 0.7071^2 / 2) = -0.40.
        "\n| No NSP | – | -0.5 (0.4, within noise) |\n",
        "\n| pretraining | 2 of 2 | 01:02:05 |\n",
        "\n| fine-tuning | 5 of 6 | 00:01:30 |\n",
        "Interrupted steps, of which there are 1, count",
        "5 of 8 runs are counted",
        "\n| fine-tuning STS-B 4/256/8 seed 1 | 1 | abc123 | 00:00:18 |\n",
    ):
        assert text in page


def test_numbers_that_are_not_finite_are_shown_and_are_null_in_json(plan):
    results = dict.fromkeys(plan.steps)
    for cell in plan.cells:
        loss = {"BERT": 800.0, "No NSP": math.log(20)}[cell.row]
        results[cell.step] = result(masked_lm_loss=loss, eval_spearman=None)
    page = page_of(plan, results)
    assert "| BERT | inf (1) | 3.5 | nan (3) | 85.8 |" in page
    assert "| No NSP | -inf (error unknown) | +nan (error unknown) |" in page
    values, _ = table.collect_values(plan, results, LAYOUT)
    lines = [json.loads(line) for line in table.format_json_lines(plan, values, results, LAYOUT)]
    of_steps = [line for line in lines if "step" in line]
    assert [line["step"] for line in of_steps] == [cell.step.name for cell in plan.cells]
    ran = {"experiment": "two", "scale": "small", "seed": 3, "commit": "abc123", "secs": 1.0}
    ran |= {"is_resumed": False, "command": "python run_x.py"}
    assert of_steps[-1] == ran | {"step": plan.cells[-1].step.name}
    lines = lines[: -len(of_steps)]
    assert [line["value"] for line in lines if line["task"] is None] == [None, 20.0]
    place = {
        "arm": "No NSP",
        "column": "STS-B",
        "task": "STS-B",
        "seed": 3,
        "metric": "eval_spearman",
    }
    folder = LAYOUT.folder(plan.cells[-1].step).removeprefix("out/")
    ran = {"experiment": "two", "scale": "small", "value": None, "secs": 1.0, "folder": folder}
    assert lines[-1] == place | ran


def test_the_committed_pages_are_those_of_the_committed_lines():
    """The report's tables, too, and the pictures, which have a digest of their lines."""
    pages = sorted(experiment_report.PAGES.glob("*.jsonl"))
    assert [path.stem for path in pages] == ["figure5", "table5", "table6", "table8"]
    report = experiment_report.REPORT.read_text()
    for path in pages:
        page = experiment_report.make_page(path)
        assert path.with_suffix(".md").read_text() == page
        assert (
            experiment_report.compute_digest(path).encode() in path.with_suffix(".png").read_bytes()
        )
        assert (
            f"<!-- {path.stem} -->\n\n{experiment_report.cut_tables(page)}\n\n<!-- end -->"
            in report
        )

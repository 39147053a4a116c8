"""Tests of the tables of experiments: their arithmetic, their pages and the committed ones."""

import json
import math

import numpy as np
import pytest

from benchmarks import experiment_report
from official_bert.extensions.experiments import table
from official_bert.extensions.experiments.declarations import list_experiments
from official_bert.extensions.experiments.plan import Plan
from official_bert.extensions.experiments.steps import Layout
from tests.experiment_data import CATALOGUE, TWO_ROWS, plan_of

LAYOUT = Layout("out/steps", "data", {"base": "x"})


@pytest.fixture
def plan(tmp_path) -> Plan:
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    return plan_of(str(tmp_path / "two.toml"), "small")


def make_result(secs: float = 1.0, is_resumed: bool = False, **metrics) -> dict:
    return {
        "secs": secs,
        "is_resumed": is_resumed,
        "metrics": metrics,
        "commit": "abc123",
        "command": "python run_x.py",
    }


def make_page(plan: Plan, results: dict) -> str:
    results = dict.fromkeys(plan.steps) | results
    values, _ = table.collect_values(plan, results, LAYOUT)
    return table.format_page(plan, values, results)


@pytest.mark.parametrize("name", ["masked_lm_loss", "next_token_loss"])
def test_the_perplexity_is_that_of_the_loss(name):
    perplexity = table.metric_value({name: 1.5, "loss": 2.0}, "perplexity")
    np.testing.assert_allclose(perplexity, np.exp(1.5))


def test_the_page(plan):
    scores = {
        ("BERT", 1): 0.40,
        ("BERT", 2): 0.42,
        ("BERT", 3): 0.44,
        ("No NSP", 1): 0.41,
        ("No NSP", 2): 0.42,
    }
    results = {}
    for cell in plan.cells:
        score = scores.get((cell.row, cell.seed))
        if cell.column.task and score:
            results[cell.step] = make_result(18.0, eval_spearman=score)
    pretrainings = [step for step in plan.steps if step.kind == "pretraining"]
    first, second, *_ = pretrainings
    results[first] = make_result(1800.0, is_resumed=True)
    results[second] = make_result(1925.4)

    page = make_page(plan, results)

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


@pytest.fixture
def results_not_finite(plan) -> dict:
    """Losses whose perplexity is infinite or known, and scores that are undefined."""
    losses = {"BERT": 800.0, "No NSP": math.log(20)}
    results = dict.fromkeys(plan.steps)
    for cell in plan.cells:
        loss = losses[cell.row]
        results[cell.step] = make_result(masked_lm_loss=loss, eval_spearman=None)
    return results


def test_a_page_shows_numbers_that_are_not_finite(plan, results_not_finite):
    page = make_page(plan, results_not_finite)
    assert "| BERT | inf (1) | 3.5 | nan (3) | 85.8 |" in page
    assert "| No NSP | -inf (error unknown) | +nan (error unknown) |" in page


def test_numbers_that_are_not_finite_are_null_in_json(plan, results_not_finite):
    values, _ = table.collect_values(plan, results_not_finite, LAYOUT)
    text_lines = table.format_json_lines(plan, values, results_not_finite, LAYOUT)
    lines = [json.loads(line) for line in text_lines]
    step_lines = [line for line in lines if "step" in line]
    num_steps = len(step_lines)
    value_lines = lines[:-num_steps]

    step_names = [line["step"] for line in step_lines]
    assert step_names == [cell.step.name for cell in plan.cells]
    last_step = plan.cells[-1].step
    assert step_lines[-1] == {
        "experiment": "two",
        "scale": "small",
        "seed": 3,
        "commit": "abc123",
        "secs": 1.0,
        "is_resumed": False,
        "command": "python run_x.py",
        "step": last_step.name,
    }

    perplexities = [line["value"] for line in value_lines if line["task"] is None]
    assert perplexities == [None, 20.0]
    assert value_lines[-1] == {
        "arm": "No NSP",
        "column": "STS-B",
        "task": "STS-B",
        "seed": 3,
        "metric": "eval_spearman",
        "experiment": "two",
        "scale": "small",
        "value": None,
        "secs": 1.0,
        "folder": LAYOUT.folder(last_step).removeprefix("out/"),
    }


def test_the_committed_pages_are_those_of_the_committed_lines():
    """The tables of the report and the digests of lines in the pictures agree, too."""
    files = experiment_report.list_result_files()
    marks = [experiment_report.name_mark(file) for file in files]
    desk = [f"<!-- desk/{name} -->" for name in list_experiments(CATALOGUE.folder)]
    assert set(desk) <= set(marks)
    report = experiment_report.REPORT.read_text()
    for file, mark in zip(files, marks, strict=True):
        page = experiment_report.make_page(file)
        assert file.with_suffix(".md").read_text() == page
        digest = experiment_report.compute_digest(file)
        assert digest.encode() in file.with_suffix(".png").read_bytes()
        tables = experiment_report.cut_tables(page)
        assert f"{mark}\n\n{tables}\n\n<!-- end -->" in report

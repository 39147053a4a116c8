"""Tests of benchmarks/experiment_costs.py, and of its tables in the report."""

from benchmarks import experiment_costs
from tests.shared import ROOT


def find_step(experiment: str, words: str):
    steps = experiment_costs.list_steps("paper", experiment)
    return next(step for step in steps if words in step.label)


def test_the_report_has_what_it_prints(capsys):
    experiment_costs.print_costs(experiment_costs.UTILIZATIONS)
    experiment_costs.print_steps()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 9 + 2 + 6
    report = (ROOT / "docs/reports/experiments.md").read_text(encoding="utf-8").splitlines()
    assert set(lines) <= set(report)


def test_operations_of_fine_tunings_by_hand():
    """A step of Base has six operations for each token and weight of its products: those of the
    layers, of the scores and contexts, and of the pooler.
    """
    sequence = 128 * 12 * (12 * 768**2 + 2 * 128 * 768) + 768**2
    step = find_step("table4", "base seed 1")  # of four sequences an example
    assert experiment_costs.count_fine_tuning(step) == 6 * 3 * 4 * 73_546 * sequence
    step = find_step("table1", "RTE base seed 1")  # a search with four rates
    assert experiment_costs.count_fine_tuning(step) == 6 * 4 * 3 * 2490 * sequence

"""The estimate of an experiment's cost, against operations counted here."""

import re

import numpy as np

from official_bert.jobs.experiments.cost import MACHINES, estimate, flops_of
from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Settings, config_of, make_plan
from official_bert.jobs.experiments.steps import Work
from tests.shared import ROOT

CATALOGUE = read_catalogue(str(ROOT / "experiments"))


def forward(layers: int, hidden: int, length: int) -> int:
    """Operations of the layers and the pooler for a sequence: 24 H^2 and 4 H F for each token of a layer."""
    return layers * length * (24 * hidden**2 + 4 * hidden * length) + 2 * hidden**2


def test_operations_of_a_step():
    config = tuple(config_of("4/64/2", CATALOGUE.scale("small"), {}).items())
    work = Work(config, 32, num_trained=10, num_evaluated=5)
    np.testing.assert_allclose(flops_of(work), (3 * 10 + 5) * forward(4, 64, 32))
    frozen = Work(config, 32, num_trained=10, num_frozen_layers=4)
    pooler = 2 * 64**2
    np.testing.assert_allclose(flops_of(frozen), 10 * (forward(4, 64, 32) + 2 * pooler))


def test_hours_are_operations_over_the_reached_peak():
    np.testing.assert_allclose(MACHINES[0].hours(16 * 275e12 * 0.4 * 3600, 0.4), 1.0)
    np.testing.assert_allclose(MACHINES[1].hours(8 * 989e12 * 0.5 * 7200, 0.5), 2.0)


def test_the_printed_table_adds_up():
    plan = make_plan(read_experiment("table5", CATALOGUE), CATALOGUE.scale("paper"), CATALOGUE, Settings())
    text = estimate(plan, 0.4)
    rows = {
        cells[1].strip(): [float(cell.replace(",", "")) for cell in cells[2:6]]
        for cells in (line.split("|") for line in text.splitlines())
        if len(cells) > 5 and re.match(r" *\d", cells[2])
    }
    assert list(rows) == ["pretraining", "fine-tuning", "total"]
    np.testing.assert_allclose(
        np.add(rows["pretraining"], rows["fine-tuning"]), rows["total"], rtol=0.02, atol=0.11
    )
    assert rows["pretraining"][0] == 3 * 2  # models, phases
    # BERT-Base reads 900,000 x 256 sequences of 128 tokens and 100,000 x 256 of 512; the heads are left out here.
    base = 3 * 256 * (900_000 * forward(12, 768, 128) + 100_000 * forward(12, 768, 512))
    assert 3 * base < rows["pretraining"][1] < 1.3 * 3 * base

"""The table: its arithmetic against values computed here, and its Markdown read again."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Settings, make_plan
from official_bert.jobs.experiments.results import Time, Value
from official_bert.jobs.experiments.table import Difference, Summary, difference, markdown, summary
from tests.experiment_data import TWO_ROWS
from tests.shared import ROOT

CATALOGUE = read_catalogue(str(ROOT / "experiments"))


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables_of(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown page, each a list of lines without the rule."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, rule, *body = block.splitlines()
        assert all(re.fullmatch("-+:?", cell) for cell in cells_of(rule))
        assert {len(cells_of(line)) for line in (head, rule, *body)} == {len(cells_of(head))}
        tables.append([cells_of(line) for line in (head, *body)])
    return tables


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    experiment = read_experiment(str(tmp_path / "two.toml"), CATALOGUE)
    return make_plan(experiment, CATALOGUE.scale("tiny"), CATALOGUE, Settings())


def test_summaries_and_differences():
    first, other = [80.0, 81.0, 83.0], [78.0, 77.0, 79.5]
    found = summary(first)
    np.testing.assert_allclose((found.mean, found.deviation), (np.mean(first), np.std(first, ddof=1)))
    gap = difference(summary(first), summary(other))
    error = np.sqrt(np.var(first, ddof=1) / 3 + np.var(other, ddof=1) / 3)
    np.testing.assert_allclose(gap.value, np.mean(other) - np.mean(first))
    np.testing.assert_allclose(gap.errors, gap.value / error)
    assert gap.is_noise is False
    assert summary([]) is None
    assert summary([5.0]) == Summary(5.0, None, 1)


@pytest.mark.parametrize(
    ("errors", "is_noise"), [(1.9, True), (-1.9, True), (2.0, False), (-2.1, False), (None, None)]
)
def test_noise_is_below_two_standard_errors(errors, is_noise):
    assert Difference(1.0, errors).is_noise is is_noise


def test_nobody_knows_the_error_of_one_run_or_of_equal_runs():
    assert difference(Summary(1.0, None, 1), Summary(3.0, 0.1, 3)) == Difference(2.0, None)
    assert difference(Summary(1.0, 0.0, 2), Summary(3.0, 0.0, 2)) == Difference(2.0, None)


def test_a_score_that_is_no_number_is_shown():
    found = summary([1.0, math.nan])
    assert math.isnan(found.mean)
    assert (found.deviation, found.count) == (None, 2)


def test_infinite_and_huge_perplexities_are_shown(plan):
    numbers = {"BERT": [math.inf], "No NSP": [20.0]}
    values = [Value(cell, numbers[cell.row][0], secs=1.0) for cell in plan.cells if cell.column.task is None]
    first, second, _ = tables_of(markdown(plan, values, []))
    assert [line[1] for line in first[1:]] == ["inf (1)", "20.00 (1)"]
    assert second[1][1] == "-inf (error unknown)"
    assert summary([math.inf, 20.0]) == Summary(math.inf, None, 2)
    huge, small = summary([1e300, 3e300]), summary([1.0, 2.0])  # whose squares are no float64
    np.testing.assert_allclose(difference(small, huge).errors, 2e300 / (np.sqrt(2) * 1e300 / np.sqrt(2)))


def test_the_page(plan):
    numbers = {
        ("BERT", "Perplexity"): [20.0],
        ("BERT", "STS-B"): [40.0, 42.0, 44.0],
        ("No NSP", "Perplexity"): [21.5],
        ("No NSP", "STS-B"): [41.0, 42.0],  # the third run is not finished
    }
    values = [
        Value(cell, numbers[cell.row, cell.column.label][cell.seed - 1], secs=1.0)
        for cell in plan.cells
        if cell.seed <= len(numbers[cell.row, cell.column.label])
    ]
    times = [Time("pretraining", 2, 2, 1, 3725.4), Time("fine-tuning", 6, 5, 0, 90.0)]
    text = markdown(plan, values, times)
    first, second, third = tables_of(text)
    assert first == [
        ["", "Perplexity", "paper, Perplexity", "STS-B", "paper, STS-B"],
        ["BERT", "20.00 (1)", "3.5", "42.0 ± 2.0 (3)", "85.8"],
        ["No NSP", "21.50 (1)", "–", "41.5 ± 0.7 (2)", "–"],
    ]
    # -0.5 / sqrt(2^2 / 3 + 0.7071^2 / 2) = -0.40
    assert second == [
        ["", "Perplexity", "STS-B"],
        ["No NSP", "+1.50 (error unknown)", "-0.5 (0.4, within noise)"],
    ]
    assert third == [
        ["steps", "finished", "wall time"],
        ["pretraining", "2 of 2", "01:02:05"],
        ["fine-tuning", "5 of 6", "00:01:30"],
    ]
    assert "Interrupted steps, of which there are 1, count" in text
    assert "7 of 8 runs are counted" in text
    assert "Every row was pre-trained once" in text
    assert "smaller ones here: 12/768/12 is 4/128/2." in text


SMALLER = "The models and the data are smaller than the paper's: only differences between rows compare."
GIVEN = "The models are given ones; recipes and data may be smaller than the paper's."


@pytest.mark.parametrize(
    ("name", "scale", "sentence"),
    [
        ("table5", "small", SMALLER),
        ("table5", "paper", None),
        ("table1", "small", GIVEN),
        ("table1", "paper", None),
        ("both", "small", SMALLER),
    ],
)
def test_what_does_not_compare_with_the_paper(name, scale, sentence):
    first = read_experiment("table1" if name == "both" else name, CATALOGUE)
    rows = [*first.rows, *(read_experiment("table5", CATALOGUE).rows if name == "both" else [])]
    experiment = dataclasses.replace(first, rows=rows)
    settings = Settings(encoders={"base": {"num_hidden_layers": 2}})
    page = markdown(make_plan(experiment, CATALOGUE.scale(scale), CATALOGUE, settings), [], [])
    assert [each for each in (SMALLER, GIVEN) if each in page] == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("scale", "members"), [("tiny", "3 fine-tunings instead of 7"), ("paper", "7 fine-tunings")]
)
def test_the_page_says_how_many_members_an_ensemble_has(scale, members):
    settings = Settings(encoders={"base": {"num_hidden_layers": 2}})
    plan = make_plan(read_experiment("table2", CATALOGUE), CATALOGUE.scale(scale), CATALOGUE, settings)
    assert {row.ensemble for row in plan.rows} == {None, 7}
    sentence = f"An ensemble is one run, the mean of the predictions of {members}."
    assert markdown(plan, [], []).count(sentence) == 1
    single = dataclasses.replace(plan, cells=tuple(cell for cell in plan.cells if "single" in cell.row))
    assert "ensemble is" not in markdown(single, [], [])


def test_a_bar_in_a_label_stays_in_its_cell(plan):
    row = plan.rows[0].__class__(label="a|b", size="12/768/12")
    text = markdown(plan.__class__(plan.experiment, plan.scale, plan.columns, (row,), plan.cells, ()), [], [])
    assert tables_of(text)[0][1][0] == "a\\|b"


@pytest.mark.parametrize(
    "results", sorted((ROOT / "experiments" / "results").glob("*/*.jsonl")), ids=lambda path: path.stem
)
def test_the_committed_results_their_page_and_the_documentation_have_the_same_numbers(results):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    values = {}
    for line in lines:
        values.setdefault((line["arm"], line["column"]), []).append(line["value"])
    text = (ROOT / "docs" / "experiments.md").read_text()
    section = text.split(f"### {results.stem.replace('table', 'Table ')}: ")[1].split("\n#")[0]
    page_head, *page = tables_of(results.with_suffix(".md").read_text())[0]
    shown_head, *shown = tables_of(section)[0]
    assert len(page) == len(shown)
    for row, shown_row in zip(page, shown, strict=True):
        assert row[0] == shown_row[0]
        for place, heading in enumerate(page_head):
            if not heading or heading.startswith("paper, "):
                continue
            own = values.pop((row[0], heading), None)
            if own is None:
                assert row[place] == "–"
                continue
            mean, deviation, count = re.fullmatch(
                r"(-?[\d.]+)(?: ± ([\d.]+))? \((\d+)\)", row[place]
            ).groups()
            half = 0.5 * 10.0 ** -len(mean.partition(".")[2])  # what rounding may change
            np.testing.assert_allclose(float(mean), np.mean(own), rtol=0, atol=half * 1.001)
            if deviation:
                np.testing.assert_allclose(float(deviation), np.std(own, ddof=1), rtol=0, atol=half * 1.001)
            assert int(count) == len(own)
            assert shown_row[shown_head.index(heading)] == row[place].removesuffix(f" ({count})")
    assert not values

"""Which tasks fill the columns of a table at a scale, and what stands in for those that it lacks."""

import dataclasses

import pytest

from official_bert.io.errors import InputError
from official_bert.jobs.experiments.columns import shown_columns
from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from tests.shared import ROOT

CATALOGUE = read_catalogue(str(ROOT / "experiments"))


def headings(name: str, scale: str, is_present=lambda task: True) -> list[str]:
    columns, _ = shown_columns(
        read_experiment(name, CATALOGUE), CATALOGUE.scales[scale], CATALOGUE, is_present
    )
    return [column.heading for column in columns]


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("table5", "paper", ["MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"]),
        # MRPC's stand-in is shown for QNLI already.
        ("table5", "tiny", ["STS-B for MNLI-m", "CoLA for QNLI", "SST-2", "SQuAD"]),
        ("table6", "tiny", ["LM (perplexity)", "STS-B for MNLI-m", "CoLA for MRPC", "SST-2"]),
        # STS-B and CoLA have columns of their own here and stand in for nothing.
        ("table1", "tiny", ["SST-2", "CoLA", "STS-B"]),
        ("table4", "small", ["CODAH for SWAG"]),
        ("table4", "paper", ["SWAG"]),
        ("table7", "tiny", ["WNUT-17 for Dev F1", "WNUT-17 for Test F1"]),
        (
            "table8",
            "tiny",
            ["STS-B for MNLI", "WNUT-17 for NER, fine-tuned", "WNUT-17 for NER, feature-based"],
        ),
    ],
)
def test_columns_of_a_scale(name, scale, expected):
    assert headings(name, scale) == expected


def test_smoke_takes_what_is_there():
    assert headings("table5", "smoke", lambda task: task.name in ("SST-2", "CoLA")) == [
        "CoLA for MNLI-m",
        "SST-2",
    ]
    # MNLI-m and MNLI-mm are one number with a stand-in.
    assert headings("table1", "smoke", lambda task: task.name == "SQuAD 1.1" or task.name == "SST-2") == [
        "SST-2"
    ]
    with pytest.raises(
        InputError,
        match=r"table4.toml: has nothing to train at --scale=smoke \(column 'SWAG': what may stand in for its task "
        r"\(CODAH\) is shown already, or --data_dir lacks it\); choose another scale, or get data",
    ):
        headings("table4", "smoke", lambda task: False)


def test_one_run_is_not_shown_twice():
    scale = dataclasses.replace(CATALOGUE.scales["tiny"], tasks=["STS-B"], stand_ins={"MNLI": ["STS-B"]})
    experiment = dataclasses.replace(
        read_experiment("table1", CATALOGUE), columns=read_experiment("table1", CATALOGUE).columns[:2]
    )
    shown, left_out = shown_columns(experiment, scale, CATALOGUE, lambda task: True)
    assert [column.heading for column in shown] == ["STS-B for MNLI-m"]
    assert left_out == ["column 'MNLI-mm': STS-B, which stands in for its task, is shown already"]


def test_a_stand_in_that_is_shown_already_is_the_reason_of_an_absent_column():
    table5 = read_experiment("table5", CATALOGUE)
    _, left_out = shown_columns(table5, CATALOGUE.scales["tiny"], CATALOGUE, lambda task: True)
    assert left_out == ["column 'MRPC': what may stand in for its task (CoLA) is shown already"]


def test_a_stand_in_keeps_its_own_metric_and_percentages_are_known():
    table5 = read_experiment("table5", CATALOGUE)
    shown, _ = shown_columns(table5, CATALOGUE.scales["paper"], CATALOGUE, lambda task: True)
    assert [(column.metric, column.factor) for column in shown] == [
        ("eval_accuracy", 100.0),
        ("eval_accuracy", 100.0),
        ("eval_accuracy", 100.0),  # of MRPC, whose own metric is F1
        ("eval_accuracy", 100.0),
        ("f1", 1.0),  # SQuAD's is in percent
    ]
    shown, _ = shown_columns(table5, CATALOGUE.scales["tiny"], CATALOGUE, lambda task: True)
    assert [column.metric for column in shown] == ["eval_spearman", "eval_matthews", "eval_accuracy", "f1"]


def test_only_fractions_become_percentages():
    table5, scale = read_experiment("table5", CATALOGUE), CATALOGUE.scales["tiny"]
    sst2 = next(column for column in table5.columns if column.task == "SST-2")
    metrics = ("eval_loss", "global_step", "eval_f1", "eval_pearson")
    columns = [dataclasses.replace(sst2, label=metric, metric=metric) for metric in metrics]
    shown, _ = shown_columns(
        dataclasses.replace(table5, columns=columns), scale, CATALOGUE, lambda task: True
    )
    assert [column.factor for column in shown] == [1.0, 1.0, 100.0, 100.0]

"""The results of steps: what is read of a script's files, and what becomes of them in the table."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.jobs.experiments import results
from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Settings, make_plan
from official_bert.jobs.experiments.steps import Layout, Own, Step
from tests.shared import ROOT

CATALOGUE = read_catalogue(str(ROOT / "experiments"))
STEP = Step("fine-tuning", "CoLA", "run_classifier", (("output_dir", Own()),), seed=3)


def test_metrics_of_all_sets(tmp_path):
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.25\neval_matthews = nan\nglobal_step = 7\n")
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\n")
    assert results.read_metrics(str(tmp_path)) == {
        "eval_accuracy": 0.25,
        "eval_matthews": None,
        "global_step": 7.0,
        "eval_accuracy_mm": 0.5,
    }


def test_metrics_of_the_best_run_of_a_search(tmp_path):
    (tmp_path / "search_results.tsv").write_text("run\teval_f1\tbest\none\t0.1\t\ntwo\t0.2\t*\n")
    for name, value in (("one", 0.1), ("two", 0.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "eval_results.txt").write_text(f"eval_f1 = {value}\n")
    assert results.read_metrics(str(tmp_path)) == {"eval_f1": 0.2}


def test_the_perplexity_is_that_of_the_loss():
    np.testing.assert_allclose(
        results.value_of({"masked_lm_loss": 1.5, "loss": 2.0}, "perplexity"), np.exp(1.5)
    )
    np.testing.assert_allclose(results.value_of({"next_token_loss": 1.0}, "perplexity"), np.e)
    assert results.value_of({"masked_lm_loss": 800.0}, "perplexity") == math.inf
    assert math.isnan(results.value_of({"eval_matthews": None}, "eval_matthews"))
    with pytest.raises(KeyError, match="perplexity"):
        results.value_of({"f1": 1.0}, "perplexity")


def test_a_finished_step_and_its_large_files(tmp_path):
    layout = Layout(str(tmp_path), "data", {}, ".")
    assert results.read_result(layout, STEP) is None
    output = tmp_path / layout.output(STEP)
    (output / "best").mkdir(parents=True)
    for name in (
        "model.ckpt-1.index",
        "input.ckpt-1-0.index",
        "checkpoint",
        "best/model.ckpt-1.index",
        "train.tf_record",
    ):
        (output / name).write_text("x")
    (output / "eval_results.txt").write_text("eval_matthews = 0.5\n")
    results.write_result(layout, STEP, 1.26, is_resumed=False)
    found = results.read_result(layout, STEP)
    assert (found["secs"], found["seed"], found["metrics"]) == (1.3, 3, {"eval_matthews": 0.5})
    assert found["command"].startswith("python ")
    results.strip(layout, STEP)
    assert results.read_result(layout, STEP) == found | {"is_stripped": True}
    assert sorted(path.name for path in output.rglob("*")) == ["best", "eval_results.txt"]


SOUND = {"secs": 1.5, "is_resumed": False, "is_stripped": False, "metrics": {"f1": 0.5, "loss": None}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is no object"),
        ("5", "is no object"),
        ("null", "is no object"),
        ("{}", '"secs" is missing or of a wrong type'),
        ('{"secs": 1.5,', "line 1, column 14: no JSON (Expecting property name enclosed in double quotes)"),
        ("\xff", "byte 0 is no utf-8"),
        (json.dumps(SOUND | {"secs": "1.5"}), '"secs" is missing or of a wrong type'),
        (json.dumps(SOUND | {"is_resumed": 0}), '"is_resumed" is missing or of a wrong type'),
        (json.dumps(SOUND | {"is_stripped": None}), '"is_stripped" is missing or of a wrong type'),
        (json.dumps(SOUND | {"metrics": 5}), '"metrics" is missing or of a wrong type'),
        (json.dumps(SOUND | {"metrics": {"f1": "high"}}), 'the metric "f1" is no number'),
        (json.dumps(SOUND | {"metrics": {"f1": True}}), 'the metric "f1" is no number'),
    ],
)
def test_a_damaged_result_is_named_with_its_remedy(tmp_path, content, said):
    layout = Layout(str(tmp_path), "data", {}, ".")
    folder = pathlib.Path(layout.folder(STEP))
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(SOUND))
    assert results.read_result(layout, STEP) == SOUND
    (folder / "result.json").write_text(content, encoding="latin-1")
    with pytest.raises(InputError) as raised:
        results.read_result(layout, STEP)
    assert str(raised.value) == (
        f"{folder}/result.json: {said}; delete the folder {folder}, and the same command runs the step again"
    )


def test_values_and_lines(tmp_path):
    experiment = read_experiment("table3", CATALOGUE)
    settings = Settings(seeds=1, encoders={"base": {"num_hidden_layers": 2}})
    plan = make_plan(experiment, CATALOGUE.scale("tiny"), CATALOGUE, settings)
    layout = Layout(str(tmp_path / "steps"), "data", {"base": "x"}, ".")
    assert results.values_of(plan, layout) == ([], [])
    step = plan.steps[0]
    output = tmp_path / "steps" / layout.output(step)
    output.mkdir(parents=True)
    (output / "eval_results.txt").write_text("exact = 40.5\nf1 = 44.123456\n")
    assert results.times_of(plan, layout) == [results.Time("fine-tuning", 1, 0, 0, 0)]
    results.write_result(layout, step, 2.0, is_resumed=True)
    assert results.times_of(plan, layout) == [results.Time("fine-tuning", 1, 1, 1, 2.0)]
    values, faults = results.values_of(plan, layout)
    assert not faults
    assert [value.value for value in values] == [40.5, 44.123456]
    lines = [json.loads(line) for line in results.lines_of(values, plan, layout)]
    assert lines[1] == {
        "experiment": "table3",
        "scale": "tiny",
        "arm": "BERT-Base",
        "column": "F1",
        "task": "SQuAD 2.0",
        "seed": 1,
        "metric": "f1",
        "value": 44.1235,
        "secs": 2.0,
        "folder": f"steps/{output.parent.name}",
    }
    for number in (math.nan, math.inf, -math.inf):
        (line,) = results.lines_of([dataclasses.replace(values[0], value=number)], plan, layout)
        assert json.loads(line)["value"] is None


def test_a_metric_that_is_missing_leaves_the_cells_of_its_column_empty(tmp_path):
    experiment = read_experiment("table3", CATALOGUE)
    settings = Settings(seeds=2, encoders={"base": {"num_hidden_layers": 2}})
    plan = make_plan(experiment, CATALOGUE.scale("tiny"), CATALOGUE, settings)
    layout = Layout(str(tmp_path / "steps"), "data", {"base": "x"}, ".")
    first, second = plan.steps
    for step, text in ((first, "f1 = 44.0\n"), (second, "exact = 40.0\nf1 = 46.0\n")):
        output = tmp_path / "steps" / layout.output(step)
        output.mkdir(parents=True)
        (output / "eval_results.txt").write_text(text)
        results.write_result(layout, step, 2.0, is_resumed=False)
    values, faults = results.values_of(plan, layout)
    assert [(value.cell.column.label, value.cell.seed, value.value) for value in values] == [
        ("EM", 2, 40.0),
        ("F1", 1, 44.0),
        ("F1", 2, 46.0),
    ]
    metric = plan.columns[0].metric
    assert faults == [
        f"column 'EM' has empty cells: the results of {layout.folder(first)} have no {metric!r}, but f1; correct the "
        "metric of the column or of the task"
    ]
    (tmp_path / "steps" / layout.output(second) / "eval_results.txt").write_text("f1 = 46.0\n")
    results.write_result(layout, second, 2.0, is_resumed=False)
    values, faults = results.values_of(plan, layout)
    assert ({value.cell.column.label for value in values}, len(faults)) == ({"F1"}, 1)

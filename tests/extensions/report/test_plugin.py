"""What a run records for its report, and --report at its end, in the runs of all families."""

import dataclasses
import json

import pytest

from official_bert.training import run_log
from tests import fine_tuning_runs
from tests.extensions.report.pages import read_page

SETS = fine_tuning_runs.SETS


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    """A classifier that was trained, calibrated and evaluated, with its report."""
    folder = tmp_path_factory.mktemp("classified")
    options = fine_tuning_runs.prepared(folder, "classification")
    flags = {"do_train": True, "do_eval": True, "calibrate": True, "report": True}
    fine_tuning_runs.run("classification", options, folder / "output", **flags)
    return folder / "output"


def read_predictions(folder):
    text = (folder / "eval_predictions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_classifier_records_its_predictions(classified):
    records = read_predictions(classified)
    assert [record["id"] for record in records] == list(range(1, SETS["dev"] + 1))
    lines = (classified.parent / "dev.tsv").read_text().splitlines()[1:]
    for number, (record, line) in enumerate(zip(records, lines, strict=True), start=2):
        text, label = line.split("\t")
        assert (record["line"], record["row_id"]) == (number, "")
        assert record["label"] == label
        assert text.startswith(record["text"][:20])
        assert record["prediction"] in "abc"
        assert 1 / 3 <= record["probability"] <= 1
    accuracy = sum(one["label"] == one["prediction"] for one in records) / len(records)
    results = fine_tuning_runs.figures(classified)
    assert accuracy == pytest.approx(results["eval_accuracy"])
    assert any(abs(one["probability"] - one["raw_probability"]) > 1e-3 for one in records)


def test_the_log_describes_the_sets(classified):
    (start,) = run_log.read(str(classified), run_log.START)
    (line,) = run_log.read(str(classified), "data")
    for values, count in ((start["training_set"], SETS["train"]), (line, SETS["dev"])):
        assert values["examples"] == count
        assert sum(values["bars"]) == count
        assert len(values["digest"]) == 64
        assert values["most_tokens"] <= fine_tuning_runs.MAX_LENGTH
    assert start["main_metric"] == line["main_metric"] == "eval_accuracy"
    assert line["set"] == "eval"


def test_the_log_has_the_times_of_the_parts(classified):
    (end,) = run_log.read(str(classified), run_log.END)
    parts = ("compile_secs", "update_secs", "save_secs", "evaluation_secs")
    assert all(end[part] >= 0 for part in parts)
    assert end["compile_secs"] > 0.1
    assert sum(end[part] for part in parts) <= end["wall_secs"]
    assert 0 < end["read_secs"] < end["wall_secs"]


def test_the_log_has_the_typed_flags(classified):
    (start,) = run_log.read(str(classified), run_log.START)
    typed = start["typed_flags"]
    assert typed["calibrate"] is typed["report"] is True
    assert typed["output_dir"] == str(classified)
    assert "init_checkpoint" not in typed or typed["init_checkpoint"]
    untyped = {"adam_beta1", "search", "seed", "do_predict"}
    assert not untyped & typed.keys()


def test_the_flag_writes_the_report_at_the_end(classified):
    page = read_page(classified / "report.html")
    assert {"Confusion matrix", "Calibration", "When to abstain"} <= {*page.headings}
    results = fine_tuning_runs.figures(classified)
    before, after = results["eval_ece"], results["eval_ece_calibrated"]
    assert f"in 15 bins: before the calibration: {before:.1%}, calibrated: {after:.1%}" in page.text
    assert (classified / "README.md").exists()


def test_without_the_flag_there_is_no_report(tmp_path_factory):
    run = fine_tuning_runs.shared_run(tmp_path_factory, "classification", do_eval=True)
    assert (run.output_dir / "eval_predictions.jsonl").exists()
    assert not (run.output_dir / "report.html").exists()


@pytest.mark.parametrize("family", ["regression", "multi-label", "choice", "tagging", "embedding"])
def test_other_families_have_reports(family, tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, family)
    output_dir = tmp_path / "output"
    flags = {"do_train": True, "do_eval": True, "report": True, "num_train_epochs": 0.5}
    fine_tuning_runs.run(family, options, output_dir, **flags)
    page = read_page(output_dir / "report.html")
    heading = {
        "regression": "Predicted scores",
        "multi-label": "Results of each label",
        "choice": "Confusion matrix",
        "tagging": "Marked sentences",
        "embedding": "Map of the embeddings",
    }[family]
    assert heading in page.headings
    assert "lines of another form" not in page.text
    assert len(read_predictions(output_dir)) >= SETS["dev"]


def test_answers_are_marked_in_their_documents(tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, "squad")
    output_dir = tmp_path / "output"
    flags = {"do_train": True, "do_predict": True, "report": True, "num_train_epochs": 0.5}
    fine_tuning_runs.run("squad", options, output_dir, **flags)
    page = read_page(output_dir / "report.html")
    rows = page.find_table("question")
    predictions = json.loads((output_dir / "predictions.json").read_text())
    assert len(rows) == min(SETS["dev"], 25)
    for question, document, _, prediction in rows:
        number = int(question.split()[0].removeprefix("example"))
        assert prediction == predictions[str(number)]
        assert "true" in document
    assert page.tags["mark"] >= len(rows)

    (tmp_path / "dev.json").unlink()  # a report that is written later
    from official_bert.extensions.report.command import write_report

    write_report([str(output_dir)], str(output_dir / "report.html"), has_card=False)
    page = read_page(output_dir / "report.html")
    assert "cannot be read any more, so no example is shown" in page.text


def test_a_full_disk_costs_the_predictions_and_not_the_run(tmp_path, monkeypatch, caplog):
    from official_bert.extensions.report import plugin

    def fail(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plugin, "write_predictions", fail)
    monkeypatch.setattr(plugin, "write_report", fail)
    options = fine_tuning_runs.prepared(tmp_path, "classification")
    options = dataclasses.replace(options, num_train_epochs=0.2)
    flags = {"do_train": True, "do_eval": True, "report": True}
    fine_tuning_runs.run("classification", options, tmp_path / "output", **flags)
    assert "The report lacks predictions" in caplog.text
    assert "No report is written: [Errno 28]" in caplog.text
    assert (tmp_path / "output" / "eval_results.txt").exists()


def test_a_search_ends_with_the_comparison_of_its_runs(tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, "classification")
    grid = tmp_path / "grid.toml"
    grid.write_text("learning_rate = [1e-3, 1e-4]\ntrain_batch_size = 8\nnum_train_epochs = 0.5\n")
    output_dir = tmp_path / "output"
    fine_tuning_runs.run(
        "classification",
        options,
        output_dir,
        do_train=True,
        do_eval=True,
        report=True,
        search=str(grid),
    )
    page = read_page(output_dir / "report.html")
    runs = [f"batch8_lr{rate}_epochs0.5_seed7" for rate in ("0.0001", "0.001")]
    assert [row[0] for row in page.find_table("run")] == runs
    assert not (output_dir / "README.md").exists()
    for name in runs:
        (start,) = run_log.read(str(output_dir / name), run_log.START)
        typed = start["typed_flags"]
        assert "search" not in typed
        assert typed["output_dir"] == str(output_dir / name)
        assert f"lr{typed['learning_rate']:g}_" in name
        assert (output_dir / name / "report.html").exists()

"""The model card: its YAML head, what a run knows, and what a person has written."""

import json

import pytest

from official_bert.extensions.report import card
from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from tests.extensions.report import folders
from tests.shared import ROOT

ruamel = pytest.importorskip("ruamel.yaml")


def write_card(folder) -> str:
    run(ReportOptions(folders=(str(folder),)))
    return (folder / card.FILE).read_text(encoding="utf-8")


def read_head(text: str) -> dict:
    """The YAML between the first two lines of hyphens, as the Hub reads it."""
    _, head, _ = text.split("---\n", 2)
    return ruamel.YAML(typ="safe").load(head)


def test_the_head_has_what_the_hub_reads(tmp_path):
    checkpoint = "/home/me/.cache/hub/models--google--bert-tiny/snapshots/1a2b/model.safetensors"
    folders.write_run(tmp_path / "tickets", flags={"init_checkpoint": checkpoint})
    head = read_head(write_card(tmp_path / "tickets"))
    assert head["tags"] == ["bert", "tensorflow", "keras", "classification", "text"]
    assert head["library_name"] == "keras"
    assert head["pipeline_tag"] == "text-classification"
    assert head["base_model"] == "google/bert-tiny"
    assert head.keys().isdisjoint({"license", "language"})
    (model,) = head["model-index"]
    assert model["name"] == "tickets"
    (result,) = model["results"]
    assert result["task"]["type"] == "text-classification"
    assert result["dataset"]["name"] == "text"
    assert result["metrics"] == [
        {"type": "accuracy", "name": "eval_accuracy", "value": 0.75},
        {"type": "loss", "name": "eval_loss", "value": 0.25},
    ]


def test_a_card_says_what_was_trained_on_what(tmp_path):
    flags = {"class_weights": ["1", "2|3"], "task_name": "XNLI-de", "do_lower_case": True}
    text = write_card(folders.write_run(tmp_path / "model", flags=flags))
    assert read_head(text)["language"] == "de"
    assert "base_model" not in read_head(text)
    for line in (
        "# XNLI-de: model",
        "**eval\\_accuracy: 75.0%**",
        "The [report](report.html) has curves, tables and mistakes.",
        "- Started from: `base/bert_model.ckpt`",
        "- Data: `--data_dir` `tickets`",
        "- Seed: 7",
        "- Devices: /device:CPU:0; replicas: 1",
        "| `--learning_rate` | `2e-05` |",
        "| `--class_weights` | `1,2 3` |",  # a bar would end the cell
        "## Results: eval",
        "| eval\\_accuracy | 0.75 |",
        "| tensorflow | 2.21 |",
    ):
        assert f"\n{line}\n" in text, line
    assert "--do_lower_case" not in text  # the default


def test_a_later_report_keeps_what_a_person_wrote(tmp_path):
    folders.write_run(tmp_path)
    text = write_card(tmp_path)
    edited = text.replace("---\n", "---\nlicense: apache-2.0\n", 1)
    edited = edited.replace("<!-- fill in -->", "me@example.org", 1)
    edited = edited.replace("- Seed: 7", "- Seed: 8")
    (tmp_path / card.FILE).write_text(f"{edited}\nMy last words.\n", encoding="utf-8")
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.5\n")
    text = write_card(tmp_path)
    head = read_head(text)
    assert head["license"] == "apache-2.0"
    assert head["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.5
    assert "me@example.org" in text
    assert "- Seed: 7" in text
    assert text.endswith("My last words.\n")
    assert write_card(tmp_path) == text


def test_a_foreign_readme_stays(tmp_path, caplog):
    folders.write_run(tmp_path)
    (tmp_path / card.FILE).write_text("# Mine\n")
    with caplog.at_level("INFO", logger="absl"):
        assert write_card(tmp_path) == "# Mine\n"
    assert "stays as it is: no report has written it" in caplog.text


def test_hostile_names_are_quoted(tmp_path):
    labels = ['"]}\n---', "a: b", "😀"]
    metrics = [f"eval_f1_{json.dumps(label)} = 0.5\n" for label in labels]
    folders.write_run(tmp_path / "a:b #c", flags={"task_name": 'x"]: {<b>'})
    (tmp_path / "a:b #c" / "eval_results.txt").write_text("".join(metrics), encoding="utf-8")
    text = write_card(tmp_path / "a:b #c")
    head = read_head(text)
    assert head["model-index"][0]["name"] == "a:b #c"
    assert head["tags"][-1] == 'x"]: {<b>'
    assert len(head["model-index"][0]["results"][0]["metrics"]) == 3
    assert '# x"\\]: {\\<b\\>: a:b \\#c\n' in text


def test_the_guide_names_the_file():
    assert card.FILE in (ROOT / "docs" / "report.md").read_text(encoding="utf-8")

"""Steps: their identity, their order, their folders and commands."""

import dataclasses
import os

import pytest

from official_bert.experiments.steps import CONFIG, DATA, OWN, Layout, Place, Step, in_order

RECORDS = Step(
    "records",
    "of text",
    "create_pretraining_data",
    (("input_file", Place(DATA, "text*.txt")), ("num_workers", 2)),
)
FLAGS = (
    ("input_file", Place(RECORDS, "train")),
    ("bert_config_file", Place(CONFIG)),
    ("output_dir", Place(OWN)),
    ("do_train", True),
)
MODEL = Step("pretraining", "2/16/2 seed 1", "run_pretraining", FLAGS, (("hidden_size", 16),), seed=1)


@pytest.fixture
def layout(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text0.txt").write_text("one")
    monkeypatch.chdir(tmp_path)
    return Layout("steps", "data", {"base": "bert"}, ".")


def test_a_step_comes_after_those_that_it_needs_and_once():
    assert in_order([MODEL, RECORDS, MODEL]) == [RECORDS, MODEL]


def test_command_and_folders(layout):
    records = f"steps/records-of-text-{layout.key(RECORDS)}"
    model = f"steps/pretraining-2-16-2-seed-1-{layout.key(MODEL)}"
    assert layout.folder(MODEL) == model
    assert layout.command(MODEL) == [
        "run_pretraining.py",
        f"--input_file={records}/output/train",
        f"--bert_config_file={model}/bert_config.json",
        f"--output_dir={model}/output",
        "--do_train=true",
    ]
    shown = "python create_pretraining_data.py '--input_file=data/text*.txt' --num_workers=2"
    assert layout.shell_line(RECORDS) == shown
    assert MODEL.config_text == '{\n  "hidden_size": 16\n}\n'
    assert layout.path(Place("base")) == "bert"


def test_an_equal_meaning_is_one_step_and_another_is_another(layout):
    def key_with(**changes):
        flags = tuple({**dict(RECORDS.flags), **changes}.items())
        return Layout("steps", "data", {}, ".").key(dataclasses.replace(RECORDS, flags=flags))

    same = dataclasses.replace(RECORDS, flags=RECORDS.flags[::-1])
    assert layout.key(same) == layout.key(RECORDS)
    assert key_with(num_workers=8) == layout.key(RECORDS)  # which changes no record
    assert key_with(dupe_factor=2) != layout.key(RECORDS)
    assert layout.key(dataclasses.replace(MODEL, config=())) != layout.key(MODEL)


def test_a_step_is_another_one_when_its_inputs_are(layout, tmp_path):
    before = layout.key(MODEL)
    (tmp_path / "data").rename(tmp_path / "moved")
    assert Layout("other", "moved", {}, "scripts").key(MODEL) == before
    (tmp_path / "moved" / "text0.txt").write_text("two")  # of the same size
    changed = Layout("steps", "moved", {}, ".")
    assert changed.key(RECORDS) != layout.key(RECORDS)
    assert changed.key(MODEL) != before  # by the records that it reads


def test_models_are_told_apart_by_their_weights_and_not_by_their_folders(tmp_path):
    def key_of(*parts: str) -> str:
        layout = Layout("steps", "data", {"base": os.path.join(str(tmp_path), *parts)}, ".")
        return layout.key(Step("fine-tuning", "CoLA", "run_classifier", (("model", Place("base")),)))

    for parent, weights in (("a", "1234"), ("b", "5678"), ("c", "1234")):
        (tmp_path / parent / "output" / "best").mkdir(parents=True)
        (tmp_path / parent / "output" / "model.safetensors").write_text(weights)
        (tmp_path / parent / "output" / "best" / "model.safetensors").write_text("same")
    (tmp_path / "c" / "output").rename(tmp_path / "renamed")
    assert key_of("a", "output") != key_of("b", "output")
    assert key_of("a", "output") == key_of("a", "output", "") == key_of("renamed")

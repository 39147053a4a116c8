"""Steps: their identity, their order, their folders and commands."""

import dataclasses

import pytest

from official_bert.experiments.steps import CONFIG, DATA, OWN, Layout, Place, Step

RECORDS = Step(
    "records", "of text", "create_pretraining_data", (("input_file", Place(DATA, "text*.txt")), ("num_workers", 2))
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
    assert layout.shell_line(RECORDS).endswith("data.py '--input_file=data/text*.txt' --num_workers=2")
    assert MODEL.config_text == '{\n  "hidden_size": 16\n}\n'
    assert layout.path(Place("base")) == "bert"


def test_a_step_is_another_one_when_its_flags_or_its_inputs_are(layout, tmp_path):
    before = layout.key(MODEL)
    other_flags = [RECORDS.flags[::-1], (RECORDS.flags[0], ("num_workers", 8))]  # which change no record
    for flags in (*other_flags, (*RECORDS.flags, ("dupe_factor", 2))):
        step = dataclasses.replace(RECORDS, flags=flags)
        assert (layout.key(step) == layout.key(RECORDS)) == (flags in other_flags)
    assert layout.key(dataclasses.replace(MODEL, config=())) != before
    (tmp_path / "data").rename(tmp_path / "moved")
    assert Layout("other", "moved", {}, "scripts").key(MODEL) == before
    (tmp_path / "moved" / "text0.txt").write_text("two")  # of the same size
    assert Layout("steps", "moved", {}, ".").key(MODEL) != before  # by the records that it reads


def test_models_are_told_apart_by_their_weights_and_not_by_their_folders(tmp_path):
    def key_of(folder) -> str:
        layout = Layout("steps", "data", {"base": str(folder)}, ".")
        return layout.key(Step("fine-tuning", "CoLA", "run_classifier", (("model", Place("base")),)))

    for name, weights in (("a", "1234"), ("b", "5678"), ("c", "1234")):
        (tmp_path / name / "best").mkdir(parents=True)
        (tmp_path / name / "best" / "model.safetensors").write_text(weights)
    assert key_of(tmp_path / "a") == key_of(f"{tmp_path}/a/") == key_of(tmp_path / "c")
    assert key_of(tmp_path / "a") != key_of(tmp_path / "b")

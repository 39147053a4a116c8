"""Steps: their identity, folders and commands; and how they run, with a script of a few lines in
place of ours.
"""

import dataclasses
import os
import pathlib
import sys

import pytest

from official_bert.extensions.experiments import execution
from official_bert.extensions.experiments.steps import CONFIG, DATA, OUTPUT, Layout, Place, Step
from official_bert.io.errors import InputError

SCRIPT = """
import os, sys
flags = dict(word[2:].split("=", 1) for word in sys.argv[2:])
print("begins", flags.get("name"))
with open("order.txt", "a") as file:
    file.write(flags["name"] + "\\n")
if flags.get("fails") and not os.path.exists("mended"):
    sys.exit("it went wrong")
for name in ("model.ckpt-1", "eval_results.txt"):
    with open(os.path.join(flags["output_dir"], name), "w") as file:
        file.write("f1 = 0.5\\n")
"""


RECORDS = Step(
    "records",
    "of text",
    "create_pretraining_data",
    (("input_file", Place(DATA, "text*.txt")), ("num_workers", 2)),
)
FLAGS = (
    ("input_file", Place(RECORDS, "train")),
    ("bert_config_file", Place(CONFIG)),
    ("output_dir", Place(OUTPUT)),
    ("do_train", True),
)
MODEL = Step(
    "pretraining", "2/16/2 seed 1", "run_pretraining", FLAGS, (("hidden_size", 16),), seed=1
)


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text0.txt").write_text("one")
    return Layout("steps", "data", {"base": "bert"}, [sys.executable, "program.py"], str(tmp_path))


def step(name: str, *needed: Step, kind: str = "fine-tuning", **flags) -> Step:
    step_flags = {"name": name, "output_dir": Place(OUTPUT), **flags}
    if needed:
        step_flags["needs"] = tuple(map(Place, needed))
    return Step(kind, name, "toy", tuple(step_flags.items()))


def order() -> list[str]:
    return pathlib.Path("order.txt").read_text().split()


def has_checkpoint(layout: Layout, each: Step) -> bool:
    return os.path.exists(os.path.join(layout.output(each), "model.ckpt-1"))


def test_each_step_runs_once_and_after_its_inputs(layout):
    first, second = step("first"), step("second")
    last = step("last", first, second)
    assert execution.execute([first, second, last], layout) == []
    assert execution.execute([first, second, last, step("more")], layout) == []
    assert order() == ["first", "second", "last", "more"]
    result = execution.read_result(layout, last)
    assert (result["metrics"], result["is_resumed"]) == ({"f1": 0.5}, False)
    assert result["commit"] is None, "the scripts are in no checkout"
    assert result["command"].startswith("official-bert toy --name=last ")


@pytest.mark.needs_program("git")
def test_a_result_has_the_commit(layout, tmp_path):
    """Of a checkout that is made by hand, as it was when the step began."""
    for folder in ("objects", "refs"):
        (tmp_path / ".git" / folder).mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    made = step("x")
    assert execution.execute([made], layout) == []
    assert execution.read_result(layout, made)["commit"] == "0123456789"


def test_a_failure_stops_only_what_needs_it(layout, tmp_path):
    bad = step("bad", fails=True)
    steps = [bad, step("after", bad), step("other")]
    (sentence,) = execution.execute(steps, layout)
    log = f"{layout.folder(bad)}/log.txt"
    end = "begins bad\nit went wrong"
    assert sentence == f"fine-tuning bad ended with status 1; the end of {log}:\n{end}"
    assert order() == ["bad", "other"]
    (tmp_path / "mended").touch()
    assert execution.execute(steps, layout) == []
    assert order()[2:] == ["bad", "after"]
    assert execution.read_result(layout, bad)["is_resumed"]


def test_checkpoints_are_deleted_when_no_step_needs_them(layout, tmp_path):
    model, tuned = step("model", kind="pretraining"), step("tuned")
    test = step("test", tuned, model, kind="test", fails=True)
    execution.execute([model, tuned, test], layout)
    assert has_checkpoint(layout, tuned)  # which the failed step needs
    (tmp_path / "mended").touch()
    execution.execute([model, tuned, test], layout)
    assert has_checkpoint(layout, model)
    assert not has_checkpoint(layout, tuned)
    # A later step that needs the model has it trained again.
    other = step("other", tuned, kind="test")
    assert execution.list_pending([model, tuned, test, other], layout) == [tuned, other]
    assert execution.execute([model, tuned, test, other], layout) == []
    assert order() == ["model", "tuned", "test", "test", "tuned", "other"]


def test_a_corrupt_result_is_named_with_its_remedy(layout):
    made = step("x")
    assert execution.execute([made], layout) == []
    folder = layout.folder(made)
    pathlib.Path(folder, "result.json").write_text('{"secs": 1.5,')
    with pytest.raises(
        InputError,
        match=f"^{folder}/result.json: line 1, column 14: .*; delete the folder {folder}",
    ):
        execution.read_result(layout, made)


def test_metrics_of_all_sets_and_of_the_best_run_of_a_search(tmp_path):
    (tmp_path / "eval_results.txt").write_text(
        "eval_accuracy = 0.25\neval_matthews = nan\nglobal_step = 7\n"
    )
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\n")
    found = {
        "eval_accuracy": 0.25,
        "eval_matthews": None,
        "global_step": 7.0,
        "eval_accuracy_mm": 0.5,
    }
    assert execution.read_metrics(str(tmp_path)) == found
    rows = "island\tisland_1\t2\t0.5\nisland\tall\t2\t0.5\nquantifiers\tall\t2\t0.75\nall\tall\t4\t0.625\n"
    (tmp_path / "minimal_pairs.tsv").write_text(f"phenomenon\tparadigm\tpairs\taccuracy\n{rows}")
    found |= {"island": 50.0, "quantifiers": 75.0, "minimal_pairs": 62.5}
    assert execution.read_metrics(str(tmp_path)) == found
    (tmp_path / "minimal_pairs.tsv").unlink()
    (tmp_path / "search_results.tsv").write_text("run\teval_f1\tbest\none\t0.1\t\ntwo\t0.2\t*\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "eval_results.txt").write_text("eval_f1 = 0.2\n")
    assert execution.read_metrics(str(tmp_path)) == {"eval_f1": 0.2}


def test_command_and_folders(layout):
    records = f"steps/records-of-text-{layout.key(RECORDS)}"
    model = f"steps/pretraining-2-16-2-seed-1-{layout.key(MODEL)}"
    assert layout.folder(MODEL) == model
    assert layout.command(MODEL) == [
        "run_pretraining",
        f"--input_file={records}/output/train",
        f"--bert_config_file={model}/bert_config.json",
        f"--output_dir={model}/output",
        "--do_train=true",
    ]
    assert layout.shell_line(RECORDS).endswith("data '--input_file=data/text*.txt' --num_workers=2")
    assert MODEL.config_text == '{\n  "hidden_size": 16\n}\n'
    assert layout.input_path(Place("base")) == "bert"


def test_a_step_is_another_one_when_its_flags_or_its_inputs_are(layout, tmp_path):
    before = layout.key(MODEL)
    # Which change no record.
    other_flags = [RECORDS.flags[::-1], (RECORDS.flags[0], ("num_workers", 8))]
    for flags in (*other_flags, (*RECORDS.flags, ("dupe_factor", 2))):
        step = dataclasses.replace(RECORDS, flags=flags)
        assert (layout.key(step) == layout.key(RECORDS)) == (flags in other_flags)
    assert layout.key(dataclasses.replace(MODEL, config=())) != before
    (tmp_path / "data").rename(tmp_path / "moved")
    assert Layout("other", "moved", {}).key(MODEL) == before
    (tmp_path / "moved" / "text0.txt").write_text("two")  # of the same size
    assert Layout("steps", "moved", {}).key(MODEL) != before  # by the records that it reads


def test_models_are_told_apart_by_their_weights_and_not_by_their_folders(tmp_path):
    def key_of(folder) -> str:
        layout = Layout("steps", "data", {"base": str(folder)})
        return layout.key(
            Step("fine-tuning", "CoLA", "run_classifier", (("model", Place("base")),))
        )

    for name, weights in (("a", "1234"), ("b", "5678"), ("c", "1234")):
        (tmp_path / name / "best").mkdir(parents=True)
        (tmp_path / name / "best" / "model.safetensors").write_text(weights)
    assert key_of(tmp_path / "a") == key_of(f"{tmp_path}/a/") == key_of(tmp_path / "c")
    assert key_of(tmp_path / "a") != key_of(tmp_path / "b")

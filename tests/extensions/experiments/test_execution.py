"""Steps: their identity, folders and commands; and how they run, with a script of a few lines in
place of ours.
"""

import dataclasses
import pathlib
import sys

import pytest

from official_bert.extensions.experiments import execution
from official_bert.extensions.experiments.steps import CONFIG, DATA, OUTPUT, Layout, Place, Step
from official_bert.io import processes
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


INPUT_FILE = ("input_file", Place(DATA, "text*.txt"))
RECORDS = Step(
    "records",
    "of text",
    "create_pretraining_data",
    (
        INPUT_FILE,
        ("num_workers", 2),
    ),
)
FLAGS = (
    ("input_file", Place(RECORDS, "train")),
    ("bert_config_file", Place(CONFIG)),
    ("output_dir", Place(OUTPUT)),
    ("do_train", True),
)
MODEL = Step(
    "pretraining",
    "2/16/2 seed 1",
    "run_pretraining",
    FLAGS,
    (("hidden_size", 16),),
    seed=1,
)


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / "text0.txt").write_text("one")
    (tmp_path / "program.py").write_text(SCRIPT)
    return Layout(
        "steps",
        "data",
        {"base": "bert"},
        [sys.executable, "program.py"],
        str(tmp_path),
    )


def make_step(name: str, *needed: Step, kind: str = "fine-tuning", **flags) -> Step:
    """Make a step that runs the script.

    Args:
        name: Its name, which the script writes to order.txt.
        needed: The steps whose output it needs.
        kind: Its kind.
        flags: Further flags of the script.
    """
    step_flags = {
        "name": name,
        "output_dir": Place(OUTPUT),
        **flags,
    }
    if needed:
        step_flags["needs"] = tuple(map(Place, needed))
    return Step(kind, name, "toy", tuple(step_flags.items()))


def read_order() -> list[str]:
    """Read the names of the steps in the order in which they ran."""
    return pathlib.Path("order.txt").read_text().split()


def has_checkpoint(layout: Layout, step: Step) -> bool:
    path = pathlib.Path(layout.output(step), "model.ckpt-1")
    return path.exists()


def test_each_step_runs_once_and_after_its_inputs(layout):
    first = make_step("first")
    second = make_step("second")
    last = make_step("last", first, second)
    more = make_step("more")
    assert execution.execute([first, second, last], layout) == []
    assert execution.execute([first, second, last, more], layout) == []
    assert read_order() == ["first", "second", "last", "more"]

    result = execution.read_result(layout, last)
    assert result["metrics"] == {"f1": 0.5}
    assert result["is_resumed"] is False
    assert result["commit"] is None, "the scripts are in no checkout"
    assert result["command"].startswith("official-bert toy --name=last ")


@pytest.mark.needs_program("git")
def test_a_result_has_the_commit(layout, tmp_path):
    """Of a checkout that is made by hand, as it was when the step began."""
    git = tmp_path / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "refs").mkdir()
    (git / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    step = make_step("x")
    assert execution.execute([step], layout) == []
    result = execution.read_result(layout, step)
    assert result["commit"] == "0123456789"


def test_a_failure_stops_only_what_needs_it(layout, tmp_path):
    bad = make_step("bad", fails=True)
    after = make_step("after", bad)
    other = make_step("other")
    steps = [bad, after, other]
    (sentence,) = execution.execute(steps, layout)
    log = f"{layout.folder(bad)}/log.txt"
    end = "begins bad\nit went wrong"
    assert sentence == f"fine-tuning bad ended with status 1; the end of {log}:\n{end}"
    assert read_order() == ["bad", "other"]

    (tmp_path / "mended").touch()
    assert execution.execute(steps, layout) == []
    assert read_order() == ["bad", "other", "bad", "after"]
    assert execution.read_result(layout, bad)["is_resumed"]


# A step of this script ends when its partner has begun, so that both must run at the same time.
PAIRED_SCRIPT = """
import os, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[2:])
name = flags["name"]
with open(name + ".begun", "w") as file:
    file.write(str(sorted(os.sched_getaffinity(0))))
print("log of", name, os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH"), flush=True)
deadline = time.monotonic() + 60
while "partner" in flags and not os.path.exists(flags["partner"] + ".begun"):
    assert time.monotonic() < deadline, "the partner does not run"
    time.sleep(0.01)
with open("order.txt", "a") as file:
    file.write(name + "\\n")
if flags.get("fails"):
    sys.exit("it went wrong")
"""


def test_steps_run_at_the_same_time_and_one_failure_ends_no_other(layout, tmp_path, caplog):
    (tmp_path / "program.py").write_text(PAIRED_SCRIPT)
    one = make_step("one", partner="two")
    two = make_step("two", partner="one", fails=True)
    after_two = make_step("after_two", two)
    third = make_step("third", one)
    with caplog.at_level("INFO", logger="absl"):
        failures = execution.execute([one, two, after_two, third], layout, num_parallel=2)
    log = f"{layout.folder(two)}/log.txt"
    end = "log of two true\nit went wrong"
    assert failures == [f"fine-tuning two ended with status 1; the end of {log}:\n{end}"]
    order = read_order()
    assert sorted(order) == ["one", "third", "two"]
    assert order.index("third") > order.index("one")
    text = pathlib.Path(layout.folder(one), "log.txt").read_text()
    assert text == "log of one true\n"
    assert "2 of 4 steps are finished; still running: nothing" in caplog.text
    assert "1 steps did not run" in caplog.text
    shares = processes.share_cpus(2)
    if all(shares):
        cpus = [(tmp_path / f"{name}.begun").read_text() for name in ("one", "two")]
        assert cpus == [str(share) for share in shares]
    # The finished steps do not run again.
    pathlib.Path("order.txt").unlink()
    execution.execute([one, two, after_two, third], layout, num_parallel=2)
    assert read_order() == ["two"]


def test_an_interruption_ends_all_steps(layout, tmp_path, monkeypatch):
    real_sleep = processes.time.sleep

    def interrupt(secs):
        real_sleep(secs)
        if not interrupted and all(
            pathlib.Path(f"{name}.begun").exists() for name in ("one", "two")
        ):
            interrupted.append(True)
            raise KeyboardInterrupt

    (tmp_path / "program.py").write_text(PAIRED_SCRIPT)
    steps = [make_step(name, partner="nobody") for name in ("one", "two")]
    started, interrupted = [], []
    real_start = processes.Processes.start
    monkeypatch.setattr(
        processes.Processes,
        "start",
        lambda *args, **keywords: started.append(real_start(*args, **keywords)) or started[-1],
    )
    monkeypatch.setattr(processes.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        execution.execute(steps, layout, num_parallel=2)
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_checkpoints_are_deleted_when_no_step_needs_them(layout, tmp_path):
    model = make_step("model", kind="pretraining")
    tuned = make_step("tuned")
    test = make_step("test", tuned, model, kind="test", fails=True)
    steps = [model, tuned, test]
    execution.execute(steps, layout)
    assert has_checkpoint(layout, tuned)  # which the failed step needs

    (tmp_path / "mended").touch()
    execution.execute(steps, layout)
    assert has_checkpoint(layout, model)
    assert not has_checkpoint(layout, tuned)

    # A later step that needs the model has it trained again.
    other = make_step("other", tuned, kind="test")
    steps.append(other)
    assert execution.list_pending(steps, layout) == [tuned, other]
    assert execution.execute(steps, layout) == []
    assert read_order() == ["model", "tuned", "test", "test", "tuned", "other"]


def test_a_corrupt_result_is_named_with_its_remedy(layout):
    step = make_step("x")
    assert execution.execute([step], layout) == []
    folder = layout.folder(step)
    pathlib.Path(folder, "result.json").write_text('{"secs": 1.5,')
    message = f"^{folder}/result.json: line 1, column 14: .*; delete the folder {folder}"
    with pytest.raises(InputError, match=message):
        execution.read_result(layout, step)


def test_metrics_of_all_sets(tmp_path):
    (tmp_path / "eval_results.txt").write_text(
        "eval_accuracy = 0.25\neval_matthews = nan\nglobal_step = 7\n"
    )
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\n")
    assert execution.read_metrics(str(tmp_path)) == {
        "eval_accuracy": 0.25,
        "eval_matthews": None,
        "global_step": 7.0,
        "eval_accuracy_mm": 0.5,
    }


def test_metrics_of_minimal_pairs(tmp_path):
    (tmp_path / "eval_results.txt").write_text("global_step = 7\n")
    lines = [
        "phenomenon\tparadigm\tpairs\taccuracy\n",
        "island\tisland_1\t2\t0.5\n",
        "island\tall\t2\t0.5\n",
        "quantifiers\tall\t2\t0.75\n",
        "all\tall\t4\t0.625\n",
    ]
    (tmp_path / "minimal_pairs.tsv").write_text("".join(lines))
    assert execution.read_metrics(str(tmp_path)) == {
        "global_step": 7.0,
        "island": 50.0,
        "quantifiers": 75.0,
        "minimal_pairs": 62.5,
    }


def test_metrics_of_the_best_run_of_a_search(tmp_path):
    (tmp_path / "eval_results.txt").write_text("eval_f1 = 0.9\n")
    (tmp_path / "search_results.tsv").write_text("run\teval_f1\tbest\none\t0.1\t\ntwo\t0.2\t*\n")
    best_dir = tmp_path / "two"
    best_dir.mkdir()
    (best_dir / "eval_results.txt").write_text("eval_f1 = 0.2\n")
    assert execution.read_metrics(str(tmp_path)) == {"eval_f1": 0.2}


def test_a_step_finds_a_copy_of_the_training_that_it_resumes(layout):
    first = make_step("first", kind="pretraining")
    second = make_step("second", kind="pretraining")
    second = dataclasses.replace(second, continued=Place(first, "model.ckpt-9"))
    source, target = pathlib.Path(layout.output(first)), pathlib.Path(layout.output(second))
    source.mkdir(parents=True)
    copied = ["checkpoint", "input.ckpt-9-0.index", "model.ckpt-9.data-00000", "model.ckpt-9.index"]
    for name in [*copied, "model.ckpt-99.index", "model.ckpt-8.index", "run.jsonl"]:
        (source / name).write_text(name)
    # What a killed copy has left is written again, because the list of checkpoints is missing.
    target.mkdir(parents=True)
    (target / "model.ckpt-9.index").write_text("a part")

    assert execution.execute([first, second], layout) == []
    written = ["eval_results.txt", "model.ckpt-1"]
    assert sorted(path.name for path in target.iterdir()) == sorted(copied + written)
    for name in copied:
        assert (target / name).read_text() == name

    # A step that was interrupted keeps what it has.
    pathlib.Path(layout.folder(second), "result.json").unlink()
    (target / "checkpoint").write_text("newer")
    assert execution.execute([first, second], layout) == []
    assert (target / "checkpoint").read_text() == "newer"


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
    line = layout.shell_line(RECORDS)
    assert line.endswith("data '--input_file=data/text*.txt' --num_workers=2")
    assert MODEL.config_text == '{\n  "hidden_size": 16\n}\n'
    assert layout.input_path(Place("base")) == "bert"


def test_a_step_is_another_one_when_its_flags_or_its_inputs_are(layout, tmp_path):
    records_key = layout.key(RECORDS)

    def key_with(*flags) -> str:
        step = dataclasses.replace(RECORDS, flags=flags)
        return layout.key(step)

    # The order of flags and the number of workers change no record.
    assert key_with(("num_workers", 2), INPUT_FILE) == records_key
    assert key_with(INPUT_FILE, ("num_workers", 8)) == records_key
    assert key_with(*RECORDS.flags, ("dupe_factor", 2)) != records_key

    model_key = layout.key(MODEL)
    default_model = dataclasses.replace(MODEL, config=())
    assert layout.key(default_model) != model_key

    # Another folder changes nothing, another text of the same size changes the model.
    moved_dir = tmp_path / "moved"
    (tmp_path / "data").rename(moved_dir)
    moved = Layout("other", "moved", {})
    assert moved.key(MODEL) == model_key
    (moved_dir / "text0.txt").write_text("two")
    changed = Layout("steps", "moved", {})
    assert changed.key(MODEL) != model_key


def write_weights(folder: pathlib.Path, weights: str) -> pathlib.Path:
    best_dir = folder / "best"
    best_dir.mkdir(parents=True)
    (best_dir / "model.safetensors").write_text(weights)
    return folder


def test_models_are_told_apart_by_their_weights_and_not_by_their_folders(tmp_path):
    flags = (("model", Place("base")),)
    step = Step("fine-tuning", "CoLA", "run_classifier", flags)

    def compute_key(folder) -> str:
        layout = Layout("steps", "data", {"base": str(folder)})
        return layout.key(step)

    model = write_weights(tmp_path / "a", "1234")
    other = write_weights(tmp_path / "b", "5678")
    copy = write_weights(tmp_path / "c", "1234")
    key = compute_key(model)
    assert compute_key(f"{model}/") == key
    assert compute_key(copy) == key
    assert compute_key(other) != key

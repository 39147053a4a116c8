"""Training with two worker processes: the numbers of one device, and survival of what clusters do to workers."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.features import pretraining_features
from official_bert.modeling import heads
from official_bert.training import run_log
from tests import training_state
from tests.commands.pretraining_run import PREDICTIONS, SEQ, checkpoint_values, flags_of, make_base
from tests.scripts import flag_list, run_here, run_script
from tests.shared import ROOT, in_test_long
from tests.test_replicas import assert_same_pretraining, assert_same_results, program_of, run_of_family

ON_WORKERS = ("--num_workers=2", "--", "run_pretraining.py")
STEPS, SAVED_EVERY, STOP_AFTER = 120, 20, 40


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def flags_on_workers(base: pathlib.Path, output_dir: pathlib.Path, **changes) -> list[str]:
    """Flags of a run that is long enough to be stopped in the middle, with dropout."""
    given = {
        "input_file": f"{base / 'records.tfrecord'},{base / 'more.tfrecord'}",
        "num_train_steps": STEPS,
        "save_checkpoints_steps": SAVED_EVERY,
        "log_every_steps": SAVED_EVERY,
        "steps_per_loop": 7,
        "keep_checkpoint_max": 0,
    }
    return flag_list(**flags_of(base, output_dir, **given | changes))


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """The folder of a run on two workers that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run_script("launch.py", *ON_WORKERS, *flags_on_workers(base, folder))
    return folder


def start(command: list[str], log: pathlib.Path) -> subprocess.Popen:
    with log.open("w") as file:
        command = [sys.executable, str(ROOT / "launch.py"), *command]
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)


def wait_for_checkpoint(folder: pathlib.Path, step: int, process: subprocess.Popen, log: pathlib.Path):
    deadline = time.monotonic() + 300
    while not (folder / f"model.ckpt-{step}.index").exists():
        assert process.poll() is None, f"the run ended before it could be stopped\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.002)


def worker_process(output_dir: pathlib.Path, index: int) -> int:
    """The id of the process of a worker, found by its command line and its TF_CONFIG."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            config = re.search(r"TF_CONFIG=([^\0]*)", (folder / "environ").read_text())
        except OSError:
            continue
        is_of_run = "run_pretraining.py" in words and f"--output_dir={output_dir}" in words
        if is_of_run and config and json.loads(config[1])["task"]["index"] == index:
            return int(folder.name)
    raise AssertionError(f"no process of worker {index}")


@pytest.mark.parametrize("changes", [{}, *in_test_long({"num_accumulation_steps": 2, "recompute_layers": True})])
def test_two_workers_pretrain_and_evaluate_as_one_device(base, tmp_path, changes):
    alone = {"bert_config_file": base / "no_dropout.json", "do_eval": True, "max_eval_steps": 0}
    alone |= {"eval_batch_size": 12}  # the last batch has 4 of 64
    run_here("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "one", **alone)))
    ran = run_script("launch.py", *ON_WORKERS, *flag_list(**flags_of(base, tmp_path / "two", **alone, **changes)))
    assert_same_pretraining(tmp_path / "one", tmp_path / "two", num_replicas=2)
    assert re.findall(r"\[worker (\d)\] .*Wrote \S*eval_results", ran.stdout) == ["0"], "results are logged once"


def fine_tune_on_workers(tmp_path: pathlib.Path, family: str, **changes):
    """A run on one device into tmp_path/one, and on two workers into tmp_path/several, which has its results."""
    options = run_of_family(tmp_path, family, **changes)
    program = program_of(family, options, tmp_path / "several", distribution_strategy="multi_worker_mirrored")
    run_script("launch.py", "--num_workers=2", "--max_restarts=0", "--", sys.executable, "-c", program)
    assert_same_results(family, tmp_path / "one", tmp_path / "several", num_replicas=2)


@pytest.mark.parametrize("family", ["tagging", *in_test_long("classification", "choice", "squad", "regression")])
def test_two_workers_fine_tune_and_predict_as_one_device(tmp_path, monkeypatch, family):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    fine_tune_on_workers(tmp_path, family)


@pytest.mark.long
def test_evaluations_during_training_stop_both_workers_and_give_both_the_best_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    fine_tune_on_workers(tmp_path, "classification", eval_every="3,patience=1", num_train_epochs=20.0)
    one, several = (run_log.read(str(tmp_path / name), run_log.EVALUATION) for name in ("one", "several"))
    assert [row["step"] for row in several] == [row["step"] for row in one]
    for row, expected in zip(several, one, strict=True):
        assert row == pytest.approx(expected, abs=1e-4)
    assert one[-1]["step"] < 100, "training stopped early"


def test_sigterm_of_one_worker_saves_and_the_launcher_brings_a_cluster_back_after_kill_9(base, whole, tmp_path):
    """The run that was stopped goes on at the step that it saved; the bits are those of a run that nothing stopped."""
    output, log = tmp_path / "out", tmp_path / "log"
    flags = flags_on_workers(base, output)
    process = start(["--max_restarts=0", *ON_WORKERS, *flags], log)
    wait_for_checkpoint(output, STOP_AFTER, process, log)
    os.kill(worker_process(output, 1), signal.SIGTERM)
    assert process.wait(timeout=120) == 143, log.read_text()[-3000:]
    assert "The workers ended: worker 0 with status 143, worker 1 with status 143" in log.read_text()
    step = int(latest_checkpoint(str(output)).rpartition("-")[2])
    assert STOP_AFTER <= step < STEPS
    assert run_log.read(str(output), run_log.TRAIN)[-1]["step"] == step, "no update is lost"
    print(f"both workers saved step {step} and ended with status 143")

    process = start([*ON_WORKERS, *flags], log)
    wait_for_checkpoint(output, (step // SAVED_EVERY + 1) * SAVED_EVERY, process, log)
    os.kill(worker_process(output, 1), signal.SIGKILL)
    killed_secs = time.monotonic()
    while "The workers ended" not in log.read_text():
        assert time.monotonic() - killed_secs < 60, "the peer of a killed worker ends within a minute"
        time.sleep(0.2)
    print(f"the peer ended {time.monotonic() - killed_secs:.0f} s after the kill")
    assert process.wait(timeout=300) == 0, log.read_text()[-3000:]
    text = log.read_text()
    assert "[worker 0] run_pretraining.py: worker 0 of 2 ends, since worker 1 has ended or cannot be reached" in text
    assert "The workers ended: worker 0 with status 75, worker 1 with signal 9 (SIGKILL)" in text
    assert "Starting all workers again (restart 1 of 3)" in text
    assert len(re.findall(r"\[worker 0\] .*Restored checkpoint", text)) == 2

    expected = checkpoint_values(whole / f"model.ckpt-{STEPS}")
    training_state.assert_equal(checkpoint_values(output / f"model.ckpt-{STEPS}"), expected)
    training_state.assert_input_is_at(
        output / f"input.ckpt-{STEPS}-0", [str(base / "records.tfrecord"), str(base / "more.tfrecord")],
        pretraining_features(SEQ, PREDICTIONS), batch_size=8, seed=7, num_read=STEPS,
    )  # fmt: skip
    print(f"{len(expected)} tensors of step {STEPS} and the input position are equal, bit by bit")


@pytest.mark.long
def test_workers_with_files_of_their_own_resume_exactly(base, tmp_path):
    found = {}
    for name in ("whole", "stopped"):
        output, log = tmp_path / name, tmp_path / f"{name}.log"
        flags = flags_on_workers(base, output, file_order="own")
        if name == "stopped":
            process = start(["--max_restarts=0", *ON_WORKERS, *flags], log)
            wait_for_checkpoint(output, STOP_AFTER, process, log)
            process.terminate()  # the launcher, which ends both workers
            assert process.wait(timeout=120) == 143
            assert not (output / f"model.ckpt-{STEPS}.index").exists()
        run_script("launch.py", *ON_WORKERS, *flags)
        found[name] = checkpoint_values(output / f"model.ckpt-{STEPS}")
        for index, file in enumerate(("records.tfrecord", "more.tfrecord")):
            training_state.assert_input_is_at(
                output / f"input.ckpt-{STEPS}-{index}", [str(base / file)],
                pretraining_features(SEQ, PREDICTIONS), batch_size=4, seed=7, num_read=STEPS,
            )  # fmt: skip
    training_state.assert_equal(found["stopped"], found["whole"])
    print(f"{len(found['whole'])} tensors after a stop and a resume are equal, bit by bit")


OTHER_FOLDER = """
import json, os, sys
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
os.execv(sys.executable, [sys.executable, "run_pretraining.py", *sys.argv[3:], f"--output_dir={sys.argv[1 + index]}"])
"""


def test_workers_that_see_different_folders_are_refused(base, whole, tmp_path):
    """A worker finds no checkpoint where the chief has one: the folder is local to its machine."""
    flags = [flag for flag in flags_on_workers(base, tmp_path) if not flag.startswith("--output_dir=")]
    ended = run_script(
        "launch.py", "--num_workers=2", "--", sys.executable, "-c", OTHER_FOLDER, whole, tmp_path, *flags, status=1
    )
    sentence = f"--output_dir={tmp_path}: worker 1 finds no checkpoint in it, and the chief model.ckpt-{STEPS}"
    assert f"[worker 1] run_pretraining.py: {sentence}; name a folder on a file system" in ended.stdout
    assert "[worker 0] run_pretraining.py: --output_dir: another worker finds other checkpoints" in ended.stdout
    assert "Every worker refused its input" in ended.stderr
    assert not list(tmp_path.iterdir())

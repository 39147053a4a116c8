"""Training with two worker processes: the numbers of one device, and survival of what clusters
do to workers.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from official_bert.checkpoints import tf1
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.data.records.framing import open_example_files, read_examples
from official_bert.features import pretraining_features
from official_bert.fine_tuning import pretrain
from official_bert.training import run_log
from tests import training_state
from tests.commands.pretraining_run import (
    PREDICTIONS,
    SEQ,
    checkpoint_values,
    flags_of,
    make_base,
    write_records,
)
from tests.forking import forked_python
from tests.scripts import command_line, flag_list, run_here, run_script, wait_for
from tests.shared import ROOT, in_test_long
from tests.test_replicas import (
    assert_same_pretraining,
    assert_same_results,
    program_of,
    run_of_family,
)

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
    run_script("launch", *ON_WORKERS, *flags_on_workers(base, folder))
    return folder


def start(command: list[str], log: pathlib.Path) -> subprocess.Popen:
    with log.open("w") as file:
        command = [sys.executable, *command_line("launch"), *command]
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)


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


@pytest.mark.parametrize(
    "changes", [{}, *in_test_long({"num_accumulation_steps": 2, "recompute_layers": True})]
)
def test_two_workers_pretrain_and_evaluate_as_one_device(base, tmp_path, changes):
    alone = {"bert_config_file": base / "no_dropout.json", "do_eval": True, "max_eval_steps": 0}
    alone |= {"eval_batch_size": 12}  # the last batch has 4 of 64
    # The rate does not follow the clocks, which differ.
    alone |= {"max_train_hours": 10, "lr_schedule": "constant"}
    run_here("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "one", **alone)))
    ran = run_script(
        "launch", *ON_WORKERS, *flag_list(**flags_of(base, tmp_path / "two", **alone, **changes))
    )
    assert_same_pretraining(tmp_path / "one", tmp_path / "two", num_replicas=2)
    assert re.findall(r"\[worker (\d)\] .*Wrote \S*eval_results", ran.stdout) == ["0"], (
        "results are logged once"
    )


def fine_tune_on_workers(tmp_path: pathlib.Path, family: str, **changes):
    """A run on one device into tmp_path/one, and on two workers into tmp_path/several, which has
    its results.
    """
    options = run_of_family(tmp_path, family, **changes)
    program = program_of(
        family, options, tmp_path / "several", distribution_strategy="multi_worker_mirrored"
    )
    run_script(
        "launch", "--num_workers=2", "--max_restarts=0", "--", forked_python(), "-c", program
    )
    assert_same_results(family, tmp_path / "one", tmp_path / "several", num_replicas=2)


@pytest.mark.long
@pytest.mark.parametrize("family", ["tagging", "classification", "choice", "squad", "regression"])
def test_two_workers_fine_tune_and_predict_as_one_device(tmp_path, family):
    fine_tune_on_workers(tmp_path, family)


@pytest.mark.long
def test_evaluations_during_training_stop_both_workers_and_give_both_the_best_weights(tmp_path):
    fine_tune_on_workers(
        tmp_path,
        "classification",
        eval_every_steps=3,
        early_stopping_patience=1,
        num_train_epochs=20.0,
    )
    one, several = (
        run_log.periodic_evaluations(str(tmp_path / name)) for name in ("one", "several")
    )
    assert [row["step"] for row in several] == [row["step"] for row in one]
    for row, expected in zip(several, one, strict=True):
        assert row == pytest.approx(expected, abs=1e-4)
    assert one[-1]["step"] < 100, "training stopped early"


@pytest.mark.long
def test_sigterm_of_one_worker_saves_and_the_launcher_brings_a_cluster_back_after_kill_9(
    base, whole, tmp_path
):
    """The run that was stopped goes on at the step that it saved; the bits are those of a run
    that nothing stopped.
    """
    output, log = tmp_path / "out", tmp_path / "log"
    flags = flags_on_workers(base, output)
    process = start(["--max_restarts=0", *ON_WORKERS, *flags], log)
    wait_for((output / f"model.ckpt-{STOP_AFTER}.index").exists, process)
    os.kill(worker_process(output, 1), signal.SIGTERM)
    assert process.wait(timeout=120) == 143, log.read_text()[-3000:]
    assert (
        "The workers ended: worker 0 with status 143, worker 1 with status 143" in log.read_text()
    )
    step = int(latest_checkpoint(str(output)).rpartition("-")[2])
    assert STOP_AFTER <= step < STEPS
    assert run_log.read(str(output), run_log.TRAIN)[-1]["step"] == step, "no update is lost"

    process = start([*ON_WORKERS, *flags], log)
    wait_for(
        (output / f"model.ckpt-{(step // SAVED_EVERY + 1) * SAVED_EVERY}.index").exists, process
    )
    os.kill(worker_process(output, 1), signal.SIGKILL)
    assert process.wait(timeout=300) == 0, log.read_text()[-3000:]
    text = log.read_text()
    assert (
        "[worker 0] run_pretraining.py: worker 0 of 2 ends, since worker 1 has ended or cannot be "
        "reached" in text
    )
    assert "The workers ended: worker 0 with status 75, worker 1 with signal 9 (SIGKILL)" in text
    assert "Starting all workers again (restart 1 of 3)" in text
    assert len(re.findall(r"\[worker 0\] .*Restored checkpoint", text)) == 2

    expected = checkpoint_values(whole / f"model.ckpt-{STEPS}")
    training_state.assert_equal(checkpoint_values(output / f"model.ckpt-{STEPS}"), expected)
    training_state.assert_input_is_at(
        output / f"input.ckpt-{STEPS}-0",
        [str(base / "records.tfrecord"), str(base / "more.tfrecord")],
        pretraining_features(SEQ, PREDICTIONS),
        batch_size=8,
        seed=7,
        num_read=STEPS,
    )


@pytest.mark.long
def test_workers_with_files_of_their_own_resume_exactly(base, tmp_path):
    found = {}
    for name in ("whole", "stopped"):
        output, log = tmp_path / name, tmp_path / f"{name}.log"
        flags = flags_on_workers(base, output, file_order="own")
        if name == "stopped":
            process = start(["--max_restarts=0", *ON_WORKERS, *flags], log)
            wait_for((output / f"model.ckpt-{STOP_AFTER}.index").exists, process)
            process.terminate()  # the launcher, which ends both workers
            assert process.wait(timeout=120) == 143
            assert not (output / f"model.ckpt-{STEPS}.index").exists()
        run_script("launch", *ON_WORKERS, *flags)
        found[name] = checkpoint_values(output / f"model.ckpt-{STEPS}")
        for index, file in enumerate(("records.tfrecord", "more.tfrecord")):
            training_state.assert_input_is_at(
                output / f"input.ckpt-{STEPS}-{index}",
                [str(base / file)],
                pretraining_features(SEQ, PREDICTIONS),
                batch_size=4,
                seed=7,
                num_read=STEPS,
            )
    training_state.assert_equal(found["stopped"], found["whole"])


# Worker i runs the script in the i-th folder; worker 1 with a further flag.
EACH_ITS_OWN = """
import json, os, sys
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
script, flag, *folders = sys.argv[1:5]
os.chdir(folders[index])
os.execv(sys.executable, [sys.executable, script, *sys.argv[5:], *[flag] * (flag != "" and index)])
"""


def refused_on_each_its_own(folders, flag: str, flags: list[str]) -> str:
    """The log of two workers that differ, and that end in a sentence."""
    program = (
        "--max_restarts=0",
        "--",
        forked_python(),
        "-c",
        EACH_ITS_OWN,
        ROOT / "run_pretraining.py",
        flag,
    )
    return run_script(
        "launch", "--num_workers=2", *program, *folders, *flags, status=1
    ).stdout.replace(f"{ROOT}/", "")


def test_workers_that_see_different_folders_are_refused(base, tmp_path):
    """A worker finds no checkpoint where the chief has one: the folder is local to its machine."""
    folders = [tmp_path / name for name in ("chief", "other")]
    folders[1].mkdir()
    run_here("run_pretraining.py", *flags_on_workers(base, folders[0], num_train_steps=1))
    log = refused_on_each_its_own(folders, "", flags_on_workers(base, "."))
    sentence = "--output_dir=.: worker 1 finds no checkpoint in it, and the chief model.ckpt-1"
    assert f"[worker 1] run_pretraining.py: {sentence}; name a folder on a file system" in log
    assert (
        "[worker 0] run_pretraining.py: --output_dir: another worker finds other checkpoints" in log
    )
    assert not list(folders[1].iterdir())


@pytest.mark.parametrize(
    ("name", "value", "of_chief"),
    [
        ("num_train_steps", 12, STEPS),  # of which one worker would wait for the other
        *in_test_long(
            ("learning_rate", 1.0, 1e-4),
            ("train_batch_size", 4, 8),
            ("random_seed", 8, 7),
            ("log_every_steps", 7, SAVED_EVERY),
            ("output_dir", "other", "out"),
            ("input_file", ["records.tfrecord"], ["records.tfrecord", "more.tfrecord"]),
        ),
    ],
)
def test_workers_with_different_flags_are_refused(base, tmp_path, name, value, of_chief):
    flag = f"--{name}={','.join(value) if isinstance(value, list) else value}"
    flags = flags_on_workers(base, "out", input_file="records.tfrecord,more.tfrecord")
    log = refused_on_each_its_own((base, base), flag, flags)
    of_files = name == "input_file"
    for index, here in enumerate((of_chief, value)):
        what = f"--{name}={here} here{', the content of --input_file' * of_files}"
        assert (
            f"[worker {index}] run_pretraining.py: the workers differ in {what}; start all of them"
            in log
        )
    assert not (base / "out").exists()


@pytest.mark.long
def test_workers_with_different_files_of_one_name_are_refused(base, tmp_path):
    folders = [shutil.copytree(base, tmp_path / name) for name in "ab"]
    names = {"bert_config_file": "bert_config.json", "input_file": "more.tfrecord"}

    def assert_refused(what: str):
        log = refused_on_each_its_own(folders, "", flags_on_workers(base, "out", **names))
        assert log.count(f"run_pretraining.py: the workers differ in {what}; start all") == 2

    shutil.copy(base / "no_dropout.json", folders[1] / "bert_config.json")
    assert_refused("the content of --bert_config_file")
    shutil.copy(base / "bert_config.json", folders[1])
    write_records(folders[1] / "more.tfrecord", 63)
    assert_refused("the content of --input_file")
    shutil.copy(folders[0] / "more.tfrecord", folders[1])
    for folder, value in zip(folders, (0.1, 0.2), strict=True):
        tf1.write(
            str(folder / "begin.ckpt"), {"bert/pooler/dense/bias": np.full(16, value, np.float32)}
        )
    names["init_checkpoint"] = "begin.ckpt"
    assert_refused("the weights that they begin with")


@pytest.mark.parametrize(
    ("counts", "warns"),
    [
        ([64, 64], ""),
        (
            [100, 102, 101],
            "have 100 records and those of another 102, so that some records are read 2.0%",
        ),
    ],
)
def test_shares_of_about_equal_size_are_read(caplog, counts, warns):
    pretrain.check_shares(counts)
    assert len(caplog.messages) == bool(warns)
    assert warns in caplog.text


@pytest.mark.long
def test_shares_of_different_size_are_refused(base, tmp_path):
    """Three files for two workers: the records of one are read twice as often."""
    names = ",".join(f"{base}/{name}.tfrecord" for name in ("records", "more", "padded"))
    flags = flags_on_workers(base, tmp_path, file_order="own", input_file=names)
    log = run_script("launch", *ON_WORKERS, *flags, status=1).stdout
    sentence = "--file_order: the files of one worker have 64 records and those of another 128"
    assert (
        log.count(
            f"run_pretraining.py: {sentence}, so that some records are read 100.0% more often"
        )
        == 2
    )


@pytest.mark.long
def test_one_worker_that_refuses_its_input_ends_the_other(base, tmp_path):
    """Each reads files of its own, of which those of worker 1 hold a record that no batch may
    have.
    """
    bad = tmp_path / "bad.tfrecord"
    examples = [values for _, values in read_examples(str(base / "more.tfrecord"))]
    features = {name: np.stack([example[name] for example in examples]) for name in examples[0]}
    features["masked_lm_weights"][40, 0] = np.nan
    with open_example_files([str(bad)]) as files:
        files.write(features)
    flags = flags_on_workers(
        base, tmp_path / "out", file_order="own", input_file=f"{base}/records.tfrecord,{bad}"
    )
    ended = run_script("launch", "--max_restarts=0", *ON_WORKERS, *flags, status=75)
    assert (
        f"[worker 1] run_pretraining.py: {bad}: record 40 (from 0): masked_lm_weights holds nan"
        in ended.stdout
    )
    assert (
        "[worker 0] run_pretraining.py: worker 0 of 2 ends, since worker 1 has ended or cannot"
        in ended.stdout
    )
    assert "The workers ended: worker 0 with status 75, worker 1 with status 1" in ended.stderr


# The chief kills itself once, before the last part of a checkpoint gets its name.
KILLED_IN_A_SAVE = """
import json, os, sys
import tensorflow as tf
from official_bert.cli.commands import run_command
killed, target = sys.argv[1:3]
real = tf.io.gfile.rename
def rename(source, to, overwrite=False):
    if to == target and not os.path.exists(killed):
        open(killed, "w").close()
        os.kill(os.getpid(), 9)
    real(source, to, overwrite)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    tf.io.gfile.rename = rename
sys.argv = ["run_pretraining.py", *sys.argv[3:]]
run_command("run_pretraining")
"""


@pytest.mark.long
def test_a_chief_that_is_killed_while_it_saves_leaves_the_checkpoint_before(base, whole, tmp_path):
    output = tmp_path / "out"
    target = f"{output}/model.ckpt-{STOP_AFTER}.index"
    program = (sys.executable, "-c", KILLED_IN_A_SAVE, tmp_path / "killed", target)
    ended = run_script("launch", "--num_workers=2", "--", *program, *flags_on_workers(base, output))
    assert (
        "The workers ended: worker 0 with signal 9 (SIGKILL), worker 1 with status 75"
        in ended.stderr
    )
    assert (
        "[worker 1] run_pretraining.py: worker 1 of 2 ends, since worker 0 has ended or cannot"
        in ended.stdout
    )
    assert f"Restored checkpoint {output}/model.ckpt-{STOP_AFTER - SAVED_EVERY}" in ended.stdout
    expected = checkpoint_values(whole / f"model.ckpt-{STEPS}")
    training_state.assert_equal(checkpoint_values(output / f"model.ckpt-{STEPS}"), expected)

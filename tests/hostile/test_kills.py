"""Kills, full disks and two processes: each job ends with the same results as if nothing had
happened, or says so.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records.framing import read_examples
from official_bert.training import run_log
from tests import training_state
from tests.commands.pretraining_run import checkpoint_values
from tests.hostile.commands import classifier, corpus, embeddings, export, mining, pretraining
from tests.hostile.killed import RENAME, RUN, SAVE, START, Ended, Point, run
from tests.scripts import run_script, wait_for
from tests.shared import ROOT

KILLS_OF_A_KIND = int(os.environ.get("KILLS_OF_A_KIND", "5"))  # CI has the time for one
DISK_BYTES = [
    8 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
]


class Job(NamedTuple):
    """A job, its command for a folder with the good files, and its results in `out` by name:
    bytes, or arrays.
    """

    command: Callable[[pathlib.Path], list[str]]
    results: Callable[[pathlib.Path], dict]


TRAINING = ("--do_train", "--do_eval", "--save_checkpoints_steps=2", "--keep_checkpoint_max=2")
# In the children the clock counts its readings, one for each update.
BY_TIME = (
    *TRAINING,
    "--max_train_hours=0.002",
    "--train_batch_size_ramp=16,24",
    "--train_batch_size_boundaries=0.5,0.8",
    "--steps_per_loop=1",
)
BY_TIME += ("--num_train_steps=100", "--lr_schedule=wsd")
OF_CLASSIFIER = (
    "--do_predict",
    "--eval_every_steps=4",
    "--labels=a,b,c",
    "--num_train_epochs=4",
    "--random_seed=7",
)
OF_VECTORS = (
    "--train_batch_size=4",
    "--num_accumulation_steps=2",
    "--num_train_epochs=6",
    "--random_seed=7",
)
PAIR_LINES = [f"the cat {number}\tthe train {number} left\n" for number in range(50)]
PAIRS = "".join(["anchor\tpositive\n", *PAIR_LINES])
OF_SHARDS = ("--generator=sharded", "--num_shards=2", "--part=1/1")
OF_CORPUS = ("--max_seq_length=32", "--dupe_factor=2")


def _of_folder(out: pathlib.Path) -> dict:
    """The names of all files but TensorBoard's, the tensors of all checkpoints, and the bytes of
    the other results.
    """
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_dir() or "tfevents" in name:
            continue
        if name == "run.jsonl":
            evaluations = []
            for line in run_log.read(str(out), run_log.EVALUATION):
                # A command that is given again repeats the last evaluation, which has a set.
                if "set" not in line or line not in evaluations:
                    evaluations.append(line)
            found[name] = json.dumps(evaluations).encode()
        elif name.endswith(".index"):
            for key, value in _tensors(path).items():
                found[f"{name}: {key}"] = value
        else:
            found[name] = b"" if ".data-" in name else path.read_bytes()
    return found


def _tensors(index: pathlib.Path) -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint but the state of an iterator, which numpy cannot hold."""
    reader = tf.train.load_checkpoint(str(index).removesuffix(".index"))
    types = reader.get_variable_to_dtype_map()
    return {
        name: np.asarray(reader.get_tensor(name)) for name in types if types[name] != tf.variant
    }


def _of_export(out: pathlib.Path) -> dict:
    """The files of the newest version, and its weights; there is nothing but versions."""
    newest = max(out.iterdir(), key=lambda path: int(path.name))
    found = _tensors(newest / "variables" / "variables.index")
    del found["_CHECKPOINTABLE_OBJECT_GRAPH"]
    for path in newest.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(newest))] = b""
    return found


JOBS = {
    "pre-training": Job(lambda folder: pretraining(folder, *TRAINING), _of_folder),
    "pre-training by time": Job(lambda folder: pretraining(folder, *BY_TIME), _of_folder),
    "fine-tuning": Job(lambda folder: classifier(folder, *TRAINING, *OF_CLASSIFIER), _of_folder),
    "vectors": Job(
        lambda folder: embeddings(folder, *TRAINING, *OF_VECTORS, "--do_predict"), _of_folder
    ),
    "data creation": Job(
        lambda folder: corpus(folder, "out/a.tfrecord,out/b.tfrecord.gz", *OF_CORPUS), _of_folder
    ),
    "sharded data creation": Job(
        lambda folder: corpus(folder, "out/a", *OF_CORPUS, *OF_SHARDS), _of_folder
    ),
    "mining": Job(
        lambda folder: mining(folder, "--batch_size=1", output_file="out/mined.jsonl", pairs=PAIRS),
        _of_folder,
    ),
    "export": Job(lambda folder: export(folder, f"--export_dir={folder}/out"), _of_export),
}


# A run by time renames what any pre-training does.
KILLS = [
    pair
    for pair in itertools.product(JOBS, (START, RUN, SAVE, RENAME))
    if pair != ("pre-training by time", RENAME)
]


def finished(folder: pathlib.Path, job: Job) -> Ended:
    ended = run(folder, job.command(folder))
    assert ended.status == 0, ended.sentence
    return ended


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), KILLS)
def test_a_killed_job_ends_as_one_that_was_not(name, kind, folder):
    """It is killed at points of its start-up, its run, its saves or its renames, and given
    again.
    """
    job = JOBS[name]
    out = folder / "out"
    out.mkdir()
    whole = finished(folder, job)
    expected = job.results(out)
    assert expected
    count = whole.counts[kind]
    max_kills = 4 * KILLS_OF_A_KIND if kind == RENAME else KILLS_OF_A_KIND
    num_kills = min(count, max_kills)
    assert num_kills, f"{name} has no {kind} to be killed at"
    print(
        f"{name}: {num_kills} kills at {count} events of {kind}",
        flush=True,
    )
    for number in random.Random(1).sample(range(count), num_kills):
        out.rename(folder / f"done-{kind}-{number}")
        out.mkdir()
        killed = run(
            folder,
            job.command(folder),
            Point(kind, number),
        )
        assert killed.status == -signal.SIGKILL, f"{kind} {number} of {count}: ended with {killed}"
        finished(folder, job)
        training_state.assert_equal(job.results(out), expected)


@contextlib.contextmanager
def _small_disk(path: pathlib.Path, num_bytes: int) -> Iterator[bool]:
    """Makes a folder a disk of this size; yields whether the system allows it."""
    path.mkdir()
    options = [
        "-t",
        "tmpfs",
        "-o",
        f"size={num_bytes}",
        "tmpfs",
        str(path),
    ]
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(["mount", *options], capture_output=True, check=False).returncode
    )
    try:
        yield mounted
    finally:
        if mounted:
            # A reader may still be open.
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.long
@pytest.mark.parametrize("num_bytes", DISK_BYTES)
@pytest.mark.parametrize("name", JOBS)
def test_a_full_disk_is_said_and_leaves_no_half_file(name, num_bytes, folder):
    """The disk is a mounted one of this size; where none can be mounted, no file may grow beyond
    the size.
    """
    job = JOBS[name]
    out = folder / "out"
    with _small_disk(out, num_bytes) as mounted:
        ended = run(
            folder,
            job.command(folder),
            most_bytes=None if mounted else num_bytes,
        )
        if ended.status == 0:
            assert job.results(out)
        else:
            assert ended.status == 1, ended
            assert str(out) in ended.sentence
            assert "make room" in ended.sentence
            assert "\n" not in ended.sentence.strip()
        _assert_whole(out)


def _assert_whole(out: pathlib.Path):
    """Every file under a final name is whole."""
    for path in filter(pathlib.Path.is_file, out.rglob("*")):
        name = path.name
        assert ".tmp-" not in str(path)
        assert ".writing" not in str(path)
        if name.endswith(".index"):
            assert _tensors(path)
        elif name.endswith((".tfrecord", ".tfrecord.gz", ".tf_record")):
            assert list(read_examples(str(path)))
        elif name.endswith(".jsonl"):
            assert all(json.loads(line) for line in path.read_text().splitlines())
        elif name.endswith(".json"):
            json.loads(path.read_text())
        elif name == "checkpoint":
            assert tf.train.get_checkpoint_state(str(path.parent))


@pytest.mark.long
def test_two_processes_on_one_folder(folder):
    """The second says who is there; after a kill of the first it resumes from what that one
    saved.
    """
    out = folder / "out"
    command = pretraining(
        folder, "--do_train", "--save_checkpoints_steps=50", "--num_train_steps=100000"
    )
    first = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for((out / "model.ckpt-50.index").exists, first)
        second = run_script(*command, status=1)
        sentence = second.stderr.splitlines()[-1]
        assert f"{out}: process {first.pid} of host" in sentence
        assert "works in it" in sentence
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    state = tf.train.get_checkpoint_state(str(out))
    step = int(state.model_checkpoint_path.rpartition("-")[2])
    third = run_script(*command, f"--num_train_steps={step + 1}")
    assert f"process {first.pid} of host" in third.stderr
    assert "the lock is taken over" in third.stderr
    assert checkpoint_values(out / f"model.ckpt-{step + 1}")["global_step"] == step + 1
    assert not (out / ".lock").exists()

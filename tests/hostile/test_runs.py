"""Hostile runs: folders in which a run goes on wrongly, data that no learning rate makes good, two runs at once."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import tf1
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.data.records.framing import open_example_files, read_examples
from tests.commands.pretraining_run import checkpoint_values, write_records
from tests.hostile.checkpoints import tensors_of, with_head, with_value, write_output_dir
from tests.hostile.commands import CLASSIFIER, EXPORT, FEATURES, PRETRAINING, classifier, features, pretraining
from tests.hostile.rows import Row, check, edit_json, model_flags, row, table
from tests.scripts import end_of
from tests.shared import ROOT, has_ended

STEPS = (2, 4)


def _in_earlier_run(
    name: str,
    fault: Callable[[pathlib.Path], object],
    *says: str,
    flags: tuple[str, ...] = ("--do_train",),
    warns: tuple[str, ...] = (),
    leaves: tuple[str, ...] = (),
) -> Row:
    """A pre-training run in the folder of an earlier one, in which something is wrong."""

    def make(folder: pathlib.Path) -> list[str]:
        write_output_dir(folder, tensors_of(folder), STEPS)
        arguments = pretraining(folder, *flags)
        fault(folder)
        return arguments

    return row(PRETRAINING, name, make, *says, warns=warns, leaves=leaves)


def _config(**changes) -> Callable[[pathlib.Path], object]:
    return lambda folder: edit_json(folder / "bert_config.json", **changes)


def _state(text: str) -> Callable[[pathlib.Path], object]:
    return lambda folder: (folder / "out" / "checkpoint").write_text(text.format(folder))


def _remove(*names: str) -> Callable[[pathlib.Path], object]:
    return lambda folder: [(folder / "out" / name).unlink() for name in names]


def _moved_elsewhere(folder: pathlib.Path):
    """The `checkpoint` file was copied into an empty folder; it names the checkpoints by whole paths."""
    (folder / "out").rename(folder / "elsewhere")
    (folder / "out").mkdir()
    state = f'model_checkpoint_path: "{folder}/elsewhere/model.ckpt-4"\n'
    (folder / "out" / "checkpoint").write_text(state)


def _without_best(folder: pathlib.Path) -> list[str]:
    write_output_dir(folder, with_head(tensors_of(folder), 3), STEPS)
    (folder / "out" / "labels.txt").write_text("a\nb\nc\n")
    (folder / "out" / "eval_history.jsonl").write_text('{"step": 2, "eval_accuracy": 0.5}\n')
    tf1.write(str(folder / "out" / "best" / "model.ckpt-2"), {"global_step": np.int64(2)})
    return classifier(folder, "--do_predict")


_held_locks = []


def _held(folder: pathlib.Path, text: str = "process 1234 of host other\n"):
    """Another process works in the folder: it holds the lock of the file. A lock ends with its open file."""
    (folder / "out").mkdir(exist_ok=True)
    file = open(folder / "out" / ".lock", "w+")  # noqa: SIM115
    file.write(text)
    file.flush()
    fcntl.flock(file, fcntl.LOCK_EX)
    _held_locks.append(file)


@pytest.fixture(autouse=True)
def _release():
    yield
    while _held_locks:
        _held_locks.pop().close()


_RESUMED = ("out/*", "~out/*")
_OTHER = "give the config of this checkpoint"
RESUMING = [
    _in_earlier_run(
        "other number of heads", _config(num_attention_heads=4), "its num_attention_heads is 2, and 4", _OTHER
    ),
    _in_earlier_run("other activation", _config(hidden_act="relu"), "its hidden_act is gelu, and relu", _OTHER),
    _in_earlier_run(
        "the list is lost",
        _remove("checkpoint"),
        "out/checkpoint: is gone, but model.ckpt-4 is there",
        'model_checkpoint_path: "model.ckpt-4"',
    ),
    _in_earlier_run(
        "the list is of another folder",
        _moved_elsewhere,
        "out/checkpoint: names",
        "elsewhere/model.ckpt-4, a checkpoint of another folder",
    ),
    _in_earlier_run(
        "the newest index is lost",
        _remove("model.ckpt-4.index"),
        flags=("--do_eval",),
        warns=("names model.ckpt-4, whose .index file is not there", "model.ckpt-2 is taken"),
        leaves=_RESUMED,
    ),
    _in_earlier_run(
        "all indices are lost", _remove("model.ckpt-2.index", "model.ckpt-4.index"), "names no existing checkpoint"
    ),
    _in_earlier_run("the list is no list", _state("model.ckpt-4\n"), "out/checkpoint: is damaged"),
    _in_earlier_run(
        "slots that diverged",
        lambda folder: write_output_dir(folder, with_value(3e30, "bert/pooler/dense/bias")(tensors_of(folder)), STEPS),
        "model.ckpt-4: bert/pooler/dense/bias holds 3e+30",
    ),
    _in_earlier_run("another process works in the folder", _held, "out: process 1234 of host other works in it"),
    _in_earlier_run(
        "the lock of a dead process",
        lambda folder: (folder / "out" / ".lock").write_text("process 1 of host gone\n"),
        flags=("--do_eval",),
        warns=("process 1 of host gone ended without removing it; the lock is taken over",),
        leaves=("out/*", "~out/.lock"),
    ),
    row(CLASSIFIER, "the list of the best checkpoint is lost", _without_best, "out/best: the best checkpoint of"),
    row(
        CLASSIFIER,
        "another process works in the folder of a search",
        lambda folder: (_held(folder), classifier(folder, "--do_train", "--search=paper"))[1],
        "works in it",
    ),
]


def _beside(script: str, make: Callable[[pathlib.Path], list[str]]) -> Row:
    """A use of a model with another number of heads than the config beside its checkpoint says."""

    def prepare(folder: pathlib.Path) -> list[str]:
        shutil.copy(folder / "bert_config.json", folder / "other.json")
        edit_json(folder / "other.json", num_attention_heads=4)
        return [*make(folder), f"--bert_config_file={folder}/other.json"]

    return row(script, f"{script} with other heads", prepare, "bert_config.json: its num_attention_heads is 2, and 4")


def _export(folder: pathlib.Path) -> list[str]:
    return model_flags(folder, task_name="pretraining", export_dir=folder / "export")


CONFIGS = [_beside(FEATURES, features), _beside(EXPORT, _export)]


def _records(feature: str, value: float, number: int) -> Callable:
    """Writes records of which one holds a value that none may hold, and returns the flags of a training on them."""

    def make(folder: pathlib.Path) -> list[str]:
        path = folder / "records.tfrecord"
        write_records(path, 16)
        columns = {}
        for _, values in read_examples(str(path)):
            for name, stored in values.items():
                columns.setdefault(name, []).append(stored)
        stacked = {name: np.stack(rows) for name, rows in columns.items()}
        stacked[feature][number, 1 if stacked[feature].shape[1] > 1 else 0] = value
        with open_example_files([str(path)]) as files:
            files.write(stacked)
        return pretraining(folder, "--do_train")

    return make


def _bad_record(feature: str, value: float, said: str, number: int = 0) -> Row:
    return row(
        PRETRAINING,
        f"{feature} of {value:g} in record {number}",
        _records(feature, value, number),
        f"records.tfrecord: record {number} (from 0): {feature} holds {said}",
        leaves=("out/*",),
    )


def _score(label: str) -> Callable[[pathlib.Path], list[str]]:
    def make(folder: pathlib.Path) -> list[str]:
        (folder / "classification" / "train.tsv").write_text(f"text\tlabel\nthe cat\t1.0\nthe cat\t{label}\n")
        return classifier(folder, "--do_train", "--label_type=score")

    return make


DATA = [
    _bad_record("input_mask", 2, "2"),
    _bad_record("masked_lm_weights", 1e30, "1"),
    _bad_record("masked_lm_weights", np.nan, "nan", 11),
    _bad_record("next_sentence_labels", 2, "2"),
    row(CLASSIFIER, "score nan", _score("nan"), "train.tsv: line 3", "no number"),
    row(CLASSIFIER, "score 1e30", _score("1e30"), "train.tsv: line 3", "too large"),
    row(
        CLASSIFIER,
        "a rate too high",
        lambda folder: classifier(folder, "--do_train", "--learning_rate=1e9", "--warmup_proportion=0"),
        "lower --learning_rate",
        "the last checkpoint is valid",
        leaves=("out/*",),
    ),
]


@table(RESUMING)
def test_resuming(row, folder):
    check(row, folder)


@table(CONFIGS)
def test_configs(row, folder):
    check(row, folder)


@table(DATA)
def test_data(row, folder):
    check(row, folder)


def test_a_training_from_weights_of_another_model_is_warned_of(folder):
    edit_json(folder / "bert_config.json", hidden_act="relu")
    other = folder / "other.json"
    shutil.copy(folder / "bert_config.json", other)
    edit_json(folder / "bert_config.json", hidden_act="gelu")
    flags = [flag for flag in pretraining(folder, "--do_train", "--num_train_steps=1") if "config" not in flag]
    ended = end_of(PRETRAINING, *flags, f"--bert_config_file={other}")
    assert ended.status == 0, ended.sentence
    assert "its hidden_act is gelu, and relu by --bert_config_file: the weights were trained with" in ended.log


def test_what_a_diverged_run_saved_is_sound(folder):
    """The weights of step 1 are as large as the rate; the loss stays finite under LayerNorm."""
    flags = ("--do_train", "--learning_rate=1e9", "--num_warmup_steps=0", "--save_checkpoints_steps=1")
    ended = end_of(PRETRAINING, *pretraining(folder, *flags))
    assert "of step 1 are not saved" in ended.sentence
    assert "holds" in ended.sentence
    out = folder / "out"
    assert (out / "checkpoint").read_text().startswith('model_checkpoint_path: "model.ckpt-0"')
    assert sorted(path.name for path in out.glob("*.index")) == ["input.ckpt-0-0.index", "model.ckpt-0.index"]
    for name, value in checkpoint_values(out / "model.ckpt-0").items():
        assert np.abs(value).max() < 10, name


def test_extras_of_a_kill_go_with_the_next_run(folder):
    """Parts of checkpoints, and whole ones that a kill left on the list; others are not ours to delete."""
    write_output_dir(folder, tensors_of(folder), (1, 2, 4))
    out = folder / "out"
    tf1.write(str(out / "model.ckpt-3"), {"global_step": np.int64(3)})  # on no list: of the user
    (out / "model.ckpt-5.writing").mkdir()
    (out / "model.ckpt-5.writing" / "part.index").write_text("")
    (out / "input.ckpt-5-0.writing").mkdir()
    for name in ("model.ckpt-7.data-00000-of-00001", "input.ckpt-7-0.index", "checkpoint.tmp-99", "notes.tmp-1"):
        (out / name).write_text("")
    ended = end_of(PRETRAINING, *pretraining(folder, "--do_train", "--keep_checkpoint_max=2"))
    assert ended.status == 0, ended.sentence
    found = sorted(path.name for path in out.iterdir() if "tfevents" not in path.name)
    data = "data-00000-of-00001"
    assert found == [
        "bert_config.json", "checkpoint",
        f"input.ckpt-6-0.{data}", "input.ckpt-6-0.index",
        *(f"model.ckpt-{step}.{end}" for step in (3, 4, 6) for end in (data, "index")),
        "model_card.md", "notes.tmp-1", "run.jsonl", "task.json", "tokenizer_config.json",
        "vocab.txt",
    ]  # fmt: skip


def test_a_lock_ends_with_the_run(folder):
    assert end_of(PRETRAINING, *pretraining(folder, "--do_eval")).status == 0
    assert not (folder / "out" / ".lock").exists()
    (folder / "bert_model.ckpt.index").unlink()
    assert end_of(PRETRAINING, *pretraining(folder, "--do_eval")).status == 1
    assert not (folder / "out" / ".lock").exists()


def _tree_of(pid: int) -> set[int]:
    """Returns the numbers of the processes below a process."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    children = {child for child, parent in parents.items() if parent == pid}
    return children.union(*map(_tree_of, children))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(folder, number):
    """Data creation with two workers; the signal goes to the group for Ctrl-C, else to the parent alone."""
    (folder / "large.txt").write_text((folder / "corpus.txt").read_text() * 20_000)
    process = subprocess.Popen(
        [
            sys.executable, str(ROOT / "create_pretraining_data.py"), f"--vocab_file={folder}/vocab.txt",
            f"--input_file={folder}/large.txt", f"--output_file={folder}/a.tfrecord", "--num_workers=2",
        ],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while len(workers := _tree_of(process.pid)) < 3 and time.monotonic() < deadline:  # and a tracker
            time.sleep(0.05)
        assert len(workers) >= 3
        assert process.poll() is None
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        errors = process.communicate(timeout=240)[1]
        assert [worker for worker in workers if not has_ended(worker, within_secs=30)] == []
        assert "Traceback" not in errors
        if number == signal.SIGINT:
            assert errors.splitlines()[-1].endswith("create_pretraining_data.py: interrupted")
        assert not (folder / "a.tfrecord").exists()
    finally:
        process.kill()


def test_a_stopped_run_says_what_it_saved(folder, monkeypatch):
    """A signal arrives before the fifth call into TensorFlow: SIGTERM is deferred and saves, Ctrl-C ends the run."""
    from official_bert.training.batches import TrainingBatches

    real = TrainingBatches.draw
    for number, status, step, saved_step in ((signal.SIGTERM, 143, 5, 5), (signal.SIGINT, 130, 4, 3)):
        drawn = []

        def draw(self, num_steps, drawn=drawn, number=number):
            drawn.append(num_steps)
            if len(drawn) == 5:
                os.kill(os.getpid(), number)
            return real(self, num_steps)

        monkeypatch.setattr(TrainingBatches, "draw", draw)
        shutil.rmtree(folder / "out", ignore_errors=True)
        flags = ("--do_train", "--save_checkpoints_steps=3", "--steps_per_loop=1")
        ended = end_of(PRETRAINING, *pretraining(folder, *flags))
        assert ended.status == status
        saved = f"{folder}/out/model.ckpt-{saved_step} is saved, and the same command goes on from it"
        assert f"Stopped after step {step}; {saved}" in ended.log
        assert latest_checkpoint(str(folder / "out")).endswith(f"-{saved_step}")
        assert not (folder / "out" / ".lock").exists()
    tf.keras.backend.clear_session()

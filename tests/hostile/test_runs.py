"""Hostile runs: folders in which a run goes on wrongly, bad numbers in data, and what a stopped
run leaves.
"""

import fcntl
import itertools
import os
import pathlib
import shutil
import signal
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official_bert.checkpoints import tf1
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.data.records.framing import open_example_files, read_examples
from official_bert.io.processes import INTERRUPTED
from official_bert.training.batches import RecordBatches
from official_bert.training.trainer import Trainer
from tests.commands.pretraining_run import write_records
from tests.hostile.checkpoints import tensors_of, with_head, with_value, write_output_dir
from tests.hostile.commands import classifier, embeddings, export, features, pretraining
from tests.hostile.rows import Row, check, edit_json, row, table
from tests.scripts import end_of
from tests.training.counted_steps import count_steps

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

    return row(name, make, *says, warns=warns, leaves=leaves)


def _remove(*names: str) -> Callable[[pathlib.Path], object]:
    return lambda folder: [(folder / "out" / name).unlink() for name in names]


def _moved_elsewhere(folder: pathlib.Path):
    """The `checkpoint` file was copied into an empty folder; it names the checkpoints by whole
    paths.
    """
    (folder / "out").rename(folder / "elsewhere")
    (folder / "out").mkdir()
    state = f'model_checkpoint_path: "{folder}/elsewhere/model.ckpt-4"\n'
    (folder / "out" / "checkpoint").write_text(state)


def _without_best(folder: pathlib.Path) -> list[str]:
    write_output_dir(folder, with_head(tensors_of(folder), 3), STEPS)
    (folder / "out" / "labels.txt").write_text("a\nb\nc\n")
    (folder / "out" / "run.jsonl").write_text(
        '{"type": "evaluation", "step": 2, "eval_accuracy": 0.5}\n'
    )
    tf1.write(str(folder / "out" / "best" / "model.ckpt-2"), {"global_step": np.int64(2)})
    return classifier(folder, "--do_predict")


_held_locks = []  # open files, of whose locks each ends with its own


def _held(folder: pathlib.Path):
    """Another process works in the folder: it holds the lock of the file. A lock ends with its
    open file.
    """
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / ".lock").write_text("process 1234 of host other\n")
    file = open(folder / "out" / ".lock")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    _held_locks.append(file)


RESUMING = [
    _in_earlier_run(
        "other activation",
        lambda folder: edit_json(folder / "bert_config.json", hidden_act="relu"),
        "its hidden_act is gelu, and relu",
        "give the config of this checkpoint",
    ),
    _in_earlier_run(
        "lost list",
        _remove("checkpoint"),
        "checkpoint: is gone",
        'model_checkpoint_path: "model.ckpt-4"',
    ),
    _in_earlier_run(
        "list of another folder",
        _moved_elsewhere,
        "elsewhere/model.ckpt-4, a checkpoint of another folder",
    ),
    _in_earlier_run(
        "the newest index is lost",
        _remove("model.ckpt-4.index"),
        flags=("--do_eval",),
        warns=("names model.ckpt-4, whose .index file is not there", "model.ckpt-2 is taken"),
        leaves=("out/*", "~out/*"),
    ),
    _in_earlier_run(
        "no index",
        _remove("model.ckpt-2.index", "model.ckpt-4.index"),
        "names no existing checkpoint",
    ),
    _in_earlier_run(
        "the list is no list",
        lambda folder: (folder / "out" / "checkpoint").write_text("model.ckpt-4\n"),
        "out/checkpoint: is corrupt",
    ),
    _in_earlier_run(
        "slots that diverged",
        lambda folder: write_output_dir(
            folder, with_value(3e30, "bert/pooler/dense/bias")(tensors_of(folder)), STEPS
        ),
        "model.ckpt-4: bert/pooler/dense/bias holds 3e+30",
    ),
    _in_earlier_run(
        "another process works in the folder", _held, "out: process 1234 of host other works in it"
    ),
    _in_earlier_run(
        "the lock of a dead process",
        lambda folder: (folder / "out" / ".lock").write_text("process 1 of host gone\n"),
        flags=("--do_eval",),
        warns=("process 1 of host gone ended without removing it; the lock is taken over",),
        leaves=("out/*", "~out/.lock"),
    ),
    row(
        "the list of the best checkpoint is lost", _without_best, "out/best: the best checkpoint of"
    ),
    row(
        "another process works in the folder of a search",
        lambda folder: (_held(folder), classifier(folder, "--do_train", "--search=paper"))[1],
        "works in it",
    ),
]


def _with_other_config(folder: pathlib.Path, flags: list[str], **changes) -> list[str]:
    """Names another config than that beside the checkpoint."""
    shutil.copy(folder / "bert_config.json", folder / "other.json")
    edit_json(folder / "other.json", **changes)
    return [*flags, f"--bert_config_file={folder}/other.json"]


CONFIGS = [
    row(
        f"{make.__name__} with other heads",
        lambda folder, make=make: _with_other_config(folder, make(folder), num_attention_heads=4),
        "bert_config.json: its num_attention_heads is 2, and 4",
    )
    for make in (features, export)
]


def _bad_records(folder: pathlib.Path, feature: str, value: float, number: int) -> list[str]:
    """Writes records of which one holds a value that none may hold, and returns the flags of a
    training on them.
    """
    path = folder / "records.tfrecord"
    write_records(path, 16)
    examples = [example for _, example in read_examples(str(path))]
    stacked = {name: np.stack([example[name] for example in examples]) for name in examples[0]}
    stacked[feature][number, -1] = value
    with open_example_files([str(path)]) as files:
        files.write(stacked)
    return pretraining(folder, "--do_train")


def _masked_and_not(folder: pathlib.Path, *flags: str, lacks: str = "") -> list[str]:
    """A training on whole.tfrecord, whose records have no masks, and on records.tfrecord, which
    have some.
    """
    arguments = pretraining(folder, "--do_train", f"--vocab_file={folder}/vocab.txt", *flags)
    examples = [values for _, values in read_examples(str(folder / "records.tfrecord"))]
    with open_example_files([str(folder / "whole.tfrecord")]) as files:
        files.write(
            {
                name: np.stack([e[name] for e in examples])
                for name in examples[0]
                if "masked_lm" not in name
            }
        )
    (folder / "vocab.txt").write_text(
        (folder / "vocab.txt").read_text().replace(lacks or "\0", "lacking")
    )
    return [word.replace("INPUT", str(folder)) for word in arguments]


def _scores(folder: pathlib.Path, last: str) -> list[str]:
    (folder / "classification" / "train.tsv").write_text(
        f"text\tlabel\nthe cat\t1.0\nthe cat\t{last}\n"
    )
    return classifier(folder, "--do_train", "--label_type=score")


DATA = [
    row(
        "a weight of nan in a later record",
        lambda folder: _bad_records(folder, "masked_lm_weights", np.nan, 11),
        "records.tfrecord: record 11 (from 0): masked_lm_weights holds nan",
        leaves=("out/*",),
    ),
    row(
        "no masks, some masks",
        lambda folder: _masked_and_not(
            folder, "--dynamic_masking", "--input_file=INPUT/whole*,INPUT/rec*"
        ),
        "records.tfrecord: record 0 (from 0) has masks already; leave out --dynamic_masking",
    ),
    row(
        "some masks, no masks",
        lambda folder: _masked_and_not(folder, "--input_file=INPUT/rec*,INPUT/whole*"),
        "whole.tfrecord: record 0 (from 0) has no masked_lm_positions; give --dynamic_masking if "
        "no file has masks",
    ),
    row(
        "no masks for an evaluation behind a training",
        lambda folder: _masked_and_not(
            folder, "--do_eval", "--eval_input_file=INPUT/whole.tfrecord"
        ),
        "whole.tfrecord: record 0 (from 0) has no masked_lm_positions",
    ),
    row(
        "a vocabulary without [MASK]",
        lambda folder: _masked_and_not(
            folder, "--dynamic_masking", "--input_file=INPUT/whole*", lacks="[MASK]"
        ),
        "the vocabulary lacks [MASK]",
    ),
    row("score nan", lambda folder: _scores(folder, "nan"), "train.tsv: line 3", "not a number"),
    row("score 1e30", lambda folder: _scores(folder, "1e30"), "train.tsv: line 3", "too large"),
    row(
        "weights of another model",
        lambda folder: _with_other_config(
            folder, _bad_records(folder, "input_mask", 2, 0), hidden_act="relu"
        ),
        "records.tfrecord: record 0 (from 0): input_mask holds 2",
        warns=(
            "its hidden_act is gelu, and relu by --bert_config_file: the weights were trained with",
        ),
    ),
]


def _into_its_model(make, folder):
    """A training that --model begins, and whose output_dir is the folder of that model."""
    words = make(folder, "--do_train", f"--model={folder}", f"--output_dir={folder}/.")
    return [
        word
        for word in words
        if not word.startswith(("--init_checkpoint=", "--vocab_file=", "--bert_config_file="))
    ]


# Faults of a training that are seen before anything is written.
BEGINNINGS = [
    *(
        row(
            f"{make.__name__}: the folder of the model as that of the results",
            lambda folder, make=make: _into_its_model(make, folder),
            "is the folder of the model that the training begins with",
        )
        for make in (classifier, embeddings, pretraining)
    ),
    *(
        row(
            f"{make.__name__}: {name}",
            lambda folder, make=make, flags=flags: make(folder, "--do_train", *flags(folder)),
            says,
        )
        for make in (classifier, embeddings, pretraining)
        for name, flags, says in (
            (
                "micro-batches that are no part of the batch",
                lambda folder: ["--train_batch_size=8", "--num_accumulation_steps=3"],
                "--train_batch_size=8 cannot be computed by 1 replicas in "
                "--num_accumulation_steps=3 equal parts",
            ),
        )
    ),
]


@table([*RESUMING, *CONFIGS, *DATA, *BEGINNINGS])
def test_runs(row, folder):
    had_out = row in RESUMING
    check(row, folder)
    assert had_out or (folder / "out").exists() == bool(row.leaves), (
        "no folder is left of a refused run"
    )


def test_extras_of_a_kill_go_with_the_next_run(folder):
    """Parts of checkpoints, and whole ones that a kill left on the list; others are not ours to
    delete.
    """
    write_output_dir(folder, tensors_of(folder), (1, 2, 4))
    out = folder / "out"
    tf1.write(str(out / "model.ckpt-3"), {"global_step": np.int64(3)})  # on no list: of the user
    (out / "model.ckpt-5.writing").mkdir()
    (out / "model.ckpt-5.writing" / "part.index").write_text("")
    (out / "input.ckpt-5-0.writing").mkdir()
    for name in (
        "model.ckpt-7.data-00000-of-00001",
        "input.ckpt-7-0.index",
        "checkpoint.tmp-99",
        "notes.tmp-1",
    ):
        (out / name).write_text("")
    ended = end_of(*pretraining(folder, "--do_train", "--keep_checkpoint_max=2"))
    assert ended.status == 0, ended.sentence
    found = sorted(path.name for path in out.iterdir() if "tfevents" not in path.name)
    assert found == [
        "bert_config.json",
        "checkpoint",
        "input.ckpt-6-0.data-00000-of-00001",
        "input.ckpt-6-0.index",
        "model.ckpt-3.data-00000-of-00001",
        "model.ckpt-3.index",
        "model.ckpt-4.data-00000-of-00001",
        "model.ckpt-4.index",
        "model.ckpt-6.data-00000-of-00001",
        "model.ckpt-6.index",
        "notes.tmp-1",
        "run.jsonl",
        "task.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_a_stopped_run_says_what_it_saved(folder, monkeypatch):
    """A signal arrives in the fifth call into TensorFlow. It is deferred, and the step is saved,
    unless a second one arrives.
    """
    monkeypatch.setattr(Trainer, "step_function", count_steps)
    real = RecordBatches.have_run
    for number, times, status, saved_step in (
        (signal.SIGTERM, 1, 143, 5),
        (signal.SIGINT, 1, 130, 5),
        (signal.SIGINT, 2, 130, 3),
    ):
        calls = itertools.count(1)

        def have_run(self, num_steps, calls=calls, number=number, times=times):
            if next(calls) == 5:
                for _ in range(times):
                    os.kill(os.getpid(), number)
            return real(self, num_steps)

        monkeypatch.setattr(RecordBatches, "have_run", have_run)
        shutil.rmtree(folder / "out", ignore_errors=True)
        flags = ("--do_train", "--save_checkpoints_steps=3", "--steps_per_loop=1")
        ended = end_of(*pretraining(folder, *flags))
        assert ended.status == status
        saved = (
            f"{folder}/out/model.ckpt-{saved_step} is saved, and the same command resumes from it"
        )
        assert f"Stopped after step 5; {saved}" in ended.log
        assert (INTERRUPTED in ended.log) == (number == signal.SIGINT)
        assert latest_checkpoint(str(folder / "out")).endswith(f"-{saved_step}")
        assert not (folder / "out" / ".lock").exists()
    tf.keras.backend.clear_session()

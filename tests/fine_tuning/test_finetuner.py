"""What all fine-tuning scripts do beside updates: evaluations, the best checkpoint, early
stopping, frozen layers.
"""

import csv
import dataclasses
import pathlib
import re

import numpy as np
import pytest

from official_bert.fine_tuning.finetuner import Finetuner, has_learnt
from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.training import run_log
from tests import toy, training_state
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.commands.test_run_classifier import write_task
from tests.fine_tuning_runs import figures


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """24 updates on a task that a word decides; every test sets its own output_dir."""
    folder = tmp_path_factory.mktemp("task")
    base = toy.make_bert_base_dir(folder / "base")
    write_task(folder)
    return ClassificationOptions(
        task_name="tsv", data_dir=str(folder), text_a_column="text", label_column="kind", max_seq_length=16,
        vocab_file=str(base / "vocab.txt"), bert_config_file=str(base / "bert_config.json"),
        init_checkpoint=str(base / "bert_model.ckpt"), output_dir="", do_train=True, num_train_epochs=1.5,
        train_batch_size=16, learning_rate=2e-2, random_seed=1, eval_batch_size=64, steps_per_loop=4,
    )  # fmt: skip


def run(options, folder, **changes):
    return fine_tune(dataclasses.replace(options, output_dir=str(folder), **changes))


def history_of(folder):
    return run_log.read(str(folder), run_log.EVALUATION)


@pytest.fixture(scope="module")
def evaluated(options, tmp_path_factory):
    """A run with evaluations every 7 updates."""
    folder = tmp_path_factory.mktemp("evaluated")
    run(options, folder, eval_every_steps=7, do_eval=True, do_predict=True)
    return folder


@pytest.fixture(scope="module")
def plain(options, tmp_path_factory):
    """A run without evaluations."""
    folder = tmp_path_factory.mktemp("plain")
    run(options, folder, log_every_steps=1)
    return folder


def test_an_evaluation_leaves_a_confusion_matrix_and_a_chart(evaluated):
    header, *rows = (
        line.split("\t") for line in (evaluated / "confusion_matrix.tsv").read_text().splitlines()
    )
    labels = (evaluated / "labels.txt").read_text().splitlines()
    assert header == ["", *labels]
    assert [row[0] for row in rows] == labels
    counts = np.array([row[1:] for row in rows], int)
    assert counts.trace() / counts.sum() == pytest.approx(figures(evaluated)["eval_accuracy"])
    assert sorted(scalars(evaluated, "loss")) == [10, 24]
    assert sorted(scalars(evaluated / "eval", "loss")) == [7, 14, 21, 24]


def test_evaluations_change_nothing_but_leave_the_best_checkpoint(
    options, evaluated, plain, tmp_path
):
    last = checkpoint_values(evaluated / "model.ckpt-24")
    training_state.assert_equal(last, checkpoint_values(plain / "model.ckpt-24"))

    history = history_of(evaluated)
    assert [row["step"] for row in history] == [7, 14, 21, 24]
    accuracies = [row["eval_accuracy"] for row in history]
    best = history[int(np.argmax(accuracies))]  # the first of the best
    assert best["step"] == 14
    weights = checkpoint_values(evaluated / "best")
    training_state.assert_equal(
        weights,
        {
            name: value
            for name, value in checkpoint_values(evaluated / f"model.ckpt-{best['step']}").items()
            if not name.endswith(("adam_m", "adam_v"))
        },
    )
    # What follows training is of the best weights.
    found = figures(evaluated)
    assert found["global_step"] == best["step"]
    assert found["eval_accuracy"] == pytest.approx(best["eval_accuracy"], abs=1e-7)
    assert found["eval_loss"] == pytest.approx(best["eval_loss"], rel=1e-6)

    # So is what a later command finds there, and what is made of the folder `best` alone.
    predicted = np.loadtxt(evaluated / "test_results.tsv")
    of_last = {
        "do_train": False,
        "do_predict": True,
        "init_checkpoint": str(evaluated / "model.ckpt-24"),
    }
    for folder, changes in (
        (evaluated, of_last),
        (tmp_path / "of_best", of_last | {"init_checkpoint": str(evaluated / "best")}),
    ):
        run(options, folder, **changes)
        np.testing.assert_allclose(np.loadtxt(folder / "test_results.tsv"), predicted, atol=2e-6)
    run(options, tmp_path / "of_last", **of_last)
    assert abs(np.loadtxt(tmp_path / "of_last" / "test_results.tsv") - predicted).max() > 1e-3
    with pytest.raises(InputError, match="holds the best checkpoint of a run with evaluations"):
        run(options, evaluated, num_train_epochs=3.0)


def test_a_run_that_was_killed_before_an_evaluation_makes_up_for_it(
    options, evaluated, tmp_path, monkeypatch
):
    measure, calls = Finetuner._metrics, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    changes = {"eval_every_epochs": 7 / 16, "do_eval": True}  # 16 updates are an epoch
    monkeypatch.setattr(Finetuner, "_metrics", killed)
    with pytest.raises(KeyboardInterrupt):
        run(options, tmp_path, **changes)
    assert [row["step"] for row in history_of(tmp_path)] == [7]
    monkeypatch.undo()
    run(options, tmp_path, **changes)
    assert history_of(tmp_path) == history_of(evaluated)
    assert figures(tmp_path) == figures(evaluated)
    training_state.assert_equal(
        checkpoint_values(tmp_path / "best"),
        checkpoint_values(evaluated / "best"),
    )


def test_training_that_learns_nothing_stops_and_is_said(options, tmp_path, caplog):
    """With rate 0 the random outputs of the head are no better than the labels' frequencies."""
    changes = {
        "eval_every_steps": 3,
        "early_stopping_patience": 2,
        "learning_rate": 0.0,
        "do_eval": True,
    }
    assert not run(options, tmp_path, **changes).has_learnt
    (loss,) = re.findall(
        r"no better than the ([\d.]+) of a constant prediction: the model has learnt",
        caplog.text,
    )
    with open(pathlib.Path(options.data_dir) / "train.tsv") as file:
        labels = [row["kind"] for row in csv.DictReader(file, delimiter="\t")]
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    assert float(loss) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-3)
    assert [row["step"] for row in history_of(tmp_path)] == [3, 6, 9]
    assert figures(tmp_path)["global_step"] == 3
    # The same command again trains no further.
    run(options, tmp_path, **changes)
    assert [row["step"] for row in history_of(tmp_path)] == [3, 6, 9]
    assert not (tmp_path / "model.ckpt-12.index").exists()


def test_a_model_that_learns_is_no_reason_for_a_warning(options, tmp_path, caplog):
    flags = {"learning_rate": 5e-3, "num_train_epochs": 4.0, "warmup_proportion": 0.199}
    score = run(options, tmp_path, do_eval=True, **flags)
    assert score.has_learnt
    assert scalars(tmp_path, "learning_rate")[10] == pytest.approx(5e-3 * 10 / int(0.199 * 64))
    assert "learnt nothing" not in caplog.text


class Doubled:
    """An objective with nothing but what the protocol asks for: twice another one."""

    sum_names = ("loss",)
    tensorboard_only = ()

    def __init__(self, objective):
        self.totals, self.plain_loss = objective.totals, objective.loss

    def loss(self, features, totals, dropout_seed):
        loss, _ = self.plain_loss(features, totals, dropout_seed)
        return 2 * loss, {"loss": 2 * loss}

    def progress(self, sums, num_steps):
        return {"loss": sums["loss"] / num_steps}


def test_a_task_chooses_its_objective(options, plain, tmp_path, monkeypatch):
    objective = ClassificationTask.objective
    monkeypatch.setattr(
        ClassificationTask,
        "objective",
        lambda self, model: Doubled(objective(self, model)),
    )
    run(options, tmp_path, num_train_epochs=1 / 16, log_every_steps=1)
    assert scalars(tmp_path, "loss")[1] == 2 * scalars(plain, "loss")[1]


@pytest.mark.parametrize(
    ("losses", "num_examples", "highest_that_learnt"),
    [
        # Of 100 examples whose losses have the standard deviation 1, the mean has the standard
        # error 0.1.
        ([1.0, 3.0], 100, 1.8),
        ([1.0, 3.0], 10000, 1.98),  # of 10,000 examples 0.01; 1 % of the loss is the least gain
        ([2.0, 2.0], 10, 1.98),
    ],
)
def test_a_gain_that_may_be_chance_is_no_learning(losses, num_examples, highest_that_learnt):
    assert has_learnt(highest_that_learnt - 1e-6, num_examples, np.array(losses))
    assert not has_learnt(highest_that_learnt + 1e-6, num_examples, np.array(losses))

"""What all fine-tuning scripts do beside updates: evaluations, the best checkpoint, early
stopping, frozen layers.
"""

import csv
import dataclasses
import math
import pathlib
import re
import types

import numpy as np
import pytest

from official_bert.fine_tuning.finetuner import Finetuner, has_learnt, is_correlated
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
        task_name="tsv",
        data_dir=str(folder),
        text_a_column="text",
        label_column="kind",
        max_seq_length=16,
        vocab_file=str(base / "vocab.txt"),
        bert_config_file=str(base / "bert_config.json"),
        init_checkpoint=str(base / "bert_model.ckpt"),
        output_dir="",
        do_train=True,
        num_train_epochs=1.5,
        train_batch_size=16,
        learning_rate=2e-2,
        random_seed=1,
        eval_batch_size=64,
        steps_per_loop=4,
    )


def run(options, folder, **changes):
    return fine_tune(dataclasses.replace(options, output_dir=str(folder), **changes))


def read_evaluations(folder):
    return run_log.periodic_evaluations(str(folder))


def evaluation_steps(folder):
    return [evaluation["step"] for evaluation in read_evaluations(folder)]


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
    with (evaluated / "confusion_matrix.tsv").open() as file:
        header, *rows = csv.reader(file, delimiter="\t")
    labels = (evaluated / "labels.txt").read_text().splitlines()
    assert header == ["", *labels]
    row_labels = [row[0] for row in rows]
    assert row_labels == labels
    counts = np.array([row[1:] for row in rows], int)
    accuracy = counts.trace() / counts.sum()
    results = figures(evaluated)
    assert accuracy == pytest.approx(results["eval_accuracy"])
    assert sorted(scalars(evaluated, "loss")) == list(range(1, 25))
    assert sorted(scalars(evaluated / "eval", "loss")) == [7, 14, 21, 24]


def test_evaluations_change_nothing_but_leave_the_best_checkpoint(
    options, evaluated, plain, tmp_path
):
    last = checkpoint_values(evaluated / "model.ckpt-24")
    training_state.assert_equal(last, checkpoint_values(plain / "model.ckpt-24"))

    assert evaluation_steps(evaluated) == [7, 14, 21, 24]
    # `max` returns the first of the best.
    best = max(read_evaluations(evaluated), key=lambda evaluation: evaluation["eval_accuracy"])
    assert best["step"] == 14
    values_at_14 = checkpoint_values(evaluated / "model.ckpt-14")
    weights_at_14 = {
        name: value
        for name, value in values_at_14.items()
        if not name.endswith(("adam_m", "adam_v"))
    }
    best_weights = checkpoint_values(evaluated / "best")
    training_state.assert_equal(best_weights, weights_at_14)

    # What follows training is of the best weights.
    results = figures(evaluated)
    assert results["global_step"] == best["step"]
    assert results["eval_accuracy"] == pytest.approx(best["eval_accuracy"], abs=1e-7)
    assert results["eval_loss"] == pytest.approx(best["eval_loss"], rel=1e-6)

    # So is what a later command finds there, and what is made of the folder `best` alone.
    predictions = np.loadtxt(evaluated / "test_results.tsv")

    def predict(folder, checkpoint):
        run(
            options,
            folder,
            do_train=False,
            do_predict=True,
            init_checkpoint=str(evaluated / checkpoint),
        )
        return np.loadtxt(folder / "test_results.tsv")

    repeated = predict(evaluated, "model.ckpt-24")
    np.testing.assert_allclose(repeated, predictions, atol=2e-6)
    best_alone = predict(tmp_path / "best_alone", "best")
    np.testing.assert_allclose(best_alone, predictions, atol=2e-6)
    last_alone = predict(tmp_path / "last_alone", "model.ckpt-24")
    differences = abs(last_alone - predictions)
    assert differences.max() > 1e-3
    with pytest.raises(InputError, match="holds the best checkpoint of a run with evaluations"):
        run(options, evaluated, num_train_epochs=3.0)


def test_a_run_that_was_killed_before_an_evaluation_makes_up_for_it(
    options, evaluated, tmp_path, monkeypatch
):
    measure = Finetuner._metrics
    calls = []

    def interrupt_second_call(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    changes = {"eval_every_epochs": 7 / 16, "do_eval": True}  # 16 updates are an epoch
    monkeypatch.setattr(Finetuner, "_metrics", interrupt_second_call)
    with pytest.raises(KeyboardInterrupt):
        run(options, tmp_path, **changes)
    assert evaluation_steps(tmp_path) == [7]
    monkeypatch.undo()
    run(options, tmp_path, **changes)
    assert read_evaluations(tmp_path) == read_evaluations(evaluated)
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
    score = run(options, tmp_path, **changes)
    assert not score.has_learnt
    (constant_loss,) = re.findall(
        r"no better than the ([\d.]+) of a constant prediction: the model has learnt",
        caplog.text,
    )
    assert "too few updates (here 9)" in caplog.text
    with open(pathlib.Path(options.data_dir) / "train.tsv") as file:
        labels = [row["kind"] for row in csv.DictReader(file, delimiter="\t")]
    _, counts = np.unique(labels, return_counts=True)
    shares = counts / len(labels)
    entropy = -(shares * np.log(shares)).sum()
    assert float(constant_loss) == pytest.approx(entropy, rel=1e-3)
    assert evaluation_steps(tmp_path) == [3, 6, 9]
    results = figures(tmp_path)
    assert results["global_step"] == 3
    # The same command again trains no further.
    run(options, tmp_path, **changes)
    assert evaluation_steps(tmp_path) == [3, 6, 9]
    assert not (tmp_path / "model.ckpt-12.index").exists()


def test_a_model_that_learns_is_no_reason_for_a_warning(options, tmp_path, caplog):
    flags = {"learning_rate": 5e-3, "num_train_epochs": 4.0, "warmup_proportion": 0.199}
    score = run(options, tmp_path, do_eval=True, **flags)
    assert score.has_learnt
    learning_rates = scalars(tmp_path, "learning_rate")
    num_warmup_steps = int(0.199 * 64)
    assert learning_rates[10] == pytest.approx(5e-3 * 10 / num_warmup_steps)
    assert "learnt nothing" not in caplog.text


class Doubled:
    """An objective with nothing but what the protocol asks for: twice another one."""

    sum_names = ("loss",)
    tensorboard_only = ()

    def __init__(self, objective):
        self.totals = objective.totals
        self.plain_loss = objective.loss

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
    doubled_losses = scalars(tmp_path, "loss")
    plain_losses = scalars(plain, "loss")
    assert doubled_losses[1] == 2 * plain_losses[1]


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
    constant_losses = np.array(losses)
    assert has_learnt(highest_that_learnt - 1e-6, num_examples, constant_losses)
    assert not has_learnt(highest_that_learnt + 1e-6, num_examples, constant_losses)


@pytest.mark.parametrize(
    ("metric", "value", "num_examples", "expected"),
    [
        ("eval_spearman", 0.21, 101, True),  # two standard errors are 0.2
        ("eval_spearman", 0.19, 101, False),
        ("eval_pearson", 0.87, 10, True),
        ("eval_spearman", 1.0, 2, False),
        ("eval_spearman", math.nan, 101, False),
        ("eval_accuracy", 0.9, 101, False),
    ],
)
def test_scores_in_the_right_order_are_learning(metric, value, num_examples, expected):
    assert is_correlated(metric, value, num_examples) == expected


@pytest.mark.parametrize(("value", "has_learnt_order"), [(0.87, True), (0.1, False)])
def test_a_regression_with_a_large_loss_may_have_learnt(tmp_path, value, has_learnt_order):
    finetuner = types.SimpleNamespace(
        options=types.SimpleNamespace(output_dir=str(tmp_path)),
        trainer=types.SimpleNamespace(global_step=3),
        task=types.SimpleNamespace(main_metric="eval_spearman"),
        score=None,
        _beats_constant_prediction=False,
    )
    Finetuner._write_results(finetuner, {"eval_spearman": value}, "", num_examples=50)
    assert finetuner.score.has_learnt == has_learnt_order

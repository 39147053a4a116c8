"""Tests the choice of the best evaluation, and early stopping, on invented metrics."""

import math

import pytest

from official_bert.io.errors import InputError
from official_bert.training import run_log
from official_bert.training.periodic_evaluation import PeriodicEvaluation
from tests.commands.pretraining_run import scalars


class Recorder:
    """Stands for the checkpoints of the best weights."""

    output_dir = "best"
    latest = "model.ckpt-10"

    def __init__(self):
        self.steps = []

    def latest_step(self):
        return int(self.latest.removeprefix("model.ckpt-"))

    def save(self, step):
        self.steps.append(step)


def evaluate_all(folder, values, patience=None, first_step=0):
    """Evaluates every 10 updates; the steps whose weights were kept, and where training would
    stop.
    """
    best = Recorder()
    upcoming = iter(values)
    evaluation = PeriodicEvaluation(
        output_dir=str(folder),
        run_dir=str(folder),
        every_steps=10,
        patience=patience,
        main_metric="f1",
        measure=lambda: {"f1": next(upcoming), "loss": 1.0},
        best=best,
        first_step=first_step,
    )
    for number in range(1, len(values) + 1):
        step = first_step + 10 * number
        if evaluation(step, {}):
            return best.steps, step
    return best.steps, None


def test_the_first_of_the_best_is_kept_and_nan_is_the_worst(tmp_path, caplog):
    values = [math.nan, -0.5, 0.25, 0.25, math.nan, 0.5, 0.4]
    assert evaluate_all(tmp_path, values) == ([10, 20, 30, 60], None)
    assert caplog.messages == ["f1 is not a number: it counts as the worst"] * 2
    rows = run_log.read(str(tmp_path), run_log.EVALUATION)
    assert [row["f1"] for row in rows] == [None, -0.5, 0.25, 0.25, None, 0.5, 0.4]
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60, 70]
    assert len(list((tmp_path / "eval").iterdir())) == 1, "all of them are in one event file"
    assert list(scalars(tmp_path / "eval", "f1")) == [10, 20, 30, 40, 50, 60, 70]


def test_nothing_is_kept_before_the_checkpoint_of_the_step_is_complete(tmp_path):
    log = []
    best = Recorder()

    def finish_saving():
        evaluations = run_log.read(str(tmp_path), run_log.EVALUATION)
        log.append((best.steps[:], evaluations))

    def measure():
        return log.append("measured") or {"f1": 0.5}

    evaluation = PeriodicEvaluation(
        output_dir=str(tmp_path),
        run_dir=str(tmp_path),
        every_steps=10,
        main_metric="f1",
        measure=measure,
        best=best,
        first_step=0,
        finish_saving=finish_saving,
    )
    evaluation(10, {})
    assert log == ["measured", ([], [])], "it measures beside the writing"
    assert best.steps == [10]


@pytest.mark.parametrize(
    ("values", "patience", "stop"),
    [
        pytest.param([1, 2, 2, 2], 2, 40, id="equal values"),
        pytest.param([1, 2, 2, 3, 2], 2, None, id="a better one in time"),
        pytest.param([1, 0], 1, 20, id="a worse value"),
        pytest.param([math.nan] * 3, 2, 30, id="never a number"),
    ],
)
def test_training_stops_after_some_evaluations_without_a_better_one(
    tmp_path, values, patience, stop
):
    assert evaluate_all(tmp_path, values, patience)[1] == stop


def test_the_history_of_the_run_counts_and_that_of_lost_weights_does_not(tmp_path):
    evaluate_all(tmp_path, [3, 1, 5])
    # Resumed at 20: step 30 is measured anew, 10 is still the best.
    assert evaluate_all(tmp_path, [2], patience=2, first_step=20) == ([], 30)
    # It has no metric of this name: another task.
    run_log.write(
        str(tmp_path),
        run_log.EVALUATION,
        {"step": 10, "accuracy": 1.0},
    )
    # Another run in the folder starts with none.
    assert evaluate_all(tmp_path, [0, 1], patience=1) == ([10, 20], None)


def test_best_weights_that_are_gone_are_missed(tmp_path, monkeypatch):
    evaluate_all(tmp_path, [3, 1])
    monkeypatch.setattr(Recorder, "latest", None)
    with pytest.raises(InputError, match=r"^best: the best checkpoint of .*run\.jsonl is gone"):
        evaluate_all(tmp_path, [2], first_step=20)
    # Another run begins in the folder.
    assert evaluate_all(tmp_path, [2])[0] == [10]


def test_a_lost_line_does_not_let_a_worse_model_replace_the_best(tmp_path):
    evaluate_all(tmp_path, [3, 1])
    path = tmp_path / run_log.FILE
    lost_line, *other_lines = path.read_text().splitlines(keepends=True)
    cut_line = lost_line[:-4] + "\n"
    path.write_text("".join([cut_line, *other_lines]))
    with pytest.raises(
        InputError,
        match=r"run\.jsonl: lacks the evaluation of step 10, to which the best",
    ):
        evaluate_all(tmp_path, [2], first_step=20)

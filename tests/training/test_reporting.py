"""The texts of log lines, eval_results.txt and the run record, and the content of TensorBoard's
event files.
"""

import shutil
import types

import numpy as np
import pytest

from official_bert.io import progress
from official_bert.io.errors import Diverged
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training import reporting, run_log
from tests.commands.pretraining_run import scalars
from tests.shared import largest_file


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(secs=1000.0)
    monkeypatch.setattr(
        reporting.time,
        "monotonic",
        lambda: now.secs,
    )
    return now


@pytest.fixture
def lines(monkeypatch):
    """The lines that are logged at level INFO."""
    logged = []
    monkeypatch.setattr(
        reporting.logging,
        "info",
        lambda text, *values: logged.append(text % values if values else text),
    )
    return logged


METRICS = {"loss": 6.5123, "mlm_accuracy": 0.08, "nsp_accuracy": 0.55}


class Objective:
    """Its metrics are those of `METRICS` with the mean of the summed losses."""

    tensorboard_only = ("nsp_accuracy",)

    @staticmethod
    def progress(sums, num_steps):
        return METRICS | {"loss": sums["loss"] / num_steps}


class Training:
    """A made-up training of batches of 8 examples and 3000 tokens, whose report is tested."""

    def __init__(self, folder, clock, num_train_steps=100, first_step=0, loss_scale=None):
        self.clock = clock
        self.optimizer = AdamWeightDecayOptimizer(0.25)
        self.optimizer.global_step.assign(first_step)
        options = ClassificationOptions(
            task_name="",
            data_dir="",
            output_dir=str(folder),
            train_batch_size=8,
        )
        self.report = reporting.TrainingReport(
            options,
            num_train_steps,
            Objective(),
            self.optimizer,
            loss_scale,
        )

    def run(
        self, num_steps: int, secs: float = 0.0, num_skipped: int = 0, loss: float = 3.0
    ) -> int:
        """Makes steps with this loss; skipped ones are no updates."""
        self.clock.secs += secs
        num_updates = num_steps - num_skipped
        self.optimizer.global_step.assign_add(num_updates)
        sums = {
            "loss": loss * num_updates,
            "gradient_norm": 2.0 * num_updates,
            "updates": num_updates,
        }
        return self.report.add(
            num_steps,
            sums | {"tokens": 3000.0 * num_steps},
        )


def test_a_report_is_one_line_and_the_same_scalars(tmp_path, clock, lines):
    """Tokens and time left are those since the last report; skipped steps count as work, not as
    progress.
    """
    training = Training(tmp_path, clock)
    training.run(1, secs=60.0)  # which compiles, and is left out
    training.run(10, secs=5.0, num_skipped=2)
    training.report.write()
    training.run(15, secs=7.5, num_skipped=5, loss=2.0)
    training.report.write()
    training.report.write()  # nothing is left to report
    # 8 of 10 steps were updates in 5 s, then 10 of 15 in 7.5 s.
    assert lines == [
        "step 9/100  loss 3  mlm_accuracy 0.08  learning_rate 0.25  12.8 examples/s  6000 tokens/s "
        " 00:00:57 left",
        "step 19/100  loss 2  mlm_accuracy 0.08  learning_rate 0.25  10.7 examples/s  6000 "
        "tokens/s  00:01:01 left",
    ]
    names = {
        *METRICS,
        "learning_rate",
        "gradient_norm",
        "examples_per_second",
        "tokens_per_second",
        "memory_mb",
    }
    found = {name: scalars(tmp_path, name) for name in names}
    assert all(sorted(values) == [9, 19] for values in found.values())
    assert found["loss"][9] == 3.0
    assert found["gradient_norm"][9] == 2.0
    assert found["examples_per_second"][9] == pytest.approx(12.8)
    assert 100 < found["memory_mb"][9] <= found["memory_mb"][19] < 20000
    rows = run_log.read(str(tmp_path), run_log.TRAIN)
    assert [row.keys() for row in rows] == [{"type", "step", *names}] * 2
    assert rows[1]["step"] == 19
    assert rows[1]["loss"] == 2.0


def test_the_bar_has_the_metrics_since_the_last_line_and_the_speed(tmp_path, clock, monkeypatch):
    """Right after a line, it has the metrics and the speed of the line, without the rate."""
    statuses = []
    monkeypatch.setattr(progress, "_choose_view", lambda is_updated: progress.View.TERMINAL)
    monkeypatch.setattr(progress.updated_line, "show", lambda status, view: statuses.append(status))
    training = Training(tmp_path, clock)
    training.report.begin(Objective(), 1)
    training.run(1, secs=60.0)  # which compiles, and does not count in the time left
    training.run(10, secs=5.0)
    training.report.show_progress()
    training.report.write()
    training.report.evaluation = {"eval_accuracy": 0.75}
    clock.secs += 1.0
    training.report.show_progress()
    training.run(10, secs=4.0, loss=2.0)
    training.report.show_progress()
    texts = [status.text for status in statuses]
    assert texts == [
        "0 of 100 steps, compiling",
        "11 of 100 steps, loss 3, mlm_accuracy 0.08, 16.0 examples/s",
        "11 of 100 steps, loss 3, mlm_accuracy 0.08, eval_accuracy 0.75, 16.0 examples/s",
        "21 of 100 steps, loss 2, mlm_accuracy 0.08, eval_accuracy 0.75, 16.0 examples/s",
    ]
    left_secs = [status.end_secs and status.end_secs - clock.secs for status in statuses]
    # 20 steps in 10 seconds.
    assert left_secs[0] is None
    assert left_secs[3] == pytest.approx(79 * 0.5)


def test_a_report_of_the_call_that_compiles_has_no_speed(tmp_path, clock, lines):
    training = Training(tmp_path, clock, num_train_steps=40000)
    training.run(10, secs=60.0)
    training.report.write()
    training.run(10, secs=50.0)
    training.report.write()
    assert lines[0] == "step 10/40000  loss 3  mlm_accuracy 0.08  learning_rate 0.25"
    assert lines[1].endswith("1.6 examples/s  600 tokens/s  55:31:40 left")  # 39,980 steps at 5 s


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_an_error(tmp_path, clock, loss):
    training = Training(tmp_path, clock, first_step=4)
    training.run(2)
    with pytest.raises(Diverged, match=f"the loss is {loss} between steps 6 and 9"):
        training.run(3, loss=loss)


def test_the_final_loss_is_that_of_the_last_tenth(tmp_path, clock):
    """It is counted in whole progress lines: a line of one update alone would be noise."""

    def final_loss(*reports, first_step=0):
        training = Training(tmp_path, clock, first_step=first_step)
        for num_steps, loss in reports:
            training.run(num_steps, 1.0, loss=loss)
            training.report.write()
        return training.report.final_loss()

    assert final_loss() is None
    mean_of_last_two = (49 * 2.0 + 9.0) / 50
    loss, num_updates = final_loss((10, 4.0), (40, 3.0), (49, 2.0), (1, 9.0))
    assert loss == pytest.approx(mean_of_last_two)
    assert num_updates == 50
    assert final_loss((80, 3.0), (20, 1.0)) == (1.0, 20)
    assert final_loss((5, 6.0), first_step=95) == (6.0, 5)


@pytest.mark.parametrize("error", [None, Diverged("the loss is nan")])
def test_the_summary(tmp_path, clock, lines, error):
    """It is of the run's own updates; earlier runs count in the restarts and their time,
    evaluations do not.
    """
    for num_updates in (100, None, 70):
        run_log.write(
            str(tmp_path),
            run_log.START,
            {"num_updates": num_updates},
        )
    run_log.write(str(tmp_path), run_log.END, {"wall_secs": 10.5})
    training = Training(tmp_path, clock, num_train_steps=40, first_step=30)
    with training.report.timed(run_log.UPDATE_SECS):
        training.run(1, 1.4)
    with training.report.timed(run_log.UPDATE_SECS):
        training.run(5 if error else 9, 57.5, loss=2.5)
    with training.report.timed(run_log.SAVE_SECS):
        clock.secs += 2.5
    training.report.read_secs = lambda: 3.25
    training.report.write()
    del lines[:]
    training.report.write_summary("out/model.ckpt-40", error)
    step = 36 if error else 40
    line = run_log.read(str(tmp_path), run_log.END)[-1]
    assert line["ended"] == ("Diverged" if error else "finished")
    assert line["last_step"] == step
    assert line["updates"] == step - 30
    assert line["wall_secs"] == pytest.approx(61.4)
    assert line["total_wall_secs"] == pytest.approx(71.9)
    parts = {"compile": 1.4, "update": 57.5, "save": 2.5, "evaluation": 0.0, "read": 3.25}
    assert {part: line[f"{part}_secs"] for part in parts} == pytest.approx(parts)
    assert line["restarts"] == 1
    assert line["skipped_updates"] == 0
    assert line["last_checkpoint"] == "out/model.ckpt-40"
    if not error:
        hint = lines.pop()
        command = "convert_checkpoint --model=out --output_format=tf1_weights --output_dir=FOLDER"
        assert hint.endswith(f"without it: official-bert {command}")
    texts = {name: text for name, _, text in map(str.split, lines[1:])}
    assert texts.keys() == line.keys() - {"type"}
    assert texts["wall_secs"] == "00:01:01"


def test_eval_results_as_the_original_writes_them(tmp_path, lines):
    results = {
        "loss": np.float32(7.8532653),
        "count": np.int64(3),
        "best_f1_thresh": -1.2345678901234567,  # given back to a script, so not rounded
        "null_score_diff_threshold": -np.inf,
    }
    (tmp_path / "eval_results.txt").write_text("of an earlier run")
    reporting.write_eval_results(str(tmp_path), results, step=20)
    expected = [
        "best_f1_thresh = -1.2345678901234567",
        "count = 3",
        "global_step = 20",
        "loss = 7.8532653",
        "null_score_diff_threshold = -inf",
    ]
    assert (tmp_path / "eval_results.txt").read_text() == "".join(f"{line}\n" for line in expected)
    width = len("null_score_diff_threshold")
    table = []
    for line in expected:
        name, number = line.split(" = ")
        table.append(f"  {name:{width}} = {number}")
    assert lines == [
        "***** Eval results *****",
        *table,
        f"Wrote {tmp_path}/eval_results.txt",
    ]
    assert scalars(tmp_path / "eval", "loss")[20] == pytest.approx(7.8532653)
    shutil.rmtree(tmp_path / "eval")  # another run in a folder of the same name
    reporting.write_eval_results(str(tmp_path), results, step=30)
    assert list(scalars(tmp_path / "eval", "loss")) == [30]
    first, second = run_log.read(str(tmp_path), run_log.EVALUATION)
    assert first == {
        "type": "evaluation",
        "step": 20,
        "set": "eval",
        **results,
        "null_score_diff_threshold": None,  # JSON has no infinity
        "loss": pytest.approx(7.8532653),
    }
    assert second["step"] == 30
    assert run_log.periodic_evaluations(str(tmp_path)) == []


def test_tensorboard_groups_the_scores_of_labels(tmp_path):
    """The other metrics keep their names."""
    results = {"eval_f1_a b": 0.25, "eval_macro_f1": 0.5, "eval_f1": 0.75}
    reporting.write_eval_results(str(tmp_path), results, step=7, suffix="_mm")
    for tag, value in (("eval_f1/a b", 0.25), ("eval_macro_f1", 0.5), ("eval_f1", 0.75)):
        assert scalars(tmp_path / "eval_mm", tag) == {7: value}


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_shows_the_main_ones_of_many_metrics(tmp_path, lines, monkeypatch, is_terminal):
    monkeypatch.setattr(reporting, "is_on_terminal", lambda: is_terminal)
    names = [f"eval_{number}" for number in range(8)]
    main_names = ["eval_accuracy", "eval_loss", "eval_macro_f1", "eval_mcc"]
    results = dict.fromkeys([*names, *main_names], 0.5)
    reporting.write_eval_results(str(tmp_path), results, step=20, main_metric="eval_mcc")
    shown = [line.split()[0] for line in lines[1:-1]]
    expected = main_names if is_terminal else [*names, *main_names]
    assert shown == [*sorted(expected), "global_step"]
    written = (tmp_path / "eval_results.txt").read_text().splitlines()
    assert [line.split()[0] for line in written] == [*sorted(results), "global_step"]
    # Few metrics are all shown.
    del lines[:]
    reporting.write_eval_results(str(tmp_path), dict.fromkeys(names, 0.5), step=20)
    assert [line.split()[0] for line in lines[1:-1]] == [*names, "global_step"]


def test_a_loss_above_88_is_warned_of_once(tmp_path, clock, caplog, monkeypatch):
    """Its perplexity is beyond float32, the type of TensorBoard's numbers."""
    monkeypatch.setitem(METRICS, "perplexity", np.exp(100.0))
    training = Training(tmp_path, clock)
    for _ in range(2):
        training.run(5, 1.0, loss=100.0)
        training.report.write()
    (warning,) = caplog.messages
    assert warning.startswith(
        "The training diverges: the loss is 100 at step 5; stop it, and lower --learning_rate or"
    )
    assert scalars(tmp_path, "perplexity") == {5: np.inf, 10: np.inf}


def test_a_full_disk_costs_the_plot_and_not_the_run(tmp_path, clock, caplog):
    """The event file cannot be continued; the log lines are all there."""
    caplog.set_level("INFO", logger="absl")
    with largest_file(200):
        training = Training(tmp_path, clock, num_train_steps=3)
        for _ in range(3):
            training.run(1, 1.0)
            training.report.write()
        training.report.write_summary(None)
    for step in (1, 2, 3):
        assert f"step {step}/3" in caplog.text
    assert "File too large" in caplog.text
    assert "make room on the disk" in caplog.text
    assert "ended" in caplog.text

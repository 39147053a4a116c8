"""The texts of log lines, eval_results.txt and the run record, and the content of TensorBoard's event files."""

import json
import pathlib
import resource

import numpy as np
import pytest
import tensorflow as tf

from official_bert.training import reporting


class Clock:
    def __init__(self, monkeypatch):
        self.secs = 1000.0
        monkeypatch.setattr(reporting.time, "monotonic", lambda: self.secs)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def lines(monkeypatch):
    """The lines that are logged at level INFO."""
    logged = []
    monkeypatch.setattr(
        reporting.logging, "info", lambda text, *values: logged.append(text % values if values else text)
    )
    return logged


def scalars_in(folder) -> dict:
    """Reads {(tag, step): value} from the only event file in `folder`."""
    (path,) = pathlib.Path(folder).glob("events.out.tfevents.*")
    found = {}
    for serialized in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(serialized.numpy())
        for value in event.summary.value:
            found[value.tag, event.step] = tf.make_ndarray(value.tensor).item()
    return found


METRICS = {"loss": 6.5123, "mlm_accuracy": 0.08, "nsp_accuracy": 0.55, "learning_rate": 9.8e-5}


def test_a_report_is_one_line_and_the_same_scalars(tmp_path, clock, lines):
    reporter = reporting.ProgressReporter(str(tmp_path), num_train_steps=1000, batch_size=32, first_step=100)
    clock.secs += 50.0
    reporter.report(200, METRICS)
    # 100 steps of 32 in 50 s, and 800 steps to go at half a second each.
    assert lines == [
        "step 200/1000  loss 6.512  mlm_accuracy 0.08  nsp_accuracy 0.55  learning_rate 9.8e-05  "
        "64.0 examples/s  00:06:40 left"
    ]
    found = scalars_in(tmp_path)
    assert set(found) == {(name, 200) for name in [*METRICS, "examples_per_second"]}
    np.testing.assert_allclose(found["loss", 200], 6.5123, rtol=1e-6)
    assert found["examples_per_second", 200] == 64.0


def test_speed_is_that_since_the_last_report(tmp_path, clock, lines):
    reporter = reporting.ProgressReporter(str(tmp_path), 40000, 10, 0)
    clock.secs += 100.0
    reporter.report(100, {"loss": 2.0})
    clock.secs += 50.0
    reporter.report(110, {"loss": 1.0})
    assert lines[1] == "step 110/40000  loss 1  2.0 examples/s  55:24:10 left"  # 39,890 steps at 5 s


class Work:
    """Counts 3000 tokens and 2e9 operations a step."""

    tokens, flops = 0, 0

    def add(self, drawn, num_steps):
        self.tokens, self.flops = self.tokens + 3000 * num_steps, self.flops + 2e9 * num_steps


def test_tokens_and_utilization_are_those_since_the_last_report(tmp_path, clock, lines):
    """The memory is in TensorBoard and in the log of figures only; skipped steps count as work, not as progress."""

    def run_steps(batches, num_steps):
        clock.secs += 7.0 if not batches else 0.5 * num_steps
        return {"loss": 3.0, "updates": num_steps - batches}

    reporter = reporting.ProgressReporter(str(tmp_path), 100, 8, 0, work=Work(), peak_flops=1e10)
    watched = reporter.watching(run_steps)
    watched(0, 1)
    watched(2, 10)
    assert reporter.speeds() == {}
    reporter.report(9, {"loss": 3.0})
    watched(5, 15)
    reporter.report(19, {"loss": 3.0})
    # 8 of 10 steps were updates in 5 s, then 10 of 15 in 7.5 s; two updates a second, of 8 examples, need 4e9 FLOP/s.
    assert lines[1:] == [
        "step 9/100  loss 3  12.8 examples/s  6000 tokens/s  MFU 40.0%  00:00:57 left",
        "step 19/100  loss 3  10.7 examples/s  6000 tokens/s  MFU 40.0%  00:01:01 left",
    ]
    found = scalars_in(tmp_path)
    names = {"loss", "examples_per_second", "tokens_per_second", "mfu", "memory_mb"}
    assert {name for name, _ in found} == names
    assert 100 < found["memory_mb", 9] <= found["memory_mb", 19] < 20000
    means = {"examples_per_second": 18 * 8 / 12.5, "tokens_per_second": 6000.0, "mfu": 0.4}
    assert reporter.speeds() == pytest.approx(means)
    rows = [json.loads(line) for line in (tmp_path / "train_log.jsonl").read_text().splitlines()]
    assert [row.keys() for row in rows] == [{"step", *names}] * 2


def test_the_call_that_compiles_is_left_out(tmp_path, clock, lines):
    def run_steps(batches, num_steps):
        clock.secs += 60.0 if not calls else 5.0
        calls.append((batches, num_steps))
        return {"loss": 3.0}

    calls = []
    reporter = reporting.ProgressReporter(str(tmp_path), 40, 8, 0)
    watched = reporter.watching(run_steps)
    assert watched("first", 10) == {"loss": 3.0}
    reporter.report(10, {"loss": 3.0})
    watched("second", 10)
    watched("third", 10)
    reporter.report(30, {"loss": 3.0})
    assert lines == [
        "Compiling the training step ...",
        "step 10/40  loss 3",
        "step 30/40  loss 3  16.0 examples/s  00:00:05 left",  # 20 steps of 8 in 10 s
    ]
    assert calls == [("first", 10), ("second", 10), ("third", 10)]


def test_eval_results_as_the_original_writes_them(tmp_path, lines):
    results = {
        "masked_lm_loss": 4.58714437,
        "loss": np.float32(7.8532653),
        "masked_lm_accuracy": 0.095,
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
        "masked_lm_accuracy = 0.095",
        "masked_lm_loss = 4.5871444",
        "null_score_diff_threshold = -inf",
    ]
    assert (tmp_path / "eval_results.txt").read_text() == "".join(f"{line}\n" for line in expected)
    width = len("null_score_diff_threshold")
    table = [f"  {name:{width}} = {number}" for name, number in (line.split(" = ") for line in expected)]
    assert lines == ["***** Eval results *****", *table, f"Wrote {tmp_path}/eval_results.txt"]
    assert scalars_in(tmp_path / "eval")["masked_lm_accuracy", 20] == pytest.approx(0.095)


@pytest.mark.parametrize("num_bytes", [0, 200])
def test_a_full_disk_costs_the_plot_and_not_the_run(tmp_path, caplog, num_bytes):
    """The event file cannot be made, or not be continued; the log lines are all there."""
    caplog.set_level("INFO", logger="absl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))  # no file grows beyond it, as on a full disk
    try:
        reporter = reporting.ProgressReporter(str(tmp_path), num_train_steps=3, batch_size=1, first_step=0)
        for step in (1, 2, 3):
            reporter.report(step, METRICS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [f"step {step}/3" in caplog.text for step in (1, 2, 3)] == [True] * 3
    assert "File too large" in caplog.text
    assert "make room on the disk" in caplog.text
    assert "{{" not in caplog.text

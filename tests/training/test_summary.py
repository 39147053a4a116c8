"""The summary of a training: its table, its line, and what it adds over restarts."""

import json

from official_bert.training.reporting import write_summary

FIGURES = {
    "ended": "finished",
    "updates": 40,
    "last_step": 100,
    "wall_secs": 61.4,
    "examples_per_second": 12.3456789,
    "mfu": 0.4123,
    "peak_flops": None,
    "final_loss": 2.5,
    "last_checkpoint": "out/model.ckpt-100",
}


def starts(*num_updates) -> str:
    return "".join(json.dumps({"num_updates": number}) + "\n" for number in num_updates)


def test_the_table_and_the_line(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    (tmp_path / "runs.jsonl").write_text(starts(100))
    write_summary(str(tmp_path), FIGURES)
    (row,) = map(json.loads, (tmp_path / "run_summaries.jsonl").read_text().splitlines())
    known = {name: value for name, value in FIGURES.items() if value is not None}
    assert row == known | {"restarts": 0, "total_wall_secs": 61.4}
    lines = [line.split() for line in caplog.messages]
    assert lines[0] == ["*****", "Training", "summary", "*****"]
    texts = {name: text for name, _, text in lines[1:]}
    assert texts == {
        "ended": "finished", "updates": "40", "last_step": "100", "wall_secs": "00:01:01",
        "examples_per_second": "12.346", "mfu": "41.2%", "final_loss": "2.5",
        "last_checkpoint": "out/model.ckpt-100", "restarts": "0", "total_wall_secs": "00:01:01",
    }  # fmt: skip


def test_restarts_and_their_time_are_added(tmp_path):
    """Three trainings were started before, of which one was killed and left no line; an evaluation does not count."""
    (tmp_path / "runs.jsonl").write_text(starts(100, 80, None, 60, 40) + "damaged\n[]\n")
    (tmp_path / "run_summaries.jsonl").write_text('{"wall_secs": 10.5}\n{"wall_secs": 20.0}\n')
    write_summary(str(tmp_path), FIGURES | {"final_loss": float("nan")})
    row = json.loads((tmp_path / "run_summaries.jsonl").read_text().splitlines()[-1])
    assert (row["restarts"], row["total_wall_secs"], row["final_loss"]) == (3, 91.9, None)


def test_a_summary_that_cannot_be_written_costs_no_run(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    (tmp_path / "run_summaries.jsonl").mkdir()
    write_summary(str(tmp_path), FIGURES)
    assert "run_summaries.jsonl: the summary is only in the log" in caplog.text
    assert "41.2%" in caplog.text

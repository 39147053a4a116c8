"""The lines of train_log.jsonl: after a kill, a resume from an older checkpoint, and on a full disk."""

import json
import math
import resource

from official_bert.training.run_log import TRAIN_LOG_FILE, TrainLog, read_train_log


def test_a_line_for_each_report(tmp_path):
    log = TrainLog(str(tmp_path), first_step=0)
    log.append(10, {"loss": 6.5, "masked_lm_perplexity": math.inf})
    log.append(100, {"loss": 5, "learning_rate": 1e-4})
    assert [json.loads(line) for line in (tmp_path / TRAIN_LOG_FILE).read_text().splitlines()] == [
        {"step": 10, "loss": 6.5, "masked_lm_perplexity": None},
        {"step": 100, "loss": 5.0, "learning_rate": 1e-4},
    ]
    assert read_train_log(str(tmp_path / TRAIN_LOG_FILE))[1]["loss"] == 5.0


def test_lines_of_lost_steps_are_cut(tmp_path):
    first = TrainLog(str(tmp_path), first_step=0)
    for step in (10, 100, 200, 300):
        first.append(step, {"loss": step / 100})
    with open(tmp_path / TRAIN_LOG_FILE, "a") as file:
        file.write('{"step": 400, "lo')  # of a copy that was cut off
    resumed = TrainLog(str(tmp_path), first_step=250)
    resumed.append(260, {"loss": 9.0})
    steps = [json.loads(line)["step"] for line in (tmp_path / TRAIN_LOG_FILE).read_text().splitlines()]
    assert steps == [10, 100, 200, 260]


def test_what_is_no_line_of_a_log_is_not_read(tmp_path):
    (tmp_path / TRAIN_LOG_FILE).write_text(
        '{"step": 1}\n[2]\nnonsense\n{"loss": 3}\n{"step": "4"}\n{"step": 5}'
    )
    assert read_train_log(str(tmp_path / TRAIN_LOG_FILE)) == [{"step": 1}, {"step": 5}]


def test_a_full_disk_costs_the_line_and_not_the_run(tmp_path, caplog):
    log = TrainLog(str(tmp_path), first_step=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))
    try:
        log.append(1, {"loss": 6.5})
        log.append(2, {"loss": 6.5})  # of which a part has room
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "the line of step 2 is lost ([Errno 27] File too large); make room on the disk" in caplog.text
    assert (tmp_path / TRAIN_LOG_FILE).read_text() == '{"step": 1, "loss": 6.5}\n'

"""The lines of run.jsonl, and what later runs read of earlier ones."""

import datetime
import json
import math

import tensorflow as tf

from official_bert.options.training import PretrainingOptions
from official_bert.training import run_log


def test_the_line_of_a_start(tmp_path):
    options = PretrainingOptions(
        bert_config_file="c.json",
        input_file=["a", "b"],
        output_dir=str(tmp_path),
    )
    for seed in (7, 8):
        run_log.write_start(
            str(tmp_path),
            options,
            seed,
            tf.distribute.get_strategy(),
        )
    first, second = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert first["seed"] == 7
    assert second["seed"] == 8
    assert first["type"] == "start"
    assert first["script"] == "run_pretraining"
    assert first["flags"]["input_file"] == ["a", "b"]
    assert first["flags"]["learning_rate"] == 5e-5
    assert first["versions"].keys() == {"python", "tensorflow", "keras", "numpy", "official_bert"}
    assert first["num_replicas"] == 1
    assert first["devices"] == ["/device:CPU:0"]
    started = datetime.datetime.fromisoformat(first["started"])
    age = datetime.datetime.now(datetime.UTC) - started
    assert age.total_seconds() < 60


def test_lines_of_lost_steps_are_not_read(tmp_path):
    """A training resumes from step 20, of which an earlier one had lost the checkpoint of step
    30.
    """
    folder = str(tmp_path)
    run_log.write(
        folder,
        run_log.START,
        {"num_updates": 100, "first_step": 0},
    )
    for step in (10, 20, 30):
        run_log.write(
            folder,
            run_log.TRAIN,
            {
                "step": step,
                "loss": math.inf if step == 10 else step / 10,
            },
        )
    # An evaluation.
    run_log.write(
        folder,
        run_log.START,
        {"num_updates": None, "first_step": 10},
    )
    with open(tmp_path / "run.jsonl", "a") as file:
        file.write('{"type": "train", "step": 40, "lo')  # of a run that was killed
    run_log.write(
        folder,
        run_log.START,
        {"num_updates": 80, "first_step": 20},
    )
    run_log.write(folder, run_log.TRAIN, {"step": 25, "loss": 9.0})
    lines = run_log.read(folder, run_log.TRAIN)
    assert [(line["step"], line["loss"]) for line in lines] == [
        (10, None),
        (20, 2.0),
        (25, 9.0),
    ]
    assert [line["num_updates"] for line in run_log.trainings(folder)] == [100, 80]


def test_flags_of_an_earlier_version_are_read_as_those_of_this_one(tmp_path):
    folder = str(tmp_path)
    flags = {
        "train_batch_size_ramp": ["16:0.5"],
        "columns": None,
        "dtype": "float32",
    }
    run_log.write(
        folder,
        run_log.START,
        {"num_updates": 10, "flags": flags},
    )
    run_log.write(
        folder,
        run_log.START,
        {"num_updates": 10, "flags": None},
    )
    flags_before = [line["flags"] for line in run_log.trainings(folder)]
    assert flags_before == [
        {
            "train_batch_size_ramp": ["16"],
            "train_batch_size_boundaries": ["0.5"],
            "has_header": True,
            "label_separator": ",",
            "dtype": "float32",
        },
        None,
    ]


def test_corrupt_lines_are_left_out(tmp_path):
    folder = str(tmp_path)
    run_log.write(folder, run_log.TRAIN, {"step": 10, "loss": 3.0})
    with open(tmp_path / "run.jsonl", "a") as file:
        file.write(
            'corrupt\n[]\n{"step": 15}\n{"type": "train", "step": "16"}\n{"type": "train", "loss": 2.5}\n'
        )
    run_log.write(folder, run_log.TRAIN, {"step": 20, "loss": 1.0})
    assert [line["loss"] for line in run_log.read(folder, run_log.TRAIN)] == [3.0, 1.0]
    assert run_log.read(folder, run_log.EVALUATION) == []


def test_the_changed_flags_in_words():
    before = {"learning_rate": 0.1, "dtype": "float32", "train_batch_size": 8}
    now = {
        "learning_rate": 0.2,
        "dtype": "float32",
        "train_batch_size": 16,
        "optimizer_type": "lamb",
    }

    def changed_flags(now):
        names = ("optimizer_type", "learning_rate", "dtype")
        return run_log.changed_flags(before, now, names=names, options_class=PretrainingOptions)

    assert changed_flags(now) == "--learning_rate=0.2 (0.1 before)"
    assert changed_flags(before) == ""

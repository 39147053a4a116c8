"""The records of runs: what a line has, and what later runs read of the earlier ones."""

import datetime
import json

import tensorflow as tf

from official_bert.options.training import PretrainingOptions
from official_bert.training import run_log


def test_each_run_leaves_its_record(tmp_path):
    options = PretrainingOptions(bert_config_file="c.json", input_file=["a", "b"], output_dir=str(tmp_path))
    for seed in (7, 8):
        run_log.write_run_record(
            str(tmp_path), "run_pretraining", options, seed, tf.distribute.get_strategy()
        )
    first, second = map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines())
    assert (first["seed"], second["seed"]) == (7, 8)
    assert first["script"] == "run_pretraining"
    assert first["flags"]["input_file"] == ["a", "b"]
    assert first["flags"]["learning_rate"] == 5e-5
    assert first["versions"]["tensorflow"] == tf.__version__
    assert set(first["versions"]) == {"python", "tensorflow", "keras", "numpy", "official_bert"}
    assert first["num_replicas"] == 1
    assert "/device:CPU:0" in first["devices"]
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(first["started"])
    assert age.total_seconds() < 60


def test_damaged_lines_and_other_files_are_passed_over(tmp_path):
    path = tmp_path / "runs.jsonl"
    assert list(run_log.rows(str(path))) == []
    path.write_text('{"num_updates": 3}\n[]\n{"num_updates": null}\n{"num_updates": 0}\n{"num_upd')
    assert list(run_log.rows(str(path))) == [
        {"num_updates": 3},
        {"num_updates": None},
        {"num_updates": 0},
    ]
    assert run_log.trainings(str(tmp_path)) == [{"num_updates": 3}]
    assert list(run_log.rows(str(tmp_path))) == []  # a folder


def test_the_changed_flags_in_words():
    before = {"learning_rate": 0.1, "dtype": "float32", "train_batch_size": 8}
    now = {"learning_rate": 0.2, "dtype": "float32", "train_batch_size": 16, "optimizer_type": "lamb"}
    names = ("optimizer_type", "learning_rate", "dtype")
    assert run_log.changed_flags(before, now, names) == "--learning_rate=0.2 (0.1 before)"
    assert run_log.changed_flags(before, before, names) == ""

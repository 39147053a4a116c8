"""Tests that labels are kept beside a model's checkpoints and loaded with them."""

import dataclasses
import re

import pytest
import tensorflow as tf

from official_bert.checkpoints import CheckpointManager
from official_bert.fine_tuning.trained_task import check_labels, check_task, read_labels
from official_bert.io.errors import InputError
from official_bert.model_dir import TaskRecord, write_record
from official_bert.options.fine_tuning import ChoiceOptions


@pytest.fixture
def options(tmp_path):
    return ChoiceOptions(vocab_file="v", bert_config_file="c", output_dir=str(tmp_path / "out"))


def save_model(folder, labels):
    CheckpointManager(str(folder), {"global_step": tf.Variable(3, dtype=tf.int64)}).save(3)
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))


def test_labels_come_from_where_the_weights_come_from(options, tmp_path, monkeypatch):
    assert read_labels(options) is None
    save_model(tmp_path / "given", "ab")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "labels.txt").write_text("stale\n")  # of a run that was killed before it saved
    for given in (tmp_path / "given", tmp_path / "given" / "model.ckpt-3"):
        assert read_labels(dataclasses.replace(options, init_checkpoint=str(given))) == ["a", "b"]
    monkeypatch.chdir(tmp_path / "given")
    options = dataclasses.replace(options, init_checkpoint="model.ckpt-3")
    assert read_labels(options) == ["a", "b"]
    save_model(tmp_path / "out" / "best", "cd")
    assert read_labels(options) == ["stale"]
    save_model(tmp_path / "out", "cd")
    assert read_labels(options) == ["c", "d"]


@pytest.mark.parametrize("do_train", [True, False])
def test_a_trained_models_outputs_get_no_other_names(options, tmp_path, do_train):
    options = dataclasses.replace(options, do_train=do_train)
    check_labels(options, ["a", "b"])
    save_model(tmp_path / "out", "ab")
    check_labels(options, ["a", "b"])
    check_labels(options, None)  # a regression
    remedy = "give another --output_dir" if do_train else "take a checkpoint of this task"
    path = re.escape(str(tmp_path / "out" / "labels.txt"))
    for labels, told in ((["b", "a"], "b, a"), ([0, 1], "0, 1"), (["a"], "a")):
        with pytest.raises(
            InputError,
            match=f"^{path}: the model's outputs stand for a, b, but the task's labels are {told}; name the labels "
            f"in the model's order, or {remedy}$",
        ):
            check_labels(options, labels)


def test_a_training_may_begin_from_a_model_of_other_labels(options, tmp_path):
    save_model(tmp_path / "given", "ab")
    options = dataclasses.replace(options, init_checkpoint=str(tmp_path / "given"))
    check_labels(dataclasses.replace(options, do_train=True), ["x", "y"])
    with pytest.raises(InputError, match="stand for a, b, but the task's labels are x, y"):
        check_labels(options, ["x", "y"])


def test_a_folder_keeps_its_task(options, tmp_path, caplog):
    save_model(tmp_path / "out", "ab")
    write_record(str(tmp_path / "out"), TaskRecord("sst-2", "classification", {}))
    training = dataclasses.replace(options, do_train=True)
    for same in ("SST-2", "sst2"):
        check_task(training, same)
        check_task(options, same)
    assert "another task" not in caplog.text
    with pytest.raises(
        InputError, match=r"--task_name=CoLA: .*out/task\.json says sst-2, .*; give the folder as --model"
    ):
        check_task(training, "CoLA")
    check_task(options, "CoLA")
    assert "was trained on sst-2" in caplog.text
    caplog.clear()
    beginning = dataclasses.replace(
        training, output_dir=str(tmp_path / "new"), init_checkpoint=str(tmp_path / "out")
    )
    check_task(beginning, "CoLA")  # a new model may begin with the weights of another task
    assert not caplog.text

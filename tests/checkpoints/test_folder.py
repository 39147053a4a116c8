"""Which checkpoints a folder holds, and what is left when all of them go."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import CheckpointManager, folder, tf1
from official_bert.io.errors import InputError


def test_a_checkpoint_is_found_by_prefix_folder_and_state_file(tmp_path):
    path = str(tmp_path)
    assert folder.find_prefix(path) is None
    assert folder.find_prefix(str(tmp_path / "bert_model.ckpt")) is None
    tf1.write(str(tmp_path / "bert_model.ckpt"), {"a": np.float32(1)})
    tf1.write(str(tmp_path / "input.ckpt-5-0"), {"a": np.float32(1)})
    assert folder.find_prefix(str(tmp_path / "bert_model.ckpt")) == str(tmp_path / "bert_model.ckpt")
    assert folder.find_prefix(path) == str(tmp_path / "bert_model.ckpt")
    tf1.write(str(tmp_path / "model.ckpt-5"), {"a": np.float32(2)})
    with pytest.raises(InputError, match=r"bert_model\.ckpt, model\.ckpt-5"):
        folder.find_prefix(path)
    folder.write_state(path, ["bert_model.ckpt", "model.ckpt-5"])
    assert folder.find_prefix(path) == str(tmp_path / "model.ckpt-5")
    assert tf.train.latest_checkpoint(path) == str(tmp_path / "model.ckpt-5")


def test_a_folder_can_be_moved_even_with_absolute_paths_in_its_state(tmp_path):
    old = tmp_path / "old"
    tf1.write(str(old / "model.ckpt-1"), {"a": np.float32(1)})
    tf1.write(str(old / "model.ckpt-2"), {"a": np.float32(2)})
    tf.compat.v1.train.update_checkpoint_state(
        str(old), str(old / "model.ckpt-2"), [str(old / "model.ckpt-1"), str(old / "model.ckpt-2")]
    )
    new = tmp_path / "new"
    shutil.move(old, new)
    assert folder.checkpoint_paths(str(new)) == [str(new / "model.ckpt-1"), str(new / "model.ckpt-2")]
    assert folder.latest_checkpoint(str(new)) == str(new / "model.ckpt-2")


def test_a_list_of_lost_checkpoints_is_no_new_folder(tmp_path):
    assert folder.newest(str(tmp_path)) is None
    assert folder.with_best(str(tmp_path)) == (str(tmp_path), str(tmp_path / "best"))
    CheckpointManager(str(tmp_path), {"global_step": tf.Variable(3, dtype=tf.int64)}).save(3)
    assert folder.newest(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    (tmp_path / "model.ckpt-3.index").unlink()
    with pytest.raises(InputError, match="checkpoint: names no existing checkpoint; put it back, or delete"):
        folder.newest(str(tmp_path))


def test_all_checkpoints_can_go_and_other_files_stay(tmp_path):
    manager = CheckpointManager(str(tmp_path), {"global_step": tf.Variable(0, dtype=tf.int64)})
    folder.remove_all(str(tmp_path))  # nothing there
    manager.save(1, tf.train.Checkpoint(position=tf.Variable(0)))
    manager.save(2)
    (tmp_path / "model.ckpt-3.writing").mkdir()
    (tmp_path / "model.ckpt-3.writing" / "part.index").write_text("")
    (tmp_path / "eval_results.txt").write_text("")
    folder.remove_all(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]
    assert manager.latest is None

"""TensorFlow 1's Saver reads the checkpoints written here, and this project reads checkpoints of the original."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import tf1
from official_bert.io.errors import InputError
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights, with_training_state
from tests.shared import GOLDEN


@pytest.fixture
def weights():
    return with_training_state(random_weights(pretraining_shapes(CONFIG)), step=7)


def test_names_shapes_and_values_of_a_training_checkpoint(tmp_path, weights):
    prefix = str(tmp_path / "model.ckpt-7")
    tf1.write(prefix, weights)
    expected = {"global_step": []}
    for name, shape in pretraining_shapes(CONFIG).items():
        expected |= {name: list(shape), f"{name}/adam_m": list(shape), f"{name}/adam_v": list(shape)}
    assert len(expected) == 139
    assert dict(tf.train.list_variables(prefix)) == expected

    checkpoint = tf1.Tf1Checkpoint(prefix)
    assert checkpoint.shapes == {name: tuple(shape) for name, shape in expected.items()}
    for name, value in weights.items():
        np.testing.assert_array_equal(checkpoint.read(name), value)
        assert checkpoint.read(name).dtype == value.dtype
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]


def test_a_tf1_program_restores_it(tmp_path, weights):
    tf1.write(str(tmp_path / "model.ckpt-7"), weights)
    checkpoint_folder.write_state(str(tmp_path), ["model.ckpt-7"])
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, value.shape, value.dtype, use_resource=False) for name, value in weights.items()
        }
        v1.train.Saver().restore(session, v1.train.latest_checkpoint(str(tmp_path)))
        for name, value in session.run(variables).items():
            np.testing.assert_array_equal(value, weights[name])


def test_a_tf1_program_writes_it(tmp_path, weights):
    v1 = tf.compat.v1
    for version in (v1.train.SaverDef.V1, v1.train.SaverDef.V2):
        with tf.Graph().as_default(), v1.Session() as session:
            for name, value in weights.items():
                v1.get_variable(name, initializer=value)
            session.run(v1.global_variables_initializer())
            prefix = v1.train.Saver(write_version=version).save(session, str(tmp_path / f"m{version}.ckpt"))
        checkpoint = tf1.Tf1Checkpoint(checkpoint_folder.find_prefix(prefix))
        assert set(checkpoint.shapes) == set(weights)
        for name, value in weights.items():
            np.testing.assert_array_equal(checkpoint.read(name), value)


def test_variables_are_written_by_value(tmp_path):
    prefix = str(tmp_path / "v.ckpt")
    tf1.write(prefix, {"a": tf.Variable([1.0, 2.0]), "b": tf.constant(3, tf.int64), "c": np.float32(4)})
    checkpoint = tf1.Tf1Checkpoint(prefix)
    assert checkpoint.read("a").tolist() == [1.0, 2.0]
    assert (checkpoint.read("b"), checkpoint.read("c")) == (3, 4.0)


@pytest.mark.parametrize("fails_at", ["write", "first rename", "second rename"])
def test_a_failure_leaves_no_half_checkpoint(tmp_path, monkeypatch, fails_at):
    """The test simulates a killed process: nothing runs after this point, not even the clean-up."""

    class Killed(BaseException):
        pass

    renames = []

    def rename(source, target, overwrite=False):
        if len(renames) == (0 if fails_at == "first rename" else 1):
            raise Killed
        renames.append(target)
        os.replace(source, target)

    def write():
        with tf1.replacing(prefix) as temporary:
            tf.raw_ops.SaveV2(prefix=temporary, tensor_names=["a"], shape_and_slices=[""], tensors=[1.0])
            if fails_at == "write":
                raise Killed

    prefix = str(tmp_path / "model.ckpt-1")
    with monkeypatch.context() as patch:
        patch.setattr(tf1, "_remove_folder", lambda folder: None)
        if fails_at != "write":
            patch.setattr(tf1._gfile, "rename", rename)
        with pytest.raises(Killed):
            write()
    assert not os.path.exists(f"{prefix}.index")
    assert checkpoint_folder.find_prefix(prefix) is None
    assert checkpoint_folder.find_prefix(str(tmp_path)) is None

    tf1.write(prefix, {"a": np.float32(5)})  # the next run clears what was left
    assert tf1.Tf1Checkpoint(prefix).read("a") == 5
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]


def test_an_error_in_writing_cleans_up(tmp_path):
    def write():
        with tf1.replacing(str(tmp_path / "a.ckpt")) as temporary:
            pathlib.Path(temporary).write_text("half")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/model\.ckpt: cannot be written"):
        tf1.write(str(tmp_path / "file" / "model.ckpt"), {"a": np.float32(1)})


def test_damaged_files_are_named(tmp_path, weights):
    prefix = str(tmp_path / "bert_model.ckpt")
    tf1.write(prefix, weights)
    with open(f"{prefix}.data-00000-of-00001", "r+b") as file:
        file.truncate(100)
    checkpoint = tf1.Tf1Checkpoint(prefix)
    with pytest.raises(InputError, match=r"bert_model\.ckpt: cls.* cannot be read"):
        checkpoint.read("cls/seq_relationship/output_weights")
    with open(f"{prefix}.index", "wb") as file:
        file.write(b"not a table")
    with pytest.raises(InputError, match=r"bert_model\.ckpt: cannot be read as a checkpoint"):
        tf1.Tf1Checkpoint(prefix)


def test_removing_touches_no_other_file(tmp_path):
    for name in ("model.ckpt-1", "model.ckpt-10"):
        tf1.write(str(tmp_path / name), {"a": np.float32(1)})
    for name in ("model.ckpt-1.meta", "model.ckpt-1.notes.txt"):
        (tmp_path / name).write_text("")
    tf1.remove(str(tmp_path / "model.ckpt-1"))
    assert sorted(os.listdir(tmp_path)) == [
        "model.ckpt-1.notes.txt",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
    ]


@pytest.mark.parametrize(
    ("prefix", "count"),
    [
        ("model_gelu/bert_model.ckpt", 46),
        ("model_gelu/model.ckpt-6", 139),
        ("model_relu16types/bert_model.ckpt", None),
        ("head_classifier/model.ckpt", 41),
        ("head_squad/model.ckpt", 41),
    ],
)
def test_checkpoints_of_the_original_are_read(prefix, count):
    folder, name = prefix.split("/")
    checkpoint = tf1.Tf1Checkpoint(checkpoint_folder.find_prefix(str(GOLDEN / folder / name)))
    if count:
        assert len(checkpoint.shapes) == count
    for name, shape in checkpoint.shapes.items():
        value = checkpoint.read(name)
        assert value.shape == shape
        assert np.isfinite(value).all()

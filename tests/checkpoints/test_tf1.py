"""TensorFlow 1's Saver reads the checkpoints written here, and this project those of the original.

Also which tensors can be weights, and which damage is found of a sealed input state.
"""

import os
import pathlib
import re

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import tf1
from official_bert.io.errors import InputError
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights, with_training_state
from tests.shared import GOLDEN

VALUES = [
    [1.5, -2.0],
    [0.25, 1e6],
]


def write_scalar(prefix: str, value: float = 1):
    """Writes a checkpoint with one value, "a"."""
    tf1.write(prefix, {"a": np.float32(value)})


@pytest.fixture
def weights():
    shapes = pretraining_shapes(CONFIG)
    return with_training_state(random_weights(shapes), step=7)


def test_names_shapes_and_values_of_a_training_checkpoint(tmp_path, weights):
    prefix = str(tmp_path / "model.ckpt-7")
    tf1.write(prefix, weights)
    expected = {"global_step": ()}
    for name, shape in pretraining_shapes(CONFIG).items():
        expected[name] = shape
        expected[f"{name}/adam_m"] = shape
        expected[f"{name}/adam_v"] = shape
    assert len(expected) == 139
    listed = tf.train.list_variables(prefix)
    assert {name: tuple(shape) for name, shape in listed} == expected

    checkpoint = tf1.Tf1Checkpoint(prefix)
    assert checkpoint.shapes == expected
    for name, value in weights.items():
        saved_value = checkpoint.read(name)
        np.testing.assert_array_equal(saved_value, value)
        assert saved_value.dtype == value.dtype
    assert sorted(os.listdir(tmp_path)) == [
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
    ]


def test_a_tf1_program_restores_it(tmp_path, weights):
    tf1.write(str(tmp_path / "model.ckpt-7"), weights)
    checkpoint_folder.write_state(str(tmp_path), ["model.ckpt-7"])
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {}
        for name, value in weights.items():
            variables[name] = v1.get_variable(
                name,
                value.shape,
                value.dtype,
                use_resource=False,
            )
        latest = v1.train.latest_checkpoint(str(tmp_path))
        saver = v1.train.Saver()
        saver.restore(session, latest)
        for name, value in session.run(variables).items():
            np.testing.assert_array_equal(value, weights[name])


def test_a_tf1_program_writes_it(tmp_path, weights):
    v1 = tf.compat.v1
    versions = v1.train.SaverDef
    for version in (versions.V1, versions.V2):
        with tf.Graph().as_default(), v1.Session() as session:
            for name, value in weights.items():
                v1.get_variable(name, initializer=value)
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver(write_version=version)
            prefix = saver.save(session, str(tmp_path / f"m{version}.ckpt"))
        prefix = checkpoint_folder.find_prefix(prefix)
        checkpoint = tf1.Tf1Checkpoint(prefix)
        assert checkpoint.shapes.keys() == weights.keys()
        for name, value in weights.items():
            np.testing.assert_array_equal(checkpoint.read(name), value)


@pytest.mark.parametrize("fails_at", ["write", "first rename", "second rename"])
def test_a_failure_leaves_no_half_checkpoint(tmp_path, monkeypatch, fails_at):
    """The test simulates a killed process: nothing runs after this point, not even the clean-up."""

    renames = []
    num_before_failure = 0 if fails_at == "first rename" else 1

    def rename(source, target, overwrite=False):
        if len(renames) == num_before_failure:
            raise KeyboardInterrupt
        renames.append(target)
        os.replace(source, target)

    def write():
        with tf1.replacing(prefix) as temporary:
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=["a"],
                shape_and_slices=[""],
                tensors=[1.0],
            )
            if fails_at == "write":
                raise KeyboardInterrupt

    prefix = str(tmp_path / "model.ckpt-1")
    with monkeypatch.context() as patch:
        patch.setattr(tf1, "_remove_folder", lambda folder: None)
        if fails_at != "write":
            patch.setattr(tf1._gfile, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            write()
    assert not os.path.exists(f"{prefix}.index")
    assert checkpoint_folder.find_prefix(prefix) is None
    assert checkpoint_folder.find_prefix(str(tmp_path)) is None

    write_scalar(prefix, 5)  # the next run clears what was left
    assert tf1.Tf1Checkpoint(prefix).read("a") == 5
    assert sorted(os.listdir(tmp_path)) == [
        "model.ckpt-1.data-00000-of-00001",
        "model.ckpt-1.index",
    ]


def test_an_error_in_writing_cleans_up(tmp_path):
    def write():
        with tf1.replacing(str(tmp_path / "a.ckpt")) as temporary:
            pathlib.Path(temporary).write_text("half")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_to(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match=r"file/model\.ckpt: cannot be written"):
        write_scalar(f"{file}/model.ckpt")


def test_removing_begins_with_the_index_and_touches_no_other_file(tmp_path, monkeypatch):
    prefix = str(tmp_path / "model.ckpt-1")
    write_scalar(prefix)
    write_scalar(str(tmp_path / "model.ckpt-10"))
    for name in ("model.ckpt-1.meta", "model.ckpt-1.notes.txt"):
        (tmp_path / name).write_text("")
    deleted = []
    delete = tf.io.gfile.remove

    def delete_and_record(path):
        deleted.append(path)
        delete(path)

    monkeypatch.setattr(tf.io.gfile, "remove", delete_and_record)
    tf1.remove(prefix)
    assert deleted[0] == f"{prefix}.index"
    assert sorted(os.listdir(tmp_path)) == [
        "model.ckpt-1.notes.txt",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
    ]


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("model_gelu/bert_model.ckpt", 46),
        ("model_gelu/model.ckpt-6", 139),
        ("model_relu16types/bert_model.ckpt", None),
        ("head_classifier/model.ckpt", 41),
        ("head_squad/model.ckpt", 41),
    ],
)
def test_checkpoints_of_the_original_are_read(path, count):
    prefix = checkpoint_folder.find_prefix(str(GOLDEN / path))
    checkpoint = tf1.Tf1Checkpoint(prefix)
    if count:
        assert len(checkpoint.shapes) == count
    for name, shape in checkpoint.shapes.items():
        value = checkpoint.read(name)
        assert value.shape == shape
        assert np.isfinite(value).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_become_float32(tmp_path, dtype):
    prefix = str(tmp_path / "a")
    values = np.array(VALUES, dtype)
    tf1.write(prefix, {"w": values})
    checkpoint = tf1.Tf1Checkpoint(prefix)
    tf1.check_type(checkpoint, "w")
    weight = tf1.read_weight(checkpoint, "w")
    assert weight.dtype == np.float32
    expected = values.astype(np.float32)
    np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.01e6, "1.01e+06"),
        (-3e30, "-3e+30"),
        (1e300, "inf"),
        (np.nan, "nan"),
        (-np.inf, "-inf"),
    ],
)
def test_values_of_no_sound_model_are_named(tmp_path, value, text):
    prefix = str(tmp_path / "a")
    tf1.write(prefix, {"w": np.array([0.0, value])})
    checkpoint = tf1.Tf1Checkpoint(prefix)
    message = f"a: w holds {text}, so the checkpoint is corrupt or of a run that diverged"
    with pytest.raises(InputError, match=re.escape(message)):
        tf1.read_weight(checkpoint, "w")


def test_a_step_is_an_integer(tmp_path):
    prefix = str(tmp_path / "a")
    values = {
        "global_step": np.float32(3),
        "w": np.int64(3),
    }
    tf1.write(prefix, values)
    checkpoint = tf1.Tf1Checkpoint(prefix)
    tf1.check_type(checkpoint, "w", is_float=False)
    message = "global_step has the type float32, which is none of int32, int64;"
    with pytest.raises(InputError, match=message):
        tf1.check_type(checkpoint, "global_step", is_float=False)


def test_variables_are_looked_through_as_they_are_now():
    variables = {
        "a": tf.Variable([1.0, -1e6]),
        "b": tf.Variable([[0.5]]),
        "step": tf.Variable(2**40, dtype=tf.int64),
        "empty": tf.zeros([0, 3]),
    }
    assert tf1.find_invalid(variables) is None
    invalid_values = {
        "nan": np.nan,
        "inf": np.inf,
        "-2e+06": -2e6,
    }
    for text, value in invalid_values.items():
        variables["b"].assign([[value]])
        assert tf1.find_invalid(variables) == f"b holds {text}"
    variables["b"].assign([[2.0]])
    assert tf1.find_invalid(variables) is None


def shuffled_numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(100).shuffle(10, seed=3)


@pytest.fixture
def sealed(tmp_path) -> str:
    """An input state with an iterator in it, whose lengths TensorFlow believes, with a seal."""
    iterator = iter(shuffled_numbers())
    next(iterator)
    state = tf.train.Checkpoint(iterator=iterator, seed=tf.Variable(7))
    path = state.write(str(tmp_path / "state"))
    tf1.check_objects(path)  # as one of an earlier version, without a seal
    tf1.append_checksum(path)
    return path


def test_a_sealed_state_is_read_as_before(sealed):
    assert tf1.find_checksum_fault(sealed) is None
    tf1.check_objects(sealed)
    iterator = iter(shuffled_numbers())
    seed = tf.Variable(0)
    state = tf.train.Checkpoint(iterator=iterator, seed=seed)
    state.read(sealed).assert_consumed()
    # The first number was read before the state was written.
    for expected in shuffled_numbers().skip(1).take(5):
        assert int(next(iterator)) == int(expected)
    assert int(seed) == 7


def test_every_changed_byte_is_found_before_tensorflow_reads_it(sealed, monkeypatch):
    path = tf1.data_file(sealed)
    with open(path, "rb") as file:
        content = file.read()
    monkeypatch.setattr(tf.raw_ops, "RestoreV2", None)
    end = len(content) - 12  # then the seal itself: a mark of 8 bytes and the checksum
    places = np.linspace(0, end - 1, 40).astype(int).tolist()
    last = len(content) - 1
    message = r"cannot be read \(its bytes do not fit their checksum"
    for place in sorted({*places, last}):
        changed = bytearray(content)
        changed[place] ^= 0x04
        with open(path, "wb") as file:
            file.write(changed)
        with pytest.raises(tf1.Corrupt, match=message) as error:
            tf1.check_objects(sealed)
        assert error.value.file == path


@pytest.mark.parametrize("kept", [0, 1, 100, -13, -1])
def test_a_file_cut_off_is_found(sealed, kept):
    path = tf1.data_file(sealed)
    size = kept if kept >= 0 else os.path.getsize(path) + kept
    os.truncate(path, size)
    if kept == -1:  # all but a byte of the seal: the state is whole
        return tf1.check_objects(sealed)
    if kept == -13:
        with open(path, "ab") as file:
            file.write(bytes(13))  # a file system may give the size back, and not the bytes
    message = r"state: cannot be read \(.+\); copy its files again"
    with pytest.raises(tf1.Corrupt, match=message) as error:
        tf1.check_objects(sealed)
    assert error.value.file == path


def test_missing_and_corrupt_files_are_told_from_those_out_of_reach(tmp_path, monkeypatch):
    prefix = str(tmp_path / "model")
    tf1.write(prefix, {"w": np.arange(6, dtype=np.float32)})
    data = tf1.data_file(prefix)
    os.truncate(data, 2)
    message = r"model: w cannot be read"
    with pytest.raises(tf1.Corrupt, match=message):
        tf1.Tf1Checkpoint(prefix).read("w")
    os.remove(data)
    with pytest.raises(tf1.Corrupt, match=message) as error:
        tf1.Tf1Checkpoint(prefix).read("w")
    assert error.value.file == data
    assert "No such file" in error.value.reason

    class Forbidden:
        def __init__(self, *_):
            raise tf.errors.PermissionDeniedError(None, None, "not for you")

    monkeypatch.setattr(tf1._gfile, "GFile", Forbidden)
    with pytest.raises(InputError, match=message) as error:
        tf1.Tf1Checkpoint(prefix).read("w")
    assert not isinstance(error.value, tf1.Corrupt)

"""The seal of an input state: which damage of its file is found, and that TensorFlow reads the file as before."""

import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import tf1
from official_bert.io.errors import InputError


@pytest.fixture
def prefix(tmp_path) -> str:
    """A sealed state with an iterator in it, whose lengths TensorFlow believes."""
    iterator = iter(tf.data.Dataset.range(100).shuffle(10, seed=3))
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator, seed=tf.Variable(7)).write(str(tmp_path / "state"))
    tf1.append_checksum(path)
    return path


def test_a_sealed_state_is_read_as_before(prefix):
    assert tf1.fault_of_checksum(prefix) is None
    tf1.check_objects(prefix)
    iterator, seed = iter(tf.data.Dataset.range(100).shuffle(10, seed=3)), tf.Variable(0)
    expected = [int(number) for number in tf.data.Dataset.range(100).shuffle(10, seed=3).take(6)][1:]
    tf.train.Checkpoint(iterator=iterator, seed=seed).read(prefix).assert_consumed()
    assert [int(next(iterator)) for _ in range(5)] == expected
    assert int(seed) == 7


def test_every_changed_byte_is_found_before_tensorflow_reads_it(prefix, monkeypatch):
    path = tf1.data_file(prefix)
    with open(path, "rb") as file:
        content = file.read()
    monkeypatch.setattr(tf.raw_ops, "RestoreV2", None)
    sealed = len(content) - 12  # the seal itself: a mark of 8 bytes and the checksum
    places = sorted({*np.linspace(0, sealed - 1, 40).astype(int).tolist(), len(content) - 1})
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 0x04
        with open(path, "wb") as file:
            file.write(changed)
        with pytest.raises(tf1.Corrupt, match=r"cannot be read \(its bytes do not fit their checksum") as found:
            tf1.check_objects(prefix)
        assert found.value.file == path
    print(f"{len(places)} of {len(content)} bytes changed, one at a time: each is found")


@pytest.mark.parametrize("kept", [0, 1, 100, -13, -1])
def test_a_file_cut_off_is_found(prefix, kept):
    path = tf1.data_file(prefix)
    os.truncate(path, kept if kept >= 0 else os.path.getsize(path) + kept)
    if kept == -1:  # all but a byte of the seal: the state is whole
        return tf1.check_objects(prefix)
    if kept == -13:
        with open(path, "ab") as file:
            file.write(bytes(13))  # a file system may give the size back, and not the bytes
    with pytest.raises(tf1.Corrupt, match=r"state: cannot be read \(.+\); copy its files anew") as found:
        tf1.check_objects(prefix)
    assert found.value.file == path


def test_a_state_without_a_seal_is_that_of_an_earlier_version(tmp_path):
    path = tf.train.Checkpoint(seed=tf.Variable(7)).write(str(tmp_path / "state"))
    assert tf1.fault_of_checksum(path) is None
    tf1.check_objects(path)


def test_missing_and_damaged_files_are_told_from_those_out_of_reach(tmp_path, monkeypatch):
    prefix = str(tmp_path / "model")
    tf1.write(prefix, {"w": np.arange(6, dtype=np.float32)})
    data = tf1.data_file(prefix)
    assert data == f"{prefix}.data-00000-of-00001"
    os.remove(data)
    with pytest.raises(tf1.Corrupt, match=r"model: w cannot be read") as found:
        tf1.Tf1Checkpoint(prefix).read("w")
    assert (found.value.file, "No such file" in found.value.reason) == (data, True)

    class Forbidden:
        def __init__(self, *_):
            raise tf.errors.PermissionDeniedError(None, None, "not for you")

    monkeypatch.setattr(tf1._gfile, "GFile", Forbidden)
    with pytest.raises(InputError, match=r"model: w cannot be read") as found:
        tf1.Tf1Checkpoint(prefix).read("w")
    assert not isinstance(found.value, tf1.Corrupt)


def test_a_checkpoint_of_several_data_files_is_named_by_a_pattern(tmp_path):
    for number in (0, 1):
        (tmp_path / f"m.data-0000{number}-of-00002").touch()
    assert tf1.data_file(str(tmp_path / "m")) == f"{tmp_path}/m.data-*"

"""Records as TensorFlow writes and reads them, damage named by file and record, encoded sets,
and globs of files.
"""

import gzip

import numpy as np
import pytest

from official_bert.data.records import record_files
from official_bert.data.records.framing import (
    frame,
    is_compressed,
    open_example_files,
    read_examples,
    read_records,
)
from official_bert.io.errors import InputError


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def features(first: int, count: int):
    ids = np.arange(first, first + count)[:, None]
    return {"ids": np.repeat(ids * 100, 3, axis=1), "weight": ids.astype(np.float32)}


def test_tensorflow_reads_and_parses_what_we_write(tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    with open_example_files([str(path)]) as files:
        files.write(features(0, 3))
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    parsed = tf.io.parse_example(
        records,
        {
            "ids": tf.io.FixedLenFeature([3], tf.int64),
            "weight": tf.io.FixedLenFeature([1], tf.float32),
        },
    )
    np.testing.assert_array_equal(parsed["ids"], [[0, 0, 0], [100, 100, 100], [200, 200, 200]])
    np.testing.assert_array_equal(parsed["weight"], [[0.0], [1.0], [2.0]])


def test_we_read_what_tensorflow_writes(tmp_path, tf):
    path = str(tmp_path / "a.tfrecord")
    contents = [b"", b"one", b"two" * 1000]
    with tf.io.TFRecordWriter(path) as writer:
        for data in contents:
            writer.write(data)
    assert list(read_records(path)) == list(enumerate(contents))
    with open(path, "rb") as file:
        assert file.read() == b"".join(map(frame, contents))


def test_reads_gzip_which_is_known_by_its_bytes_alone(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(frame(b"one") + frame(b"two")))
    assert is_compressed(str(path))
    assert list(read_records(str(path))) == [(0, b"one"), (1, b"two")]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"a\.tfrecord: record \d"):
        list(read_records(str(path)))
    like_gzip = b"x" * 0x088B1F  # the length of this record begins with the bytes of gzip
    path.write_bytes(frame(like_gzip))
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert not is_compressed(str(path))
    assert list(read_records(str(path))) == [(0, like_gzip)]


@pytest.mark.parametrize(
    ("damage", "number", "reason"),
    [
        (lambda records: records[:-1], 2, "the file ends within it"),
        (lambda records: records[:60] + b"\xff" + records[61:], 0, "its bytes do not fit"),
        (lambda records: records + b"plain text that is no record", 3, "its length does not fit"),
    ],
)
def test_damage_is_named_with_file_and_record(tmp_path, damage, number, reason):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(damage(frame(b"x" * 100) * 3))
    with pytest.raises(
        InputError,
        match=rf"a\.tfrecord: record {number} \(from 0\) is corrupt: {reason}.*create_pretraining_data.py",
    ):
        list(read_records(str(path)))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["absent/a"],
            r"absent/a: cannot be written \(No such file or directory\); check that its folder exists",
        ),
        (["ok", "."], "cannot be written, it is a folder"),
        (["a", "b", "a"], "names a file twice"),
        ([], "names no file"),
    ],
)
def test_files_that_cannot_be_written_are_named(tmp_path, names, message):
    with (
        pytest.raises(InputError, match=message),
        open_example_files([f"{tmp_path}/{name}" for name in names]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_examples_go_into_the_files_in_turn(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    with open_example_files(paths) as written:
        written.write(features(0, 3))
        written.write(features(3, 3))
    found = [[example["weight"].tolist() for _, example in read_examples(path)] for path in paths]
    assert found == [[[0.0], [2.0], [4.0]], [[1.0], [3.0], [5.0]]]


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    for name in ("plain", "a.gz", "b.gz"):
        with open_example_files([str(tmp_path / name)]) as written:
            written.write(features(0, 5))
    packed = (tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain").read_bytes()
    assert packed == (tmp_path / "b.gz").read_bytes()
    assert packed[:8] == b"\x1f\x8b\x08\0\0\0\0\0"  # neither a name nor a time
    assert [number for number, _ in read_examples(str(tmp_path / "a.gz"))] == [0, 1, 2, 3, 4]


def test_an_encoded_set_comes_back_in_order(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(record_files, "_EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(record_files, "_EXAMPLES_BETWEEN_LINES", 8)
    caplog.set_level("INFO", logger="absl")
    values = {
        "ids": np.arange(30, dtype=np.int32).reshape(10, 3),
        "score": np.arange(10, dtype=np.float32) / 4,
    }
    path = str(tmp_path / "train.tf_record")
    record_files.write_encoded_set(
        path, 10, lambda rows: {name: value[rows] for name, value in values.items()}
    )
    found = [record for _, record in read_examples(path)]
    np.testing.assert_array_equal([record["ids"] for record in found], values["ids"])
    np.testing.assert_array_equal([record["score"] for record in found], values["score"][:, None])
    written = [line for line in caplog.messages if line.startswith("Writing")]
    assert written == ["Writing example 0 of 10", "Writing example 8 of 10"]


def test_a_glob_skips_the_manifest(tmp_path):
    for name in ("a-00000-of-00002", "a-00001-of-00002", "a.manifest.json"):
        (tmp_path / name).touch()
    shards = [str(tmp_path / f"a-0000{number}-of-00002") for number in range(2)]
    assert record_files.expand_records([f"{tmp_path}/a*"], "input_file") == shards
    assert record_files.expand_records([f"{tmp_path}/a-?????-of-?????"], "input_file") == shards
    manifest = f"{tmp_path}/a.manifest.json"
    assert record_files.expand_records([manifest], "input_file") == [
        manifest
    ]  # who names it hears that it holds no records
    with pytest.raises(InputError, match="--input_file: no file of records matches"):
        record_files.expand_records([f"{tmp_path}/a.*"], "input_file")

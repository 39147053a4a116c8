"""Records as TensorFlow writes and reads them, damage named by file and record, encoded sets,
and globs of files.
"""

import gzip
import pathlib

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


def make_features(first: int, count: int):
    """Features of `count` examples; the weight of an example is its number."""
    numbers = np.arange(first, first + count)[:, None]
    return {
        "ids": np.repeat(numbers * 100, 3, axis=1),
        "weight": numbers.astype(np.float32),
    }


def read_all_examples(path) -> list:
    return [example for _, example in read_examples(str(path))]


def test_tensorflow_reads_and_parses_what_we_write(tmp_path, tf):
    path = str(tmp_path / "a.tfrecord")
    with open_example_files([path]) as files:
        files.write(make_features(0, 3))
    dataset = tf.data.TFRecordDataset(path)
    records = list(dataset.as_numpy_iterator())
    feature_types = {
        "ids": tf.io.FixedLenFeature([3], tf.int64),
        "weight": tf.io.FixedLenFeature([1], tf.float32),
    }
    parsed = tf.io.parse_example(records, feature_types)
    expected_ids = [[0, 0, 0], [100, 100, 100], [200, 200, 200]]
    expected_weights = [[0.0], [1.0], [2.0]]
    np.testing.assert_array_equal(parsed["ids"], expected_ids)
    np.testing.assert_array_equal(parsed["weight"], expected_weights)


def test_we_read_what_tensorflow_writes(tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    contents = [b"", b"one", b"two" * 1000]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for data in contents:
            writer.write(data)
    assert list(read_records(str(path))) == list(enumerate(contents))
    frames = [frame(data) for data in contents]
    assert path.read_bytes() == b"".join(frames)


def test_reads_gzip_which_is_known_by_its_bytes_alone(tmp_path):
    path = tmp_path / "a.tfrecord"
    records = frame(b"one") + frame(b"two")
    compressed = gzip.compress(records)
    path.write_bytes(compressed)
    assert is_compressed(str(path))
    assert list(read_records(str(path))) == [(0, b"one"), (1, b"two")]

    path.write_bytes(compressed[:-12])
    with pytest.raises(InputError, match=r"a\.tfrecord: record \d"):
        list(read_records(str(path)))

    # The length of this record begins with the bytes of gzip.
    like_gzip = b"x" * 0x088B1F
    path.write_bytes(frame(like_gzip))
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert not is_compressed(str(path))
    assert list(read_records(str(path))) == [(0, like_gzip)]


THREE_RECORDS = frame(b"x" * 100) * 3
DAMAGED = [
    pytest.param(
        THREE_RECORDS[:-1],
        2,
        "the file ends within it",
        id="cut off",
    ),
    pytest.param(
        THREE_RECORDS[:60] + b"\xff" + THREE_RECORDS[61:],
        0,
        "its bytes do not fit",
        id="changed byte",
    ),
    pytest.param(
        THREE_RECORDS + b"plain text that is no record",
        3,
        "its length does not fit",
        id="text at the end",
    ),
]


@pytest.mark.parametrize(("content", "number", "reason"), DAMAGED)
def test_damage_is_named_with_file_and_record(tmp_path, content, number, reason):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    place = rf"a\.tfrecord: record {number} \(from 0\)"
    message = rf"{place} is corrupt: {reason}.*create_pretraining_data.py"
    with pytest.raises(InputError, match=message):
        list(read_records(str(path)))


UNWRITABLE = [
    pytest.param(
        ["absent/a"],
        r"absent/a: cannot be written \(No such file or directory\); "
        "check that its folder exists",
        id="absent folder",
    ),
    pytest.param(
        ["ok", "."],
        "cannot be written, it is a folder",
        id="folder",
    ),
    pytest.param(
        ["a", "b", "a"],
        "names a file twice",
        id="file twice",
    ),
    pytest.param(
        [],
        "names no file",
        id="no file",
    ),
]


@pytest.mark.parametrize(("names", "message"), UNWRITABLE)
def test_files_that_cannot_be_written_are_named(tmp_path, names, message):
    paths = [f"{tmp_path}/{name}" for name in names]
    with pytest.raises(InputError, match=message), open_example_files(paths):
        pass
    assert list(tmp_path.iterdir()) == []


def test_examples_go_into_the_files_in_turn(tmp_path):
    even_file = str(tmp_path / "a")
    odd_file = str(tmp_path / "b")
    with open_example_files([even_file, odd_file]) as files:
        files.write(make_features(0, 3))
        files.write(make_features(3, 3))
    even_weights = [example["weight"].tolist() for example in read_all_examples(even_file)]
    odd_weights = [example["weight"].tolist() for example in read_all_examples(odd_file)]
    assert even_weights == [[0.0], [2.0], [4.0]]
    assert odd_weights == [[1.0], [3.0], [5.0]]


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    plain_file = tmp_path / "plain"
    compressed_file = tmp_path / "a.gz"
    other_compressed_file = tmp_path / "b.gz"
    for path in (plain_file, compressed_file, other_compressed_file):
        with open_example_files([str(path)]) as files:
            files.write(make_features(0, 5))
    compressed = compressed_file.read_bytes()
    assert gzip.decompress(compressed) == plain_file.read_bytes()
    assert compressed == other_compressed_file.read_bytes()
    # The header has neither a name nor a time.
    assert compressed[:8] == b"\x1f\x8b\x08\0\0\0\0\0"
    numbers = [number for number, _ in read_examples(str(compressed_file))]
    assert numbers == [0, 1, 2, 3, 4]


def test_an_encoded_set_comes_back_in_order(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(record_files, "EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(record_files, "EXAMPLES_BETWEEN_LINES", 8)
    caplog.set_level("INFO", logger="absl")
    ids = np.arange(30, dtype=np.int32).reshape(10, 3)
    scores = np.arange(10, dtype=np.float32) / 4
    path = str(tmp_path / "train.tf_record")
    record_files.write_encoded_set(
        path,
        10,
        lambda rows: {"ids": ids[rows], "score": scores[rows]},
    )
    examples = read_all_examples(path)
    read_ids = [example["ids"] for example in examples]
    read_scores = [example["score"] for example in examples]
    np.testing.assert_array_equal(read_ids, ids)
    np.testing.assert_array_equal(read_scores, scores[:, None])
    progress_lines = [line for line in caplog.messages if line.startswith("Writing")]
    assert progress_lines == ["Writing example 0 of 10", "Writing example 8 of 10"]


def test_a_glob_skips_the_manifest(tmp_path):
    shards = [
        f"{tmp_path}/a-00000-of-00002",
        f"{tmp_path}/a-00001-of-00002",
    ]
    manifest = f"{tmp_path}/a.manifest.json"
    for path in (*shards, manifest):
        pathlib.Path(path).touch()

    def expand(pattern: str) -> list[str]:
        return record_files.expand_records([pattern], "input_file")

    assert expand(f"{tmp_path}/a*") == shards
    assert expand(f"{tmp_path}/a-?????-of-?????") == shards
    # Users who name the manifest read later that it has no records.
    assert expand(manifest) == [manifest]
    with pytest.raises(InputError, match="--input_file: no file of records matches"):
        expand(f"{tmp_path}/a.*")

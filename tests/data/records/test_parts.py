"""Parts of a set of records: their files and names, and what is refused where one is missing."""

import json
import re

import pytest

from official_bert.data.records.parts import Part, digest_names
from official_bert.data.records.record_files import expand_records
from official_bert.io.errors import InputError


def test_a_part_has_every_nth_of_the_sorted_files():
    names = [f"text-{number}" for number in (3, 1, 4, 0, 2)]
    parts = [Part(number, 2).select_files(names) for number in (1, 2)]
    assert parts == [["text-0", "text-2", "text-4"], ["text-1", "text-3"]]
    message = (
        "--part=6/6: --input_file names fewer files (5) than there are parts (6); split the files, "
        "or lower the number of parts to 5"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        Part(6, 6).select_files(names)


def test_no_two_shards_of_a_set_have_the_same_stream():
    sizes = {1: 4, 2: 1, 3: 7}
    streams = [
        Part(number, 3).shard_stream(shard) for number in sizes for shard in range(sizes[number])
    ]
    assert len(set(streams)) == len(streams) == 12
    assert [Part(1, 1).shard_stream(shard) for shard in range(3)] == [0, 1, 2]


def test_the_digest_of_the_names_does_not_depend_on_the_machine():
    here = digest_names(["/mnt/corpus/b/x.txt", "/mnt/corpus/a/x.txt"])
    assert digest_names(["gs://bucket/a/x.txt", "gs://bucket/b/x.txt"]) == here
    assert digest_names(["a/x.txt", "c/x.txt"]) != here
    assert digest_names(["/one/x.txt"]) == digest_names(["x.txt"])


@pytest.fixture
def records(tmp_path):
    """Three parts of two shards each, of which a test removes or changes something."""
    for number in (1, 2, 3):
        write_part(tmp_path, number)
    return tmp_path


def write_part(folder, number: int, names: str = "same", **flags):
    name = f"train-part-{number:05}-of-00003"
    for shard in range(2):
        (folder / f"{name}-{shard:05}-of-00002").write_bytes(b"records")
    manifest = {
        "algorithm": 1,
        "vocabulary_sha256": "same",
        "flags": {
            "max_seq_length": 64,
            "dupe_factor": 10,
            "num_shards": 2,
            "compression": "none",
        }
        | flags,
        "part": {"number": number, "total": 3, "num_shards": 2, "names_sha256": names},
        "shards": [],
    }
    (folder / f"{name}.manifest.json").write_text(json.dumps(manifest))


def expand(folder, *patterns: str) -> list[str]:
    return expand_records([f"{folder}/{pattern}" for pattern in patterns], "input_file")


def test_one_glob_reads_all_parts(records):
    assert len(expand(records, "train-part-*")) == 6
    assert len(expand(records, "*-?????-of-?????")) == 6
    # Two sets, of which names alone are given for one.
    (records / "other-part-00001-of-00002-00000-of-00001").write_bytes(b"")
    other = "other-part-00001-of-00002-00000-of-00001"
    assert len(expand(records, "train-part-*", other)) == 7


def test_a_missing_part_is_named_with_the_command_that_makes_it(records):
    for path in records.glob("train-part-00002*"):
        path.unlink()
    with pytest.raises(InputError) as error:
        expand(records, "train-*")
    assert str(error.value) == (
        f"--input_file: part 2 of 3 of {records}/train is missing; copy all parts into one folder, "
        "or make it from the same text and vocabulary: create_pretraining_data.py "
        f"--generator=sharded --part=2/3 --output_file={records}/train "
        "--max_seq_length=64 --num_shards=2 --input_file=... --vocab_file=..."
    )


def test_a_glob_that_leaves_a_part_out_is_refused(records):
    with pytest.raises(InputError, match=r"does not match part 3 of 3 of .*; give '.*-part-\*'"):
        expand(records, "train-part-0000[12]*")
    names = [path.name for path in records.glob("train-part-00001*-0000?-of-?????")]
    assert len(expand(records, *names)) == len(names)


def test_parts_can_be_inspected_before_all_are_made(records):
    pattern = f"{records}/train-part-00002*"
    paths = expand_records([pattern], "input_file", needs_all_parts=False)
    assert [path[-18:] for path in paths] == ["003-00000-of-00002", "003-00001-of-00002"]


def test_a_missing_shard_is_named(records):
    (records / "train-part-00003-of-00003-00001-of-00002").unlink()
    with pytest.raises(InputError, match="00003-of-00003-00001-of-00002 is missing; copy it, or"):
        expand(records, "train-*")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"max_seq_length": 128},
            "part-00003-of-00003.manifest.json: has --max_seq_length=128, and another part "
            "--max_seq_length=64; make all parts with the same flags",
        ),
        ({"names": "others"}, "its run saw other names of input files than that of another part"),
        ({"num_shards": 5}, None),
    ],
)
def test_parts_have_the_same_flags_and_input_files(records, changes, sentence):
    write_part(records, 3, **changes)
    if sentence is None:
        assert len(expand(records, "train-*")) == 6
        return
    with pytest.raises(InputError) as error:
        expand(records, "train-*")
    assert sentence in str(error.value)

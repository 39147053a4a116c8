"""Files with damage at known places: which records a pipeline still reads, in which order, and what the log says."""

import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records import sound_records
from official_bert.data.records.framing import frame, read_records, scan_records
from official_bert.data.records.pretraining_input import (
    count_records,
    evaluation_dataset,
    explaining_input_errors,
    reading_key,
    training_dataset,
)
from official_bert.data.records.sound_records import Range, find_sound_ranges, open_sound
from official_bert.errors import InputError
from tests.data.records.test_pretraining_input import (
    FEATURES,
    LIMITS,
    numbers_of,
    record_values,
    serialized,
    write,
)

HEADER = 12  # bytes of a length and its checksum


def framed(numbers) -> list[bytes]:
    return [frame(serialized(record_values(number))) for number in numbers]


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


def damaged_file(path, first: int, payloads=(), header=None, cut=None, count=40) -> str:
    """Writes the records from `first` on, some with a wrong byte, one with a wrong length, or cut off within one."""
    records = framed(range(first, first + count))
    for number in payloads:
        records[number] = flipped(records[number], HEADER + 5)
    if header is not None:
        records[header] = flipped(records[header], 3)
    if cut is not None:
        records[cut:] = [records[cut][:-7]]
    content = b"".join(records)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def read(files, damaged) -> list[int]:
    batches = evaluation_dataset(files, FEATURES, 7, LIMITS, repeat=False, damaged=damaged)
    return [number for batch in batches for number in numbers_of(batch)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_records_around_the_damage_are_read(tmp_path, suffix, caplog):
    """Five damaged payloads, two of them side by side; a wrong length; half a record; and a sound file."""
    files = [
        damaged_file(tmp_path / f"payloads{suffix}", 0, payloads=(0, 7, 8, 20, 39)),
        write(tmp_path / f"sound{suffix}", range(40, 80)),
        damaged_file(tmp_path / f"header{suffix}", 80, payloads=(3,), header=30),
        damaged_file(tmp_path / f"cut{suffix}", 120, cut=25),
    ]
    damaged = find_sound_ranges(files)
    expected = [
        *(number for number in range(40) if number not in (0, 7, 8, 20, 39)),
        *range(40, 80),
        *(number for number in range(80, 110) if number != 83),
        *range(120, 145),
    ]
    found = read(files, damaged)
    print(f"{len(found)} records read, {len(expected)} expected of 160")
    assert found == expected
    assert count_records(files, damaged) == len(expected)
    assert sorted(damaged) == sorted([files[0], files[2], files[3]]), "the sound file is read as ever"

    offsets = np.cumsum([0, *map(len, framed(range(120, 160)))])
    of_what = " of the decompressed file" if suffix else ""
    said = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    print(*said, sep="\n")
    assert said == [
        f"{files[0]}: 5 damaged records are skipped, first record 0 (from 0) at byte 0{of_what} (its bytes do not fit "
        "their checksum); 35 sound records are read",
        f"{files[2]}: 1 damaged record is skipped, first record 3 (from 0) at byte "
        f"{sum(map(len, framed(range(80, 83))))}{of_what} (its bytes do not fit their checksum); nothing can be read "
        f"from record 30 (from 0) at byte {sum(map(len, framed(range(80, 110))))}{of_what} (its length does not fit "
        "its checksum) on; 29 sound records are read",
        f"{files[3]}: nothing can be read from record 25 (from 0) at byte {offsets[25]}{of_what} (the file ends "
        "within it) on; 25 sound records are read",
        "--skip_corrupt_records: each pass over the 4 input files leaves out 6 damaged records, and the ends of 2 "
        "files, which cannot be read",
    ]


def test_sound_files_have_no_ranges(tmp_path):
    files = [write(tmp_path / "a", range(5)), write(tmp_path / "b.gz", range(5, 9))]
    assert find_sound_ranges(files) == {}
    assert reading_key(files, FEATURES, 2, {}) == reading_key(files, FEATURES, 2)
    damaged = {files[0]: [Range(0, 0, 3)]}
    assert reading_key(files, FEATURES, 2, damaged) != reading_key(files, FEATURES, 2)


def test_ranges_are_places_in_the_file(tmp_path):
    sizes = list(itertools.accumulate(map(len, framed(range(10))), initial=0))
    plain = damaged_file(tmp_path / "a", 0, payloads=(2, 3), count=10)
    packed = damaged_file(tmp_path / "a.gz", 0, payloads=(2, 3), count=10)
    assert find_sound_ranges([plain, packed]) == {
        plain: [Range(0, 0, 2), Range(sizes[4], 0, 6)],
        packed: [Range(0, 0, 2), Range(0, 4, 6)],
    }
    offsets = [record.offset for record in scan_records(plain)]
    assert offsets == sizes[:-1]


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_broken_stream_of_gzip_ends_early(tmp_path, damage, place):
    """Whatever the flipped byte of the stream does, TensorFlow reads what was counted, and all of it is right."""
    numbers = np.random.RandomState(0).permutation(1000)
    path = tmp_path / "a.gz"
    write(path, numbers)
    content = path.read_bytes()
    at = int(len(content) * place)
    path.write_bytes(content[:at] if damage == "cut" else flipped(content, at))
    files = [str(path), write(tmp_path / "b", [5])]
    damaged = find_sound_ranges(files)
    found = read(files, damaged)
    print(f"{damage} at {place}: {len(found) - 1} of 1000 records read")
    assert found[-1] == 5
    assert sum(each.count for each in damaged[files[0]]) == len(found) - 1
    left = iter(numbers.tolist())
    assert all(number in left for number in found[:-1]), "records of the file, in its order"
    if damage == "cut":
        assert found[:-1] == numbers[: len(found) - 1].tolist()


def test_of_a_compressed_file_only_some_ranges_are_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sound_records, "_MOST_RANGES_OF_GZIP", 2)
    packed = damaged_file(tmp_path / "a.gz", 0, payloads=(1, 5, 8), count=20)
    damaged = find_sound_ranges([packed])
    assert read([packed], damaged) == [0, 2, 3, 4]
    assert "2 damaged records are skipped" in caplog.text
    assert "nothing can be read from record 6 " in caplog.text
    assert "(a compressed file with damage in too many places) on; 4 sound records are read" in caplog.text


def test_training_goes_on_at_the_same_record(tmp_path):
    """An iterator saved in the midst of damaged files gives the same stream as the one that goes on."""
    files = [
        damaged_file(tmp_path / "a", 0, payloads=range(1, 40, 5)),
        damaged_file(tmp_path / "b.gz", 40, payloads=(0, 20)),
        damaged_file(tmp_path / "c", 80, header=21),
        write(tmp_path / "d", range(120, 160)),
    ]
    lost = {*range(1, 40, 5), 40, 60, *range(101, 120)}

    def batches():
        return iter(training_dataset(files, FEATURES, 5, 3, LIMITS, find_sound_ranges(files)))

    whole = batches()
    first = [numbers_of(next(whole)) for _ in range(47)]
    saved = tf.train.Checkpoint(iterator=whole).write(str(tmp_path / "input"))
    expected = [numbers_of(next(whole)) for _ in range(60)]
    resumed = batches()
    tf.train.Checkpoint(iterator=resumed).read(saved).assert_consumed()
    found = [numbers_of(next(resumed)) for _ in range(60)]
    print(f"{len(found)} batches after the resumption, equal: {found == expected}")
    assert found == expected
    seen = set(itertools.chain(*first, *expected))
    assert seen == set(range(160)) - lost
    again = batches()
    assert [numbers_of(next(again)) for _ in range(47)] == first


def test_without_damage_the_order_is_that_of_every_run(tmp_path):
    """The ranges of an undamaged file are the whole file: the same stream by both pipelines."""
    files = [write(tmp_path / f"{k}", range(40 * k, 40 * k + 40)) for k in range(3)]
    whole = {files[1]: [Range(0, 0, 40)]}
    streams = [iter(training_dataset(files, FEATURES, 5, 3, LIMITS, found)) for found in ({}, whole)]
    for _ in range(60):
        assert numbers_of(next(streams[0])) == numbers_of(next(streams[1]))


def test_a_file_without_a_sound_record_is_empty(tmp_path):
    bad = damaged_file(tmp_path / "a", 0, header=0)
    good = write(tmp_path / "b", range(3))
    damaged = find_sound_ranges([bad, good])
    assert damaged == {bad: []}
    assert read([bad, good], damaged) == [0, 1, 2]
    with pytest.raises(InputError, match="a: no sound record in any file"):
        training_dataset([bad], FEATURES, 2, 0, LIMITS, damaged)


def test_what_is_no_damage_still_ends_the_run(tmp_path):
    """An id out of range is named, and not the damaged record before it."""
    bad = damaged_file(tmp_path / "a", 0, payloads=(2,), count=10)
    wrong = write(tmp_path / "b", range(10, 20), input_ids=[5000] * 8)
    files = [bad, wrong]
    damaged = find_sound_ranges(files)
    with (
        pytest.raises(InputError, match=r"b: record 9 \(from 0\): input_ids holds 5000"),
        explaining_input_errors(files, FEATURES, LIMITS, damaged),
    ):
        list(evaluation_dataset(files, FEATURES, 5, LIMITS, repeat=False, damaged=damaged))


def test_without_the_flag_the_place_and_the_flag_are_named(tmp_path):
    bad = damaged_file(tmp_path / "a", 0, payloads=(4,), count=10)
    offset = sum(map(len, framed(range(4))))
    says = (
        rf"a: record 4 \(from 0\) is damaged: its bytes do not fit their checksum \(it begins at byte {offset}\); "
        "make the file anew, or give --skip_corrupt_records"
    )
    with pytest.raises(InputError, match=says), explaining_input_errors([bad], FEATURES, LIMITS):
        list(evaluation_dataset([bad], FEATURES, 5, LIMITS, repeat=False))
    assert [number for number, _ in read_records(bad, skip_corrupt=True)] == [0, 1, 2, 3, *range(5, 10)]


def test_a_pipeline_without_files_of_damage_needs_no_ranges(tmp_path):
    elements, records = open_sound([write(tmp_path / "a", range(3))], {})
    assert len(list(elements.flat_map(records))) == 3

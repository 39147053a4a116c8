"""The files of all shards: the same for any number of processes and after kills, and never half
of them.
"""

import gzip
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from examples.quickstart_corpus import documents as documents_of
from examples.quickstart_corpus import help_texts
from official_bert.commands import create_pretraining_data
from official_bert.data.pretraining import one_shard, shards
from official_bert.data.records.framing import read_examples
from official_bert.io.errors import InputError
from official_bert.options.data_tools import PretrainingDataOptions
from tests import toy
from tests.scripts import end_of, flag_list, run_interpreter, run_script
from tests.shared import ROOT, in_test_long, recording

SCRIPT = "create_pretraining_data.py"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    found = documents_of(help_texts())
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n".join("\n".join(document) + "\n" for document in found), encoding="utf-8")
    return str(path)


def flags_of(corpus, folder: pathlib.Path, **changes) -> dict:
    return {
        "generator": "sharded", "input_file": corpus, "output_file": folder / "out",
        "vocab_file": recording("uncased_vocab.txt"), "max_seq_length": 64, "max_predictions_per_seq": 10,
        "dupe_factor": 3, "num_shards": 7,
    } | changes  # fmt: skip


def make(corpus, folder: pathlib.Path, **changes):
    flags = flags_of([corpus], folder, output_file=[str(folder / "out")]) | changes
    create_pretraining_data.run(
        PretrainingDataOptions(**flags | {"vocab_file": str(flags["vocab_file"])})
    )


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """The SHA-256 of every file, hidden ones included."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory) -> dict[str, str]:
    """The files of one process."""
    folder = tmp_path_factory.mktemp("whole")
    make(corpus, folder)
    found = hashes(folder)
    assert list(found) == [
        *(f"out-{number:05}-of-00007" for number in range(7)),
        "out.manifest.json",
    ]
    return found


@pytest.mark.parametrize("num_workers", [2, *in_test_long(5)])
def test_the_files_do_not_depend_on_the_processes(corpus, whole, tmp_path, num_workers):
    poison = tmp_path / "poison" / "tensorflow"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise SystemExit('imported TensorFlow')")
    folder = tmp_path / "made"
    folder.mkdir()
    flags = flag_list(**flags_of(corpus, folder, num_workers=num_workers))
    log = run_interpreter(ROOT / SCRIPT, *flags, PYTHONPATH=f"{poison.parent}:{ROOT}").stderr
    assert hashes(folder) == whole
    manifest = json.loads((folder / "out.manifest.json").read_text())
    assert f"Wrote {manifest['counts']['records']} total instances" in log
    assert (
        f"*** Wrote 7 files {folder}/out-?????-of-?????, and {folder}/out.manifest.json ***" in log
    )


def test_the_manifest_says_what_is_there(corpus, tmp_path):
    make(corpus, tmp_path, num_shards=3, output_file=[f"{tmp_path}/out.gz"])
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["generator"] == "sharded"
    assert manifest["flags"]["num_shards"] == 3
    assert manifest["flags"]["compression"] == "gzip"
    assert not {"num_workers", "resume", "input_file", "output_file"} & manifest["flags"].keys()
    num_records = 0
    for shard in manifest["shards"]:
        path = tmp_path / shard["file"]
        assert shard["bytes"] == path.stat().st_size
        assert shard["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert shard["records"] == sum(1 for _ in read_examples(str(path)))
        num_records += shard["records"]
    assert manifest["counts"]["records"] == num_records
    assert manifest["counts"]["documents"] == sum(
        shard["documents"] for shard in manifest["shards"]
    )
    assert manifest["shares"]["predictions_masked"] == pytest.approx(0.8, abs=0.02)


@pytest.fixture(scope="module")
def long_run(corpus, tmp_path_factory) -> dict[str, str]:
    """The files of a run that is long enough to be killed within."""
    folder = tmp_path_factory.mktemp("long")
    make(corpus, folder, dupe_factor=60)
    return hashes(folder)


def wait_for_shards(process, work: pathlib.Path, count: int):
    deadline_secs = time.monotonic() + 120
    while process.poll() is None and (
        not work.exists() or len(list(work.glob("?????.json"))) < count
    ):
        assert time.monotonic() < deadline_secs, "the shards are not made"
        time.sleep(0.002)


@pytest.mark.parametrize("num_finished", [2, *in_test_long(0, 4)])
def test_a_killed_run_goes_on_with_the_same_files(corpus, long_run, tmp_path, num_finished):
    flags = flag_list(**flags_of(corpus, tmp_path, num_workers=2, dupe_factor=60))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / SCRIPT), *flags], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    work = tmp_path / ".out.sharded"
    wait_for_shards(process, work, num_finished)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [work.name]  # nothing under a final name
    assert len(finished := list(work.glob("?????.json"))) >= num_finished
    log = run_script(SCRIPT, *flags).stderr
    found = re.search(r"kept (\d+) finished shards", log)
    num_kept = int(found[1]) if found else 0
    assert num_kept >= len(finished)  # a process of the killed run may finish another shard
    assert hashes(tmp_path) == long_run


def test_a_terminated_run_leaves_its_finished_shards_and_says_so(corpus, tmp_path):
    flags = flag_list(**flags_of(corpus, tmp_path))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / SCRIPT), *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    work = tmp_path / ".out.sharded"
    wait_for_shards(process, work, 1)
    process.terminate()
    assert "terminated" in (sentence := process.communicate(timeout=60)[1].splitlines()[-1])
    assert "the same command keeps the shards that are finished" in sentence
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == [".out.sharded"]
    left = sorted(path.name for path in work.iterdir())
    assert left == sorted(
        name for k in range(len(left) // 2) for name in (f"{k:05}.json", f"{k:05}.records")
    )


class Stop(Exception):
    """Ends a run in this process."""


def stopped_run(corpus, folder, monkeypatch, after: int, **changes):
    """Runs in this process until some shards are made, and stops."""
    with pytest.raises(Stop):
        made_by(corpus, folder, monkeypatch, after, **changes)


def made_by(corpus, folder, monkeypatch, most: int = 99, **changes) -> list[int]:
    """The numbers of the shards that the next run makes anew, of which it may make so many."""
    make_shard, made = one_shard.make_shard, []

    def counted(number, *arguments):
        if len(made) == most:
            raise Stop
        made.append(number)
        return make_shard(number, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "make_shard", counted)
        make(corpus, folder, **changes)
    return made


def test_resume_keeps_what_is_whole_and_what_the_run_would_make_again(
    corpus, whole, tmp_path, monkeypatch
):
    work = tmp_path / ".out.sharded"
    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    assert made_by(corpus, tmp_path, monkeypatch) == [3, 4, 5, 6]
    assert hashes(tmp_path) == whole

    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    with open(work / "00001.records", "r+b") as file:  # corrupt
        file.write(b"\0\0\0")
    (work / "00002.records").unlink()
    (tmp_path / "out-00002-of-00007").unlink()
    # 1 is whole under its final name.
    assert made_by(corpus, tmp_path, monkeypatch) == [2, 3, 4, 5, 6]
    assert hashes(tmp_path) == whole

    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    assert {name: digest for name, digest in hashes(tmp_path).items() if name in whole} == whole, (
        "until all are made"
    )
    assert made_by(corpus, tmp_path, monkeypatch, random_seed=2) == list(range(7))
    assert hashes(tmp_path) != whole
    (tmp_path / "other.txt").write_text(
        "Another sentence.\n" + pathlib.Path(corpus).read_text().split("\n", 1)[1]
    )
    stopped_run(corpus, tmp_path, monkeypatch, after=6, random_seed=3)
    assert made_by(str(tmp_path / "other.txt"), tmp_path, monkeypatch, random_seed=3) == [0, 6], (
        "those that differ"
    )


def test_resume_after_a_kill_among_the_renames(corpus, whole, tmp_path, monkeypatch):
    rename, renamed = shards.files.rename, []

    def stops(source, target):
        if str(target).endswith("-of-00007"):
            if len(renamed) == 3:
                raise Stop
            renamed.append(target)
        rename(source, target)

    (tmp_path / "out.manifest.json").write_text("{}")  # of other records, which the renames replace
    with monkeypatch.context() as patch:
        patch.setattr(shards.files, "rename", stops)
        with pytest.raises(Stop):
            make(corpus, tmp_path)
    assert not (tmp_path / "out.manifest.json").exists()
    assert made_by(corpus, tmp_path, monkeypatch) == []
    assert hashes(tmp_path) == whole


def test_fewer_documents_than_shards(tmp_path):
    text, vocab = toy.write_text(tmp_path), toy.write_vocabulary(tmp_path)
    folder = tmp_path / "made"
    folder.mkdir()
    flags = flags_of(text, folder, vocab_file=vocab, num_shards=5, max_seq_length=24)
    ended = end_of(SCRIPT, *flag_list(**flags))
    assert ended.status == 0
    assert "3 of 5 shards have one document" in ended.log
    assert "2 of 5 shards are empty; give a smaller --num_shards" in ended.log
    sizes = [(folder / f"out-{number:05}-of-00005").stat().st_size for number in range(5)]
    assert [size > 0 for size in sizes] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("num_bytes", "expected"), [(0, 1), (6 << 20, 6), (24 << 20, 16), (13 << 30, 416)]
)
def test_the_number_of_shards_goes_by_the_size_of_the_text(tmp_path, num_bytes, expected):
    text, packed = tmp_path / "text", tmp_path / "packed"
    text.touch()
    packed.write_bytes(gzip.compress(bytes(3 << 20)) + gzip.compress(b"another member"))
    assert shards.default_num_shards([(str(text), num_bytes)]) == expected
    assert (
        shards.default_num_shards([(str(text), 6 << 20), (str(packed), packed.stat().st_size)]) == 9
    )


@pytest.mark.parametrize("report", ["", "{", "[]", "{}", "\xff", '{"key": 1}'])
def test_a_shard_with_a_corrupt_report_is_made_anew(corpus, whole, tmp_path, monkeypatch, report):
    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    (tmp_path / ".out.sharded" / "00001.json").write_text(report, "latin-1")
    assert made_by(corpus, tmp_path, monkeypatch) == [1, 3, 4, 5, 6]
    assert hashes(tmp_path) == whole


def test_the_folder_is_not_listed_for_each_shard(corpus, tmp_path, monkeypatch):
    """Which takes the square of their number."""
    listed, scandir = [], os.scandir

    def counted(*arguments):
        listed.append(arguments)
        return scandir(*arguments)

    monkeypatch.setattr(os, "scandir", counted)
    counts = []
    for num_shards in (2, 9):
        make(
            corpus, tmp_path, num_shards=num_shards, output_file=[f"{tmp_path}/out-of-{num_shards}"]
        )
        counts.append(len(listed))
    assert counts[1] == 2 * counts[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"output_file": "{0}/a,{0}/b"},
            "--output_file={0}/a,{0}/b: --generator=sharded names its files itself",
        ),
        ({"output_file": "{0}"}, "{0}: is a folder; give the beginning of the names"),
        ({"output_file": "gs://bucket/out"}, "--generator=sharded needs a folder of this machine"),
        (
            {"output_file": "{0}/old"},
            "{0}/old-00000-of-00099: is a shard of a run with another number",
        ),
        (
            {"output_file": "{0}/out", "input_file": "{0}/out-00000-of-00007"},
            "is also an input of this run",
        ),
        (
            {"input_file": "{0}/blank"},
            "--input_file: no text in {0}/blank; give files with one sentence a line",
        ),
        (
            {"vocab_file": "{0}/blank"},
            "--vocab_file: the vocabulary lacks [CLS], [SEP], [MASK], [UNK]",
        ),
        ({"num_shards": 0}, "--num_shards=0: must be at least 1, and at most 99999"),
        ({"generator": "exact"}, "--num_shards: --generator=exact makes the original's files"),
        ({"mask_rates": "0.7,0.4"}, "--mask_rates=0.7,0.4: must be two numbers"),
        (
            {"ngram_masking": 3},
            "--ngram_masking=3: masks spans of whole words; add --do_whole_word_mask",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, changes, sentence):
    for name, content in (("blank", "\n\n\x01\n"), ("old-00000-of-00099", "")):
        (tmp_path / name).write_text(content)
    (tmp_path / "out-00000-of-00007").write_text(toy.TEXT)
    flags = flags_of(toy.write_text(tmp_path), tmp_path, vocab_file=toy.write_vocabulary(tmp_path))
    flags |= {
        name: value.format(tmp_path) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    before = hashes(tmp_path)
    ended = end_of(SCRIPT, *flag_list(**flags))
    assert ended.status == 1
    assert sentence.format(tmp_path) in ended.sentence
    assert hashes(tmp_path) == before


def test_two_runs_at_once_are_refused(corpus, tmp_path):
    lock = create_pretraining_data.locked(str(tmp_path / ".out.sharded"))
    with lock, pytest.raises(InputError, match="works in it; wait for its end"):
        make(corpus, tmp_path)

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

from examples import quickstart_corpus
from official_bert.commands import create_pretraining_data
from official_bert.data.pretraining import one_shard, shards
from official_bert.data.records.framing import read_examples
from official_bert.io.errors import InputError
from official_bert.options.data_tools import PretrainingDataOptions
from tests import toy
from tests.data.pretraining import split_corpus
from tests.scripts import end_of, flag_list, run_interpreter, run_script
from tests.shared import ROOT, in_test_long, recording

SCRIPT = "create_pretraining_data.py"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    documents = quickstart_corpus.documents(quickstart_corpus.help_texts())
    document_texts = ["\n".join(document) + "\n" for document in documents]
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n".join(document_texts), encoding="utf-8")
    return str(path)


def make_flags(corpus, folder: pathlib.Path, **changes) -> dict:
    flags = {
        "generator": "sharded",
        "input_file": corpus,
        "output_file": folder / "out",
        "vocab_file": str(recording("uncased_vocab.txt")),
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "dupe_factor": 3,
        "num_shards": 7,
    }
    return flags | changes


def make(corpus, folder: pathlib.Path, **changes):
    flags = make_flags(
        [corpus],
        folder,
        output_file=[str(folder / "out")],
    )
    options = PretrainingDataOptions(**flags | changes)
    create_pretraining_data.run(options)


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """The SHA-256 of every file, hidden ones included."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory) -> dict[str, str]:
    """The files of one process."""
    folder = tmp_path_factory.mktemp("whole")
    make(corpus, folder)
    file_hashes = hashes(folder)
    shard_names = [f"out-{number:05}-of-00007" for number in range(7)]
    assert list(file_hashes) == [*shard_names, "out.manifest.json"]
    return file_hashes


@pytest.mark.parametrize("num_workers", [2, *in_test_long(5)])
def test_the_files_do_not_depend_on_the_processes(corpus, whole, tmp_path, num_workers):
    poison = tmp_path / "poison" / "tensorflow"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise SystemExit('imported TensorFlow')")
    folder = tmp_path / "made"
    folder.mkdir()
    flags = flag_list(**make_flags(corpus, folder, num_workers=num_workers))
    log = run_interpreter(ROOT / SCRIPT, *flags, PYTHONPATH=f"{poison.parent}:{ROOT}").stderr
    assert hashes(folder) == whole
    manifest = json.loads((folder / "out.manifest.json").read_text())
    assert f"Wrote {manifest['counts']['records']} total instances" in log
    assert (
        f"*** Wrote 7 files {folder}/out-?????-of-?????, and {folder}/out.manifest.json ***" in log
    )


def test_the_manifest_says_what_is_there(corpus, tmp_path):
    make(
        corpus,
        tmp_path,
        num_shards=3,
        output_file=[f"{tmp_path}/out.gz"],
    )
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
    num_documents = sum(shard["documents"] for shard in manifest["shards"])
    assert manifest["counts"]["records"] == num_records
    assert manifest["counts"]["documents"] == num_documents
    assert manifest["shares"]["predictions_masked"] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("num_shards", "input_format"), split_corpus.DIGESTS)
@pytest.mark.parametrize("num_workers", [1, 3, *in_test_long(2, 20)])
def test_the_files_are_those_of_one_process_that_reads_all_files(
    tmp_path, num_shards, input_format, num_workers
):
    split_corpus.write_files(tmp_path)
    flags = split_corpus.make_flags(
        tmp_path, num_shards=num_shards, input_format=input_format, num_workers=num_workers
    )
    create_pretraining_data.run(PretrainingDataOptions(**flags))
    assert split_corpus.digest(tmp_path) == split_corpus.DIGESTS[num_shards, input_format]


def test_workers_hand_their_warnings_to_the_parent(tmp_path, caplog):
    for number in range(2):
        (tmp_path / f"text-{number}").write_bytes(b"one \xff\n" * 9 + b"\n")
    flags = split_corpus.make_flags(tmp_path, num_shards=2, num_workers=2)
    create_pretraining_data.run(PretrainingDataOptions(**flags))
    warnings = [line for line in caplog.text.splitlines() if "not UTF-8 in 9 lines" in line]
    assert len(warnings) == 2
    assert sorted("text-0" in warning for warning in warnings) == [False, True]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_killed_while_it_distributes_leaves_no_text_behind(tmp_path, number):
    split_corpus.write_files(tmp_path)
    slow = tmp_path / "text-99"
    os.mkfifo(slow)  # which the second run replaces by a file
    flags = {
        name: value[0] if isinstance(value, list) else value
        for name, value in split_corpus.make_flags(tmp_path, num_shards=7).items()
    }
    process = subprocess.Popen(
        [sys.executable, str(ROOT / SCRIPT), *flag_list(**flags)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    work = tmp_path / ".out.sharded"
    with slow.open("w") as pipe:
        # More than is held, so that some is written.
        document = "the cat sat on the mat " * 40 + "\n"
        pipe.write(f"{document * 100}\n" * 200)
        pipe.flush()
        assert list(work.glob("text-*/000/00000.txt"))
        process.send_signal(number)
        assert process.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    if number == signal.SIGTERM:
        assert not work.exists()
    slow.unlink()
    create_pretraining_data.run(
        PretrainingDataOptions(**split_corpus.make_flags(tmp_path, num_shards=7, num_workers=3))
    )
    assert split_corpus.digest(tmp_path) == split_corpus.DIGESTS[7, "text"]


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
    flags = flag_list(**make_flags(corpus, tmp_path, num_workers=2, dupe_factor=60))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / SCRIPT), *flags], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    work = tmp_path / ".out.sharded"
    wait_for_shards(process, work, num_finished)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    # Nothing has its final name.
    assert [path.name for path in tmp_path.iterdir()] == [work.name]
    finished_shards = list(work.glob("?????.json"))
    assert len(finished_shards) >= num_finished
    log = run_script(SCRIPT, *flags).stderr
    match = re.search(r"kept (\d+) finished shards", log)
    num_kept = int(match[1]) if match else 0
    # A process of the killed run may finish another shard.
    assert num_kept >= len(finished_shards)
    assert hashes(tmp_path) == long_run


def test_a_terminated_run_leaves_its_finished_shards_and_says_so(corpus, tmp_path):
    flags = flag_list(**make_flags(corpus, tmp_path))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / SCRIPT), *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    work = tmp_path / ".out.sharded"
    wait_for_shards(process, work, 1)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    sentence = errors.splitlines()[-1]
    assert "terminated" in sentence
    assert "the same command keeps the shards that are finished" in sentence
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == [work.name]
    names = sorted(path.name for path in work.iterdir())
    expected_names = []
    for number in range(len(names) // 2):
        expected_names += [f"{number:05}.json", f"{number:05}.records"]
    assert names == expected_names


class Stop(Exception):
    """Ends a run in this process."""


def stopped_run(corpus, folder, monkeypatch, after: int, **changes):
    """Runs in this process until some shards are made, and stops."""
    with pytest.raises(Stop):
        make_remaining(corpus, folder, monkeypatch, after, **changes)


def make_remaining(corpus, folder, monkeypatch, most: int = 99, **changes) -> list[int]:
    """The numbers of the shards that the next run makes again, of which it may make so many."""
    make_shard = one_shard.make_shard
    numbers = []

    def counted(number, *arguments):
        if len(numbers) == most:
            raise Stop
        numbers.append(number)
        return make_shard(number, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "make_shard", counted)
        make(corpus, folder, **changes)
    return numbers


def test_resume_keeps_what_is_whole_and_what_the_run_would_make_again(
    corpus, whole, tmp_path, monkeypatch
):
    work = tmp_path / ".out.sharded"
    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    assert make_remaining(corpus, tmp_path, monkeypatch) == [3, 4, 5, 6]
    assert hashes(tmp_path) == whole

    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    with open(work / "00001.records", "r+b") as file:  # corrupt
        file.write(b"\0\0\0")
    (work / "00002.records").unlink()
    (tmp_path / "out-00002-of-00007").unlink()
    # 1 is whole under its final name.
    assert make_remaining(corpus, tmp_path, monkeypatch) == [2, 3, 4, 5, 6]
    assert hashes(tmp_path) == whole

    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    file_hashes = hashes(tmp_path)
    final_hashes = {name: digest for name, digest in file_hashes.items() if name in whole}
    assert final_hashes == whole, "until all are made"
    assert make_remaining(corpus, tmp_path, monkeypatch, random_seed=2) == list(range(7))
    assert hashes(tmp_path) != whole
    other_corpus = tmp_path / "other.txt"
    _, later_lines = pathlib.Path(corpus).read_text().split("\n", 1)
    other_corpus.write_text("Another sentence.\n" + later_lines)
    stopped_run(corpus, tmp_path, monkeypatch, after=6, random_seed=3)
    numbers = make_remaining(
        str(other_corpus),
        tmp_path,
        monkeypatch,
        random_seed=3,
    )
    assert numbers == [0, 6], "those that differ"


def test_resume_after_a_kill_among_the_renames(corpus, whole, tmp_path, monkeypatch):
    rename = shards.files.rename
    renamed = []

    def stops(source, target):
        if str(target).endswith("-of-00007"):
            if len(renamed) == 3:
                raise Stop
            renamed.append(target)
        rename(source, target)

    # The manifest of other records, which the renames replace.
    manifest_file = tmp_path / "out.manifest.json"
    manifest_file.write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(shards.files, "rename", stops)
        with pytest.raises(Stop):
            make(corpus, tmp_path)
    assert not manifest_file.exists()
    assert make_remaining(corpus, tmp_path, monkeypatch) == []
    assert hashes(tmp_path) == whole


def test_fewer_documents_than_shards(tmp_path):
    text = toy.write_text(tmp_path)
    vocab = toy.write_vocabulary(tmp_path)
    folder = tmp_path / "made"
    folder.mkdir()
    flags = make_flags(text, folder, vocab_file=vocab, num_shards=5, max_seq_length=24)
    ended = end_of(SCRIPT, *flag_list(**flags))
    assert ended.status == 0
    assert "3 of 5 shards have one document" in ended.log
    assert "2 of 5 shards are empty; give a smaller --num_shards" in ended.log
    shards = [folder / f"out-{number:05}-of-00005" for number in range(5)]
    has_records = [path.stat().st_size > 0 for path in shards]
    assert has_records == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        pytest.param(0, 1, id="empty"),
        pytest.param(6 << 20, 6, id="6 MiB"),
        pytest.param(24 << 20, 16, id="24 MiB"),
        pytest.param(13 << 30, 416, id="13 GiB"),
    ],
)
def test_the_number_of_shards_goes_by_the_size_of_the_text(tmp_path, num_bytes, expected):
    text_file = tmp_path / "text"
    text_file.touch()
    assert shards.default_num_shards([(str(text_file), num_bytes)]) == expected

    gzip_file = tmp_path / "packed"
    zeros = gzip.compress(bytes(3 << 20))
    gzip_file.write_bytes(zeros + gzip.compress(b"another member"))
    sizes = [
        (str(text_file), 6 << 20),
        (str(gzip_file), gzip_file.stat().st_size),
    ]
    assert shards.default_num_shards(sizes) == 9


@pytest.mark.parametrize(
    "report",
    ["", "{", "[]", "{}", "\xff", '{"key": 1}'],
)
def test_a_shard_with_a_corrupt_report_is_made_anew(corpus, whole, tmp_path, monkeypatch, report):
    stopped_run(corpus, tmp_path, monkeypatch, after=3)
    (tmp_path / ".out.sharded" / "00001.json").write_text(report, "latin-1")
    assert make_remaining(corpus, tmp_path, monkeypatch) == [1, 3, 4, 5, 6]
    assert hashes(tmp_path) == whole


def test_the_folder_is_not_listed_for_each_shard(corpus, tmp_path, monkeypatch):
    """Which takes the square of their number."""
    listed = []
    scandir = os.scandir

    def counted(*arguments):
        listed.append(arguments)
        return scandir(*arguments)

    monkeypatch.setattr(os, "scandir", counted)
    counts = []
    for num_shards in (2, 9):
        output_file = f"{tmp_path}/out-of-{num_shards}"
        make(corpus, tmp_path, num_shards=num_shards, output_file=[output_file])
        counts.append(len(listed))
    assert counts[1] == 2 * counts[0]


BAD_INPUTS = [
    pytest.param(
        {"output_file": "{0}/a,{0}/b"},
        "--output_file={0}/a,{0}/b: --generator=sharded names its files itself",
        id="several outputs",
    ),
    pytest.param(
        {"output_file": "{0}"},
        "{0}: is a folder; give the beginning of the names",
        id="folder as output",
    ),
    pytest.param(
        {"work_dir": "{0}/absent"},
        "--work_dir={0}/absent: is no folder of this machine; make it, or name another",
        id="no work folder",
    ),
    pytest.param(
        {"part": "3/2"},
        "--part=3/2: must be the number of a part, from 1, and that of all parts, such as 3/256",
        id="a part that is none",
    ),
    pytest.param(
        {"part": "1/2"},
        "--part=1/2: --input_file names fewer files (1) than there are parts (2); split the files",
        id="more parts than files",
    ),
    pytest.param(
        {"output_file": "{0}/old"},
        "{0}/old-00000-of-00099: is a shard of a run with another number",
        id="shards of another run",
    ),
    pytest.param(
        {"output_file": "{0}/out", "input_file": "{0}/out-00000-of-00007"},
        "is also an input of this run",
        id="input is an output",
    ),
    pytest.param(
        {"input_file": "{0}/blank"},
        "--input_file: no text in {0}/blank; give files with one sentence a line",
        id="no text",
    ),
    pytest.param(
        {"vocab_file": "{0}/blank"},
        "--vocab_file: the vocabulary lacks [CLS], [SEP], [MASK], [UNK]",
        id="incomplete vocabulary",
    ),
    pytest.param(
        {"num_shards": 0},
        "--num_shards=0: must be at least 1, and at most 99999",
        id="no shards",
    ),
    pytest.param(
        {"generator": "exact"},
        "--num_shards: --generator=exact makes the original's files",
        id="flag of another generator",
    ),
    pytest.param(
        {"mask_rates": "0.7,0.4"},
        "--mask_rates=0.7,0.4: must be two numbers",
        id="mask rates above 1",
    ),
    pytest.param(
        {"ngram_masking": 3},
        "--ngram_masking=3: masks spans of whole words; add --do_whole_word_mask",
        id="spans without whole words",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD_INPUTS)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, changes, sentence):
    (tmp_path / "blank").write_text("\n\n\x01\n")
    (tmp_path / "old-00000-of-00099").write_text("")
    (tmp_path / "out-00000-of-00007").write_text(toy.TEXT)
    flags = make_flags(
        toy.write_text(tmp_path), tmp_path, vocab_file=toy.write_vocabulary(tmp_path)
    )
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

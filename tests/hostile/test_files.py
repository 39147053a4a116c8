"""Hostile files: outputs that are inputs, links, devices, names, full disks, closed streams,
missing permissions.
"""

import os
import pathlib
import stat
import sys

import pytest

from official_bert.io import writing
from official_bert.io.errors import InputError
from tests.hostile.commands import (
    ROOM,
    classifier,
    conversion,
    corpus,
    features,
    hard_link,
    link,
    mining,
    predictions,
    vectors,
    vocabulary,
)
from tests.hostile.rows import check, contents, row, table
from tests.scripts import end_of, run_python
from tests.shared import largest_file

WEIGHTS = "bert_model.ckpt.data-00000-of-00001"


def over(flag: str) -> str:
    """What the sentence says of an output that is an input."""
    return f"is also an input of this run (--{flag})"


def corpus_in_a_linked_folder(folder: pathlib.Path) -> list[str]:
    """The flags for a folder of texts with a second name."""
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("the cat\n")
    (folder / "same").symlink_to("texts")
    return corpus(folder, "same/two.txt", input_file="texts/*.txt")


def broken_name(folder: pathlib.Path) -> str:
    """A folder with a text whose name is not UTF-8."""
    (folder / "texts").mkdir()
    with open(os.fsencode(folder / "texts") + b"/\xff.txt", "w") as file:
        file.write("the cat\n")
    return "texts/*.txt"


def after_kill(folder: pathlib.Path, process: int) -> list[str]:
    """The flags of a run that finds the temporary file of another process."""
    (folder / f".a.tfrecord.tmp-{process}").write_text("half")
    return corpus(folder)


def sharded(folder: pathlib.Path, output="rec") -> list[str]:
    return corpus(folder, output, "--generator=sharded", "--num_shards=2")


def full_folder(folder: pathlib.Path, name: str) -> list[str]:
    """The flags of a run that finds a folder of the user's under the name of one of its files."""
    (folder / name).mkdir(parents=True)
    (folder / name / "mine").write_text("precious")
    return sharded(folder)


SHARD = "rec-00001-of-00002"
SHARDS = ("rec-*", "rec.manifest.json")
IN_THE_PLACE = "in the place of an output; move it away, or name another --output_file"
IN_PLACE_OF_SHARDS = [
    *(
        row(f"{what}: {name}", make, f"{name}: is a {what} {IN_THE_PLACE}")
        for what, name, make in (
            ("folder", SHARD, lambda at: full_folder(at, SHARD)),
            ("folder", "rec.manifest.json", lambda at: full_folder(at, "rec.manifest.json")),
            (
                "link",
                SHARD,
                lambda at: sharded(at, link(at, SHARD, "classification/train.tsv")[:3]),
            ),
            ("device", SHARD, lambda at: os.mkfifo(at / SHARD) or sharded(at)),
        )
    ),
    row(
        "a work file",
        lambda at: full_folder(at, ".rec.sharded/00000.records"),
        "00000.records: is a folder where a file is expected",
    ),
    row("beside work files", lambda at: full_folder(at, ".rec.sharded/00000.mine"), leaves=SHARDS),
    row(
        "a name too long",
        lambda at: sharded(at, "a" * 236),
        "manifest.json: cannot",
        "too long); give it a shorter",
    ),
    row(
        "an exact one",
        lambda at: corpus(at, "a" * 236),
        "manifest.json: cannot",
        "too long); give it a shorter",
    ),
]

OUTPUTS_THAT_ARE_INPUTS = [
    row("over a link", lambda at: corpus(at, link(at, "link", "corpus.txt")), over("input_file")),
    row(
        "over a hard link",
        lambda at: corpus(at, hard_link(at, "other", "corpus.txt")),
        over("input_file"),
    ),
    row(
        "where the glob reads",
        lambda at: corpus(at, "records.txt", input_file="*.txt"),
        "*.txt matches it",
    ),
    row(
        "where another name is read",
        corpus_in_a_linked_folder,
        "so that the next run would read it",
    ),
    row(
        "hidden from a glob",
        lambda at: corpus(at, ".a.txt", input_file="corpus*"),
        leaves=(".a.txt",),
    ),
    row(
        "where the glob reads hidden files",
        lambda at: corpus(at, ".a.txt", input_file="*.txt"),
        "*.txt matches it",
    ),
    row(
        "outside of a glob's set",
        lambda at: corpus(at, "b.txt", input_file="[^bv]*.txt"),
        leaves=("b.txt",),
    ),
    row("twice", lambda at: corpus(at, f"a,{link(at, 'b', 'a')}"), "is an output twice"),
    row("over the weights", lambda at: features(at, WEIGHTS), over("init_checkpoint")),
    row("over an export", lambda at: predictions(at, "export/1/assets/vocab.txt"), over("model")),
    row("an index over its lines", lambda at: vectors(at, index="corpus.txt"), over("input_file")),
    row(
        "an index over the weights",
        lambda at: vectors(at, index=f"vectors/{WEIGHTS}"),
        over("model"),
    ),
    row(
        "over the index",
        lambda at: vectors(at, search="vocab.txt", output_file="vocab.txt"),
        over("search"),
    ),
    row("over the pairs", lambda at: mining(at, output_file="pairs.tsv"), over("input_file")),
    row(
        "over its corpus",
        lambda at: mining(at, corpus_file="a", output_file=link(at, "a", "corpus.txt")),
        over("corpus_file"),
    ),
    row(
        "negatives over the weights",
        lambda at: mining(at, output_file=f"vectors/{WEIGHTS}"),
        over("model"),
    ),
    row("over its own checkpoint", lambda at: conversion(at, "."), over("model")),
]

LINKS_AND_DEVICES = [
    row(
        "through a link",
        lambda at: corpus(at, link(at, "link", "classification/train.tsv")),
        leaves=("~classification/train.tsv", ".link.manifest.json"),
    ),
    row("to nothing", lambda at: vocabulary(at, "/dev/null")),
    row("negatives to nothing", lambda at: mining(at, output_file="/dev/null")),
    row(
        "an index to a full device",
        lambda at: vectors(at, index="/dev/full"),
        "cannot be written (No space left",
    ),
    row(
        "negatives to a full device",
        lambda at: mining(at, output_file="/dev/full"),
        "cannot be written (No space",
    ),
    row(
        "negatives into a folder",
        lambda at: mining(at, output_file="tagging"),
        "cannot be written, it is a folder",
    ),
    row(
        "negatives through a link",
        lambda at: mining(at, output_file=link(at, "l", "new")),
        leaves=("new",),
    ),
    row("link to itself", lambda at: corpus(at, link(at, "link", "link")), "symbolic links"),
    row(
        "full device",
        lambda at: corpus(at, "/dev/full"),
        f"cannot be written (No space left on device); {ROOM}",
    ),
]

INPUTS = [
    row(f"input that is a {what}", lambda at, path=path: features(at, input_file=path), says)
    for what, path, says in (
        ("folder", "classification", "classification: is a folder"),
        ("unknown scheme", "nowhere://bucket/file", "nowhere://"),
    )
]

OUTPUTS = IN_PLACE_OF_SHARDS + [
    row(f"output that is a {what}", lambda at, path=path: features(at, path), says)
    for what, path, says in (
        ("folder", "classification", "classification: cannot be written, it is a folder"),
        ("file in no folder", "absent/out", "check that its folder exists"),
        ("unknown scheme", "nowhere://bucket/file", "nowhere://"),
        ("empty name", "", "--output_file=: a name is empty; give one"),
    )
]

NAMES = [
    row(
        "a file as folder",
        lambda at: classifier(at, "--do_train", output_dir="corpus.txt/a"),
        "corpus.txt",
    ),
    row(
        "output not in UTF-8", lambda at: corpus(at, "a\udcff"), r"a\udcff': the name is not UTF-8"
    ),
    row(
        "input not in UTF-8",
        lambda at: corpus(at, input_file=broken_name(at)),
        r"\udcff.txt': the name is not",
    ),
    row(
        "brackets that are no glob",
        lambda at: corpus(at, input_file=str((at / "corpus.txt").rename(at / "a[1].txt"))),
        leaves=("a.tfrecord",),
    ),
    row(
        "a comma at the end",
        lambda at: corpus(at, input_file="corpus.txt,"),
        "--input_file: a name is empty; write a name or leave out the comma",
    ),
    row(
        "a line break",
        lambda at: [*corpus(at), "--input_file=a\nb"],
        r"--input_file='a\nb': is not a comma-separated list",
    ),
]

KILLED_RUNS = [
    row(
        "beside a dead one",
        lambda at: after_kill(at, 4194305),
        warns=(".a.tfrecord.tmp-4194305: deleted",),
        leaves=("a.tfrecord", "~.a.tfrecord.tmp-4194305"),
    ),
    row("beside one that runs", lambda at: after_kill(at, 1), leaves=("a.tfrecord",)),
]


@table([*OUTPUTS_THAT_ARE_INPUTS, *LINKS_AND_DEVICES, *INPUTS, *OUTPUTS, *NAMES, *KILLED_RUNS])
def test_files(row, folder):
    check(row, folder)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


TOO_LARGE = "cannot be written (File too large)"
FULL_DISK = [
    row(
        "records",
        lambda at: corpus(at, "a.tfrecord", "--dupe_factor=50"),
        f"a.tfrecord: {TOO_LARGE}",
        ROOM,
    ),
    row(
        "gzip",
        lambda at: corpus(at, "a.tfrecord.gz", "--dupe_factor=300"),
        f"a.tfrecord.gz: {TOO_LARGE}",
    ),
    row(
        "an index",
        lambda at: (
            (at / "many").write_text("cat\n" * 300) and vectors(at, index="a", input_file="many")
        ),
        TOO_LARGE,
    ),
    row("tf1", lambda at: conversion(at), "bert_model.ckpt", "cannot be written"),
    row(
        "safetensors",
        lambda at: conversion(at, output_format="huggingface"),
        "model.safetensors",
        "cannot be written",
    ),
]


@table(FULL_DISK)
def test_a_full_disk_leaves_nothing(row, folder):
    with largest_file(8192):
        check(row, folder)
    assert not (folder / "there").exists()
    assert [path.name for path in folder.rglob("*.tmp-*")] == []


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("zero\n")
    writing.append_line(str(path), "one")
    writing.append_line(str(path), "two")
    assert path.read_text() == "zero\none\ntwo\n"
    with largest_file(1024), pytest.raises(InputError, match=rf"runs.jsonl: cannot .* {ROOM}"):
        writing.append_line(str(path), "x" * 2000)
    assert path.read_text() == "zero\none\ntwo\n"
    assert contents(tmp_path).keys() == {"runs.jsonl"}


@pytest.mark.parametrize(("stream", "name"), [("stdin", "input"), ("stdout", "output")])
def test_predict_needs_the_streams_that_it_is_told_to_use(folder, monkeypatch, stream, name):
    monkeypatch.setattr(sys, f"__{stream}__", None)
    ended = end_of(*predictions(folder, "-", input_file="-"))
    assert ended.status == 1
    assert f"--{name}_file=-: standard {name} is closed; name a file" in ended.sentence


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")
@pytest.mark.parametrize(
    ("mode", "mode_of_text", "sentence"),
    [
        (0o755, 0o644, "a.tfrecord: cannot be written (Permission denied)"),
        (0o777, 0o600, "corpus.txt: cannot be read (Permission denied)"),
    ],
)
def test_folders_without_permission(folder, mode, mode_of_text, sentence):
    (folder / "corpus.txt").chmod(mode_of_text)
    folder.chmod(mode)
    program = (  # what is imported belongs to root, so it comes before the change of the user
        "import os, sys; sys.path.insert(0, os.getcwd()); from official_bert import catalog; "
        "from official_bert.cli import commands as command_line; "
        "from official_bert.commands import create_pretraining_data; "
        "catalog.options_class('create_pretraining_data'); catalog.hooks('data_engine'); "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv[0] = "
        "'create_pretraining_data.py'; command_line.run_command('create_pretraining_data')"
    )
    for above in folder.parents:
        if above.is_relative_to(os.environ.get("TMPDIR", "/tmp")) and above.name.startswith(
            ("pytest-", "popen-")
        ):
            above.chmod(0o755)
    finished = run_python("-c", program, *corpus(folder)[1:], status=1)
    assert sentence in finished.stderr
    assert "Traceback" not in finished.stderr

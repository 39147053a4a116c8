"""Hostile files: outputs that are inputs, links, devices, FIFOs, full disks, names and schemes that cannot be read."""

import contextlib
import json
import os
import pathlib
import resource
import socket
import stat
import subprocess
import sys

import pytest

from official_bert import files, writing
from tests.hostile.rows import Row, check, contents, model_flags, table
from tests.scripts import end_of
from tests.shared import ROOT

ROOM = "make room or name another path"


def corpus(folder, output="a.tfrecord", **flags):
    """The flags of create_pretraining_data.py; paths are relative to the folder unless they are absolute or remote."""
    given = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": output, **flags}
    paths = [f"--{name}={at(folder, value)}" for name, value in given.items()]
    return [*paths, "--max_seq_length=16", "--dupe_factor=1"]


def vocabulary(folder, output="v.txt", **flags):
    given = {"input_file": "corpus.txt", "output_file": output, **flags}
    return [*(f"--{name}={at(folder, value)}" for name, value in given.items()), "--vocab_size=200"]


def features(folder, output="features.jsonl", **flags):
    given = {"input_file": "corpus.txt", "output_file": output, **flags}
    return [*model_flags(folder, **{name: at(folder, value) for name, value in given.items()}), "--layers=-1"]


def predictions(folder, output="answers.jsonl", **flags):
    """The flags of predict.py for a folder that only looks like an export."""
    model = folder / "export" / "1"
    (model / "assets").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"no model")
    (model / "assets" / "vocab.txt").write_text("[PAD]\n")
    given = {"model_dir": "export", "input_file": "corpus.txt", "output_file": output, **flags}
    return [f"--{name}={at(folder, value)}" for name, value in given.items()]


def triviaqa(folder, output="squad.json", document="doc.txt"):
    (folder / "evidence").mkdir()
    (folder / "evidence" / "doc.txt").write_text("The answer is Paris.")
    (folder / "secret.txt").write_text("Paris")
    question = {
        "QuestionId": "q1",
        "Question": "Where?",
        "Answer": {"Value": "Paris", "Aliases": []},
        "EntityPages": [{"Filename": document}],
    }
    (folder / "qa.json").write_text(json.dumps({"Data": [question]}))
    given = {"triviaqa_file": "qa.json", "evidence_dir": "evidence", "output_file": output}
    return [f"--{name}={at(folder, value)}" for name, value in given.items()]


def twice(folder, flags):
    """Repeats the question of triviaqa()."""
    content = json.loads((folder / "qa.json").read_text())
    (folder / "qa.json").write_text(json.dumps({"Data": content["Data"] * 2}))
    return flags


def conversion(folder, output="there", checkpoint="bert_model.ckpt", output_format="tf1"):
    return [
        f"--input_checkpoint={at(folder, checkpoint)}",
        f"--output_dir={at(folder, output)}",
        f"--output_format={output_format}",
    ]


def classifier(folder, **flags):
    given = {"data_dir": "classification", "output_dir": "out", **flags}
    return [
        *model_flags(folder, vocab_file=at(folder, given.pop("vocab_file", "vocab.txt"))),
        *(f"--{name}={at(folder, value)}" for name, value in given.items()),
        "--task_name=tsv",
        "--do_train",
    ]


def at(folder, names):
    """Names relative to a folder, separated by commas, as paths; absolute, remote and empty ones stay."""
    return ",".join(
        name if not name or name == "-" or name.startswith("/") or "://" in name else f"{folder}/{name}"
        for name in names.split(",")
    )


def link(folder, name, target):
    (folder / name).symlink_to(target)
    return name


def hard_link(folder, name, target):
    os.link(folder / target, folder / name)
    return name


def fifo(folder, name):
    os.mkfifo(folder / name)
    return name


def linked_folder(folder, output):
    """A folder of texts, with a second name."""
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("the cat\n")
    (folder / "same").symlink_to("texts")
    return output


def broken_name(folder):
    """A folder with a text whose name is not UTF-8."""
    (folder / "texts").mkdir()
    with open(os.fsencode(folder / "texts") + b"/\xff.txt", "w") as file:
        file.write("the cat\n")
    return "texts/*.txt"


OVERWRITTEN = "is an input of this run, too (--{})"
NEXT_RUN = "so that the next run would read it"

ROWS = [
    # Outputs that are inputs.
    Row(
        "corpus over itself",
        "create_pretraining_data.py",
        lambda at: corpus(at, "corpus.txt"),
        says=("corpus.txt", OVERWRITTEN.format("input_file"), "name another"),
    ),
    Row(
        "corpus over itself by another path",
        "create_pretraining_data.py",
        lambda at: corpus(at, "classification/../corpus.txt"),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "corpus over itself through a link",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "corpus.txt")),
        says=("link", OVERWRITTEN.format("input_file")),
    ),
    Row(
        "corpus read through a link",
        "create_pretraining_data.py",
        lambda at: corpus(at, "corpus.txt", input_file=link(at, "link", "corpus.txt")),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "corpus over its hard link",
        "create_pretraining_data.py",
        lambda at: corpus(at, hard_link(at, "other", "corpus.txt")),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "records over the vocabulary",
        "create_pretraining_data.py",
        lambda at: corpus(at, "vocab.txt"),
        says=(OVERWRITTEN.format("vocab_file"),),
    ),
    Row(
        "second output over the corpus",
        "create_pretraining_data.py",
        lambda at: corpus(at, "a.tfrecord,corpus.txt"),
        says=("corpus.txt", OVERWRITTEN.format("input_file")),
    ),
    Row(
        "output that the glob of the input matches",
        "create_pretraining_data.py",
        lambda at: corpus(at, "records.txt", input_file="*.txt"),
        says=("records.txt", "*.txt matches it", NEXT_RUN),
    ),
    Row(
        "output in a folder with two names, both in use",
        "create_pretraining_data.py",
        lambda at: corpus(at, linked_folder(at, "same/two.txt"), input_file="texts/*.txt"),
        says=("same/two.txt", NEXT_RUN),
    ),
    Row(
        "output in a folder that a glob names",
        "create_pretraining_data.py",
        lambda at: corpus(at, linked_folder(at, "texts/two.txt"), input_file="te*s/*.txt"),
        says=("texts/two.txt", NEXT_RUN),
    ),
    Row(
        "output linked into the folder of the glob",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, linked_folder(at, "out"), "texts/two.txt"), input_file="texts/*.txt"),
        says=("out", NEXT_RUN),
    ),
    Row(
        "hidden output that no glob takes",
        "create_pretraining_data.py",
        lambda at: corpus(at, ".records.txt", input_file="corpus*"),
        leaves=(".records.txt",),
    ),
    Row(
        "two outputs that are one file",
        "create_pretraining_data.py",
        lambda at: corpus(at, "a.tfrecord," + link(at, "b.tfrecord", "a.tfrecord")),
        says=("is an output twice",),
    ),
    Row(
        "vocabulary over its text",
        "build_vocab.py",
        lambda at: vocabulary(at, "corpus.txt"),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "vocabulary that the glob of the text matches",
        "build_vocab.py",
        lambda at: vocabulary(at, "cased.txt", input_file="c*.txt"),
        says=("cased.txt", NEXT_RUN),
    ),
    *(
        Row(
            f"features over {name}",
            "extract_features.py",
            lambda at, name=name: features(at, name),
            says=(name, OVERWRITTEN.format(flag)),
        )
        for name, flag in (
            ("corpus.txt", "input_file"),
            ("vocab.txt", "vocab_file"),
            ("bert_config.json", "bert_config_file"),
            ("bert_model.ckpt.index", "init_checkpoint"),
            ("bert_model.ckpt.data-00000-of-00001", "init_checkpoint"),
        )
    ),
    *(
        Row(
            f"answers over {name}",
            "predict.py",
            lambda at, name=name: predictions(at, name),
            says=(name, OVERWRITTEN.format(flag)),
        )
        for name, flag in (
            ("corpus.txt", "input_file"),
            ("export/1/saved_model.pb", "model_dir"),
            ("export/1/assets/vocab.txt", "model_dir"),
        )
    ),
    Row(
        "questions over themselves",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, "qa.json"),
        says=(OVERWRITTEN.format("triviaqa_file"),),
    ),
    Row(
        "questions over a document",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, "evidence/doc.txt"),
        says=(OVERWRITTEN.format("evidence_dir"),),
    ),
    Row(
        "conversion over its own checkpoint",
        "convert_checkpoint.py",
        lambda at: conversion(at, "."),
        says=(OVERWRITTEN.format("bert_config_file"),),
    ),
    Row(
        "conversion into the folder of the input",
        "convert_checkpoint.py",
        lambda at: conversion(at, ".", output_format="huggingface"),
        leaves=("config.json", "model.safetensors"),
    ),
    # Names in the folder of documents.
    *(
        Row(
            f"document {name!a}",
            "convert_triviaqa.py",
            lambda at, name=name: triviaqa(at, document=str(at / "secret.txt") if name == "/" else name),
            says=says,
        )
        for name, says in (
            ("../secret.txt", ("qa.json", "'../secret.txt' is outside of", "Filename")),
            ("x/../../secret.txt", ("is outside of",)),
            ("..", ("is outside of",)),
            ("/", ("secret.txt", "is outside of")),
            (".", ("is a folder",)),
            ("a\0b", ("zero byte",)),
            ("\ud800", ("is not UTF-8",)),
        )
    ),
    # Links, devices and FIFOs as outputs.
    Row(
        "output through a link",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "sample_target")),
        leaves=("sample_target",),
    ),
    Row(
        "output through a link to a file that is there",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "classification/train.tsv")),
        leaves=("~classification/train.tsv",),
    ),
    Row(
        "output through a link to a device",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "/dev/null")),
    ),
    Row(
        "output to nothing, twice",
        "create_pretraining_data.py",
        lambda at: corpus(at, f"/dev/null,{link(at, 'link', '/dev/null')}"),
    ),
    Row("vocabulary to nothing", "build_vocab.py", lambda at: vocabulary(at, "/dev/null")),
    Row("features to nothing", "extract_features.py", lambda at: features(at, "/dev/null")),
    Row("questions to nothing", "convert_triviaqa.py", lambda at: triviaqa(at, "/dev/null")),
    Row(
        "link to itself",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "link")),
        says=("link", "cannot be written", "symbolic links"),
    ),
    Row(
        "link into a folder that is not there",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "absent/a.tfrecord")),
        says=("link", "cannot be written"),
    ),
    *(
        Row(
            f"full device for {script}",
            script,
            lambda at, make=make: make(at, "/dev/full"),
            says=("/dev/full: cannot be written (No space left on device)", ROOM),
        )
        for script, make in (
            ("create_pretraining_data.py", corpus),
            ("build_vocab.py", vocabulary),
            ("extract_features.py", features),
            ("convert_triviaqa.py", triviaqa),
        )
    ),
    *(
        Row(
            f"output FIFO without a reader for {script}",
            script,
            lambda at, make=make: make(at, fifo(at, "fifo")),
            says=("fifo: is a FIFO that no process reads from",),
        )
        for script, make in (
            ("create_pretraining_data.py", corpus),
            ("build_vocab.py", vocabulary),
            ("extract_features.py", features),
            ("convert_triviaqa.py", triviaqa),
        )
    ),
    *(
        Row(
            f"FIFO without a writer as --{flag} of {script}",
            script,
            lambda at, make=make, flag=flag: make(at, **{flag: fifo(at, "fifo")}),
            says=("fifo: is a FIFO that no process writes to",),
        )
        for script, make, flag in (
            ("create_pretraining_data.py", corpus, "input_file"),
            ("create_pretraining_data.py", corpus, "vocab_file"),
            ("build_vocab.py", vocabulary, "input_file"),
            ("extract_features.py", features, "input_file"),
            ("extract_features.py", features, "vocab_file"),
            ("extract_features.py", features, "bert_config_file"),
            ("predict.py", predictions, "input_file"),
            ("run_classifier.py", classifier, "vocab_file"),
        )
    ),
    # Paths that nothing can be done with.
    *(
        Row(
            f"{what} as --{flag} of {script}",
            script,
            lambda at, make=make, flag=flag, path=path: make(at, **{flag: path}),
            says=says,
        )
        for script, make, flags in (
            ("create_pretraining_data.py", corpus, ("vocab_file",)),
            ("extract_features.py", features, ("input_file", "vocab_file", "bert_config_file")),
            ("predict.py", predictions, ("input_file",)),
            ("run_classifier.py", classifier, ("vocab_file",)),
        )
        for flag in flags
        for what, path, says in (
            ("folder", "classification", ("classification: is a folder",)),
            ("file that is not there", "absent", ("absent: no such file",)),
            ("file below a file", "corpus.txt/below", ("below: cannot be read (Not a directory)",)),
            ("unknown scheme", "s3://bucket/file", ("s3://bucket/file", "UnimplementedError")),
            ("address of the web", "https://host/file", ("https://host/file", "UnimplementedError")),
            ("name that is too long", "x" * 300, ("cannot be read (File name too long)",)),
        )
    ),
    *(
        Row(
            f"{what} as output of {script}",
            script,
            lambda at, make=make, path=path: make(at, path),
            says=says,
        )
        for script, make in (
            ("create_pretraining_data.py", corpus),
            ("build_vocab.py", vocabulary),
            ("extract_features.py", features),
            ("convert_triviaqa.py", triviaqa),
        )
        for what, path, says in (
            ("folder", "classification", ("classification: cannot be written, it is a folder",)),
            ("file in no folder", "absent/out", ("out: cannot be written", "check that its folder exists")),
            ("file below a file", "corpus.txt/out", ("out: cannot be written",)),
            ("unknown scheme", "s3://bucket/file", ("s3://bucket/file", "UnimplementedError")),
            ("address of the web", "https://host/file", ("https://host/file", "UnimplementedError")),
            ("name that is too long", "x" * 300, ("cannot be written (File name too long)",)),
            ("empty name", "", ("the name of a file to be written is empty",)),
        )
        if not (what == "empty name" and script == "create_pretraining_data.py")  # an empty list of files
    ),
    *(
        Row(
            f"{path} as folder of a run",
            "run_classifier.py",
            lambda at, path=path: classifier(at, output_dir=path),
            says=(path.split(":")[0],),
        )
        for path in ("s3://bucket/out", "https://host/out", "corpus.txt", "corpus.txt/out", "/proc/out")
    ),
    Row(
        "data folder with an unknown scheme",
        "run_classifier.py",
        lambda at: classifier(at, data_dir="s3://bucket/data"),
        says=("s3://bucket/data", "UnimplementedError"),
        leaves=("out/*",),
    ),
    Row(
        "name in a flag that is not UTF-8",
        "create_pretraining_data.py",
        lambda at: corpus(at, "a\udcff.tfrecord"),
        says=(r"a\udcff.tfrecord", "is not UTF-8", "rename"),
    ),
    Row(
        "name of a text that is not UTF-8",
        "create_pretraining_data.py",
        lambda at: corpus(at, input_file=broken_name(at)),
        says=(r"\udcff.txt", "is not UTF-8", "rename"),
    ),
    Row(
        "conversion to a file",
        "convert_checkpoint.py",
        lambda at: conversion(at, "corpus.txt"),
        says=("corpus.txt: no folder can be made there",),
    ),
    Row(
        "conversion below a file",
        "convert_checkpoint.py",
        lambda at: conversion(at, "corpus.txt/there"),
        says=("no folder can be made there",),
    ),
    Row(
        "brackets in a name are no glob where such a file exists",
        "create_pretraining_data.py",
        lambda at: corpus(at, input_file=str((at / "corpus.txt").rename(at / "a[1].txt"))),
        leaves=("a.tfrecord",),
    ),
    Row(
        "question that is there twice",
        "convert_triviaqa.py",
        lambda at: twice(at, triviaqa(at)),
        says=("qa.json: question q1: is there twice",),
    ),
    Row(
        "document without a name",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, document=""),
        says=("qa.json: the document '' is no file; correct its Filename",),
    ),
    # What killed runs left.
    Row(
        "temporary file of a process that is no more",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), *left(at, ".a.tfrecord.tmp-4194305")],
        warns=(".a.tfrecord.tmp-4194305: deleted",),
        leaves=("a.tfrecord", "~.a.tfrecord.tmp-4194305"),
    ),
    Row(
        "temporary file of a process that runs",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), *left(at, ".a.tfrecord.tmp-1")],
        leaves=("a.tfrecord",),
    ),
    Row(
        "file with a similar name",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), *left(at, ".a.tfrecord.tmp-old"), *left(at, "a.tfrecord.tmp-4194305")],
        leaves=("a.tfrecord",),
    ),
]


def left(folder: pathlib.Path, name: str) -> list[str]:
    (folder / name).write_text("half")
    return []


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(files, "_FIFO_LIMIT_SECS", 0.1)


@table(ROWS)
def test_files(row, folder):
    check(row, folder)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@contextlib.contextmanager
def largest_file(num_bytes: int):
    """Lets no file of this process grow above a size, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL_DISK = [
    Row(
        "records on a full disk",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), "--dupe_factor=50"],
        says=("a.tfrecord: cannot be written (File too large)", ROOM),
    ),
    Row(
        "compressed records on a full disk",
        "create_pretraining_data.py",
        lambda at: [*corpus(at, "a.tfrecord.gz"), "--dupe_factor=300"],
        says=("a.tfrecord.gz: cannot be written (File too large)", ROOM),
    ),
    Row(
        "features on a full disk",
        "extract_features.py",
        features,
        says=("features.jsonl: cannot be written (File too large)", ROOM),
    ),
    Row(
        "vocabulary on a full disk",
        "build_vocab.py",
        lambda at: [*vocabulary(at), "--vocab_size=9000"],
        says=("v.txt: cannot be written (File too large)", ROOM),
    ),
    *(
        Row(
            f"conversion to {form} on a full disk",
            "convert_checkpoint.py",
            lambda at, form=form: conversion(at, "there", output_format=form),
            says=(says, "cannot be written"),
        )
        for form, says in (("tf1", "bert_model.ckpt"), ("huggingface", "model.safetensors"))
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
    path.write_text("half")
    writing.append_line(str(path), "one")
    writing.append_line(str(path), "two")
    assert path.read_text() == "half\none\ntwo\n"
    with largest_file(1024), pytest.raises(files.InputError, match=rf"runs.jsonl: cannot .* {ROOM}"):
        writing.append_line(str(path), "x" * 2000)
    assert path.read_text() == "half\none\ntwo\n"
    assert contents(tmp_path).keys() == {"runs.jsonl"}


def in_a_process(command: str, folder: pathlib.Path, **arguments) -> subprocess.CompletedProcess:
    """Runs a line of the shell with $RUN, the script of data creation with the corpus of a folder."""
    run = [sys.executable, str(ROOT / "create_pretraining_data.py"), *corpus(folder)]
    return subprocess.run(
        ["bash", "-c", command.replace("RUN", " ".join(run))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **arguments,
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("RUN <&-", 0),
        ("RUN >&-", 0),
        ("RUN 2>&-", 0),
        ("RUN <&- >&- 2>&-", 0),
        ("RUN --output_file=/nowhere/a <&- >&- 2>&-", 1),
        ("RUN --help >&-", 1),
    ],
)
def test_closed_streams_are_no_fault(folder, command, status):
    before = contents(folder)
    finished = in_a_process(command, folder)
    assert finished.returncode == status
    assert "Traceback" not in finished.stderr
    expected = {*before, "a.tfrecord"} if status == 0 else set(before)
    assert contents(folder).keys() == expected
    if status == 0:  # the log went nowhere, and not into the file that was opened next
        in_a_process(f"RUN --output_file={folder}/b.tfrecord", folder)
        assert (folder / "a.tfrecord").read_bytes() == (folder / "b.tfrecord").read_bytes()


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        ("stdin", "--input_file=-: standard input is closed; name a file"),
        ("stdout", "--output_file=-: standard output is closed; name a file"),
    ],
)
def test_predict_needs_the_streams_that_it_is_told_to_use(folder, monkeypatch, stream, sentence):
    monkeypatch.setattr(sys, f"__{stream}__", None)
    ended = end_of("predict.py", *predictions(folder, "-", input_file="-"))
    assert (ended.status, sentence in ended.sentence) == (1, True)


def test_an_open_file_is_written_to_where_it_stands(folder):
    log = folder / "log"
    log.write_text("kept\n")
    before = contents(folder)
    assert in_a_process(f"RUN --output_file=/dev/stdout >> {log}", folder).returncode == 0
    assert log.read_bytes().startswith(b"kept\n")
    assert log.stat().st_size > 100
    assert in_a_process(f"RUN --output_file=/dev/fd/3 3> {folder}/three", folder).returncode == 0
    assert (folder / "three").read_bytes() == log.read_bytes().removeprefix(b"kept\n")
    assert contents(folder).keys() == {*before, "three"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")
@pytest.mark.parametrize(
    ("mode", "mode_of_text", "sentence"),
    [
        (0o755, 0o644, "a.tfrecord: cannot be written (Permission denied)"),
        (0o700, 0o644, "vocab.txt: cannot be read (Permission denied)"),
        (0o777, 0o600, "corpus.txt: cannot be read (Permission denied)"),
    ],
)
def test_folders_without_permission(folder, mode, mode_of_text, sentence):
    (folder / "corpus.txt").chmod(mode_of_text)
    folder.chmod(mode)
    program = (  # what is imported belongs to root, so it comes before the change of the user
        "import os, sys; sys.path.insert(0, os.getcwd()); import create_pretraining_data as script; "
        "from official_bert import flags; from official_bert.runners import create_pretraining_data; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv[0] = 'create_pretraining_data.py'; "
        "flags.run(script.main, script.PretrainingDataOptions)"
    )
    for above in folder.parents:
        if above.is_relative_to(os.environ.get("TMPDIR", "/tmp")) and above.name.startswith(
            ("pytest-", "popen-")
        ):
            above.chmod(0o755)
    finished = subprocess.run(
        [sys.executable, "-c", program, *corpus(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 1
    assert sentence in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_socket_is_no_output(folder):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as opened:
        opened.bind(str(folder / "s"))
        ended = end_of("create_pretraining_data.py", *corpus(folder, "s"))
    assert ended.status == 1
    assert f"{folder}/s: cannot be written" in ended.sentence

"""Bad texts for the generator `sharded`: a clear end or a count in the log, and no half file."""

import json
import os
import threading

import pytest

from official_bert.data.records.framing import read_examples
from tests import toy
from tests.scripts import run_script

SCRIPT = "create_pretraining_data.py"
MANIFEST = "out.manifest.json"
LONG_LINE_BYTES = 50_000_000


@pytest.fixture
def run(tmp_path):
    """Runs the generator on texts in the given order and returns its log; the files are `out*` in `records`."""
    toy.write_vocabulary(tmp_path)
    (tmp_path / "records").mkdir()

    def run_on(*names, status=0, **flags):
        flags = {"max_seq_length": 32, "dupe_factor": 1, "num_shards": 2, "num_workers": 2} | flags
        return run_script(
            SCRIPT,
            "--generator=sharded",
            f"--input_file={','.join(str(tmp_path / name) for name in names)}",
            f"--output_file={tmp_path}/records/out",
            f"--vocab_file={tmp_path}/vocab.txt",
            *(f"--{name}={value}" for name, value in flags.items()),
            status=status,
        ).stderr

    return run_on


def names_of(folder) -> list[str]:
    return sorted(path.name for path in (folder / "records").iterdir())


def assert_refused(tmp_path, said: str, *sentence: str):
    """One sentence at the end of the log has these parts, and no file is left."""
    last = said.strip().splitlines()[-1]
    assert all(part in last for part in sentence), last
    assert "Traceback" not in said
    assert names_of(tmp_path) == []


def test_a_binary_file_is_refused(run, tmp_path):
    (tmp_path / "text.txt").write_text(toy.TEXT)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 16)
    said = run("text.txt", "image.png", status=1)
    assert_refused(tmp_path, said, "image.png: is binary", "save it as UTF-8 text")


def test_bytes_that_are_not_utf8_are_counted(run, tmp_path):
    (tmp_path / "good.txt").write_text(toy.TEXT)
    first, rest = toy.TEXT.encode().split(b"\n", 1)
    (tmp_path / "bad.txt").write_bytes(first + b"\xff\xfe\n" + rest)
    assert "bad.txt: left out bytes that are not UTF-8 in 1 lines" in run("bad.txt", "good.txt")
    with_bad = records_of(tmp_path)
    run("good.txt", "good.txt")
    assert records_of(tmp_path) == with_bad


def records_of(folder) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "records").glob("out-*"))]


@pytest.mark.long
def test_a_line_of_50_megabytes_is_warned_of_and_used(run, tmp_path):
    (tmp_path / "text.txt").write_text(toy.TEXT)
    words = toy.TEXT.replace("\n", " ").strip() + " "
    (tmp_path / "line.txt").write_text(words * (LONG_LINE_BYTES // len(words)) + "\n")
    said = run("text.txt", "line.txt")
    assert "line.txt" in said
    manifest = json.loads((tmp_path / "records" / MANIFEST).read_text())
    counted = sum(1 for path in (tmp_path / "records").glob("out-*") for _ in read_examples(str(path)))
    assert counted == manifest["counts"]["records"] > 0


def test_documents_and_files_without_text_change_nothing(run, tmp_path):
    (tmp_path / "text.txt").write_text(toy.TEXT)
    run("text.txt")
    expected = records_of(tmp_path)
    (tmp_path / "spaced.txt").write_text("\n \n\n" + toy.TEXT.replace("\n\n", "\n\n\t\n\n") + "\n\n \n")
    (tmp_path / "empty.txt").write_text("")
    run("spaced.txt", "empty.txt")
    assert records_of(tmp_path) == expected


def test_an_input_that_vanishes_is_named(run, tmp_path):
    """The first input is a pipe, so that the second vanishes after the run has begun to read."""
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "gone.txt").write_text(toy.TEXT)

    def feed():
        with (tmp_path / "pipe.txt").open("w") as pipe:
            (tmp_path / "gone.txt").unlink()
            pipe.write(toy.TEXT)

    feeder = threading.Thread(target=feed)
    feeder.start()
    said = run("pipe.txt", "gone.txt", status=1)
    feeder.join()
    assert_refused(tmp_path, said, "gone.txt: no such file")

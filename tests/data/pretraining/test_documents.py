"""Documents of a corpus, read by one process or several, and dealt out to files; the processes
end in order.
"""

import contextlib
import hashlib
import itertools
import multiprocessing
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from official_bert.data.pretraining import documents
from official_bert.data.pretraining.documents import (
    assign_pieces,
    distribute,
    id_type,
    read_documents,
    read_pieces,
    split_files,
    text_digest,
)
from official_bert.data.pretraining.pool import worker_processes
from official_bert.io.errors import InputError
from tests import toy
from tests.shared import ROOT, has_ended


def decode_documents(corpus, tokenizer) -> list[list[str]]:
    """Converts documents to lists of segments, each a string."""
    texts = []
    for document in range(len(corpus)):
        segments = []
        for begin, end in itertools.pairwise(corpus.get_bounds(document)):
            ids = corpus.ids[begin:end].tolist()
            pieces = [tokenizer.inv_vocab[piece_id] for piece_id in ids]
            segments.append(" ".join(pieces))
        texts.append(segments)
    return texts


def read_texts(paths, tokenizer, **options) -> list[list[str]]:
    return decode_documents(read_documents(paths, tokenizer, **options), tokenizer)


def test_reads_segments_and_documents(tmp_path, tokenizer):
    corpus = read_documents([toy.write_text(tmp_path)], tokenizer)
    expected = []
    for document in toy.TEXT.split("\n\n"):
        segments = [" ".join(tokenizer.tokenize(line)) for line in document.splitlines()]
        expected.append(segments)
    assert decode_documents(corpus, tokenizer) == expected
    assert len(corpus) == 3
    # The vocabulary has 50 pieces.
    assert corpus.ids.dtype == np.uint8


def test_what_ends_a_document(tmp_path, tokenizer):
    # U+00AD alone: no tokens, no end.
    first = toy.write_text(tmp_path, "\n \t\nthe ca\rt\r\n\u00ad\nsat", name="a")
    second = toy.write_text(tmp_path, "\non the\n\u3000\nmat\n\n\n", name="b")
    third = toy.write_text(tmp_path, "it was", name="c")
    texts = read_texts([first, second, third], tokenizer)
    assert texts == [["the cat", "sat"], ["on the"], ["mat"], ["it was"]]
    # The end of a file ends no document.
    texts = read_texts([first, third], tokenizer)
    assert texts == [["the cat", "sat", "it was"]]


def test_a_line_break_within_a_line_is_white_space(tokenizer):
    def read_page(lines):
        return read_texts(["page"], tokenizer, read_lines=lambda name: lines)

    # WikiExtractor writes one as a character reference.
    assert read_page(["the\ncat", "", "sat"]) == [["the cat"], ["sat"]]
    with pytest.raises(InputError, match="no text in page; give files with one sentence a line"):
        read_page(["", " ", "\u00ad"])


def test_worker_processes_read_the_same(tmp_path, tokenizer):
    # 0.8 MB are several blocks.
    path = toy.write_text(tmp_path, toy.TEXT * 3000)
    progress = []
    alone = read_documents([path], tokenizer)
    together = read_documents([path], tokenizer, num_workers=2, on_progress=progress.append)
    # The last document of a copy continues in the first one of the next copy.
    assert len(alone) == 3 * 3000 - 2999
    for name in ("ids", "segment_starts", "document_starts"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    assert len(progress) > 2
    assert progress[-1] == len(alone.ids)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(255, np.uint8), (256, np.uint16), (65535, np.uint16), (65536, np.uint32)],
)
def test_ids_take_the_smallest_type(largest, dtype):
    assert id_type({"a": 3, "b": largest}) == dtype


@pytest.fixture
def corpus(tmp_path):
    """Two files with five documents, one of which goes on across the end of the first file."""
    (tmp_path / "a").write_text("\n \none\n  One. \n\n\u3000\ntwo\n\n\nthree\n", encoding="utf-8")
    (tmp_path / "b").write_text("Three.\n\nfour\n\nfive\nFive.\n", encoding="utf-8")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def read_shard(pieces) -> str:
    return "".join(read_pieces(pieces))


@pytest.mark.parametrize("held", [1, 1 << 24])
def test_document_k_goes_into_file_k_mod_n(corpus, tmp_path, monkeypatch, held):
    monkeypatch.setattr(documents, "CHARACTERS_HELD", held)
    monkeypatch.setattr(documents, "_LOG2_SHARD_CHARACTERS", 0)
    run = distribute(corpus, str(tmp_path), 2)
    pieces, num_documents = assign_pieces([(str(tmp_path), run)], 2)
    assert num_documents == 5
    texts = [read_shard(shard) for shard in pieces]
    assert texts == ["\none\nOne.\n\nthree\nThree.\n\nfive\nFive.\n", "\ntwo\n\nfour\n"]
    digest = hashlib.sha256(texts[1].encode()).hexdigest()
    assert text_digest(pieces[1]) == digest


def test_files_without_documents_are_not_written(corpus, tmp_path):
    run = distribute(corpus, str(tmp_path), 9)
    pieces, _ = assign_pieces([(str(tmp_path), run)], 9)
    names = sorted(path.name for path in tmp_path.glob("*.txt"))
    assert names == ["00000.txt", "00001.txt", "00002.txt", "00003.txt", "00004.txt"]
    assert [len(shard) for shard in pieces] == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    blank_file = tmp_path / "blank"
    blank_file.write_text("\n\n")
    assert distribute([str(blank_file)], str(tmp_path), 1) == (False, 0, False)


def test_many_shards_get_more_lines_at_a_time(tmp_path, monkeypatch):
    """Each of 4 files, and that of the first document, is opened once, not once for each line."""
    monkeypatch.setattr(documents, "CHARACTERS_HELD", 1)
    monkeypatch.setattr(documents, "_LOG2_SHARD_CHARACTERS", 6)
    text_file = tmp_path / "text"
    text_file.write_text("seven..\n\n" * 32)
    folder = tmp_path / "shards"
    folder.mkdir()
    opened = []
    open_file = documents.files.open_file
    monkeypatch.setattr(
        documents.files, "open_file", lambda *args: opened.append(args) or open_file(*args)
    )
    distribute([str(text_file)], str(folder), 4)
    assert len([mode for _, mode in opened if mode == "ab"]) == 5


@pytest.mark.parametrize("seed", range(40))
def test_runs_of_files_give_the_text_of_all_files(tmp_path, seed):
    """However the lines of a text are split into files, and these into runs."""
    draw = random.Random(seed)
    lines = ["" if draw.random() < 0.4 else f"line {number}" for number in range(30)]
    paths = []
    while lines:
        path = tmp_path / f"text-{len(paths)}"
        size = draw.choice((0, 1, 2, 5))
        path.write_text("".join(f"{line}\n" for line in lines[:size]))
        del lines[:size]
        paths.append(str(path))
    num_shards = draw.choice((1, 2, 3, 50))
    # An independent path: the whole text, split at blank lines.
    whole = "".join(pathlib.Path(path).read_text() for path in paths)
    blocks = re.findall(r"(?:.+\n)+", whole)
    expected = [
        "".join(f"\n{block}" for block in blocks[shard::num_shards]) for shard in range(num_shards)
    ]
    runs = []
    for first in sorted({0, *draw.sample(range(len(paths)), 4)}):
        runs.append([first, len(paths)])
        if len(runs) > 1:
            runs[-2][1] = first
    distributed = []
    for first, end in runs:
        folder = tmp_path / f"run-{first}"
        folder.mkdir()
        distributed.append((str(folder), distribute(paths[first:end], str(folder), num_shards)))
    pieces, num_documents = assign_pieces(distributed, num_shards)
    assert [read_shard(shard) for shard in pieces] == expected
    assert num_documents == len(blocks)


def test_files_are_split_by_their_bytes(tmp_path):
    paths = []
    for number, size in enumerate((5, 5, 0, 10, 1, 19)):
        path = tmp_path / str(number)
        path.write_bytes(bytes(size))
        paths.append(str(path))
    assert split_files(paths, 2) == [paths[:4], paths[4:]]
    assert split_files(paths, 1) == [paths]
    assert split_files(paths[2:3] * 2, 4) == [paths[2:3] * 2]
    assert [path for run in split_files(paths, 99) for path in run] == paths
    os.mkfifo(tmp_path / "pipe")
    with_pipe = [*paths, str(tmp_path / "pipe")]
    assert split_files(with_pipe, 2) == [with_pipe], "a pipe is not measured, and read in turn"


# Reads a corpus without an end with two workers, and prints the id of the first; others start when
# they are needed.
ENDLESS = """
import multiprocessing, signal, sys, threading, time

from official_bert.data.pretraining import documents
from official_bert.tokenization import FullTokenizer


def lines(name):
    while True:
        yield "the cat sat on the mat " * 100
        time.sleep(0.001)


def show():
    while not (workers := multiprocessing.active_children()):
        time.sleep(0.05)
    print(workers[0].pid, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job ignores
    threading.Thread(target=show, daemon=True).start()
    try:
        documents.read_documents(["corpus"], FullTokenizer(sys.argv[1]), num_workers=2, read_lines=lines)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
"""


def end_by_signal(send_signal, number: int, tmp_path) -> str:
    """Ends such a process by a signal; returns its standard error. No worker outlives it."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, script, toy.write_vocabulary(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        readable, _, _ = select.select([process.stdout], [], [], 60)
        assert readable, "no worker has started within a minute"
        worker = int(process.stdout.readline())
        assert not has_ended(worker, within_secs=0.1)
        send_signal(process.pid, number)
        # This returns when the last of the workers has closed the pipe.
        _, errors = process.communicate(timeout=60)
        assert has_ended(worker, within_secs=60)
        return errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    end_by_signal(os.kill, signal.SIGKILL, tmp_path)


def test_an_interrupt_of_all_processes_is_reported_once(tmp_path):
    assert end_by_signal(os.killpg, signal.SIGINT, tmp_path) == "interrupted\n"


def _call(shared, function, *arguments):
    return function(shared, *arguments)


def _sum(shared, value):
    return os.getpid(), shared + value


def _sleep(*_):
    time.sleep(600)


def _endless(*_):
    """Returns more than a pipe holds, so that its worker is killed while it writes."""
    time.sleep(1)
    return bytes(200_000_000)


def _fail(_):
    raise InputError("no such thing")


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_calls_run_in_processes_that_end():
    with worker_processes(2, _call, 40) as workers:
        first_future = workers.submit(_sum, 1)
        second_future = workers.submit(_sum, 2)
        first_process, first_sum = first_future.result(timeout=60)
        second_process, second_sum = second_future.result(timeout=60)
    assert first_sum == 41
    assert second_sum == 42
    assert os.getpid() not in (first_process, second_process)
    assert has_ended(first_process, within_secs=10)
    assert has_ended(second_process, within_secs=10)


def submit_calls(workers, call) -> list:
    return [workers.submit(call, bytes(1_000_000)) for _ in range(8)]


@pytest.mark.parametrize("call", [_endless, _sleep])
def test_workers_that_write_or_have_much_to_read_end_at_once(call):
    """The kill comes in the middle of results, and of arguments that nobody reads."""
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError), worker_processes(2, _call, 1) as workers:
        submit_calls(workers, call)[-1].result(timeout=1.5)
    assert time.monotonic() - start_secs < 60
    assert not multiprocessing.active_children()


def test_an_error_of_a_call_is_raised_here_and_says_where_it_was():
    with worker_processes(1, _call, 1) as workers:
        with pytest.raises(InputError, match="no such thing") as raised:
            workers.submit(_fail).result(timeout=60)
        assert "in _fail" in raised.value.__notes__[0]
        _, result = workers.submit(_sum, 1).result(timeout=60)
        assert result == 2, "the worker continues"


def _read_blocked(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_leave_the_signals_of_a_job_to_their_parent():
    """A worker that SIGTERM ends while it starts leaves its parent waiting."""
    with worker_processes(1, _call, "shared") as workers:
        blocked = workers.submit(_read_blocked).result()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= blocked


def test_a_killed_worker_is_said():
    refused = pytest.raises(InputError, match="--num_workers=2: a worker process was killed")
    with refused, worker_processes(2, _call, 1) as workers:
        workers.submit(_die).result(timeout=60)

"""Documents of a corpus, read by one process or several, and dealt out to files; the processes
end in order.
"""

import contextlib
import itertools
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from official_bert.data.pretraining import documents
from official_bert.data.pretraining.documents import distribute, id_type, read_documents
from official_bert.data.pretraining.pool import worker_processes
from official_bert.io.errors import InputError
from tests import toy
from tests.shared import ROOT, has_ended


def as_tokens(found, tokenizer):
    """Converts documents to lists of segments, each a string."""
    return [
        [
            " ".join(tokenizer.inv_vocab[i] for i in found.ids[begin:end].tolist())
            for begin, end in itertools.pairwise(found.get_bounds(document))
        ]
        for document in range(len(found))
    ]


def test_reads_segments_and_documents(tmp_path, tokenizer):
    found = read_documents([toy.write_text(tmp_path)], tokenizer)
    assert as_tokens(found, tokenizer) == [
        [" ".join(tokenizer.tokenize(line)) for line in document.splitlines()]
        for document in toy.TEXT.split("\n\n")
    ]
    assert len(found) == 3
    assert found.ids.dtype == np.uint8  # 50 pieces


def test_what_ends_a_document(tmp_path, tokenizer):
    # U+00AD alone: no tokens, no end.
    first = toy.write_text(tmp_path, "\n \t\nthe ca\rt\r\n\u00ad\nsat", name="a")
    second = toy.write_text(tmp_path, "\non the\n\u3000\nmat\n\n\n", name="b")
    third = toy.write_text(tmp_path, "it was", name="c")
    found = as_tokens(read_documents([first, second, third], tokenizer), tokenizer)
    assert found == [["the cat", "sat"], ["on the"], ["mat"], ["it was"]]
    # The end of a file ends no document.
    assert as_tokens(read_documents([first, third], tokenizer), tokenizer) == [
        ["the cat", "sat", "it was"]
    ]


def test_a_line_break_within_a_line_is_white_space(tokenizer):
    # WikiExtractor writes one as a character reference.
    found = read_documents(["page"], tokenizer, read_lines=lambda name: ["the\ncat", "", "sat"])
    assert as_tokens(found, tokenizer) == [["the cat"], ["sat"]]
    with pytest.raises(InputError, match="no text in page; give files with one sentence a line"):
        read_documents(["page"], tokenizer, read_lines=lambda name: ["", " ", "\u00ad"])


def test_worker_processes_read_the_same(tmp_path, tokenizer):
    path = toy.write_text(tmp_path, toy.TEXT * 3000)  # 0.8 MB: several blocks
    progress = []
    alone = read_documents([path], tokenizer)
    together = read_documents([path], tokenizer, num_workers=2, on_progress=progress.append)
    assert len(alone) == 3 * 3000 - 2999  # a copy's last document runs into the next one's first
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


@pytest.mark.parametrize("held", [1, 1 << 24])
def test_document_k_goes_into_file_k_mod_n(corpus, tmp_path, monkeypatch, held):
    monkeypatch.setattr(documents, "_CHARACTERS_HELD", held)
    paths = [str(tmp_path / f"{number}.txt") for number in range(2)]
    assert distribute(corpus, paths) == 5
    texts = [(tmp_path / f"{number}.txt").read_text() for number in range(2)]
    assert texts == ["\none\nOne.\n\nthree\nThree.\n\nfive\nFive.\n", "\ntwo\n\nfour\n"]


def test_files_without_documents_are_not_written(corpus, tmp_path):
    paths = [str(tmp_path / f"{number}.txt") for number in range(9)]
    assert distribute(corpus, paths) == 5
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == [
        f"{number}.txt" for number in range(5)
    ]
    (tmp_path / "blank").write_text("\n\n")
    assert distribute([str(tmp_path / "blank")], [str(tmp_path / "none.txt")]) == 0


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


def ended_by(signal_of, number: int, tmp_path) -> str:
    """What such a process says to a signal, which `signal_of` sends; no worker outlives it."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "endless.py", toy.write_vocabulary(tmp_path)], cwd=ROOT, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        readable, _, _ = select.select([process.stdout], [], [], 60)
        assert readable, "no worker has started within a minute"
        worker = int(process.stdout.readline())
        assert not has_ended(worker, within_secs=0.1)
        signal_of(process.pid, number)
        # Which ends when the last of the workers has closed the pipe.
        errors = process.communicate(timeout=60)[1]
        assert has_ended(worker, within_secs=60)
        return errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    ended_by(os.kill, signal.SIGKILL, tmp_path)


def test_an_interrupt_of_all_processes_is_reported_once(tmp_path):
    assert ended_by(os.killpg, signal.SIGINT, tmp_path) == "interrupted\n"


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
        results = [
            future.result(timeout=60)
            for future in [workers.submit(_sum, value) for value in (1, 2)]
        ]
    assert [value for _, value in results] == [41, 42]
    assert os.getpid() not in [process for process, _ in results]
    assert all(has_ended(process, within_secs=10) for process, _ in results)


@pytest.mark.parametrize("call", [_endless, _sleep])
def test_workers_that_write_or_have_much_to_read_end_at_once(call):
    """The kill comes in the middle of results, and of arguments that nobody reads."""
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError), worker_processes(2, _call, 1) as workers:
        [workers.submit(call, bytes(1_000_000)) for _ in range(8)][-1].result(timeout=1.5)
    assert time.monotonic() - start_secs < 60
    assert not multiprocessing.active_children()


def test_an_error_of_a_call_is_raised_here_and_says_where_it_was():
    with worker_processes(1, _call, 1) as workers:
        with pytest.raises(InputError, match="no such thing") as raised:
            workers.submit(_fail).result(timeout=60)
        assert "in _fail" in raised.value.__notes__[0]
        assert workers.submit(_sum, 1).result(timeout=60)[1] == 2, "the worker goes on"


def test_a_killed_worker_is_said():
    refused = pytest.raises(InputError, match="--num_workers=2: a worker process was killed")
    with refused, worker_processes(2, _call, 1) as workers:
        workers.submit(_die).result(timeout=60)

"""A file of vectors has a row for each line, whatever ends the run in between."""

import json
import os

import numpy as np
import pytest

from official_bert import InputError
from official_bert.extensions.retrieval import vector_file
from official_bert.extensions.retrieval.vector_file import encode_file
from tests import toy
from tests.extensions.retrieval.known_vectors import CORPUS, Table
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

LENGTHS = [5, 3, 0, 17, 20, 9, 9, 30, 2, 11]


def write_lines(path, lengths=LENGTHS) -> str:
    path.write_text("".join("a" * length + "\n" for length in lengths))
    return str(path)


class Stopping(Table):
    """An encoder that fails at a call, as a kill would end it."""

    def __init__(self, last_call: int):
        self.calls = []
        self.last_call = last_call

    def encode(self, texts):
        self.calls.append(len(texts))
        if len(self.calls) > self.last_call:
            raise KeyboardInterrupt
        return super().encode(texts)


def assert_has_rows(path, lengths=LENGTHS):
    vectors = np.load(path)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, CORPUS[lengths])


def test_each_line_has_a_row(tmp_path):
    source = write_lines(tmp_path / "lines.txt")
    for window_rows in (1, 4, 100):
        path = str(tmp_path / f"{window_rows}.npy")
        assert Table().encode_file(source, path, window_rows=window_rows) == 10
        assert_has_rows(path)
    assert sorted(os.listdir(tmp_path)) == ["1.npy", "100.npy", "4.npy", "lines.txt"]


@pytest.mark.parametrize("last_call", [1, 2, 3])
@pytest.mark.parametrize("cut_bytes", [0, 5, 300])
def test_a_stopped_run_resumes_behind_its_last_window(tmp_path, last_call, cut_bytes):
    source = write_lines(tmp_path / "lines.txt")
    path = str(tmp_path / "vectors.npy")
    with pytest.raises(KeyboardInterrupt):
        encode_file(Stopping(last_call), source, path, window_rows=4)
    assert not os.path.exists(path)
    work = tmp_path / ".vectors.npy.encoding"
    size = (work / "vectors").stat().st_size
    os.truncate(work / "vectors", max(size - cut_bytes, 0))  # what a kill may have left
    if not cut_bytes:
        with open(work / "vectors", "ab") as file:
            file.write(b"half of a window")
    encoder = Stopping(9)
    encode_file(encoder, source, path, window_rows=4)
    assert_has_rows(path)
    num_whole = max(last_call - 1 - bool(cut_bytes), 0)
    assert encoder.calls == [1, *[4, 4, 2][num_whole:]]
    assert not work.exists()


def test_a_run_with_other_texts_keeps_the_windows_before_them(tmp_path, caplog):
    source = write_lines(tmp_path / "lines.txt")
    path = str(tmp_path / "vectors.npy")
    with pytest.raises(KeyboardInterrupt):
        encode_file(Stopping(3), source, path, window_rows=4)
    changed = [*LENGTHS[:5], 1, *LENGTHS[6:]]
    write_lines(tmp_path / "lines.txt", changed)
    encoder = Stopping(9)
    encode_file(encoder, source, path, window_rows=4)
    assert_has_rows(path, changed)
    assert encoder.calls == [1, 4, 2]
    assert "begins anew behind line 4" in caplog.text
    # Another prompt, or another model, changes every window.
    with pytest.raises(KeyboardInterrupt):
        encode_file(Stopping(3), source, path, window_rows=4)
    work = tmp_path / ".vectors.npy.encoding"
    lines = (work / "progress.jsonl").read_text().splitlines()
    others = [json.dumps([json.loads(line)[0], "another"]) + "\n" for line in lines]
    (work / "progress.jsonl").write_text("".join(others))
    encoder = Stopping(9)
    encode_file(encoder, source, path, window_rows=4)
    assert encoder.calls == [1, 4, 4, 2]
    assert_has_rows(path, changed)


def test_what_cannot_be_written_is_named(tmp_path):
    source = write_lines(tmp_path / "lines.txt", [])
    path = str(tmp_path / "vectors.npy")
    with pytest.raises(InputError, match=r"lines\.txt: has no line to embed"):
        encode_file(Table(), source, path)
    assert os.listdir(tmp_path) == ["lines.txt"]
    source = write_lines(tmp_path / "lines.txt")
    with pytest.raises(InputError, match="must be a file on this machine"):
        encode_file(Table(), source, "/dev/null")
    work = tmp_path / ".vectors.npy.encoding"
    work.mkdir()
    (work / "notes").write_text("mine")
    with pytest.raises(InputError, match="notes: is in the work folder of the vectors"):
        encode_file(Table(), source, path)
    assert (work / "notes").exists()


def test_the_command_writes_a_row_for_each_line(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_file, "_WINDOW_ROWS", 2)
    model = toy.make_bert_base_dir(tmp_path / "model")
    toy.write_sentence_modules(model)
    texts = ["A train left.", "", "Rain", "The cat sat on the mat."]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    flags = {"model": model, "input_file": tmp_path / "lines.txt"}
    path = tmp_path / "vectors.npy"
    with exported.models_loaded_once():
        run_here("predict", *flag_list(**flags, vectors_file=path))
        from official_bert import SentenceEncoder

        np.testing.assert_allclose(
            np.load(path), SentenceEncoder(str(model)).encode(texts), atol=2e-6
        )
        ended = end_of("predict", *flag_list(**flags, vectors_file=path, index="i.npz"))
    assert ended.status == 1
    assert "--vectors_file: writes vectors alone, and does not go with --index" in ended.sentence

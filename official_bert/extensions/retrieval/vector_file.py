"""A .npy file of vectors that grows window by window, in bounded memory, and survives a kill.

Until the last window, the vectors are in a hidden folder beside the file, with a line for each
window: the number of rows, and a hash of all texts so far. A run with the same texts resumes behind
the last line.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
from absl import logging

from official_bert.data.tables import numbered_lines
from official_bert.extensions.retrieval.comparisons import Encoder, encode_documents
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import LOCK_FILE, locked

_WINDOW_ROWS = 1 << 13
_VECTORS, _PROGRESS = "vectors", "progress.jsonl"  # the files of the hidden folder
_BYTES = np.dtype("<f4").itemsize


def encode_file(
    encoder: Encoder,
    input_file: str,
    output_file: str,
    prompt: str | None = None,
    window_rows: int = _WINDOW_ROWS,
) -> int:
    """Write the vector of each line of a file as an .npy file, float32[lines, width].

    Memory contains one window of lines, which are encoded in batches of like length. After a kill,
    the same call resumes behind the last window.

    Args:
        encoder: the object that encodes texts.
        input_file: the texts, one a line; it may be compressed by gzip.
        output_file: the .npy file.
        prompt: a text to put before each line; None for the model's prompt of documents.
        window_rows: the number of lines in a window.

    Returns:
        The number of lines.

    Raises:
        InputError: a file cannot be used.
    """
    writing.keep_apart([output_file], {"input_file": [input_file]})
    lines = (text for _, text in numbered_lines(input_file, decompresses=True))
    return write_vectors(encoder, lines, output_file, input_file, prompt, window_rows)


def write_vectors(
    encoder: Encoder,
    texts: Iterable[str],
    output_file: str,
    source: str,
    prompt: str | None = None,
    window_rows: int = _WINDOW_ROWS,
) -> int:
    """Write the vectors of texts as an .npy file.

    Args:
        encoder: the object that encodes texts.
        texts: the texts, which are read window by window.
        output_file: the .npy file.
        source: the name of the input, for messages.
        prompt: a text to put before each text; None for the model's prompt of documents.
        window_rows: the number of texts in a window.

    Returns:
        The number of texts.

    Raises:
        InputError: there is no text, or the file cannot be written.
    """
    if files.is_remote(output_file) or files.is_special(output_file):
        raise InputError(f"{output_file}: must be a file on this machine, which can be appended to")
    with writing.saying_why(output_file):
        target = files.real_path(output_file)
        folder, name = os.path.split(target)
        work_folder = os.path.join(folder, f".{name}.encoding")
        with locked(work_folder):
            _check_work_folder(work_folder)
            windows = _split_windows(texts, window_rows)
            num_rows = _encode_windows(encoder, windows, work_folder, prompt, source)
            os.replace(os.path.join(work_folder, _VECTORS), target)
            os.remove(os.path.join(work_folder, _PROGRESS))
        if os.path.exists(work_folder):  # It existed before this run.
            os.rmdir(work_folder)
    return num_rows


def _encode_windows(
    encoder: Encoder,
    windows: Iterable[Sequence[str]],
    work_folder: str,
    prompt: str | None,
    source: str,
) -> int:
    probe = encode_documents(encoder, ["the vector of a text is that of a model"], prompt)
    width = probe.shape[1]
    identity = [round(float(value), 3) for value in probe[0, :8]]
    with (
        open(os.path.join(work_folder, _VECTORS), "a+b") as vectors_file,
        open(os.path.join(work_folder, _PROGRESS), "a+b") as progress_file,
    ):
        done = _read_progress(progress_file, vectors_file, width)
        texts_hash = hashlib.sha256(json.dumps([identity, prompt]).encode())
        num_rows = 0
        for window in windows:
            for text in window:
                data = text.encode()
                texts_hash.update(b"%d " % len(data) + data)
            num_rows += len(window)
            digest = texts_hash.hexdigest()
            if done and done[0] == [num_rows, digest]:
                done.pop(0)
                if not done:
                    logging.info("%s: resumes behind line %d", source, num_rows)
                continue
            if done:
                logging.warning(
                    "%s: a killed run had other texts, another model or another prompt from this "
                    "window on: begins anew behind line %d",
                    source,
                    num_rows - len(window),
                )
                _read_progress(progress_file, vectors_file, width, num_rows - len(window))
                done = []
            _append(vectors_file, encode_documents(encoder, list(window), prompt))
            progress_file.write(json.dumps([num_rows, digest]).encode() + b"\n")
            progress_file.flush()
    if not num_rows:
        for name in (_VECTORS, _PROGRESS):
            os.remove(os.path.join(work_folder, name))
        raise InputError(f"{source}: has no line to embed; give one text a line")
    _write_header(os.path.join(work_folder, _VECTORS), (num_rows, width))
    return num_rows


def _append(file: BinaryIO, vectors: np.ndarray):
    file.write(np.ascontiguousarray(vectors, "<f4").data)
    file.flush()
    os.fsync(file.fileno())  # before the line that says so


def _read_progress(
    progress: BinaryIO, vectors: BinaryIO, width: int, most: int | None = None
) -> list[list]:
    """Returns the lines of whole windows up to a row, and cuts what follows them from both files;
    None for all rows.
    """
    header = _make_header((0, width))
    size = vectors.seek(0, os.SEEK_END)
    progress.seek(0)
    lines = []
    end = 0
    for line in progress:
        content = _parse_line(line)
        if content is None or len(header) + content[0] * width * _BYTES > size:
            break
        if most is not None and content[0] > most:
            break
        lines.append(content)
        end += len(line)
    progress.truncate(end)
    num_rows = lines[-1][0] if lines else 0
    if size < len(header):
        vectors.truncate(0)
        vectors.write(header)
    vectors.truncate(len(header) + num_rows * width * _BYTES)
    return lines


def _parse_line(line: bytes) -> list | None:
    """Returns the number of rows and the hash in a line; None for a line that is not whole."""
    try:
        content = reading.parse_json(line, has_lines=False)
    except InputError:
        return None
    is_pair = isinstance(content, list) and len(content) == 2 and line.endswith(b"\n")
    return content if is_pair and reading.has_type(content[0], int) else None


def _make_header(shape: tuple[int, int]) -> bytes:
    """Returns the header of the .npy file, whose length does not depend on the number of rows."""
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def _write_header(path: str, shape: tuple[int, int]):
    with open(path, "r+b") as file:
        file.write(_make_header(shape))


def _split_windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _check_work_folder(folder: str):
    """Rejects a work folder with files of others, because the folder is deleted at the end."""
    for name in files.list_folder(folder):
        if name not in (_VECTORS, _PROGRESS, LOCK_FILE):
            raise InputError(
                f"{os.path.join(folder, name)}: is in the work folder of the vectors, and none of "
                "their files; move it away, or name another file"
            )

"""Finds hard negatives, texts near to an anchor that do not answer it: the runner of mine_hard_negatives.py.

In: tables of pairs (anchor, positive), a corpus and a model of vectors. Out: a JSON line for each pair, in order, with
`anchor`, `positive` and `negative`, a list of texts, the nearest first. The lines are written in a folder beside the
output whose name begins with a dot, where another run goes on after a kill; the last line gives the file its name.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
from absl import logging

from official_bert.commands.predict import files_of_model
from official_bert.data.table_formats import paths_of
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked
from official_bert.io.progress import Progress
from official_bert.metrics.embeddings import all_cosines
from official_bert.options.embedding import MiningOptions
from official_bert.serving.predictor import WINDOW_BATCHES, Predictor
from official_bert.tasks.embedding.examples import read_examples
from official_bert.tasks.embedding.vector_search import Index, search

_INDEX = ".npz"
_SAME = 1e-3  # the difference of a vector's numbers on two devices


class Pair(NamedTuple):
    anchor: str
    positive: str


def run(options: MiningOptions):
    """Writes the negatives of all pairs."""
    if options.skip_top >= options.top_k:
        raise InputError(f"--skip_top={options.skip_top}: leaves none of --top_k={options.top_k}; give a smaller one")
    inputs = paths_of(options.input_file, "input_file")
    read = {"input_file": inputs, "corpus_file": [options.corpus_file], "model": files_of_model(options.model)}
    writing.keep_apart([options.output_file], read)
    pairs = _pairs(options)
    predictor = Predictor(options.model, options.batch_size)
    corpus = _corpus(options, pairs, predictor)
    described = {
        "flags": {field.name: getattr(options, field.name) for field in dataclasses.fields(options)},
        "sha256": [files.sha256(path) for path in (*inputs, options.corpus_file) if path],
        "vector": predictor.encode(pairs[0].anchor)[0].tolist(),  # tells the model
    }
    positives = collections.defaultdict(set)
    for anchor, positive in pairs:
        positives[anchor] |= {anchor, positive}
    size, num_short = options.batch_size * WINDOW_BATCHES, 0
    progress = Progress("pairs", len(pairs))
    with _lines_of(options.output_file, described, size) as (file, num_done):
        logging.info("The corpus has %d texts", len(getattr(corpus, "texts", corpus)))
        index = predictor.index_of(corpus)
        for start in range(num_done, len(pairs), size):
            window = pairs[start : start + size]
            for pair, negatives in zip(window, _mined(window, index, positives, predictor, options), strict=True):
                num_short += len(negatives) < options.num_negatives
                line = json.dumps(pair._asdict() | {"negative": negatives}, ensure_ascii=False)
                file.write(line.encode() + b"\n")
            file.flush()
            progress(start + len(window))
    if num_short:
        logging.warning("%d pairs have fewer than %d negatives", num_short, options.num_negatives)
    logging.info("Wrote %s", options.output_file)


def _pairs(options: MiningOptions) -> list[Pair]:
    """Returns the pairs of the input; an example with several positives is one for each of them."""
    examples = read_examples(options.input_file, "input_file", vars(options))
    pairs = [Pair(one.anchor.strip(), positive.strip()) for one in examples for positive in one.positives]
    if not pairs:
        raise InputError(f"{options.input_file}: holds no pair; name the columns, --columns=anchor=...,positive=...")
    return pairs


def _corpus(options: MiningOptions, pairs: Sequence[Pair], predictor: Predictor) -> Index | list[str]:
    """Returns an index, or the different texts of the corpus."""
    path = options.corpus_file
    if path and path.endswith(_INDEX):
        return predictor.index_of(path)
    texts = map(str.strip, reading.read_lines(path)) if path else (pair.positive for pair in pairs)
    texts = [text for text in dict.fromkeys(texts) if text]
    if not texts:
        raise InputError(f"{path}: holds no text; give one a line")
    return texts


def _mined(
    window: Sequence[Pair],
    index: Index,
    positives: Mapping[str, set[str]],
    predictor: Predictor,
    options: MiningOptions,
) -> Iterator[list[str]]:
    """Yields the negatives of each pair, the nearest to its anchor first."""
    anchors = predictor.encode([pair.anchor for pair in window])
    bounds = np.full(len(window), np.inf if options.max_score is None else options.max_score)
    if options.margin is not None:
        answers = predictor.encode([pair.positive for pair in window])
        own_scores = [all_cosines(*vectors)[0, 0] for vectors in zip(anchors[:, None], answers[:, None], strict=True)]
        bounds = np.minimum(bounds, np.array(own_scores) - options.margin)
    most = max(len(positives[pair.anchor]) for pair in window)
    found = zip(*search(anchors, index.vectors, options.top_k + most), strict=True)
    for pair, bound, (scores, rows) in zip(window, bounds, found, strict=True):
        ranked = {index.texts[row].strip(): score for score, row in zip(scores, rows, strict=True)}
        others = [text for text in ranked if text not in positives[pair.anchor]][options.skip_top : options.top_k]
        yield [text for text in others if ranked[text] <= bound][: options.num_negatives]


@contextlib.contextmanager
def _lines_of(path: str, described: dict, size: int) -> Iterator[tuple[BinaryIO, int]]:
    """Yields a file for lines, and how many of them a killed run of the same description has left in it.

    They are whole windows of `size`, since what a model computes depends in its last bits on what is computed with it.
    """
    if files.is_remote(path) or files.is_special(path):
        with writing.replacing(path, "wb") as file:
            yield file, 0
        return
    target = files.real_path(path)
    work_folder = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.mining")
    lines, header = (os.path.join(work_folder, name) for name in ("lines", "run.json"))
    with writing.saying_why(path), locked(work_folder):
        num_done = 0
        if files.exists(lines) and files.exists(header) and _is_same(reading.read_json(header), described):
            num_done = _keep_whole_windows(lines, size)
            logging.info("%s: goes on behind %d lines of a run that was killed", path, num_done)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.remove(lines)
                logging.warning("%s: begins anew, since the run that was killed had other flags or inputs", path)
            with writing.replacing(header) as file:
                json.dump(described, file)
        with files.open_file(lines, "ab") as file:
            yield file, num_done
        files.rename(lines, target)
        files.remove(header)
    if files.exists(work_folder):
        files.remove_folder(work_folder)


def _is_same(header: dict, described: dict) -> bool:
    """Tells whether two runs write the same lines; vectors of one model may differ in their last bits."""
    known = {name: header.get(name) for name in ("flags", "sha256")}
    vectors = header.get("vector", []), described["vector"]
    is_near = len(vectors[0]) == len(vectors[1]) and np.allclose(*vectors, atol=_SAME)
    return is_near and known == {name: described[name] for name in known}


def _keep_whole_windows(path: str, size: int) -> int:
    """Cuts a file of lines behind its last whole window; returns the number of lines that stay."""
    with files.open_file(path, "r+b") as file:
        ends = [0, *(file.tell() for line in iter(file.readline, b"") if line.endswith(b"\n"))]
        num_lines = (len(ends) - 1) // size * size
        file.truncate(ends[num_lines])
    return num_lines

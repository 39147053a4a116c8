"""Finds hard negatives, texts near to an anchor that do not answer it: the runner of
official-bert mine_hard_negatives.

In: tables of pairs (anchor, positive), a corpus and a model of vectors. Out: a JSON line for each
pair, in order, with `anchor`, `positive` and `negative`, a list of texts, the nearest first. The
lines are written in a folder beside the output whose name begins with a dot, where another run goes
on after a kill; the last line gives the file its name.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
from absl import logging

from official_bert.commands.predict import list_model_files
from official_bert.data.table_formats import has_table_ending, paths_of
from official_bert.data.tables import numbered_lines
from official_bert.data.text_tables import Example, read_examples
from official_bert.extensions.retrieval.index import Index
from official_bert.extensions.retrieval.options import MiningOptions
from official_bert.extensions.retrieval.vector_search import search
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import LOCK_FILE, locked
from official_bert.io.progress import Progress
from official_bert.metrics.cosines import all_cosines
from official_bert.serving.predictor import WINDOW_BATCHES, Predictor

_INDEX = ".npz"
_WORK_FILES = ("lines", "run.json")
_SAME = 1e-3  # the difference of a vector's numbers on two devices


TokenIds = tuple[int, ...]


class Pair(NamedTuple):
    anchor: str
    positive: str


def run(options: MiningOptions):
    """Writes the negatives of all pairs."""
    if options.skip_top >= options.top_k:
        raise InputError(
            f"--skip_top={options.skip_top}: leaves none of --top_k={options.top_k}; give a "
            "smaller one"
        )
    inputs = paths_of(options.input_file, "input_file")
    read = {
        "input_file": inputs,
        "corpus_file": [options.corpus_file],
        "model": list_model_files(options.model),
    }
    writing.keep_apart([options.output_file], read)
    pairs = _pairs(options)
    predictor = Predictor(options.model, options.batch_size)
    corpus = _corpus(options, inputs, pairs, predictor)
    described = {
        "flags": {
            field.name: getattr(options, field.name) for field in dataclasses.fields(options)
        },
        "sha256": [
            _digest(text for pair in pairs for text in pair),
            files.sha256(options.corpus_file) if isinstance(corpus, Index) else _digest(corpus),
        ],
        "vector": predictor.encode(pairs[0].anchor)[0].tolist(),  # tells the model
    }
    token_ids = functools.cache(predictor.token_ids)
    answers = collections.defaultdict(set)
    for anchor, positive in pairs:
        answers[token_ids(anchor)] |= {token_ids(anchor), token_ids(positive)}
    size, num_short = options.batch_size * WINDOW_BATCHES, 0
    progress = Progress("pairs", len(pairs))
    with _open_lines(options.output_file, described, pairs, size) as (file, num_done):
        index = predictor.index_of(corpus)
        logging.info("The corpus has %d texts", len(index.texts))
        for start in range(num_done, len(pairs), size):
            window = pairs[start : start + size]
            mined = _mined(window, index, answers, token_ids, predictor, options)
            for pair, negatives in zip(window, mined, strict=True):
                num_short += len(negatives) < options.num_negatives
                line = json.dumps(pair._asdict() | {"negative": negatives}, ensure_ascii=False)
                file.write(line.encode() + b"\n")
            file.flush()
            progress(start + len(window))
    if num_short:
        logging.warning("%d pairs have fewer than %d negatives", num_short, options.num_negatives)
    logging.info("Wrote %s", options.output_file)


def _digest(texts: Iterable[str]) -> str:
    """Returns a hash of texts: a file may be a pipe, which cannot be read again."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d " % len(data) + data)
    return digest.hexdigest()


def _pairs(options: MiningOptions) -> list[Pair]:
    """Returns the pairs of the input; an example with several positives is one for each of them."""
    examples = read_examples(options.input_file, "input_file", vars(options))
    if num_with_negatives := sum(bool(example.negatives) for example in examples):
        logging.warning(
            "%d examples have negatives, in place of which others are mined", num_with_negatives
        )
    examples = _without_label_0(examples)
    pairs = [
        Pair(one.anchor.strip(), positive.strip()) for one in examples for positive in one.positives
    ]
    if not pairs:
        remedy = "name the columns, --columns=anchor=...,positive=..."
        if not (options.data_format or has_table_ending(options.input_file)):
            remedy = "each line of a .txt file is one text; give a table, or --data_format=tsv"
        raise InputError(f"{options.input_file}: holds no pair; {remedy}")
    return pairs


def _without_label_0(examples: Sequence[Example]) -> list[Example]:
    """Returns the examples whose texts belong together: those without a label, or with label 1."""
    positives = []
    for example in examples:
        label = example.score() if example.label else 1.0
        if label not in (0.0, 1.0):
            raise InputError(
                f"{example.where}: has the label {example.label}, and pairs that belong together "
                "have label 1, others 0; keep those that belong together, without the labels"
            )
        if label:
            positives.append(example)
    if len(positives) < len(examples):
        logging.warning("%d pairs with label 0 are left out", len(examples) - len(positives))
    return positives


def _corpus(
    options: MiningOptions, inputs: Sequence[str], pairs: Sequence[Pair], predictor: Predictor
) -> Index | list[str]:
    """Returns an index, or the different texts of the corpus."""
    path = options.corpus_file
    if path and path.lower().endswith(_INDEX):
        return _different(predictor.index_of(path))
    texts = map(
        str.strip,
        _corpus_texts(path, inputs, options) if path else (pair.positive for pair in pairs),
    )
    texts = [text for text in dict.fromkeys(texts) if text]
    if not texts:
        raise InputError(f"{path}: holds no text; give one a line")
    return texts


def _corpus_texts(path: str, inputs: Sequence[str], options: MiningOptions) -> Iterator[str]:
    """Yields the texts of a file of lines; of a table the positives, or where it has none, the
    anchors.

    --columns and the other flags of tables are those of the input; a table of another name has
    usual columns.
    """
    is_input = any(writing.is_same_file(path, other) for other in inputs)
    if not is_input and not has_table_ending(path):
        yield from _plain_lines(path)
        return
    settings = vars(options) if is_input else {"quoting": options.quoting}
    examples = read_examples(path, "corpus_file", settings, is_corpus=not is_input)
    has_positives = any(example.positives for example in examples)
    for example in examples:
        yield from example.positives if has_positives else [example.anchor]


def _plain_lines(path: str) -> Iterator[str]:
    for line, text in numbered_lines(path, decompresses=True):
        if line == 1:
            _check_plain(path, text)
        yield text


def _check_plain(path: str, first_line: str):
    """Refuses JSON lines, and warns of a table, that a file of lines may be by its first line."""
    if first_line.startswith("{"):
        try:
            reading.parse_json(first_line, has_lines=False)
        except InputError:
            return
        raise InputError(
            f"{path}: line 1 is a JSON object, and no text; end the name of JSON lines in .jsonl"
        )
    if "\t" in first_line:
        logging.warning(
            "%s: line 1 has a tab; each line is one text, since the name ends in none of a table's",
            path,
        )


def _different(index: Index) -> Index:
    """Returns an index without blank texts and without what is equal to an earlier text, blanks
    around it aside.
    """
    rows: dict[str, int] = {}
    for row, text in enumerate(index.texts):
        rows.setdefault(text.strip(), row)
    rows.pop("", None)
    if len(rows) == len(index.texts):
        return index
    return Index([index.texts[row] for row in rows.values()], index.vectors[list(rows.values())])


def _mined(
    window: Sequence[Pair],
    index: Index,
    answers: Mapping[TokenIds, set[TokenIds]],
    token_ids: Callable[[str], TokenIds],
    predictor: Predictor,
    options: MiningOptions,
) -> Iterator[list[str]]:
    """Yields the negatives of each pair, the nearest to its anchor first.

    Texts with the same token ids are one text: a model cannot tell them apart.
    """
    anchors = predictor.encode([pair.anchor for pair in window])
    bounds = np.full(len(window), np.inf if options.max_score is None else options.max_score)
    if options.margin is not None:
        positives = predictor.encode([pair.positive for pair in window])
        pair_scores = [
            all_cosines(*vectors)[0, 0]
            for vectors in zip(anchors[:, None], positives[:, None], strict=True)
        ]
        bounds = np.minimum(bounds, np.array(pair_scores) - options.margin)
    excluded = [answers[token_ids(pair.anchor)] for pair in window]
    k = options.top_k + max(map(len, excluded))
    while True:
        results = list(zip(*search(anchors, index.vectors, k), excluded, strict=True))
        ranked = [_others(index, *result, token_ids) for result in results]
        if k >= len(index.texts) or min(map(len, ranked)) >= options.top_k:
            break
        k *= 2  # the corpus has several texts of the same token ids
    for others, bound in zip(ranked, bounds, strict=True):
        nearest = others[options.skip_top : options.top_k]
        yield [text for text, score in nearest if score <= bound][: options.num_negatives]


def _others(
    index: Index,
    scores: np.ndarray,
    rows: np.ndarray,
    excluded: set[TokenIds],
    token_ids: Callable[[str], TokenIds],
) -> list[tuple[str, float]]:
    """Returns the texts of a search, each once and without the excluded ones, with their scores."""
    others: dict[TokenIds, tuple[str, float]] = {}
    for score, row in zip(scores, rows, strict=True):
        text = index.texts[row].strip()
        ids = token_ids(text)
        if ids not in excluded:
            others.setdefault(ids, (text, score))
    return list(others.values())


@contextlib.contextmanager
def _open_lines(
    path: str, described: dict, pairs: Sequence[Pair], size: int
) -> Iterator[tuple[BinaryIO, int]]:
    """Yields a file for lines, and how many of them a killed run of the same description has left
    in it.

    They are whole windows of `size`, since what a model computes depends in its last bits on what
    is computed with it.
    """
    if files.is_remote(path) or files.is_special(path):
        with writing.replacing(path, "wb") as file:
            yield file, 0
        return
    target = files.real_path(path)
    work_folder = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.mining")
    lines, header = (os.path.join(work_folder, name) for name in _WORK_FILES)
    with writing.saying_why(path), locked(work_folder):
        _check_work_folder(work_folder)
        num_done = 0
        if files.exists(lines) and files.exists(header) and _is_same(header, described):
            num_done = _keep_whole_windows(lines, pairs, size)
            logging.info("%s: goes on behind %d lines of a run that was killed", path, num_done)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.remove(lines)
                logging.warning(
                    "%s: begins anew, since the run that was killed had other flags or inputs", path
                )
            with writing.replacing(header) as file:
                json.dump(described, file)
        with files.open_file(lines, "ab") as file:
            yield file, num_done
        files.rename(lines, target)
        files.remove(header)
    if files.exists(work_folder):  # it was there before this run
        os.rmdir(work_folder)


def _check_work_folder(folder: str):
    """Raises InputError for what mining has not put into its work folder, which is deleted at
    the end.
    """
    writing.remove_left(folder, "*")
    for name in files.list_folder(folder):
        path = os.path.join(folder, name)
        is_file = os.path.isfile(path) and not os.path.islink(path)
        if not is_file or name not in (*_WORK_FILES, LOCK_FILE):
            raise InputError(
                f"{path}: is in the work folder of --output_file, and no file of mining; move it "
                "away, or name another --output_file"
            )


def _is_same(header: str, described: dict) -> bool:
    """Returns whether two runs write the same lines; vectors of one model may differ in their last
    bits.

    A header in any other form than ours is that of another run.
    """
    try:
        stored_header = reading.read_json(header)
    except InputError:
        return False
    if not isinstance(stored_header, dict) or any(
        stored_header.get(name) != described[name] for name in ("flags", "sha256")
    ):
        return False
    vector = stored_header.get("vector")
    is_vector = isinstance(vector, list) and all(
        reading.is_of_kind(value, float) for value in vector
    )
    is_alike = is_vector and len(vector) == len(described["vector"])
    return is_alike and np.allclose(vector, described["vector"], atol=_SAME)


def _keep_whole_windows(path: str, pairs: Sequence[Pair], size: int) -> int:
    """Cuts a file of lines behind its last whole window of the pairs' lines; returns the number
    of lines that stay.
    """
    ends = [0]
    with files.open_file(path, "r+b") as file:
        for pair in pairs:
            if not _is_pair_line(pair, file.readline()):
                break
            ends.append(file.tell())
        num_lines = (len(ends) - 1) // size * size
        file.truncate(ends[num_lines])
    return num_lines


def _is_pair_line(pair: Pair, line: bytes) -> bool:
    try:
        content = reading.parse_json(line, has_lines=False)
    except InputError:
        return False
    is_ours = isinstance(content, dict) and isinstance(content.get("negative"), list)
    return (
        is_ours
        and line.endswith(b"\n")
        and (content.get("anchor"), content.get("positive")) == pair
    )

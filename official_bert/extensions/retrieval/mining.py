"""The command mine_hard_negatives: finds texts that are near to an anchor and do not answer it.

Input: tables of pairs (anchor, positive), a corpus and an embedding model. Output: a JSON line for
each pair, in order, with `anchor`, `positive` and `negative`, a list of texts, the nearest first.
The lines are written in a hidden folder next to the output, where a run resumes after a kill. The
finished file is renamed to the output.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from absl import logging

from official_bert.commands.predict import list_model_files
from official_bert.data.table_formats import expand_paths, has_table_ending
from official_bert.data.tables import numbered_lines
from official_bert.data.text_tables import Example, read_examples
from official_bert.extensions.retrieval.comparisons import encode_documents, encode_queries
from official_bert.extensions.retrieval.index import Index
from official_bert.extensions.retrieval.options import MiningOptions
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import LOCK_FILE, locked
from official_bert.io.progress import Progress
from official_bert.metrics.cosines import all_cosines
from official_bert.serving.predictor import WINDOW_BATCHES, Predictor

_INDEX_SUFFIX = ".npz"
_WORK_FILES = ("lines", "run.json")
_VECTOR_TOLERANCE = 1e-3  # The largest difference of a vector's components on two devices.

TokenIds = tuple[int, ...]


class Pair(NamedTuple):
    """A text, and one that answers it or belongs to it."""

    anchor: str
    positive: str


class _Miner:
    """Finds the negatives of pairs in an index.

    Texts with the same token ids are one text: a model cannot tell them apart.
    """

    def __init__(
        self, options: MiningOptions, predictor: Predictor, index: Index, pairs: Iterable[Pair]
    ):
        self._options = options
        self._predictor = predictor
        self._index = index
        self._token_ids: Callable[[str], TokenIds] = functools.cache(predictor.token_ids)
        # The texts that are no negatives of an anchor: itself, and its positives.
        self._answers: dict[TokenIds, set[TokenIds]] = collections.defaultdict(set)
        for anchor, positive in pairs:
            anchor_ids = self._token_ids(anchor)
            self._answers[anchor_ids] |= {anchor_ids, self._token_ids(positive)}

    def mine(self, window: Sequence[Pair]) -> Iterator[list[str]]:
        """Yields the negatives of each pair, the nearest to its anchor first."""
        options = self._options
        anchor_texts = [pair.anchor for pair in window]
        anchors = encode_queries(self._predictor, anchor_texts, options.query_prompt)
        bounds = self._find_bounds(window, anchors)
        excluded = [self._answers[self._token_ids(pair.anchor)] for pair in window]
        rankings = self._rank(anchors, excluded)
        for ranking, bound in zip(rankings, bounds, strict=True):
            nearest = ranking[options.skip_top : options.top_k]
            negatives = [text for text, score in nearest if score <= bound]
            yield negatives[: options.num_negatives]

    def _find_bounds(self, window: Sequence[Pair], anchors: np.ndarray) -> np.ndarray:
        """Returns the highest cosine of a negative for each pair."""
        options = self._options
        highest = np.inf if options.max_score is None else options.max_score
        bounds = np.full(len(window), highest)
        if options.margin is None:
            return bounds
        positive_texts = [pair.positive for pair in window]
        positives = encode_documents(self._predictor, positive_texts, options.document_prompt)
        cosines = []
        for anchor, positive in zip(anchors, positives, strict=True):
            table = all_cosines(anchor[None], positive[None])
            cosines.append(table[0, 0])
        return np.minimum(bounds, np.array(cosines) - options.margin)

    def _rank(
        self, anchors: np.ndarray, excluded: Sequence[set[TokenIds]]
    ) -> list[list[tuple[str, float]]]:
        """Returns the nearest texts of each anchor and their scores, without the excluded texts."""
        num_texts = len(self._index.texts)
        most_excluded = max(len(ids) for ids in excluded)
        k = self._options.top_k + most_excluded
        while True:
            all_scores, all_rows = self._index.search(anchors, k)
            rankings = []
            for scores, rows, ids in zip(all_scores, all_rows, excluded, strict=True):
                rankings.append(self._list_texts(scores, rows, ids))
            shortest = min(len(ranking) for ranking in rankings)
            if k >= num_texts or shortest >= self._options.top_k:
                return rankings
            k *= 2  # The corpus has several texts of the same token ids.

    def _list_texts(
        self, scores: np.ndarray, rows: np.ndarray, excluded: set[TokenIds]
    ) -> list[tuple[str, float]]:
        """Returns the texts of a search and their scores, each text once."""
        texts: dict[TokenIds, tuple[str, float]] = {}
        for score, row in zip(scores, rows, strict=True):
            text = self._index.texts[int(row)].strip()
            ids = self._token_ids(text)
            if ids not in excluded:
                texts.setdefault(ids, (text, score))
        return list(texts.values())


def run(options: MiningOptions) -> None:
    """Write the negatives of all pairs.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a flag, a file or the model cannot be used.
    """
    if options.skip_top >= options.top_k:
        raise InputError(
            f"--skip_top={options.skip_top}: leaves none of --top_k={options.top_k}; give a "
            "smaller one"
        )
    input_paths = expand_paths(options.input_file, "input_file")
    files_read = {
        "input_file": input_paths,
        "corpus_file": [options.corpus_file],
        "model": list_model_files(options.model),
    }
    writing.keep_apart([options.output_file], files_read)
    pairs = _read_pairs(options)
    predictor = Predictor(options.model, options.batch_size)
    corpus = _read_corpus(options, input_paths, pairs, predictor)
    identity = _describe_run(options, pairs, corpus, predictor)
    window_size = options.batch_size * WINDOW_BATCHES
    num_short = 0
    progress = Progress("pairs", len(pairs))
    with _open_lines(options.output_file, identity, pairs, window_size) as (file, num_done):
        index = _make_index(options, predictor, corpus)
        logging.info("The corpus has %d texts", len(index.texts))
        miner = _Miner(options, predictor, index, pairs)
        for start in range(num_done, len(pairs), window_size):
            window = pairs[start : start + window_size]
            for pair, negatives in zip(window, miner.mine(window), strict=True):
                num_short += len(negatives) < options.num_negatives
                fields = {**pair._asdict(), "negative": negatives}
                line = json.dumps(fields, ensure_ascii=False)
                file.write(line.encode() + b"\n")
            file.flush()
            progress(start + len(window))
    if num_short:
        logging.warning("%d pairs have fewer than %d negatives", num_short, options.num_negatives)
    logging.info("Wrote %s", options.output_file)


def _make_index(options: MiningOptions, predictor: Predictor, corpus: Index | list[str]) -> Index:
    if isinstance(corpus, Index):
        return corpus
    prompt = options.document_prompt
    return Index(corpus, encode_documents(predictor, corpus, prompt), prompt)


def _describe_run(
    options: MiningOptions, pairs: Sequence[Pair], corpus: Index | list[str], predictor: Predictor
) -> dict[str, Any]:
    """Returns the identity of a run: runs with equal ones write the same lines."""
    flags = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    pairs_digest = _hash_texts(text for pair in pairs for text in pair)
    if isinstance(corpus, Index):
        assert options.corpus_file is not None  # An index is read from this file.
        corpus_digest = files.sha256(options.corpus_file)
    else:
        corpus_digest = _hash_texts(corpus)
    # The vector of a text is that of a model.
    vector = encode_queries(predictor, pairs[0].anchor, options.query_prompt)[0]
    return {
        "flags": flags,
        "sha256": [pairs_digest, corpus_digest],
        "vector": vector.tolist(),
    }


def _hash_texts(texts: Iterable[str]) -> str:
    """Returns a hash of texts, not of files: a pipe cannot be read again."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d " % len(data) + data)
    return digest.hexdigest()


def _read_pairs(options: MiningOptions) -> list[Pair]:
    """Returns the pairs of the input; an example with several positives is one for each of them."""
    examples = read_examples(options.input_file, "input_file", vars(options))
    num_with_negatives = sum(bool(example.negatives) for example in examples)
    if num_with_negatives:
        logging.warning(
            "%d examples have negatives, in place of which others are mined", num_with_negatives
        )
    pairs = []
    for example in _without_label_0(examples):
        anchor = example.anchor.strip()
        pairs += [Pair(anchor, positive.strip()) for positive in example.positives]
    if not pairs:
        remedy = "name the columns, --anchor_column=... --positive_column=..."
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


def _read_corpus(
    options: MiningOptions, input_paths: Sequence[str], pairs: Sequence[Pair], predictor: Predictor
) -> Index | list[str]:
    """Returns an index, or the different texts of the corpus."""
    path = options.corpus_file
    if path and path.lower().endswith(_INDEX_SUFFIX):
        index = predictor.index_of(path)
        if options.document_prompt not in (None, index.prompt):
            raise InputError(
                f"--document_prompt={options.document_prompt}: {path} was made with "
                f"{_format_prompt(index)}; leave the flag out, or make the index anew"
            )
        return _remove_equal_texts(index)
    texts: dict[str, None] = {}
    if path:
        for text in _read_corpus_file(path, input_paths, options):
            texts[text.strip()] = None
    else:
        texts = dict.fromkeys(pair.positive.strip() for pair in pairs)
    texts.pop("", None)
    if not texts:
        raise InputError(f"{path}: holds no text; give one a line")
    return list(texts)


def _format_prompt(index: Index) -> str:
    return "the model's prompt" if index.prompt is None else f"--document_prompt={index.prompt}"


def _read_corpus_file(
    path: str, input_paths: Sequence[str], options: MiningOptions
) -> Iterator[str]:
    """Yields the texts of a file of lines, or of a table its positives.

    A table without positives gives its anchors. The flags of tables, such as --anchor_column, are
    those of the input; a table that is no input has the usual columns.
    """
    is_input = any(writing.is_same_file(path, other) for other in input_paths)
    if not is_input and not has_table_ending(path):
        yield from _read_plain_lines(path)
        return
    settings = vars(options) if is_input else {"quoting": options.quoting}
    examples = read_examples(path, "corpus_file", settings, is_corpus=not is_input)
    has_positives = any(example.positives for example in examples)
    for example in examples:
        yield from example.positives if has_positives else [example.anchor]


def _read_plain_lines(path: str) -> Iterator[str]:
    for line, text in numbered_lines(path, decompresses=True):
        if line == 1:
            _check_plain(path, text)
        yield text


def _check_plain(path: str, first_line: str):
    """Rejects JSON lines, and warns of a table, by the first line of a file of plain texts."""
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


def _remove_equal_texts(index: Index) -> Index:
    """Returns an index without blank texts and repeated ones; blanks around a text do not count."""
    rows_by_text: dict[str, int] = {}
    for row, text in enumerate(index.texts):
        rows_by_text.setdefault(text.strip(), row)
    rows_by_text.pop("", None)
    if len(rows_by_text) == len(index.texts):
        return index
    return index.choose(list(rows_by_text.values()))


@contextlib.contextmanager
def _open_lines(
    path: str, identity: dict[str, Any], pairs: Sequence[Pair], window_size: int
) -> Iterator[tuple[BinaryIO, int]]:
    """Yields a file for lines, and the number of its lines from a killed run of the same identity.

    These lines are whole windows, because the last bits of a vector depend on the other texts of
    its batch.
    """
    if files.is_remote(path) or files.is_special(path):
        with writing.replacing(path, "wb") as file:
            yield file, 0
        return
    target = files.real_path(path)
    target_folder, target_name = os.path.split(target)
    work_folder = os.path.join(target_folder, f".{target_name}.mining")
    lines, header = (os.path.join(work_folder, name) for name in _WORK_FILES)
    with writing.saying_why(path), locked(work_folder):
        _check_work_folder(work_folder)
        num_done = 0
        if files.exists(lines) and files.exists(header) and _is_same_run(header, identity):
            num_done = _truncate_to_whole_windows(lines, pairs, window_size)
            logging.info("%s: resumes after %d lines of a run that was killed", path, num_done)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.remove(lines)
                logging.warning(
                    "%s: begins anew, since the run that was killed had other flags or inputs", path
                )
            with writing.replacing(header) as file:
                json.dump(identity, file)
        with files.open_file(lines, "ab") as file:
            yield file, num_done
        files.rename(lines, target)
        files.remove(header)
    if files.exists(work_folder):  # The folder existed before this run.
        os.rmdir(work_folder)


def _check_work_folder(folder: str):
    """Rejects a work folder with files of others, because mining deletes the folder at its end."""
    writing.remove_left(folder, "*")
    for name in files.list_folder(folder):
        path = os.path.join(folder, name)
        is_file = os.path.isfile(path) and not os.path.islink(path)
        if not is_file or name not in (*_WORK_FILES, LOCK_FILE):
            raise InputError(
                f"{path}: is in the work folder of --output_file, and no file of mining; move it "
                "away, or name another --output_file"
            )


def _is_same_run(header: str, identity: dict[str, Any]) -> bool:
    """Returns whether a header is that of a run which writes the same lines.

    The vectors of one model may differ in their last bits. A header of any other form is that of
    another run.
    """
    try:
        stored = reading.read_json(header)
    except InputError:
        return False
    if not isinstance(stored, dict):
        return False
    if any(stored.get(name) != identity[name] for name in ("flags", "sha256")):
        return False
    vector = stored.get("vector")
    if not isinstance(vector, list) or len(vector) != len(identity["vector"]):
        return False
    if not all(reading.has_type(value, float) for value in vector):
        return False
    return np.allclose(vector, identity["vector"], atol=_VECTOR_TOLERANCE)


def _truncate_to_whole_windows(path: str, pairs: Sequence[Pair], window_size: int) -> int:
    """Truncates a file behind its last whole window of lines; returns the number of its lines."""
    ends = [0]
    with files.open_file(path, "r+b") as file:
        for pair in pairs:
            if not _is_pair_line(pair, file.readline()):
                break
            ends.append(file.tell())
        num_lines = (len(ends) - 1) // window_size * window_size
        file.truncate(ends[num_lines])
    return num_lines


def _is_pair_line(pair: Pair, line: bytes) -> bool:
    """Returns whether a line is a whole one with the negatives of a pair."""
    try:
        content = reading.parse_json(line, has_lines=False)
    except InputError:
        return False
    if not isinstance(content, dict) or not isinstance(content.get("negative"), list):
        return False
    is_whole = line.endswith(b"\n")
    return is_whole and (content.get("anchor"), content.get("positive")) == pair

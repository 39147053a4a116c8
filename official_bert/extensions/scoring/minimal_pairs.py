"""Evaluates a model on minimal pairs, such as BLiMP's: the command evaluate_minimal_pairs.

In: a pre-trained model, and pairs of a right and a wrong sentence in the form of BLiMP (Warstadt et
al., 2020, arXiv:1912.00582), a .zip file or a folder of .jsonl files. Out: how often the right one
has the better score, for each paradigm and phenomenon, and the mean of the paradigms.
"""

import collections
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.data.tables import numbered_lines
from official_bert.extensions.scoring.options import MinimalPairsOptions
from official_bert.extensions.scoring.predictor import make_scorer
from official_bert.extensions.scoring.scores import Scorer
from official_bert.io import archives, files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.serving.predictor import Predictor

_GOOD, _BAD, _PARADIGM, _PHENOMENON = "sentence_good", "sentence_bad", "UID", "linguistics_term"
_SUFFIX = ".jsonl"
# As the paper counts; the files name 13 phenomena, it has 12.
_SAME_AS = {"s-selection": "argument_structure"}
_ROUNDING = 1e-6  # of a score: equal sentences may differ by what a batch rounds


class Pair(NamedTuple):
    """A right and a wrong sentence, and what they are about."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


def run(options: MinimalPairsOptions):
    """Scores all sentences and writes the accuracies."""
    if options.output_file:
        writing.keep_apart([options.output_file], {"input_file": [options.input_file]})
    pairs = read_pairs(options.input_file, options.num_records)
    predictor = Predictor(options.model, batch_size=options.batch_size)
    scorer = make_scorer(predictor)
    warn_of_unseen_differences(pairs, scorer)
    logging.info("Scoring %d pairs ...", len(pairs))
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    results = scorer.score(texts, options.score, Progress("sentences", len(texts)))
    scores = [result["score"] for result in results]
    rows = accuracies(pairs, list(zip(scores[::2], scores[1::2], strict=True)))
    lines = ["phenomenon\tparadigm\tpairs\taccuracy"]
    lines += [
        f"{phenomenon}\t{paradigm}\t{count}\t{value:.4f}"
        for phenomenon, paradigm, count, value in rows
    ]
    print(*lines, sep="\n")
    if options.output_file:
        with writing.replacing(options.output_file) as file:
            file.writelines(f"{line}\n" for line in lines)


def warn_of_unseen_differences(pairs: Sequence[Pair], scorer: Scorer):
    """Warns of pairs that the model reads in part, and of those whose two sentences are the same
    for it.
    """
    num_truncated = sum(
        scorer.is_truncated(pair.good) or scorer.is_truncated(pair.bad) for pair in pairs
    )
    if num_truncated:
        logging.warning(
            "%d of %d pairs are cut: the model reads %d pieces",
            num_truncated,
            len(pairs),
            scorer.most_pieces,
        )
    num_same = sum(scorer.pieces(pair.good) == scorer.pieces(pair.bad) for pair in pairs)
    if num_same:
        logging.warning(
            "%d of %d pairs have two equal sentences for the model: ties", num_same, len(pairs)
        )


def accuracies(
    pairs: Sequence[Pair], scores: Sequence[tuple[float, float]]
) -> list[tuple[str, str, int, float]]:
    """Returns the rows of the table: those of the paradigms, of the phenomena, whose paradigm is
    "all", and of all.

    An equal score counts as half, as a guess would. A phenomenon has the mean of its paradigms, and
    so has the whole.
    """
    paradigm_hits: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for pair, (good, bad) in zip(pairs, scores, strict=True):
        is_tie = math.isclose(good, bad, rel_tol=_ROUNDING)
        paradigm_hits[pair.phenomenon, pair.paradigm].append(0.5 if is_tie else float(good > bad))
    paradigms = [
        (*key, len(hits), statistics.mean(hits)) for key, hits in sorted(paradigm_hits.items())
    ]
    phenomena = [
        _summarize(name, [row for row in paradigms if row[0] == name])
        for name in sorted({row[0] for row in paradigms})
    ]
    return [*paradigms, *phenomena, _summarize("all", paradigms)]


def _summarize(name: str, rows: Sequence[tuple]) -> tuple[str, str, int, float]:
    """Returns the row of several paradigms: the sum of their pairs, the mean of their accuracies."""
    return name, "all", sum(row[2] for row in rows), statistics.mean(row[3] for row in rows)


def read_pairs(path: str, most: int | None = None) -> list[Pair]:
    """Reads all pairs, or the first `most` of each file; raises InputError for a line that is none."""
    pairs = []
    for name, text in _texts(path):
        # Not by str.splitlines, which also splits within a text, at U+2028 for instance.
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        pairs += [_pair(f"{name}: line {number}", line) for number, line in lines[:most]]
    if not pairs:
        raise InputError(
            f"{path}: holds no pair; name BLiMP.zip, or a folder of such {_SUFFIX} files"
        )
    return pairs


def _texts(path: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the content of each file, by their names."""
    if files.is_folder(path):
        for name in sorted(files.matching(f"*{_SUFFIX}", path)):
            yield name, "\n".join(text for _, text in numbered_lines(name))
        return
    for name, content in archives.read_entries(
        path, _has_pairs, f"download it again, or name a folder of {_SUFFIX}"
    ):
        yield f"{path}: {name}", _decoded(f"{path}: {name}", content)


def _has_pairs(name: str) -> bool:
    return name.endswith(_SUFFIX) and not os.path.basename(name).startswith(".")


def _decoded(where: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is no UTF-8; save it as UTF-8") from None


def _pair(where: str, line: str) -> Pair:
    try:
        fields = reading.parse_json(
            line, has_lines=False, object_pairs_hook=reading.distinct_fields
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    names = (_GOOD, _BAD, _PARADIGM, _PHENOMENON)
    if not isinstance(fields, Mapping) or any(
        not isinstance(fields.get(name), str) for name in names
    ):
        raise InputError(
            f"{where}: is no object with the texts {', '.join(names)}; give pairs in the form of "
            "BLiMP"
        )
    for name in names:
        if half := reading.half_pair_in(fields[name]):
            raise InputError(f"{where}: {name} has {half}; correct it")
        if not fields[name].strip():
            raise InputError(f"{where}: {name} is blank; give it a text, or leave the line out")
    good, bad, paradigm, phenomenon = (fields[name] for name in names)
    return Pair(good, bad, paradigm, _SAME_AS.get(phenomenon, phenomenon))

"""The command evaluate_minimal_pairs: evaluates a model on minimal pairs, such as BLiMP's.

Input: a pre-trained model, and pairs of a right and a wrong sentence in the form of BLiMP (Warstadt
et al., 2020, arXiv:1912.00582), a .zip file or a folder of .jsonl files. Output: the share of pairs
whose right sentence has the better score, for each paradigm and phenomenon, and the mean of the
paradigms.
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

_GOOD = "sentence_good"
_BAD = "sentence_bad"
_PARADIGM = "UID"
_PHENOMENON = "linguistics_term"
_SUFFIX = ".jsonl"
# The paper counts 12 phenomena, the files name 13.
_RENAMED_PHENOMENA = {"s-selection": "argument_structure"}
_ROUNDING = 1e-6  # Equal sentences may have scores that differ by the rounding in a batch.


class Pair(NamedTuple):
    """A right and a wrong sentence, with their paradigm and its phenomenon."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


class Accuracy(NamedTuple):
    """A row of the table; the paradigm of a whole phenomenon is "all"."""

    phenomenon: str
    paradigm: str
    num_pairs: int
    value: float


def run(options: MinimalPairsOptions) -> None:
    """Score all sentences and write the accuracies.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a file or the model cannot be used.
    """
    if options.output_file:
        writing.keep_apart([options.output_file], {"input_file": [options.input_file]})
    pairs = read_pairs(options.input_file, options.num_records)
    predictor = Predictor(options.model, batch_size=options.batch_size)
    scorer = make_scorer(predictor)
    warn_about_hidden_differences(pairs, scorer)
    logging.info("Scoring %d pairs ...", len(pairs))
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    results = scorer.score(texts, options.score, Progress("sentences", len(texts)))
    scores = [result["score"] for result in results]
    pair_scores = list(zip(scores[::2], scores[1::2], strict=True))
    lines = ["phenomenon\tparadigm\tpairs\taccuracy"]
    for row in accuracies(pairs, pair_scores):
        columns = (row.phenomenon, row.paradigm, str(row.num_pairs), f"{row.value:.4f}")
        lines.append("\t".join(columns))
    print(*lines, sep="\n")
    if options.output_file:
        with writing.replacing(options.output_file) as file:
            file.writelines(f"{line}\n" for line in lines)


def warn_about_hidden_differences(pairs: Sequence[Pair], scorer: Scorer) -> None:
    """Warn of truncated pairs, and of pairs whose two sentences are equal for the model.

    Args:
        pairs: the pairs.
        scorer: the scorer of the model.
    """
    num_truncated = 0
    num_equal = 0
    for pair in pairs:
        num_truncated += scorer.is_truncated(pair.good) or scorer.is_truncated(pair.bad)
        num_equal += scorer.pieces(pair.good) == scorer.pieces(pair.bad)
    if num_truncated:
        logging.warning(
            "%d of %d pairs are cut: the model reads %d pieces",
            num_truncated,
            len(pairs),
            scorer.most_pieces,
        )
    if num_equal:
        logging.warning(
            "%d of %d pairs have two equal sentences for the model: ties", num_equal, len(pairs)
        )


def accuracies(
    pairs: Sequence[Pair],
    scores: Sequence[tuple[float, float]],
) -> list[Accuracy]:
    """Return the rows of the table: the paradigms, the phenomena and the whole.

    An equal score counts as half, as a guess would. A phenomenon has the mean of its paradigms, and
    so has the whole.

    Args:
        pairs: the pairs.
        scores: the scores of the right and the wrong sentence of each pair.

    Returns:
        The rows, those of the paradigms first.
    """
    paradigm_hits: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for pair, (good, bad) in zip(pairs, scores, strict=True):
        is_tie = math.isclose(good, bad, rel_tol=_ROUNDING)
        hit = 0.5 if is_tie else float(good > bad)
        paradigm_hits[pair.phenomenon, pair.paradigm].append(hit)
    rows = []
    rows_by_phenomenon: dict[str, list[Accuracy]] = {}
    for (phenomenon, paradigm), hits in sorted(paradigm_hits.items()):
        row = Accuracy(
            phenomenon=phenomenon,
            paradigm=paradigm,
            num_pairs=len(hits),
            value=statistics.mean(hits),
        )
        rows.append(row)
        rows_by_phenomenon.setdefault(phenomenon, []).append(row)
    phenomena = sorted(rows_by_phenomenon.items())
    return [
        *rows,
        *(_summarize(name, group) for name, group in phenomena),
        _summarize("all", rows),
    ]


def _summarize(name: str, rows: Sequence[Accuracy]) -> Accuracy:
    """Returns the row of several paradigms: the sum of the pairs, the mean of the accuracies."""
    return Accuracy(
        phenomenon=name,
        paradigm="all",
        num_pairs=sum(row.num_pairs for row in rows),
        value=statistics.mean(row.value for row in rows),
    )


def read_pairs(path: str, most: int | None = None) -> list[Pair]:
    """Read the pairs of files in the form of BLiMP.

    Args:
        path: a .zip file, or a folder of .jsonl files.
        most: only so many pairs of each file, the first ones; None for all.

    Returns:
        The pairs, in the order of the names of the files.

    Raises:
        InputError: a line is no pair, or there is none.
    """
    pairs = []
    for name, text in _read_files(path):
        # str.splitlines would also split within a text, at U+2028 for instance.
        numbered = enumerate(text.split("\n"), 1)
        lines = [(number, line) for number, line in numbered if line.strip()]
        for number, line in lines[:most]:
            pairs.append(_read_pair(f"{name}: line {number}", line))
    if not pairs:
        raise InputError(
            f"{path}: holds no pair; name BLiMP.zip, or a folder of such {_SUFFIX} files"
        )
    return pairs


def _read_files(path: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the content of each file, by their names."""
    if files.is_folder(path):
        for name in sorted(files.matching(f"*{_SUFFIX}", path)):
            yield name, "\n".join(text for _, text in numbered_lines(name))
        return
    remedy = f"download it again, or name a folder of {_SUFFIX}"
    for name, content in archives.read_entries(path, _has_pairs, remedy):
        place = f"{path}: {name}"
        yield place, _decode(place, content)


def _has_pairs(name: str) -> bool:
    is_hidden = os.path.basename(name).startswith(".")
    return name.endswith(_SUFFIX) and not is_hidden


def _decode(place: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: byte {error.start} is no UTF-8; save it as UTF-8") from None


def _read_pair(place: str, line: str) -> Pair:
    """Returns the pair of a JSON line; `place` is that of the line, for error messages."""
    try:
        content = reading.parse_json(
            line, has_lines=False, object_pairs_hook=reading.distinct_fields
        )
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    names = (_GOOD, _BAD, _PARADIGM, _PHENOMENON)
    fields = content if isinstance(content, Mapping) else {}
    texts: dict[str, str] = {}
    for name in names:
        value = fields.get(name)
        if isinstance(value, str):
            texts[name] = value
    if len(texts) < len(names):
        raise InputError(
            f"{place}: is no object with the texts {', '.join(names)}; give pairs in the form of "
            "BLiMP"
        )
    for name, text in texts.items():
        half = reading.half_pair_in(text)
        if half:
            raise InputError(f"{place}: {name} has {half}; correct it")
        if not text.strip():
            raise InputError(f"{place}: {name} is blank; give it a text, or leave the line out")
    phenomenon = texts[_PHENOMENON]
    return Pair(
        texts[_GOOD],
        texts[_BAD],
        texts[_PARADIGM],
        _RENAMED_PHENOMENA.get(phenomenon, phenomenon),
    )

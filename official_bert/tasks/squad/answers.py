"""Chooses answers by start and end logits, by the original's rules, and writes its three files of
answers.

`rank_answers` holds the rules; graph_answers.py finds the best answer by the same rules for exports
of text.
"""

import functools
import io
import itertools
import json
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.io import reading, writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError, brief
from official_bert.io.progress import counted
from official_bert.io.reading import check_object
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import InputFeatures, dense
from official_bert.tokenization import BasicTokenizer

_CACHED_WORDS = 1 << 16
_LOGIT_ARRAYS = ("unique_ids", "start_logits", "end_logits")  # of a file of logits


def get_final_text(
    pred_text: str,
    orig_text: str,
    do_lower_case: bool,
    verbose_logging: bool = False,
    strip_accents: bool | None = None,
) -> str:
    """Returns the part of the words that the pieces cover.

    For example, "steve smith" gives "Steve Smith" of "Steve Smith's". Returns `orig_text` itself if
    the two cannot be aligned, for example because lower-casing changes the length.

    Args:
        pred_text: the pieces, joined to tokens with a space between them.
        orig_text: the words of the document that contain the pieces.
        do_lower_case: whether the tokenizer of the pieces lower-cases.
        verbose_logging: whether the reason is logged if the two cannot be aligned.
        strip_accents: whether the tokenizer removes accents; None for the value of `do_lower_case`.
    """
    return FinalText(do_lower_case, strip_accents, verbose_logging)(pred_text, orig_text)


class FinalText:
    """`get_final_text` for many answers, with a cache of tokenized words; it takes the arguments
    of the function.
    """

    def __init__(self, do_lower_case: bool, strip_accents: bool | None, verbose_logging: bool):
        tokenize = BasicTokenizer(do_lower_case, strip_accents).tokenize

        @functools.lru_cache(_CACHED_WORDS)
        def separate_tokens(word: str) -> str:
            return " ".join(tokenize(word))

        self._separate_tokens = separate_tokens
        self._log = logging.info if verbose_logging else lambda *message: None

    def __call__(self, pred_text: str, orig_text: str) -> str:
        words = map(self._separate_tokens, orig_text.split(" "))
        tok_text = " ".join(filter(None, words))
        start = tok_text.find(pred_text)
        if start < 0:
            self._log("'%s' does not occur in the words '%s'", pred_text, orig_text)
            return orig_text
        orig_length = len(orig_text) - orig_text.count(" ")
        tok_length = len(tok_text) - tok_text.count(" ")
        if orig_length != tok_length:
            self._log(
                "Normalization changed the number of characters: '%s' became '%s'",
                orig_text,
                tok_text,
            )
            return orig_text
        end = start + len(pred_text) - 1
        if end < start or " " in (tok_text[start], tok_text[end]):
            self._log("'%s' begins or ends between two words of '%s'", pred_text, tok_text)
            return orig_text
        # Both texts have the same characters apart from spaces, so counting characters before the
        # match aligns them.
        first = _unspaced(orig_text, start - tok_text.count(" ", 0, start))
        last = _unspaced(orig_text, end - tok_text.count(" ", 0, end))
        return orig_text[first : last + 1]


def _unspaced(text: str, number: int) -> int:
    """Returns the index of the character of `text` that `number` other characters precede, not
    counting spaces.
    """
    index = -1
    next_index = number
    while index < next_index:
        index = next_index
        next_index = number + text.count(" ", 0, index + 1)
    return index


# The null odds of a question without any span: higher than any threshold that logits give. The
# original, which crashed on such questions, starts its search for the lowest null score with this
# value.
CERTAINLY_NO_ANSWER = 1000000.0


class RawResult(NamedTuple):
    """The logits of a model for one window: `start_logits` and `end_logits`,
    float[max_seq_length].
    """

    unique_id: int
    start_logits: Sequence[float]
    end_logits: Sequence[float]


class Entry(NamedTuple):
    """An n-best entry, "" for "no answer"; `words` are its first and last word, None if it is
    not in the document.
    """

    text: str
    start_logit: float
    end_logit: float
    words: tuple[int, int] | None = None


class Ranking(NamedTuple):
    """The ranked answers to a question, the most probable first; `null_odds` as in `Candidates`."""

    entries: list[Entry]
    null_odds: float | None

    def nbest(self) -> list[dict[str, Any]]:
        """Returns the entries as in `Candidates`, with the softmax of their scores, keys in the
        original's order.
        """
        scores = [entry.start_logit + entry.end_logit for entry in self.entries]
        return [
            {
                "text": entry.text,
                "probability": share,
                "start_logit": entry.start_logit,
                "end_logit": entry.end_logit,
            }
            for entry, share in zip(self.entries, softmax(scores), strict=True)
        ]


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns the probabilities of scores, to the last bit as the original's loop.

    Args:
        scores: the sums of logits; may be empty.
    """
    highest = max(scores, default=0.0)
    weights = [math.exp(score - highest) for score in scores]
    total = functools.reduce(operator.add, weights, 0.0)  # sum() rounds otherwise since Python 3.12
    return [weight / total for weight in weights]


class Candidates(NamedTuple):
    """N-best lists and, with version 2, null odds by question id: the score of "no answer" minus
    that of the best.
    """

    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float]


def extract_candidates(
    examples: Sequence[SquadExample],
    windows: Iterable[InputFeatures],
    results: Iterable[RawResult],
    rules: SquadRules,
) -> Candidates:
    """Extracts n-best lists and null odds of all questions.

    Args:
        examples: the questions.
        windows: the windows of the questions; `example_index` is the index in `examples`.
        results: the logits for each window, in any order.
        rules: how answers are chosen.

    Raises:
        InputError: a logit is not finite.
    """
    rankings = rank_answers(examples, windows, results, rules)
    candidates = Candidates({}, {})
    for example, ranking in zip(examples, rankings, strict=True):
        candidates.nbest[example.qas_id] = ranking.nbest()
        if ranking.null_odds is not None:
            candidates.null_odds[example.qas_id] = ranking.null_odds
    return candidates


def rank_answers(
    examples: Sequence[SquadExample],
    windows: Iterable[InputFeatures],
    results: Iterable[RawResult],
    rules: SquadRules,
) -> Iterator[Ranking]:
    """Yields the ranked answers to each question, with their words in the document.

    See `extract_candidates`.

    Args:
        examples: the questions.
        windows: the windows of the questions; `example_index` is the index in `examples`.
        results: the logits for each window, in any order.
        rules: how answers are chosen.

    Raises:
        InputError: a logit is not finite.
    """
    windows_by_example = defaultdict(list)
    for window in windows:
        windows_by_example[window.example_index].append(window)
    results_by_id = {result.unique_id: result for result in results}
    final_text = FinalText(rules.do_lower_case, rules.strip_accents, rules.verbose_logging)
    for index, example in enumerate(counted(examples, "questions answered")):
        ranked_windows = [
            _window(feature, results_by_id, example.qas_id) for feature in windows_by_example[index]
        ]
        null = _null_span(ranked_windows) if rules.version_2_with_negative else None
        spans = _ranked_spans(ranked_windows, rules, null)
        entries = _nbest(spans, ranked_windows, example, rules.n_best_size, final_text)
        if null:
            if all(entry.text for entry in entries):
                entries.append(Entry("", null.start_logit, null.end_logit))
            elif rules.n_best_size == 1:  # without a span there would be no null odds
                entries += _nbest(
                    _ranked_spans(ranked_windows, rules.with_all_positions(), None),
                    ranked_windows,
                    example,
                    1,
                    final_text,
                )
                entries.sort(key=lambda entry: -entry.start_logit - entry.end_logit)
        elif not entries:
            entries.append(Entry("empty", 0.0, 0.0))
        yield Ranking(entries, _null_odds(null, entries) if null else None)


def choose_answers(
    nbest: Mapping[str, Sequence[Mapping]],
    null_odds: Mapping[str, float],
    null_score_diff_threshold: float | None = 0.0,
) -> dict[str, str]:
    """Returns the answer to each question: the first entry of its list or, with null odds, the
    first that is not "".

    Args:
        nbest: the entries of each question by its id, the best first.
        null_odds: the odds of each question that it has no answer; empty in version 1.
        null_score_diff_threshold: the null odds above which the answer is "". It is also "" if the
            list contains only "". None is for version 1 alone.
    """
    if not null_odds:
        return {qas_id: entries[0]["text"] for qas_id, entries in nbest.items()}
    assert null_score_diff_threshold is not None  # A threshold of version 2 has been tuned by now.
    best = {
        qas_id: next((entry["text"] for entry in entries if entry["text"]), "")
        for qas_id, entries in nbest.items()
    }
    return {
        qas_id: "" if null_odds[qas_id] > null_score_diff_threshold else text
        for qas_id, text in best.items()
    }


def raw_results(
    windows: Sequence[InputFeatures], outputs: Mapping[str, np.ndarray]
) -> list[RawResult]:
    """Makes the original's results of the logits of windows.

    Args:
        windows: the windows.
        outputs: `start_logits` and `end_logits`, float[n, S], of the windows in their order; may be
            empty without windows.
    """
    if not windows:
        return []
    rows = zip(windows, outputs["start_logits"], outputs["end_logits"], strict=True)
    return [RawResult(window.unique_id, start, end) for window, start, end in rows]


def write_logits(
    path: str, results: Sequence[RawResult], source_record: Mapping[str, object]
) -> None:
    """Writes a file of logits for ensembles, with the inputs and settings that they were made from.

    Args:
        path: the .npz file to write.
        results: the logits of each window.
        source_record: the inputs and settings by name, as JSON values.
    """
    buffer = io.BytesIO()
    np.savez(
        buffer,
        unique_ids=np.array([result.unique_id for result in results], np.int64),
        start_logits=np.array([result.start_logits for result in results], np.float32),
        end_logits=np.array([result.end_logits for result in results], np.float32),
        made_from=np.array(json.dumps(dict(source_record))),
    )
    with writing.replacing(path, "wb") as file:
        file.write(buffer.getvalue())


def read_logits(path: str, source_record: Mapping[str, object]) -> list[RawResult]:
    """Reads a file of logits, which must belong to the inputs and settings `source_record`.

    Args:
        path: the .npz file that `write_logits` wrote.
        source_record: the inputs and settings by name, as JSON values. Each of them must equal that
            of the file.

    Raises:
        InputError: the file is damaged, or its logits are of other inputs or settings.
    """
    remedy = "predict again in its folder"
    arrays = read_npz(path, (*_LOGIT_ARRAYS, "made_from"), remedy)
    try:
        record_text = str(arrays["made_from"])
        written_for = check_object(reading.parse_json(record_text), "made_from")
        columns = [arrays[name] for name in _LOGIT_ARRAYS]
        if not all(np.isfinite(column).all() for column in columns):
            raise ValueError("it holds values that are not finite")
        results = [
            RawResult(int(unique_id), start, end)
            for unique_id, start, end in zip(*columns, strict=True)
        ]
    except (ValueError, TypeError) as error:  # arrays of another form
        raise InputError(f"{path}: no file of logits ({brief(error)}); {remedy}") from error
    differing = [name for name, value in source_record.items() if written_for.get(name) != value]
    if differing:
        raise InputError(
            f"{path}: its logits are of another {' and another '.join(differing)}; all runs of an "
            "ensemble have to predict the same file with the same vocabulary and settings"
        )
    return results


def average_results(runs: Sequence[Sequence[RawResult]]) -> list[RawResult]:
    """Averages the logits of several runs.

    Args:
        runs: the results of each run. All are of the same windows in the same order, as
            `read_logits` has checked.
    """
    averaged = []
    for members in zip(*runs, strict=True):
        start, end = (
            np.mean([member[kind] for member in members], axis=0, dtype=float) for kind in (1, 2)
        )
        averaged.append(RawResult(members[0].unique_id, start, end))
    return averaged


def write_json(path: str, content: Any) -> None:
    """Writes JSON as the original does: indented by 4, ASCII, in the order of `content`.

    Args:
        path: the file to write.
        content: the value, which JSON can represent.
    """
    with writing.replacing(path) as file:
        file.write(json.dumps(content, indent=4) + "\n")


class _Window(NamedTuple):
    """A window and the logits of a model for it, float64[max_seq_length] each."""

    feature: InputFeatures
    start_logits: np.ndarray
    end_logits: np.ndarray


class _Span(NamedTuple):
    """A candidate: positions in the sequence of a window, (0, 0) for "no answer"."""

    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float


def _window(feature: InputFeatures, results: Mapping[int, RawResult], qas_id: str) -> _Window:
    result = results[feature.unique_id]
    start_logits = np.asarray(result.start_logits, float)
    end_logits = np.asarray(result.end_logits, float)
    is_finite = np.isfinite(start_logits).all() and np.isfinite(end_logits).all()
    if not is_finite:
        raise InputError(
            f"question {qas_id}: the model gives logits that are no finite numbers; its checkpoint "
            "is corrupt, or its training diverged"
        )
    return _Window(feature, start_logits, end_logits)


def _null_span(windows: Sequence[_Window]) -> _Span:
    """Returns "no answer" in the window that gives it the lowest score; the first of equal
    windows.
    """
    nulls = []
    for number, window in enumerate(windows):
        start_logit = float(window.start_logits[0])
        end_logit = float(window.end_logits[0])
        nulls.append(_Span(number, 0, 0, start_logit, end_logit))
    return min(
        nulls,
        key=lambda null: null.start_logit + null.end_logit,
        default=_Span(0, 0, 0, 0.0, 0.0),
    )


def _ranked_spans(
    windows: Sequence[_Window], rules: SquadRules, null: _Span | None
) -> Iterator[_Span]:
    """Yields candidates by decreasing sum of logits; equal ones by window, rank of start and of
    end, `null` last.
    """
    parts = [_spans(number, window, rules) for number, window in enumerate(windows)]
    if null:
        parts.append(tuple(np.array([value]) for value in null))
    if not parts:
        return
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(-(columns[3] + columns[4]), kind="stable")
    yield from itertools.starmap(
        _Span, zip(*(column[order].tolist() for column in columns), strict=True)
    )


def _spans(number: int, window: _Window, rules: SquadRules) -> tuple[np.ndarray, ...]:
    """Returns the valid pairs of positions, the most probable starts first, as the columns of
    `_Span`, [candidates].
    """
    size = len(window.feature.tokens)
    is_document = dense(window.feature.token_to_orig_map, size, -1) >= 0
    is_start = is_document & dense(window.feature.token_is_max_context, size, False)
    starts = _best_positions(window.start_logits, rules.n_best_size, is_start)
    ends = _best_positions(window.end_logits, rules.n_best_size, is_document)
    num_tokens = ends - starts[:, None] + 1  # [starts, ends]
    is_span = (num_tokens >= 1) & (num_tokens <= rules.max_answer_length)
    rows, columns = np.nonzero(is_span)
    starts = starts[rows]
    ends = ends[columns]
    return (
        np.full(len(starts), number),
        starts,
        ends,
        window.start_logits[starts],
        window.end_logits[ends],
    )


def _best_positions(logits: np.ndarray, n_best_size: int, allowed: np.ndarray) -> np.ndarray:
    """Returns the positions of the `n_best_size` highest logits, first among equals, without
    those not allowed.
    """
    best = np.argsort(-logits, kind="stable")[:n_best_size]
    best = best[best < len(allowed)]
    return best[allowed[best]]


def _nbest(
    spans: Iterable[_Span],
    windows: Sequence[_Window],
    example: SquadExample,
    n_best_size: int,
    final_text: FinalText,
) -> list[Entry]:
    """Returns the first candidates with different texts; the text of "no answer" is ""."""
    entries = []
    seen = set()
    for span in spans:
        if len(entries) >= n_best_size:
            break
        text, words = "", None
        if span.start > 0:
            feature = windows[span.window].feature
            word_map = feature.token_to_orig_map
            words = word_map[span.start], word_map[span.end]
            text = _text(span, feature, example, words, final_text)
            if text in seen:
                continue
        seen.add(text)
        entries.append(Entry(text, span.start_logit, span.end_logit, words))
    return entries


def _text(
    span: _Span,
    feature: InputFeatures,
    example: SquadExample,
    words: tuple[int, int],
    final_text: FinalText,
) -> str:
    pieces = " ".join(feature.tokens[span.start : span.end + 1])
    whole_words = pieces.replace(" ##", "").replace("##", "")
    pred_text = " ".join(whole_words.split())
    first, last = words
    orig_text = " ".join(example.doc_tokens[first : last + 1])
    return final_text(pred_text, orig_text)


def _null_odds(null: _Span, entries: Sequence[Entry]) -> float:
    best = next((entry for entry in entries if entry.text), None)
    if best is None:
        return CERTAINLY_NO_ANSWER
    return null.start_logit + null.end_logit - best.start_logit - best.end_logit

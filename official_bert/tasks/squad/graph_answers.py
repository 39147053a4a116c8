"""Answers questions about raw text in a graph, with the spans that tasks/squad/answers.py would
choose.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from official_bert.graph_text.text_reader import TextReader, Windows, run_in_batches
from official_bert.graph_text.tokenizer import Pieces, readable
from official_bert.tasks.squad.answers import CERTAINLY_NO_ANSWER
from official_bert.tasks.squad.rules import NO_POSITION, SquadRules

# The answer of version 1 to a question without candidates, such as one about an empty context.
_NO_CANDIDATE = "empty"
_NO_OFFSET = -1
_NO_SCORE = tf.float64.min  # equals the maximum of an empty set of scores


class _Spans(NamedTuple):
    """The best span of each window or question, [n]: float64 sum of logits and int32 pieces, -1
    if there is none.
    """

    scores: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor


def answer_questions(
    logits: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    questions: tf.Tensor,
    contexts: tf.Tensor,
    reader: TextReader,
    rules: SquadRules,
) -> dict[str, tf.Tensor]:
    """Finds the best answers to questions, string[batch], in contexts, string[batch].

    `logits` maps encoder features to the logits of starts and ends, float32[windows, length, 2].
    The result is `answer`, string[batch]; its offsets in the context in code points, `start` and
    `end`, and its first and last piece, `start_piece` and `end_piece`, int32[batch]; `score`, the
    sum of its logits, and with version 2 `null_odds`, float32[batch]. An answer that is no part of
    the context is "", or "empty" in version 1, and has the offsets -1.
    """
    pieces = reader.tokenizer.pieces(contexts)
    ids = reader.tokenizer.encode(questions)
    windows = reader.document_windows(ids, pieces.ids, rules.doc_stride, rules.max_query_length)
    if not rules.length_aware_batches:
        windows = _padded(windows, reader.max_seq_length)
    window_logits = run_in_batches(logits, windows.features, tf.float32)
    if rules.length_aware_batches:
        window_logits = tf.where(
            windows.features["input_mask"][..., None] > 0, window_logits, NO_POSITION
        )
    # The sums of different spans should not round alike.
    window_logits = tf.cast(window_logits, tf.float64)
    num_questions = tf.shape(questions)[0]

    def best_spans(rules: SquadRules) -> _Spans:
        window_spans = _best_window_spans(
            windows, window_logits[..., 0], window_logits[..., 1], rules
        )
        return _best_question_spans(window_spans, windows.texts, num_questions)

    best = best_spans(rules)
    # Without a span there would be no null odds.
    if rules.version_2_with_negative and rules.n_best_size == 1:
        columns = zip(best, best_spans(rules.with_all_positions()), strict=True)
        best = _Spans(
            *(tf.where(best.scores > _NO_SCORE, one, fallback) for one, fallback in columns)
        )
    has_answer, null_scores, null_odds = best.scores > _NO_SCORE, tf.zeros_like(best.scores), {}
    if rules.version_2_with_negative:
        null_scores = _null_scores(
            window_logits[:, 0, 0] + window_logits[:, 0, 1], windows.texts, num_questions
        )
        odds = tf.where(has_answer, null_scores - best.scores, CERTAINLY_NO_ANSWER)
        has_answer &= odds <= rules.null_score_diff_threshold
        null_odds = {"null_odds": tf.cast(odds, tf.float32)}
    answers = _cut(best, has_answer, contexts, pieces, "" if null_odds else _NO_CANDIDATE)
    scores = tf.cast(tf.where(has_answer, best.scores, null_scores), tf.float32)
    return answers | {"score": scores} | null_odds


def _padded(windows: Windows, length: int) -> Windows:
    missing = [[0, 0], [0, length - tf.shape(windows.pieces)[1]]]

    def padded(values: tf.Tensor, filler: Any):
        return tf.ensure_shape(tf.pad(values, missing, constant_values=filler), [None, length])

    return windows._replace(
        features={name: padded(values, 0) for name, values in windows.features.items()},
        pieces=padded(windows.pieces, -1),
        has_prediction=padded(windows.has_prediction, False),
    )


def _best_window_spans(
    windows: Windows, start_logits: tf.Tensor, end_logits: tf.Tensor, rules: SquadRules
) -> _Spans:
    """Finds the best span of each window; the better start, then the better end, decides between
    equal scores.
    """
    k = tf.minimum(rules.n_best_size, tf.shape(start_logits)[1])
    # [n, k], equal ones in order.
    starts, ends = (tf.math.top_k(logits, k) for logits in (start_logits, end_logits))
    is_start = tf.gather(windows.has_prediction, starts.indices, batch_dims=1)
    first, last = (tf.gather(windows.pieces, best.indices, batch_dims=1) for best in (starts, ends))
    num_pieces = last[:, None] - first[..., None] + 1  # [n, starts, ends]
    is_span = is_start[..., None] & (last >= 0)[:, None]
    is_span &= (num_pieces >= 1) & (num_pieces <= rules.max_answer_length)
    scores = tf.where(is_span, starts.values[..., None] + ends.values[:, None], _NO_SCORE)
    # The first among equal scores.
    best = tf.math.top_k(tf.reshape(scores, [tf.shape(scores)[0], k * k]), 1)
    scores, pairs = best.values[:, 0], best.indices[:, 0]
    has_span = scores > _NO_SCORE
    first, last = (
        tf.where(has_span, tf.gather(positions, rank, batch_dims=1), _NO_OFFSET)
        for positions, rank in ((first, pairs // k), (last, pairs % k))
    )
    return _Spans(scores, first, last)


def _best_question_spans(spans: _Spans, texts: tf.Tensor, num_questions: tf.Tensor) -> _Spans:
    """Finds the best span of each question; the first window wins. `texts` are the questions of
    the windows.
    """
    num_windows = tf.size(texts)
    scores = tf.math.unsorted_segment_max(spans.scores, texts, num_questions)
    is_best = (spans.scores > _NO_SCORE) & (spans.scores == tf.gather(scores, texts))
    best_windows = tf.where(is_best, tf.range(num_windows), num_windows)
    rows = tf.math.unsorted_segment_min(best_windows, texts, num_questions)
    rows = tf.minimum(rows, num_windows)  # behind the last where a question has no span
    first, last = (
        tf.gather(tf.concat([pieces, [_NO_OFFSET]], axis=0), rows)
        for pieces in (spans.first, spans.last)
    )
    return _Spans(scores, first, last)


def _null_scores(scores: tf.Tensor, texts: tf.Tensor, num_questions: tf.Tensor) -> tf.Tensor:
    """Returns the lowest score of "no answer" in each question's windows, 0 if it has none:
    float64[num_questions].
    """
    lowest = tf.math.unsorted_segment_min(scores, texts, num_questions)
    num_windows = tf.math.unsorted_segment_sum(tf.ones_like(texts), texts, num_questions)
    return tf.where(num_windows > 0, lowest, 0.0)


def _cut(
    spans: _Spans, has_answer: tf.Tensor, contexts: tf.Tensor, pieces: Pieces, otherwise: str
) -> dict[str, tf.Tensor]:
    """Cuts the answers out of their contexts; `has_answer`, bool[batch], tells whether the
    answer is the span.
    """
    row_starts = tf.cast(pieces.ids.row_starts(), tf.int32)

    def look_up(values: tf.RaggedTensor, numbers: tf.Tensor) -> tf.Tensor:
        padded = tf.concat([values.values, [_NO_OFFSET]], axis=0)
        return tf.gather(padded, tf.where(has_answer, row_starts + numbers, tf.size(padded) - 1))

    start, end = look_up(pieces.starts, spans.first), look_up(pieces.ends, spans.last)
    cut = tf.strings.substr(readable(contexts), tf.maximum(start, 0), end - start, unit="UTF8_CHAR")
    return {
        "answer": tf.where(has_answer, cut, otherwise),
        "start": start,
        "end": end,
        "start_piece": tf.where(has_answer, spans.first, _NO_OFFSET),
        "end_piece": tf.where(has_answer, spans.last, _NO_OFFSET),
    }

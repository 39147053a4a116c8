"""Answers questions about raw text in a graph, with the spans that tasks/squad/answers.py would
choose.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from official_bert.graph_text.graph_tokenizer import Pieces
from official_bert.graph_text.text_reader import TextReader, Windows, run_in_batches
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
    """Finds the best answers to questions in contexts.

    An answer that is no part of the context is "", or "empty" in version 1, and has the offsets -1.

    Args:
        logits: maps encoder features to the logits of starts and ends, float32[windows, length, 2].
        questions: string[batch].
        contexts: string[batch], the context of each question.
        reader: makes windows of the questions and contexts.
        rules: how windows are cut and answers are chosen. With version 2 the threshold must be a
            number.

    Returns:
        `answer`, string[batch]; its offsets in the context in code points, `start` and `end`, and
        its first and last piece, `start_piece` and `end_piece`, int32[batch]; `score`, the sum of
        its logits, and with version 2 `null_odds`, float32[batch].
    """
    pieces = reader.tokenizer.pieces(contexts)
    windows = reader.document_windows(
        questions=reader.tokenizer.encode(questions),
        documents=pieces.ids,
        doc_stride=rules.doc_stride,
        max_query_length=rules.max_query_length,
    )
    length = reader.max_seq_length
    if rules.length_aware_batches:
        # Contexts without words have no windows, and these would have no positions.
        length = tf.maximum(1, tf.shape(windows.pieces)[1])
    windows = _pad_windows(windows, length)
    window_logits = run_in_batches(logits, windows.features, tf.float32)
    window_logits = tf.ensure_shape(window_logits, [None, None, 2])
    if rules.length_aware_batches:
        is_token = windows.features["input_mask"] > 0
        window_logits = tf.where(is_token[..., None], window_logits, NO_POSITION)
    # The sums of different spans should not round alike.
    window_logits = tf.cast(window_logits, tf.float64)
    start_logits = window_logits[..., 0]
    end_logits = window_logits[..., 1]
    num_questions = tf.shape(questions)[0]
    cut = functools.partial(reader.tokenizer.substrings, contexts, tf.range(num_questions))

    def best_spans(rules: SquadRules) -> _Spans:
        window_spans = _best_window_spans(windows, start_logits, end_logits, rules)
        return _best_question_spans(window_spans, windows.texts, num_questions)

    best = best_spans(rules)
    # Without a span there would be no null odds.
    if rules.version_2_with_negative and rules.n_best_size == 1:
        fallbacks = best_spans(rules.with_all_positions())
        has_span = best.scores > _NO_SCORE
        best = _Spans(
            scores=tf.where(has_span, best.scores, fallbacks.scores),
            first=tf.where(has_span, best.first, fallbacks.first),
            last=tf.where(has_span, best.last, fallbacks.last),
        )
    has_answer = best.scores > _NO_SCORE
    if not rules.version_2_with_negative:
        answers = _cut(best, has_answer, pieces, cut, otherwise=_NO_CANDIDATE)
        scores = tf.where(has_answer, best.scores, 0.0)
        return answers | {"score": tf.cast(scores, tf.float32)}
    null_scores = _null_scores(
        start_logits[:, 0] + end_logits[:, 0],
        windows.texts,
        num_questions,
    )
    differences = null_scores - best.scores
    odds = tf.where(has_answer, differences, CERTAINLY_NO_ANSWER)
    has_answer &= odds <= rules.null_score_diff_threshold
    answers = _cut(best, has_answer, pieces, cut, otherwise="")
    scores = tf.where(has_answer, best.scores, null_scores)
    return answers | {
        "score": tf.cast(scores, tf.float32),
        "null_odds": tf.cast(odds, tf.float32),
    }


def _pad_windows(windows: Windows, length: int | tf.Tensor) -> Windows:
    num_missing = length - tf.shape(windows.pieces)[1]
    paddings = [[0, 0], [0, num_missing]]

    def pad(values: tf.Tensor, filler: int | bool) -> tf.Tensor:
        padded = tf.pad(values, paddings, constant_values=filler)
        return tf.ensure_shape(padded, [None, length]) if isinstance(length, int) else padded

    features = {}
    for name, values in windows.features.items():
        features[name] = pad(values, 0)
    return windows._replace(
        features=features,
        pieces=pad(windows.pieces, -1),
        has_prediction=pad(windows.has_prediction, False),
    )


def _best_window_spans(
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    rules: SquadRules,
) -> _Spans:
    """Finds the best span of each window; the better start, then the better end, decides between
    equal scores.
    """
    length = tf.shape(start_logits)[1]
    k = tf.minimum(rules.n_best_size, length)
    # [n, k], equal ones in order.
    starts = tf.math.top_k(start_logits, k)
    ends = tf.math.top_k(end_logits, k)
    is_start = tf.gather(windows.has_prediction, starts.indices, batch_dims=1)
    first = tf.gather(windows.pieces, starts.indices, batch_dims=1)
    last = tf.gather(windows.pieces, ends.indices, batch_dims=1)

    # The pairs of a start and an end, [n, starts, ends].
    pair_first = first[..., None]
    pair_last = last[:, None]
    num_pieces = pair_last - pair_first + 1
    is_span = is_start[..., None] & (pair_last >= 0)
    is_span &= num_pieces >= 1
    is_span &= num_pieces <= rules.max_answer_length
    sums = starts.values[..., None] + ends.values[:, None]
    pair_scores = tf.where(is_span, sums, _NO_SCORE)

    # The first among equal scores.
    num_windows = tf.shape(first)[0]
    pair_scores = tf.reshape(pair_scores, [num_windows, k * k])
    best = tf.math.top_k(pair_scores, 1)
    scores = best.values[:, 0]
    pairs = best.indices[:, 0]
    has_span = scores > _NO_SCORE
    best_first = tf.gather(first, pairs // k, batch_dims=1)
    best_last = tf.gather(last, pairs % k, batch_dims=1)
    return _Spans(
        scores=scores,
        first=tf.where(has_span, best_first, _NO_OFFSET),
        last=tf.where(has_span, best_last, _NO_OFFSET),
    )


def _best_question_spans(spans: _Spans, texts: tf.Tensor, num_questions: tf.Tensor) -> _Spans:
    """Finds the best span of each question; the first window wins. `texts` are the questions of
    the windows.
    """
    num_windows = tf.size(texts)
    scores = tf.math.unsorted_segment_max(spans.scores, texts, num_questions)
    is_best = spans.scores == tf.gather(scores, texts)
    is_best &= spans.scores > _NO_SCORE
    rows = tf.math.unsorted_segment_min(
        data=tf.where(is_best, tf.range(num_windows), num_windows),
        segment_ids=texts,
        num_segments=num_questions,
    )
    rows = tf.minimum(rows, num_windows)  # behind the last where a question has no span
    first = tf.concat([spans.first, [_NO_OFFSET]], axis=0)
    last = tf.concat([spans.last, [_NO_OFFSET]], axis=0)
    return _Spans(
        scores=scores,
        first=tf.gather(first, rows),
        last=tf.gather(last, rows),
    )


def _null_scores(scores: tf.Tensor, texts: tf.Tensor, num_questions: tf.Tensor) -> tf.Tensor:
    """Returns the lowest score of "no answer" in each question's windows, 0 if it has none:
    float64[num_questions].
    """
    lowest = tf.math.unsorted_segment_min(scores, texts, num_questions)
    num_windows = tf.math.unsorted_segment_sum(
        data=tf.ones_like(texts),
        segment_ids=texts,
        num_segments=num_questions,
    )
    return tf.where(num_windows > 0, lowest, 0.0)


def _cut(
    spans: _Spans,
    has_answer: tf.Tensor,
    pieces: Pieces,
    cut: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    otherwise: str,
) -> dict[str, tf.Tensor]:
    """Cuts the answers out of their contexts.

    Args:
        spans: the best span of each question.
        has_answer: bool[batch], whether the answer is the span.
        pieces: the WordPieces of the contexts.
        cut: maps the offsets of the starts and ends to the parts of the contexts.
        otherwise: the answer without a span.
    """
    row_starts = pieces.ids.row_starts()
    row_starts = tf.cast(row_starts, tf.int32)

    def look_up(values: tf.RaggedTensor, numbers: tf.Tensor) -> tf.Tensor:
        padded = tf.concat([values.values, [_NO_OFFSET]], axis=0)
        last = tf.size(padded) - 1
        indices = tf.where(has_answer, row_starts + numbers, last)
        return tf.gather(padded, indices)

    start = look_up(pieces.starts, spans.first)
    end = look_up(pieces.ends, spans.last)
    texts = cut(tf.maximum(start, 0), tf.maximum(end, 0))
    return {
        "answer": tf.where(has_answer, texts, otherwise),
        "start": start,
        "end": end,
        "start_piece": tf.where(has_answer, spans.first, _NO_OFFSET),
        "end_piece": tf.where(has_answer, spans.last, _NO_OFFSET),
    }

"""The original's rules for SQuAD windows and answers, one step after the other, as slow as they
come.
"""

import math
from typing import Any, NamedTuple


def max_context_span(spans, position: int) -> int:
    """The window of a token: highest min(left, right) + 0.01 * length, the first of equal ones."""
    best = None
    owner = None
    for index, (start, length) in enumerate(spans):
        end = start + length - 1
        if start <= position <= end:
            left = position - start
            right = end - position
            score = min(left, right) + 0.01 * length
            if best is None or score > best:
                best = score
                owner = index
    return owner


def best_positions(logits, n_best_size: int) -> list[int]:
    ranked = sorted(
        enumerate(logits),
        key=lambda item: item[1],
        reverse=True,
    )
    return [position for position, _ in ranked[:n_best_size]]


class Span(NamedTuple):
    """A possible answer: the first and the last position in a window, and their logits."""

    feature: Any
    start: int
    end: int
    start_logit: float
    end_logit: float


class Entry(NamedTuple):
    """An answer as text, and the logits of its positions."""

    text: str
    start_logit: float
    end_logit: float


def score_of(answer: Span | Entry) -> float:
    return answer.start_logit + answer.end_logit


def is_in_document(feature, position: int) -> bool:
    return position in feature.token_to_orig_map


def spans_of_window(feature, start_logits, end_logits, n_best_size, max_answer_length):
    """The spans of the best positions of a window, in the original's order."""
    num_tokens = len(feature.tokens)
    spans = []
    for start in best_positions(start_logits, n_best_size):
        for end in best_positions(end_logits, n_best_size):
            if start >= num_tokens or end >= num_tokens:
                continue
            if not is_in_document(feature, start) or not is_in_document(feature, end):
                continue
            if not feature.token_is_max_context.get(start, False):
                continue
            if start <= end < start + max_answer_length:
                span = Span(
                    feature,
                    start,
                    end,
                    start_logits[start],
                    end_logits[end],
                )
                spans.append(span)
    return spans


def text_of(span: Span, doc_tokens, final_text) -> str:
    feature, start, end, *_ = span
    pieces = " ".join(feature.tokens[start : end + 1])
    pieces = pieces.replace(" ##", "").replace("##", "")
    first_word = feature.token_to_orig_map[start]
    last_word = feature.token_to_orig_map[end]
    words = doc_tokens[first_word : last_word + 1]
    return final_text(" ".join(pieces.split()), " ".join(words))


def nbest(windows, doc_tokens, n_best_size, max_answer_length, final_text, version_2):
    """(text, probability, start logit, end logit) of the list of one question.

    `windows` are (InputFeatures, start logits, end logits), `final_text` is (pieces, words of the
    document) -> answer.
    """
    spans = []
    lowest_null = 1000000
    null = None
    for feature, start_logits, end_logits in windows:
        window_null = Span(feature, 0, 0, start_logits[0], end_logits[0])
        if score_of(window_null) < lowest_null:
            lowest_null = score_of(window_null)
            null = window_null
        spans += spans_of_window(
            feature,
            start_logits,
            end_logits,
            n_best_size,
            max_answer_length,
        )
    if version_2:
        spans.append(null)
    spans.sort(key=score_of, reverse=True)

    entries = []
    for span in spans:
        if len(entries) == n_best_size:
            break
        text = ""
        if span.start > 0:
            text = text_of(span, doc_tokens, final_text)
            if text in [entry.text for entry in entries]:
                continue
        entries.append(Entry(text, span.start_logit, span.end_logit))
    if version_2 and "" not in [entry.text for entry in entries]:
        entries.append(Entry("", null.start_logit, null.end_logit))
    # The original crashed.
    if version_2 and n_best_size == 1 and not any(entry.text for entry in entries):
        every = nbest(
            windows,
            doc_tokens,
            n_best_size=1000,
            max_answer_length=max_answer_length,
            final_text=final_text,
            version_2=version_2,
        )
        for text, _, start_logit, end_logit in every:
            if text:
                entries.append(Entry(text, start_logit, end_logit))
                break
        entries.sort(key=score_of, reverse=True)
    if not entries:
        entries.append(Entry("empty", 0.0, 0.0))
    return with_probabilities(entries)


def with_probabilities(entries: list[Entry]) -> list[tuple[str, float, float, float]]:
    """(text, probability, start logit, end logit) of all entries."""
    highest = max(map(score_of, entries))
    weights = [math.exp(score_of(entry) - highest) for entry in entries]
    total = 0.0
    for weight in weights:  # sum() rounds otherwise since Python 3.12
        total += weight
    rows = []
    for entry, weight in zip(entries, weights, strict=True):
        row = (entry.text, weight / total, entry.start_logit, entry.end_logit)
        rows.append(row)
    return rows


def final_text(pred_text: str, orig_text: str, tokenizer) -> str:
    """The characters of `orig_text` that stand for those of `pred_text`, through maps of all
    positions.
    """
    tok_text = " ".join(tokenizer.tokenize(orig_text))
    start = tok_text.find(pred_text)
    if start == -1:
        return orig_text
    end = start + len(pred_text) - 1
    orig_offsets = offsets_of_characters(orig_text)
    tok_offsets = offsets_of_characters(tok_text)
    if len(orig_offsets) != len(tok_offsets):
        return orig_text
    if start not in tok_offsets or end not in tok_offsets:
        return orig_text
    first = orig_offsets[tok_offsets.index(start)]
    last = orig_offsets[tok_offsets.index(end)]
    return orig_text[first : last + 1]


def offsets_of_characters(text: str) -> list[int]:
    """The positions of all characters but spaces."""
    return [offset for offset, char in enumerate(text) if char != " "]


def spans(windows, n_best_size, max_answer_length):
    """(number of the window, start, end, score) of every answer to one question, in the
    original's order.
    """
    rows = []
    for number, (feature, start_logits, end_logits) in enumerate(windows):
        for start in best_positions(start_logits, n_best_size):
            for end in best_positions(end_logits, n_best_size):
                if not is_in_document(feature, start) or not is_in_document(feature, end):
                    continue
                if not feature.token_is_max_context[start]:
                    continue
                if 0 <= end - start < max_answer_length:
                    score = float(start_logits[start]) + float(end_logits[end])
                    rows.append((number, start, end, score))
    return sorted(
        rows,
        key=lambda row: row[3],
        reverse=True,
    )


def pieces_of(span, windows, max_seq_length, doc_stride):
    """First and last piece of one of `spans`, counted in the document."""
    number, start, end, _ = span
    first_feature = windows[0][0]
    offset = first_feature.tokens.index("[SEP]") + 1  # as in every window of the question
    stride = min(max_seq_length - offset - 1, doc_stride)
    before = number * stride - offset
    return before + start, before + end

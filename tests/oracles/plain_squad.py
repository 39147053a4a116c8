"""The original's rules for SQuAD windows and answers, one step after the other, as slow as they
come.
"""

import math


def max_context_span(spans, position: int) -> int:
    """The window of a token: highest min(left, right) + 0.01 * length, the first of equal ones."""
    best, owner = None, None
    for index, (start, length) in enumerate(spans):
        if start <= position < start + length:
            score = min(position - start, start + length - 1 - position) + 0.01 * length
            if best is None or score > best:
                best, owner = score, index
    return owner


def best_positions(logits, n_best_size: int) -> list[int]:
    ranked = sorted(enumerate(logits), key=lambda item: item[1], reverse=True)
    return [position for position, _ in ranked[:n_best_size]]


def nbest(windows, doc_tokens, n_best_size, max_answer_length, final_text, version_2):
    """(text, probability, start logit, end logit) of the list of one question.

    `windows` are (InputFeatures, start logits, end logits), `final_text` is (pieces, words of the
    document) -> answer.
    """
    found = []
    lowest_null, null = 1000000, None
    for feature, start_logits, end_logits in windows:
        if start_logits[0] + end_logits[0] < lowest_null:
            lowest_null = start_logits[0] + end_logits[0]
            null = (feature, 0, 0, start_logits[0], end_logits[0])
        for start in best_positions(start_logits, n_best_size):
            for end in best_positions(end_logits, n_best_size):
                if start >= len(feature.tokens) or end >= len(feature.tokens):
                    continue
                if start not in feature.token_to_orig_map or end not in feature.token_to_orig_map:
                    continue
                if not feature.token_is_max_context.get(start, False):
                    continue
                if start <= end < start + max_answer_length:
                    found.append((feature, start, end, start_logits[start], end_logits[end]))
    if version_2:
        found.append(null)
    found.sort(key=lambda span: span[3] + span[4], reverse=True)
    entries = []
    for feature, start, end, start_logit, end_logit in found:
        if len(entries) == n_best_size:
            break
        text = ""
        if start > 0:
            pieces = " ".join(feature.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
            first, last = feature.token_to_orig_map[start], feature.token_to_orig_map[end]
            text = final_text(" ".join(pieces.split()), " ".join(doc_tokens[first : last + 1]))
            if text in [entry[0] for entry in entries]:
                continue
        entries.append((text, start_logit, end_logit))
    if version_2 and "" not in [entry[0] for entry in entries]:
        entries.append(("", null[3], null[4]))
    # The original crashed.
    if version_2 and n_best_size == 1 and not any(entry[0] for entry in entries):
        every = nbest(windows, doc_tokens, 1000, max_answer_length, final_text, version_2)
        entries += [(text, start, end) for text, _, start, end in every if text][:1]
        entries.sort(key=lambda entry: entry[1] + entry[2], reverse=True)
    if not entries:
        entries.append(("empty", 0.0, 0.0))
    highest = max(start + end for _, start, end in entries)
    weights = [math.exp(start + end - highest) for _, start, end in entries]
    total = 0.0
    for weight in weights:  # sum() rounds otherwise since Python 3.12
        total += weight
    return [
        (text, weight / total, start, end)
        for (text, start, end), weight in zip(entries, weights, strict=True)
    ]


def final_text(pred_text: str, orig_text: str, tokenizer) -> str:
    """The characters of `orig_text` that stand for those of `pred_text`, through maps of all
    positions.
    """
    tok_text = " ".join(tokenizer.tokenize(orig_text))
    start = tok_text.find(pred_text)
    if start == -1:
        return orig_text
    orig_offsets = [offset for offset, char in enumerate(orig_text) if char != " "]
    tok_offsets = [offset for offset, char in enumerate(tok_text) if char != " "]
    end = start + len(pred_text) - 1
    if len(orig_offsets) != len(tok_offsets) or start not in tok_offsets or end not in tok_offsets:
        return orig_text
    return orig_text[
        orig_offsets[tok_offsets.index(start)] : orig_offsets[tok_offsets.index(end)] + 1
    ]


def spans(windows, n_best_size, max_answer_length):
    """(number of the window, start, end, score) of every answer to one question, in the
    original's order.
    """
    found = []
    for number, (feature, start_logits, end_logits) in enumerate(windows):
        for start in best_positions(start_logits, n_best_size):
            for end in best_positions(end_logits, n_best_size):
                in_document = (
                    start in feature.token_to_orig_map and end in feature.token_to_orig_map
                )
                if (
                    in_document
                    and feature.token_is_max_context[start]
                    and 0 <= end - start < max_answer_length
                ):
                    found.append(
                        (number, start, end, float(start_logits[start]) + float(end_logits[end]))
                    )
    return sorted(found, key=lambda span: span[3], reverse=True)


def pieces_of(span, windows, max_seq_length, doc_stride):
    """First and last piece of one of `spans`, counted in the document."""
    number, start, end, _ = span
    offset = windows[0][0].tokens.index("[SEP]") + 1  # as in every window of the question
    before = number * min(max_seq_length - offset - 1, doc_stride) - offset
    return before + start, before + end

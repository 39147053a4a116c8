"""Joins the tokens of a text, or of two, into the sequence that a model reads.

In: lists of tokens or ids without special tokens. Out: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated as in the
original.
"""


def joined(first: list, second: list, max_seq_length: int, cls, sep) -> tuple[list, int]:
    """Returns `cls first sep second sep`, truncated, and the length of segment 0; it may shorten the lists."""
    if not second:
        single = [cls, *first[: max_seq_length - 2], sep]
        return single, len(single)
    truncate_seq_pair(first, second, max_seq_length - 3)
    return [cls, *first, sep, *second, sep], len(first) + 2


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int):
    """Shortens two token lists in place to `max_length` in all; the longer one (b on a tie) loses its last token.

    Fine-tuning and feature extraction truncate this way. The pairs of pre-training lose tokens at random ends instead
    (`exact.truncated`).
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()

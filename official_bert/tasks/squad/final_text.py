"""Predicted pieces into text of the document: its own letters, without what surrounds the answer in its words."""

import functools

from absl import logging

from official_bert.tokenization import BasicTokenizer

_CACHED_WORDS = 1 << 16


def get_final_text(
    pred_text: str,
    orig_text: str,
    do_lower_case: bool,
    verbose_logging: bool = False,
    strip_accents: bool | None = None,
) -> str:
    """What of the document's own words the predicted pieces cover: "steve smith" of "Steve Smith's" is "Steve Smith".

    Gives `orig_text` itself where the two cannot be aligned, as where lower-casing changes the number of characters.

    Args:
        pred_text: the pieces, joined to words.
        orig_text: the words of the document that the pieces are of.
        do_lower_case: as for the tokenizer that made the pieces.
        verbose_logging: log why the two could not be aligned.
        strip_accents: as for the tokenizer that made the pieces.
    """
    return FinalText(do_lower_case, strip_accents, verbose_logging)(pred_text, orig_text)


class FinalText:
    """`get_final_text` for many answers, with a memory for words; arguments are those of the function."""

    def __init__(self, do_lower_case: bool, strip_accents: bool | None, verbose_logging: bool):
        tokenize = BasicTokenizer(do_lower_case, strip_accents).tokenize
        self._spaced = functools.lru_cache(_CACHED_WORDS)(lambda word: " ".join(tokenize(word)))
        self._log = logging.info if verbose_logging else lambda *message: None

    def __call__(self, pred_text: str, orig_text: str) -> str:
        tok_text = " ".join(filter(None, map(self._spaced, orig_text.split(" "))))
        start = tok_text.find(pred_text)
        if start < 0:
            self._log("Unable to find text: '%s' in '%s'", pred_text, orig_text)
            return orig_text
        if len(orig_text) - orig_text.count(" ") != len(tok_text) - tok_text.count(" "):
            self._log("Length not equal after stripping spaces: '%s' vs '%s'", orig_text, tok_text)
            return orig_text
        end = start + len(pred_text) - 1
        if end < start or " " in (tok_text[start], tok_text[end]):
            self._log("Couldn't map the ends of '%s' in '%s'", pred_text, tok_text)
            return orig_text
        # The same characters in the same order, but for the spaces: those before the match count.
        first, last = (_unspaced(orig_text, at - tok_text.count(" ", 0, at)) for at in (start, end))
        return orig_text[first : last + 1]


def _unspaced(text: str, number: int) -> int:
    """Index of the character of `text` that has `number` others before it, spaces not counted."""
    index, found = -1, number
    while index < found:
        index, found = found, number + text.count(" ", 0, found + 1)
    return index

"""Maps predicted pieces back to the text of the document, with its spelling and without attached characters."""

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
    """Returns the part of the words that the pieces cover: "steve smith" gives "Steve Smith" of "Steve Smith's".

    Returns `orig_text` itself if the two cannot be aligned, for example because lower-casing changes the length.

    Args:
        pred_text: the pieces, joined to words.
        orig_text: the words of the document that contain the pieces.
        do_lower_case: as for the tokenizer that made the pieces.
        verbose_logging: log why the two could not be aligned.
        strip_accents: as for the tokenizer that made the pieces.
    """
    return FinalText(do_lower_case, strip_accents, verbose_logging)(pred_text, orig_text)


class FinalText:
    """`get_final_text` for many answers, with a cache of tokenized words; it takes the arguments of the function."""

    def __init__(self, do_lower_case: bool, strip_accents: bool | None, verbose_logging: bool):
        tokenize = BasicTokenizer(do_lower_case, strip_accents).tokenize
        self._spaced = functools.lru_cache(_CACHED_WORDS)(lambda word: " ".join(tokenize(word)))
        self._log = logging.info if verbose_logging else lambda *message: None

    def __call__(self, pred_text: str, orig_text: str) -> str:
        tok_text = " ".join(filter(None, map(self._spaced, orig_text.split(" "))))
        start = tok_text.find(pred_text)
        if start < 0:
            self._log("'%s' does not occur in the words '%s'", pred_text, orig_text)
            return orig_text
        if len(orig_text) - orig_text.count(" ") != len(tok_text) - tok_text.count(" "):
            self._log("Normalization changed the number of characters: '%s' became '%s'", orig_text, tok_text)
            return orig_text
        end = start + len(pred_text) - 1
        if end < start or " " in (tok_text[start], tok_text[end]):
            self._log("'%s' begins or ends between two words of '%s'", pred_text, tok_text)
            return orig_text
        # Both texts have the same characters apart from spaces, so counting characters before the match aligns them.
        first, last = (_unspaced(orig_text, at - tok_text.count(" ", 0, at)) for at in (start, end))
        return orig_text[first : last + 1]


def _unspaced(text: str, number: int) -> int:
    """Returns the index of the character of `text` that `number` other characters precede, not counting spaces."""
    index, found = -1, number
    while index < found:
        index, found = found, number + text.count(" ", 0, found + 1)
    return index

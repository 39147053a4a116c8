"""A plain and slow implementation of the tokenization rules, character by character.

The tests compare official_bert.tokenization with it, and benchmarks/tokenizer.py measures its speed.
"""

import unicodedata

_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class PlainTokenizer:
    """The plain counterpart of FullTokenizer.

    Args:
        vocab: WordPiece -> id.
        do_lower_case: whether the text is lower-cased.
        strip_accents: whether accents are removed; None means the value of do_lower_case.
    """

    def __init__(self, vocab, do_lower_case=True, strip_accents=None):
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def tokenize(self, text):
        return [piece for word in self.words(text) for piece in self.pieces(word)]

    def words(self, text):
        """Returns the basic tokens of a text."""
        text = _space_ideographs(_clean(text))
        words = []
        for word in text.strip().split():
            if self.do_lower_case:
                word = word.lower()
            if self.strip_accents:
                word = _strip_accents(word)
            words.extend(_split_on_punctuation(word))
        return " ".join(words).strip().split()

    def pieces(self, word):
        """Returns the longest WordPieces of a word from the left, or [UNK] for the whole word."""
        characters = list(word)
        if len(characters) > 200:
            return ["[UNK]"]
        pieces = []
        start = 0
        while start < len(characters):
            end = len(characters)
            found = None
            while start < end:
                candidate = "".join(characters[start:end])
                if start > 0:
                    candidate = "##" + candidate
                if candidate in self.vocab:
                    found = candidate
                    break
                end -= 1
            if found is None:
                return ["[UNK]"]
            pieces.append(found)
            start = end
        return pieces


def _clean(text):
    output = []
    for char in text:
        code = ord(char)
        if code == 0 or code == 0xFFFD or _is_control(char):
            continue
        if _is_whitespace(char):
            output.append(" ")
        else:
            output.append(char)
    return "".join(output)


def _space_ideographs(text):
    output = []
    for char in text:
        code = ord(char)
        if any(first <= code <= last for first, last in _CJK_RANGES):
            output.append(" ")
            output.append(char)
            output.append(" ")
        else:
            output.append(char)
    return "".join(output)


def _strip_accents(text):
    output = []
    for char in unicodedata.normalize("NFD", text):
        if unicodedata.category(char) == "Mn":
            continue
        output.append(char)
    return "".join(output)


def _split_on_punctuation(word):
    words = []
    at_start = True
    for char in word:
        if _is_punctuation(char):
            words.append([char])
            at_start = True
        else:
            if at_start:
                words.append([])
            at_start = False
            words[-1].append(char)
    return ["".join(characters) for characters in words]


def _is_whitespace(char):
    if char == " " or char == "\t" or char == "\n" or char == "\r":
        return True
    return unicodedata.category(char) == "Zs"


def _is_control(char):
    if char == "\t" or char == "\n" or char == "\r":
        return False
    return unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char):
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")

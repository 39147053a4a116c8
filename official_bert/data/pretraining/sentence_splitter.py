"""Splits a paragraph of a European or East Asian language into sentences, by rules.

In: a paragraph. Out: its sentences. The rules are simple: they look at the mark, at what stands before it and at what
comes behind it. Pre-training needs segments of text rather than sentences in a grammarian's sense, so that a wrong
boundary does little harm; for texts of law, chemistry or dialogue a splitter of the user's own is better.
"""

import re

# A mark of the end, the quotes and brackets that close behind it, white space, and what can begin a sentence.
_BOUNDARY = re.compile(
    r"""(?P<mark>[.!?…]+)['"’”»)\]]*\s+(?=['"‘“„«(\[¿¡]*(?P<next>[^\W_]))|(?P<wide>[。！？]+[」』”’）]*)\s*"""
)
_LAST_WORD = re.compile(r"[^\s(\[\"“‘]+$")

# Words that a full stop abbreviates, in lower case and without it; a name or a number follows.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st rev hon gen col lt sgt capt cmdr adm gov sen rep pres jr sr mt ft
    vs cf etc ca approx no nos vol vols fig figs eq ch chap sec p pp pt ed eds trans al e.g i.e viz op cit
    dept univ inc ltd co corp bros jan feb mar apr jun jul aug sep sept oct nov dec
    bzw z.b d.h usw nr str hr fr mme mlle
    """.split()  # noqa: SIM905 - a list of one-word literals would fill the page
)
# Of these, those that also end a sentence, if the next word has a capital.
_MAY_END = frozenset({"etc", "al", "inc", "ltd", "co", "corp", "jr", "sr", "usw", "dept", "univ"})
_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J, or U.S


def split_sentences(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph, without white space around them; none for a blank one."""
    sentences, start = [], 0
    for boundary in _BOUNDARY.finditer(paragraph):
        if boundary["wide"] is None and not _ends_sentence(paragraph[start : boundary.start()], boundary):
            continue
        sentences.append(paragraph[start : boundary.end()].strip())
        start = boundary.end()
    sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(before: str, boundary: re.Match) -> bool:
    """Tells whether a mark with white space behind it ends a sentence."""
    following = boundary["next"]
    if following.islower():
        return False
    if boundary["mark"] != ".":
        return True
    last = _LAST_WORD.search(before)
    word = last[0].lstrip("'").lower() if last else ""
    if word in _ABBREVIATIONS:
        return word in _MAY_END and following.isupper()
    # An initial of a name, as in J. Smith; "I" is a word, and "U.S." ends sentences as often as not.
    is_initial = bool(_INITIAL.fullmatch(word)) and word != "i"
    return not is_initial or "." in word

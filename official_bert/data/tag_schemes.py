"""Schemes of tags: BIOES, BILOU, BMES and IO, read as IOB2; conversion between IOB1 and IOB2.

IOB2, also called BIO, begins each chunk with B-. IOB1 does so only behind a chunk of the same type.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from absl import logging

IOB1, IOB2 = "IOB1", "IOB2"
OUTSIDE = "O"
# Scheme -> its marks, and those of IOB2 that replace them.
_SCHEMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "BIOES": {"B": "B", "I": "I", "E": "I", "S": "B"},
        "BILOU": {"B": "B", "I": "I", "L": "I", "U": "B"},
        "BMES": {"B": "B", "M": "I", "E": "I", "S": "B"},
    }
)
_PLAIN_MARKS = {"B", "I"}
_SHORTEST_TYPE = 2  # of tags that are types; a shorter one may be a typing error


def convert_schemes(path: str, sentences: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Converts the tags of BIOES, BILOU, BMES and IO to IOB2; others stay as they are.

    Args:
        path: the file, for the log, which names the scheme.
        sentences: the tags of each sentence.
    """
    distinct_tags: set[str] = set()
    for tags in sentences:
        distinct_tags.update(tags)
    distinct_tags.discard(OUTSIDE)
    marks = set()
    for tag in distinct_tags:
        mark, _, _ = tag.partition("-")
        marks.add(mark)
    if not distinct_tags or marks <= _PLAIN_MARKS:
        return list(sentences)
    for scheme, replacements in _SCHEMES.items():
        if marks <= replacements.keys():
            logging.info("%s: tags are %s; they are read and written as IOB2 (BIO)", path, scheme)
            return [_replace_marks(tags, replacements) for tags in sentences]
    has_outside = any(OUTSIDE in tags for tags in sentences)
    are_types = all(_is_type(tag) for tag in distinct_tags)
    if has_outside and are_types:
        logging.info("%s: tags are types (IO); they are read and written as IOB2 (BIO)", path)
        return [_add_marks(tags) for tags in sentences]
    return list(sentences)


def _is_type(tag: str) -> bool:
    """Returns whether a tag is a type alone, such as PER."""
    return len(tag) >= _SHORTEST_TYPE and "-" not in tag


def _replace_marks(tags: Sequence[str], replacements: Mapping[str, str]) -> list[str]:
    converted = []
    for tag in tags:
        mark, hyphen, type_ = tag.partition("-")
        new_mark = replacements.get(mark, mark)
        converted.append(f"{new_mark}{hyphen}{type_}")
    return convert_chunks(converted, IOB2)


def _add_marks(tags: Sequence[str]) -> list[str]:
    marked_tags = []
    for tag in tags:
        marked_tag = tag if tag == OUTSIDE else f"I-{tag}"
        marked_tags.append(marked_tag)
    return convert_chunks(marked_tags, IOB2)


def convert_chunks(tags: Sequence[str], scheme: str) -> list[str]:
    """Converts tags of IOB1 or IOB2 to one of the two.

    In IOB2 every chunk begins with B-. In IOB1 a chunk begins with B- only if it directly follows
    one of the same type.

    Args:
        tags: the tags of a sentence.
        scheme: the scheme of the result, IOB1 or IOB2.
    """
    old_mark = "I"
    new_mark = "B"
    if scheme == IOB1:
        old_mark = "B"
        new_mark = "I"
    converted = []
    for before, tag in _pair_with_previous(tags):
        ending = tag[1:]
        if tag[0] == old_mark and _begins_chunk(before, tag):
            tag = f"{new_mark}{ending}"
        converted.append(tag)
    return converted


def restore_scheme(tags: Sequence[str], scheme: str) -> Sequence[str]:
    """Returns predicted tags of IOB2 in the scheme of a file; those of IOB2 stay as predicted.

    Args:
        tags: the predicted tags of a sentence.
        scheme: the scheme, IOB1 or IOB2.
    """
    return convert_chunks(tags, scheme) if scheme == IOB1 else tags


def _begins_chunk(before: str, tag: str) -> bool:
    """Returns whether a tag other than O has another type than the tag before it, or follows O."""
    return before == OUTSIDE or tag[1:] != before[1:]


def _pair_with_previous(tags: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Returns each tag after the tag before it, which is O for the first one."""
    return zip([OUTSIDE, *tags], tags, strict=False)


def logged_scheme(path: str, sentences: Iterable[Sequence[str]]) -> str:
    """Logs and returns the scheme: IOB1 if chunks begin with I-, and with B- only behind one of
    the same type.

    Args:
        path: the file, for the log.
        sentences: the tags of each sentence.
    """
    begun = {"B": 0, "I": 0}
    for tags in sentences:
        for before, tag in _pair_with_previous(tags):
            if tag != OUTSIDE and _begins_chunk(before, tag):
                begun[tag[0]] += 1
    if begun["I"] and not begun["B"]:
        logging.info("%s: tags are IOB1", path)
        return IOB1
    logging.info("%s: tags are IOB2 (BIO)", path)
    if begun["I"]:
        logging.warning(
            "%s: %d chunks begin with I-; they are read as if with B-",
            path,
            begun["I"],
        )
    return IOB2

"""Reads texts with marked entities, as annotation tools write them: the hook `read_tagged`.

    {"text": "Anna saw Rome.", "label": [[0, 4, "PER"], [9, 13, "LOC"]]}    Doccano, a line each
    {"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}        Prodigy, a line each
    {"text": ..., "ents": [{"start": 0, "end": 4, "label": "PER"}]}         spaCy's Doc.to_json
    [["Anna saw Rome.", {"entities": [[0, 4, "PER"]]}]]                     spaCy's training data
    [{"data": {"text": ...}, "annotations": [{"result": [...]}]}]           Label Studio

Out: a ConllFile, whose words are separated as `Predictor.tag` separates those of running text.
Texts that an annotator has rejected or cancelled are no examples: they are left out, and counted in
the log.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.data.tables import ConllFile, Sentence, not_empty, numbered_lines
from official_bert.data.tag_schemes import IOB2, OUTSIDE
from official_bert.io import errors, reading
from official_bert.io.errors import InputError
from official_bert.tasks.tagging.task import split_words
from official_bert.tokenization import BasicTokenizer

_ENTITY_FIELDS = ("entities", "spans", "ents", "label", "labels")
_WORD_FIELDS = ("tokens", "ner_tags", "tags")  # of tables of words, which the core reads
_STARTS = ("start", "start_offset")
_ENDS = ("end", "end_offset")
_TYPES = ("label", "labels", "type")
_SHOWN_CHARACTERS = 40
_PRODIGY_REJECTIONS = ("reject", "ignore")  # values of the field answer


class Mark(NamedTuple):
    """A marked entity: its first character, the character behind it, and its type."""

    start: int
    end: int
    type: str


class MarkedText(NamedTuple):
    """A text with its marks.

    Attributes:
        where: the place in the file, for messages.
        text: the text.
        marks: the entities, in their order; None if nothing says which.
        is_rejected: whether the annotator has rejected or cancelled the marks.
    """

    where: str
    text: str
    marks: list[Mark] | None
    is_rejected: bool = False


def read_marked(path: str, labelled: bool) -> ConllFile | None:
    """Reads a file of marked texts; returns None for a file of words.

    Args:
        path: the file.
        labelled: whether the entities are needed and read.

    Raises:
        InputError: a text or an entity has another form, two entities overlap, or there is no text.
    """
    lowered = path.lower()
    if lowered.endswith(".json"):
        values = _read_array(path)
    elif lowered.endswith((".jsonl", ".jsonl.gz")) and _is_marked(path):
        values = _read_lines(path)
    else:
        return None
    tokenizer = BasicTokenizer(do_lower_case=False)
    sentences = []
    num_inside = 0
    num_rejected = 0
    for number, (where, value) in enumerate(values):
        marked = _read_text(value, where)
        if labelled and marked.is_rejected:
            num_rejected += 1
            continue
        if labelled and marked.marks is None:
            raise InputError(
                f"{where}: has no entities; give the text one of the fields "
                f"{', '.join(_ENTITY_FIELDS)}, empty for a text without entities"
            )
        words = split_words(marked.text, tokenizer)
        if not words:
            continue
        columns = [[word] for word, _, _ in words]
        tags = None
        if labelled:
            tags, count = _make_tags(marked, [(start, end) for _, start, end in words])
            num_inside += count
            columns = [[*column, tag] for column, tag in zip(columns, tags, strict=True)]
        sentences.append(Sentence(0, number, columns, tags, where))
    logging.info("%s: Reading texts with marked entities; their words get tags of IOB2", path)
    if num_rejected:
        logging.info(
            "%s: Leaving out %d texts whose annotation was rejected or cancelled",
            path,
            num_rejected,
        )
    if num_inside:
        errors.warn(
            "%s: %d entities begin or end inside a word; their tags are those of the whole word",
            path,
            num_inside,
        )
    return ConllFile(path, not_empty(sentences, path), IOB2, has_documents=False)


def _is_marked(path: str) -> bool:
    """Returns whether the first line is an object with a text and without words."""
    lines = (text for _, text in numbered_lines(path, decompresses=True) if text.strip())
    first_line = next(lines, "")
    try:
        value = json.loads(first_line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return isinstance(value, list)
    return not any(name in value for name in _WORD_FIELDS[1:]) and (
        "text" in value or "data" in value
    )


def _read_lines(path: str) -> Iterator[tuple[str, Any]]:
    """Yields the place and the value of each line."""
    for line, text in numbered_lines(path, decompresses=True):
        if text.strip():
            where = f"{path}: line {line}"
            try:
                yield where, reading.parse_json(text, has_lines=False)
            except InputError as error:
                raise InputError(f"{where}: {error}; give one JSON object a line") from error


def _read_array(path: str) -> Iterator[tuple[str, Any]]:
    """Yields the place and the value of each element."""
    content = reading.read_json(path)
    if not isinstance(content, list):
        raise InputError(
            f"{path}: is no list of texts; export the texts of Label Studio or spaCy as one list"
        )
    for number, value in enumerate(content, start=1):
        yield f"{path}: text {number}", value


def _read_text(value: Any, where: str) -> MarkedText:
    """Returns a text with its entities, in any of the forms."""
    if isinstance(value, list):  # of spaCy
        if len(value) != 2 or not isinstance(value[1], dict):
            raise InputError(f'{where}: is no pair of a text and {{"entities": [...]}}; write one')
        value = {**value[1], "text": value[0]}
    fields = reading.check_object(value, where)
    is_rejected = fields.get("answer") in _PRODIGY_REJECTIONS
    if "data" in fields:
        fields = _read_task(fields, where)
    text = reading.field(fields, "text", str, where)
    if half := reading.half_pair_in(text):
        raise InputError(f"{where}: text has {half}; leave it out")
    names = [name for name in _ENTITY_FIELDS if fields.get(name) is not None]
    if fields.get("is_cancelled"):
        is_rejected = True
    if is_rejected or not names:
        return MarkedText(where, text, None, is_rejected)
    elements = reading.field(fields, names[0], list, where)
    return MarkedText(where, text, _read_marks(elements, text, where))


def _read_marks(elements: Sequence[Any], text: str, where: str) -> list[Mark]:
    """Returns the entities of a text in their order; raises InputError if two overlap."""
    marks = []
    for element in elements:
        mark = _read_mark(element, where)
        if not 0 <= mark.start < mark.end <= len(text):
            raise InputError(
                f"{where}: an entity goes from {mark.start} to {mark.end}, and the text has "
                f"{len(text)} characters; correct it"
            )
        marks.append(mark)
    marks.sort()
    for first, second in itertools.pairwise(marks):
        if second.start < first.end:
            names = [text[mark.start : mark.end][:_SHOWN_CHARACTERS] for mark in (first, second)]
            raise InputError(
                f"{where}: the entities {names[0]!r} and {names[1]!r} overlap; leave one of them "
                "out"
            )
    return marks


def _read_task(task: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the text and the entities of a task of Label Studio."""
    data = reading.field(task, "data", dict, where)
    texts = [value for value in data.values() if isinstance(value, str)]
    if not isinstance(data.get("text"), str) and len(texts) != 1:
        raise InputError(f"{where}: data has no field text; name the text so")
    text = data["text"] if isinstance(data.get("text"), str) else texts[0]
    entities = []
    all_annotations = task.get("annotations") or []
    annotations = []
    for annotation in all_annotations:
        if not reading.check_object(annotation, where).get("was_cancelled"):
            annotations.append(annotation)
    if all_annotations and not annotations:
        return {"text": text, "is_cancelled": True}
    for annotation in annotations[:1]:
        results = reading.field(annotation, "result", list, f"{where}: annotations")
        for result in results:
            is_label = isinstance(result, dict) and result.get("type") == "labels"
            if is_label:
                entities.append(reading.field(result, "value", dict, f"{where}: result"))
    return {"text": text, "entities": entities if annotations else None}


def _read_mark(element: Any, where: str) -> Mark:
    """Returns an entity: a list of start, end and type, or an object with such fields."""
    if isinstance(element, dict):
        values = [_first(element, names) for names in (_STARTS, _ENDS, _TYPES)]
    else:
        values = element if isinstance(element, list) else []
    if len(values) == 3:
        start, end, type_ = values
        if isinstance(type_, list) and len(type_) == 1:
            type_ = type_[0]
        has_offsets = reading.has_type(start, int) and reading.has_type(end, int)
        if has_offsets and isinstance(type_, str) and type_.split() == [type_]:
            return Mark(start, end, type_)
    shown = json.dumps(element)[:_SHOWN_CHARACTERS]
    raise InputError(
        f"{where}: the entity {shown} has another form than [start, end, type]; give whole numbers "
        "and a type without blanks"
    )


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _make_tags(marked: MarkedText, spans: Sequence[tuple[int, int]]) -> tuple[list[str], int]:
    """Returns the tags of the words of a text, and the number of entities within words.

    Args:
        marked: the text.
        spans: the first character of each word, and the character behind it.
    """
    tags = [OUTSIDE] * len(spans)
    num_inside = 0
    for mark in marked.marks or ():
        words = [
            number
            for number, (start, end) in enumerate(spans)
            if start < mark.end and end > mark.start
        ]
        if not words:
            continue
        first_start = spans[words[0]][0]
        last_end = spans[words[-1]][1]
        num_inside += first_start < mark.start or last_end > mark.end
        begins = True
        for word in words:
            # The word of the entity before keeps its tag.
            if tags[word] == OUTSIDE:
                tags[word] = f"{'B' if begins else 'I'}-{mark.type}"
                begins = False
    return tags, num_inside

"""Shows explanations and entities in colours, in a notebook or as a file.

A text keeps its blanks and line breaks. The elements have their styles with them, so that they can
be pasted into any page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.io.markup import MarkedPart, element, mark_text
from official_bert.serving.predictor import Predictor, split_requests

_TEXT_STYLE = "white-space: pre-wrap; line-height: 2; font-family: system-ui, sans-serif"
_MARK_STYLE = "color: inherit; padding: 2px 3px; border-radius: 4px"
_FOR = "0, 114, 178"  # blue, as red, green, blue
_AGAINST = "213, 94, 0"  # orange
# The colours of the types of entities, in the order of the alphabet.
_ENTITY_COLORS = ("#cfe8fc", "#fde3cf", "#d3f2e3", "#f6d9ec", "#fdf0c4", "#e2dcf5")


class Explanation(dict):
    """An explanation of `Predictor.explain`, which a notebook shows with coloured words.

    Attributes:
        texts: the explained texts by their names.
    """

    def __init__(self, values: Mapping[str, Any], texts: Mapping[str, str]):
        super().__init__(values)
        self.texts = texts

    def html(self) -> str:
        """Returns the texts with coloured words: blue speaks for the label, orange against it.

        A stronger colour is a larger share. Point at a word to read its attribution.
        """
        largest = max((abs(word["attribution"]) for word in self["words"]), default=0.0)
        lines = []
        for name, text in self.texts.items():
            parts = [
                _mark_word(word, word["attribution"] / (largest or 1.0))
                for word in self["words"]
                if word["text"] == name
            ]
            lines.append(element("div", mark_text(text, parts), style=_TEXT_STYLE, dir="auto"))
        label = "score" if self["label"] is None else self["label"]
        head = element("b", f"{label}: {self['score']:.4g}")
        return element("div", head, *lines)

    def _repr_html_(self) -> str:
        return self.html()


def _mark_word(word: Mapping[str, Any], share: float) -> MarkedPart:
    color = _FOR if share >= 0 else _AGAINST
    attributes = {
        "style": f"background: rgba({color}, {0.7 * abs(share):.2f}); {_MARK_STYLE}",
        "title": f"{word['attribution']:+.3f}",
    }
    return MarkedPart(word["start"], word["end"], attributes=attributes)


class MarkedEntities(list):
    """The entities of a text, as `Predictor.tag` finds them, which a notebook shows in the text.

    Attributes:
        text: the text.
    """

    def __init__(self, entities: Iterable[Mapping[str, Any]], text: str):
        super().__init__(entities)
        self.text = text

    def html(self) -> str:
        """Returns the text with marked entities, and the type of each behind it."""
        types = sorted({entity["entity_group"] for entity in self})
        parts = [
            MarkedPart(
                entity["start"],
                entity["end"],
                f" {entity['entity_group']}",
                _make_entity_style(types.index(entity["entity_group"])),
            )
            for entity in self
        ]
        return element("div", mark_text(self.text, parts), style=_TEXT_STYLE, dir="auto")

    def _repr_html_(self) -> str:
        return self.html()


def _make_entity_style(number: int) -> Mapping[str, str]:
    color = _ENTITY_COLORS[number % len(_ENTITY_COLORS)]
    return {"style": f"background: {color}; {_MARK_STYLE}"}


def mark_entities(predictor: Predictor, *texts: str | list[str]) -> Any:
    """Find the entities of texts, with a method `html` that shows them in their text.

    Args:
        predictor: the opened model of named entities.
        *texts: a text, or a list of texts.

    Returns:
        The result of the method `tag`, as a `MarkedEntities`. A list of texts gives a list of them.

    Raises:
        InputError: the model is no tagger, or cannot answer a request.
    """
    tagged = predictor.tag(*texts)
    requests, is_one = split_requests(texts)
    marked = []
    for (text,), entities in zip(requests, [tagged] if is_one else tagged, strict=True):
        marked.append(MarkedEntities(entities, text))
    return marked[0] if is_one else marked

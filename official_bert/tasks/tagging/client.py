"""The client of a tagging model: it answers a text, split into words at white space, with a tag for each word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from official_bert.data.conll import IOB2, ConllFile, Sentence
from official_bert.metrics.entities import entities_of
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts
from official_bert.tasks.tagging.windows import encoded_words

_words_of = re.compile("[^ \t\r\n]+").finditer


class TaggingClient(TextClient):
    """A client that asks for a tag for each word of a text.

    Texts that are too long for the model are cut into windows as by run_ner.py without --document_context.
    """

    method = "tag"

    def __init__(self, model: ServedModel):
        super().__init__(model, ("text",))

    def in_brief(self, texts: Texts, answer: dict) -> list[dict]:
        """Returns the entities of a text: `entity_group` (the type), `word` (the text), `start` and `end`."""
        (text,), words = texts, answer["tags"]
        found = []
        for entity in entities_of([word["tag"] for word in words]):
            start, end = words[entity.first]["start"], words[entity.last]["end"]
            found.append({"entity_group": entity.type, "word": text[start:end], "start": start, "end": end})
        return found

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns `tags`: for each word the word, its offsets in the text (`start`, `end`) and its `tag`."""
        if self.model.reads_text:
            return super().answers(requests)
        words = [[(found.group(), *found.span()) for found in _words_of(text)] for (text,) in requests]
        sentences = [
            Sentence(number, number, [[word] for word, _, _ in of_text], None)
            for number, of_text in enumerate(words)
        ]
        source = ConllFile("", sentences, IOB2, has_documents=False)
        encoded = encoded_words(source, (), self.model.max_seq_length, self.model.tokenizer)
        tags = iter(())
        if len(encoded):
            tags = iter(encoded.of_words(self.model.run(encoded)["tags"]))
        return [{"tags": [_tagged(*word, next(tags)) for word in of_text]} for of_text in words]

    def answer(self, row: Row) -> dict:
        """Makes the answer from the outputs of an export of text."""
        words = zip(row["words"], row["starts"], row["ends"], row["tags"], strict=True)
        return {
            "tags": [
                _tagged(word.decode(), int(start), int(end), tag)
                for _, (word, start, end, tag) in zip(range(row["num_words"]), words, strict=False)
            ]
        }


def _tagged(word: str, start: int, end: int, tag: bytes) -> dict:
    return {"word": word, "start": start, "end": end, "tag": tag.decode()}

"""Texts as users have them, answered by an exported model of tensors: what `Predictor` does for each kind of task.

In: texts, and a function that runs the model. Out: one dictionary of plain Python values for each request, ready for
JSON. SQuAD stands in squad_requests.py, models that read text themselves in text_model_requests.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from official_bert.data.conll import IOB2, ConllFile, Sentence
from official_bert.data.text.model_inputs import model_input_ids
from official_bert.data.text.ragged import ModelInputs, RaggedRows
from official_bert.errors import InputError
from official_bert.options.predict import POOLED, SEQUENCE
from official_bert.tasks.base import EncodedSet
from official_bert.tasks.choice.examples import NUM_CHOICES, ChoiceExample, encoded_choices
from official_bert.tasks.tagging.windows import encoded_words
from official_bert.tokenization import FullTokenizer

MASK = "[MASK]"
_words_of = re.compile("[^ \t\r\n]+").finditer

Texts = Sequence[str]
# The outputs of a signature, by its name, for every example of a set: [examples, ...], filled up at the end.
Run = Callable[[str, EncodedSet], dict[str, np.ndarray]]
Row = dict[str, np.ndarray]  # the outputs for one request
Ask = Callable[[Sequence[Texts]], Iterable[Row]]


class TextRequests(Protocol):
    """What a kind of model takes and gives.

    Attributes:
        columns: names of the texts of a request.
        num_required: how many of them must be given.
    """

    columns: tuple[str, ...]
    num_required: int

    def check(self, texts: Texts):
        """Refuses a request that the model cannot answer.

        Raises:
            InputError: says why.
        """

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """An answer for each request; `check` has passed them."""


class TextCount:
    """A check of the number of texts, which is enough for most kinds."""

    def check(self, texts: Texts):
        fewest, most = self.num_required, len(self.columns)
        if not fewest <= len(texts) <= most:
            wanted = str(most) if fewest == most else f"{fewest} or {most}"
            raise InputError(
                f"the model takes {wanted} texts ({', '.join(self.columns)}), {len(texts)} given"
            )


class ClassifierRequests(TextCount):
    """A text or a pair: labels with their probabilities, or a score."""

    def __init__(self, ask: Ask, labels: Sequence[str] | None, num_texts: int | None):
        """Args:
        ask: runs the model.
        labels: in the order of the outputs; None in regression.
        num_texts: 1 or 2, what the model was trained on; None where either is right.
        """
        self._ask, self._labels = ask, labels
        self.columns = ("text_a", "text_b")[:num_texts]
        self.num_required = num_texts or 1

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`label` and `probabilities`, or `labels` and `probabilities`, or `score`."""
        return [self._answer(row) for row in self._ask(requests)]

    def _answer(self, row: Row) -> dict:
        if "score" in row:
            return {"score": numbers([row["score"]])[0]}
        chances = {"probabilities": dict(zip(self._labels, numbers(row["probabilities"]), strict=True))}
        if "label" in row:
            return {"label": row["label"].decode()} | chances
        return {"labels": [label.decode() for label in row["labels"] if label]} | chances


class ChoiceRequests(TextCount):
    """A context with its possible continuations: the likeliest one."""

    columns = ("context", *(f"ending{k}" for k in range(NUM_CHOICES)))
    num_required = len(columns)

    def __init__(self, ask: Ask):
        """Args: ask: runs the model."""
        self._ask = ask

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`choice`, counted from 0, and `probabilities`."""
        return [
            {"choice": int(row["choice"]), "probabilities": numbers(row["probabilities"])}
            for row in self._ask(requests)
        ]


def pair_asker(run: Run, tokenizer: FullTokenizer, max_seq_length: int) -> Ask:
    """Asks a model of texts and pairs that are cut to a length."""
    encode = _pair_encoder(tokenizer, max_seq_length)
    return lambda requests: _rows(run("serving_default", ModelInputs(map(encode, requests))))


def choice_asker(run: Run, tokenizer: FullTokenizer, max_seq_length: int) -> Ask:
    """Asks a model of choices, each of which is cut to a length with its context."""

    def ask(requests):
        examples = [ChoiceExample("", context, tuple(endings)) for context, *endings in requests]
        return _rows(run("serving_default", encoded_choices(examples, max_seq_length, tokenizer)))

    return ask


class TaggingRequests(TextCount):
    """A text whose words are separated by whitespace: a tag for each.

    Texts longer than the model are cut into windows as run_ner.py cuts them, without --document_context.
    """

    columns = ("text",)
    num_required = 1

    def __init__(self, run: Run, tokenizer: FullTokenizer, max_seq_length: int):
        """Args:
        run: runs the model.
        tokenizer: with the vocabulary.
        max_seq_length: tokens of a window.
        """
        self._run, self._tokenizer, self._max_seq_length = run, tokenizer, max_seq_length

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`tags`: of each word the word, its place in the text (`start`, `end`) and its `tag`."""
        places = [[(found.group(), *found.span()) for found in _words_of(text)] for (text,) in requests]
        sentences = [
            Sentence(number, number, [[word] for word, _, _ in words], None)
            for number, words in enumerate(places)
        ]
        source = ConllFile("", sentences, IOB2, has_documents=False)
        encoded = encoded_words(source, (), self._max_seq_length, self._tokenizer)
        tags = iter(())
        if len(encoded):
            tags = iter(encoded.of_words(self._run("serving_default", encoded)["tags"]))
        names = ("word", "start", "end", "tag")
        return [
            {"tags": [dict(zip(names, (*word, next(tags).decode()), strict=True)) for word in words]}
            for words in places
        ]


class MasksAndVectors(TextCount):
    """A text or a pair for a pre-trained model: words for each [MASK] that stands in it, vectors where none does."""

    columns = ("text_a", "text_b")
    num_required = 1

    def __init__(self, fills_masks: bool, vectors: str, has_vectors: bool):
        """Args:
        fills_masks: whether the model has a signature for masked words.
        vectors: POOLED, a vector for the text, or SEQUENCE, one for each token.
        has_vectors: whether the model gives them.
        """
        self._fills_masks, self._vectors, self._has_vectors = fills_masks, vectors, has_vectors

    def check(self, texts: Texts):
        """Refuses a text for which the exported checkpoint has no head."""
        super().check(texts)
        if any(MASK in text for text in texts):
            if not self._fills_masks:
                raise InputError(f"has {MASK}, but the model was exported without a head for masked words")
        elif not self._has_vectors:
            raise InputError(
                f"has no {MASK}, and the model was exported without {self._vectors}; ask for {SEQUENCE}"
            )

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`masks`: of each [MASK] its `position` among the tokens, and `tokens` with their `probabilities`.

        For a text without it `pooled_output`, or `tokens` and `sequence_output`.
        """
        has_masks = [any(MASK in text for text in texts) for texts in requests]
        with_masks, without = (
            [row for row, has in enumerate(has_masks) if has is wanted] for wanted in (True, False)
        )
        found = {}
        for rows, answers in ((with_masks, self._words), (without, self._texts)):
            if rows:
                found |= zip(rows, answers([requests[row] for row in rows]), strict=True)
        return [found[row] for row in range(len(requests))]

    def _mask(self, position: int, row: Row, number: int) -> dict:
        """The answer to one [MASK] of a request."""
        return {
            "position": int(position),
            "tokens": [token.decode() for token in row["top_k_tokens"][number]],
            "probabilities": numbers(row["top_k_probabilities"][number]),
        }

    def _text(self, row: Row, tokens: Sequence[str]) -> dict:
        """The answer to a request without one."""
        if self._vectors == POOLED:
            return {POOLED: numbers(row[POOLED])}
        vectors = row[SEQUENCE][: len(tokens)]
        return {"tokens": tokens, SEQUENCE: [numbers(vector) for vector in vectors]}


class PretrainedRequests(MasksAndVectors):
    """The same for a model of tensors."""

    def __init__(self, run: Run, tokenizer: FullTokenizer, max_seq_length: int, *heads):
        """Args:
        run: runs the model.
        tokenizer: with the vocabulary.
        max_seq_length: tokens that a text or a pair is cut to.
        *heads: as of MasksAndVectors.
        """
        super().__init__(*heads)
        self._run, self._tokenizer = run, _MaskTokenizer(tokenizer)
        self._encode = _pair_encoder(self._tokenizer, max_seq_length)

    def _words(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        positions = [
            [k for k, piece in enumerate(ids) if piece == self._tokenizer.mask_id] for ids, _ in inputs
        ]
        encoded = _MaskedInputs(ModelInputs(inputs), RaggedRows(positions))
        rows = _rows(self._run("serving_masked", encoded))
        return [
            {"masks": [self._mask(position, row, number) for number, position in enumerate(of_row)]}
            for of_row, row in zip(positions, rows, strict=True)
        ]

    def _texts(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        rows = _rows(self._run("serving_default", ModelInputs(inputs)))
        return [
            self._text(row, self._tokenizer.convert_ids_to_tokens(ids))
            for row, (ids, _) in zip(rows, inputs, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class _MaskedInputs:
    """Inputs with the positions of their masked tokens, filled up with 0 to the most of the set."""

    inputs: ModelInputs
    positions: RaggedRows
    lengths: ClassVar[property] = property(lambda self: self.inputs.lengths)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        most = int(self.positions.lengths.max())
        return self.inputs.features(rows, length) | {"masked_lm_positions": self.positions.padded(rows, most)}


class _MaskTokenizer:
    """A FullTokenizer that takes [MASK] for what it is, where the vocabulary has it."""

    def __init__(self, tokenizer: FullTokenizer):
        self._tokenizer, self.vocab = tokenizer, tokenizer.vocab
        self.mask_id = tokenizer.vocab.get(MASK)
        self.convert_ids_to_tokens = tokenizer.convert_ids_to_tokens

    def encode(self, text: str) -> list[int]:
        if self.mask_id is None:
            return self._tokenizer.encode(text)
        first, *others = (self._tokenizer.encode(part) for part in text.split(MASK))
        return first + [piece for part in others for piece in (self.mask_id, *part)]


def numbers(values: Iterable[np.float32]) -> list[float]:
    """Float32[n] as the shortest decimal numbers that are read back as the same float32."""
    return [float(str(value)) for value in values]


def _rows(outputs: dict[str, np.ndarray]) -> list[Row]:
    """The outputs of each example, [examples, ...] in all."""
    return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]


def _pair_encoder(tokenizer, max_seq_length: int) -> Callable[[Texts], tuple[list[int], int]]:
    """A function from one or two texts to ids, and how many of them are of segment 0."""

    def encode(texts):
        text_a, text_b = (*texts, None)[:2]
        return model_input_ids(tokenizer, text_a, text_b, max_seq_length)

    return encode

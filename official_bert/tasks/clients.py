"""How an export is asked with text: the contract of a client, and what the clients of the task families share.

In: the texts of requests, and an export that is loaded. Out: a dictionary of plain Python values for each request,
ready for JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from official_bert.data.text.model_inputs import model_input_ids
from official_bert.data.text.ragged import ModelInputs
from official_bert.errors import InputError
from official_bert.features import EncodedSet
from official_bert.tokenization import FullTokenizer

Texts = Sequence[str]  # of one request
Row = dict[str, np.ndarray]  # the outputs for one request


class ServedModel(Protocol):
    """A loaded export, as a client asks it.

    Attributes:
        path: folder of the version that was loaded.
        reads_text: whether its signatures take strings; otherwise the client tokenizes.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        tokenizer: of the export.
        max_seq_length: length in tokens that text is cut to.
    """

    path: str
    reads_text: bool
    inputs: Mapping[str, Collection[str]]
    outputs: Collection[str]
    tokenizer: FullTokenizer
    max_seq_length: int

    def run(
        self, encoded: EncodedSet, signature: str = "serving_default", pads_to_longest: bool = True
    ) -> dict[str, np.ndarray]:
        """The outputs of an export of tensors for every example of a set, [n, ...], filled up with zeros at the end."""

    def run_texts(self, texts: Mapping[str, Sequence], signature: str = "serving_text") -> list[Row]:
        """The outputs of an export of text for each request; `texts` are strings, or lists of them, by input."""


class Client(Protocol):
    """Answers to texts from an export.

    Attributes:
        columns: names of the texts of a request, in order.
        num_required: how many of them must be given.
    """

    columns: Sequence[str]
    num_required: int

    def check(self, texts: Texts):
        """Refuses a request that the model cannot answer.

        Raises:
            InputError: says why.
        """

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """An answer of plain Python values, ready for JSON, for each request; `check` has passed them."""


class TextClient:
    """Asks an export that answers each request with one row of outputs.

    By itself it serves a task of texts or pairs, and answers with every output of the model. Families override
    `encode`, `texts_by_input` and `answer`, or `answers` as a whole.
    """

    def __init__(self, model: ServedModel, columns: Sequence[str], num_required: int | None = None):
        """Takes a model.

        Args:
            model: the export.
            columns: names of the texts of a request.
            num_required: how many of them must be given; all if None.
        """
        self.model, self.columns = model, tuple(columns)
        self.num_required = len(self.columns) if num_required is None else num_required

    def check(self, texts: Texts):
        """Refuses a request with too many or too few texts."""
        fewest, most = self.num_required, len(self.columns)
        if not fewest <= len(texts) <= most:
            wanted = str(most) if fewest == most else f"{fewest} or {most}"
            raise InputError(
                f"the model takes {wanted} texts ({', '.join(self.columns)}), {len(texts)} given"
            )

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """The answer to each request."""
        if self.model.reads_text:
            rows = self.model.run_texts(self.texts_by_input(requests))
        else:
            rows = rows_of(self.model.run(self.encode(requests)))
        return [self.answer(row) for row in rows]

    def encode(self, requests: Sequence[Texts]) -> EncodedSet:
        """Requests as an export of tensors reads them: a text or a pair each."""
        return ModelInputs(map(pair_encoder(self.model.tokenizer, self.model.max_seq_length), requests))

    def texts_by_input(self, requests: Sequence[Texts]) -> dict[str, Sequence]:
        """Requests as an export of text reads them; a text that is not given is "", which counts as absent."""
        filled = [(*texts, *[""] * (len(self.columns) - len(texts))) for texts in requests]
        return dict(zip(self.columns, zip(*filled, strict=True), strict=True))

    def answer(self, row: Row) -> dict:
        """The answer from the outputs for one request."""
        return {name: plain(value) for name, value in row.items()}


def pair_encoder(tokenizer, max_seq_length: int) -> Callable[[Texts], tuple[list[int], int]]:
    """A function from one or two texts to their ids, and how many of these are of segment 0."""

    def encode(texts):
        text_a, text_b = (*texts, None)[:2]
        return model_input_ids(tokenizer, text_a, text_b, max_seq_length)

    return encode


def rows_of(outputs: dict[str, np.ndarray]) -> list[Row]:
    """The outputs of each example, from the outputs of all, [examples, ...]."""
    return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]


def numbers(values: Iterable[np.float32]) -> list[float]:
    """Float32[n] as the shortest decimal numbers that are read back as the same float32."""
    return [float(str(value)) for value in values]


def plain(value: Any) -> Any:
    """An output for one request as a string, a number, or nested lists of them."""
    if isinstance(value, np.ndarray) and value.ndim:
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    value = np.asarray(value)[()]
    return float(str(value)) if isinstance(value, np.floating) else value.item()

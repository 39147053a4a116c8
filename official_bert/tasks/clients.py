"""Sends texts to an export: the contract of a client, and the code that the clients of the task
families share.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from official_bert.data.model_inputs import IdEncoder, ModelInputs, model_input_ids
from official_bert.features import EncodedSet
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

Texts = Sequence[str]  # the texts of one request
Row = dict[str, Any]  # the outputs for one request: an array, a number or bytes by name


class ServedModel(Protocol):
    """The view of a loaded export that a client has.

    Attributes:
        path: folder of the loaded version.
        reads_text: whether the signatures take strings; otherwise the client tokenizes.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        tokenizer: the tokenizer of the model.
        max_seq_length: the length to which text is cut, in tokens.
    """

    path: str
    outputs: Collection[str]
    tokenizer: FullTokenizer

    @property
    def reads_text(self) -> bool: ...

    @property
    def inputs(self) -> Mapping[str, Collection[str]]: ...

    @property
    def max_seq_length(self) -> int: ...

    def run(
        self,
        encoded: EncodedSet,
        signature: str = "serving_default",
        pads_to_longest: bool = True,
    ) -> dict[str, np.ndarray]:
        """Runs an export of tensors on a set.

        Args:
            encoded: the set.
            signature: the name of the signature.
            pads_to_longest: whether a batch is padded to its longest example, and not to
                `max_seq_length`.

        Returns:
            The outputs by name, [n, ...], with zeros behind the end of shorter examples.
        """
        ...

    def run_texts(
        self,
        texts: Mapping[str, Sequence],
        signature: str = "serving_text",
    ) -> list[Row]:
        """Runs an export of text and returns the outputs for each request.

        Args:
            texts: strings, or lists of strings, of all requests, by input.
            signature: the name of the signature.
        """
        ...


class Client(Protocol):
    """Answers texts with an export.

    The client of an embedding model also has `vectors`: requests -> float32[n, width], the
    embedding of each. `Predictor.encode` calls it, with its further arguments. A client without it
    may have `vectors_hint`, the end of the error: what to use instead. That of a model with several
    heads also has `heads`: the name of a head -> a Predictor of its answers.

    Attributes:
        columns: names of the texts of a request, in order.
        num_required: how many of them a request must have; the rest are optional.
        method: name of the method of Predictor that calls `postprocess`; "" for none.
    """

    columns: Sequence[str]
    num_required: int
    method: ClassVar[str]

    def check(self, texts: Texts) -> None:
        """Validates a request.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: the model cannot answer it.
        """
        ...

    def is_cut(self, texts: Texts) -> bool:
        """Returns whether the model reads only a part of a request.

        Args:
            texts: the texts of the request.
        """
        ...

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns an answer of plain Python values, ready for JSON, for each request.

        Args:
            requests: the texts of each request; all have passed `check`.
        """
        ...

    def postprocess(self, texts: Texts, answer: dict, **settings: Any) -> Any:
        """Returns the answer to a request in the form that the pipelines of transformers give.

        Args:
            texts: the texts of the request.
            answer: the answer of `answers` to it.
            **settings: the settings of the caller of `method`.

        Raises:
            InputError: a setting cannot be used.
        """
        ...


class TextClient:
    """A client for an export that returns one row of outputs for each request.

    Without overrides it serves a task of texts or pairs and answers with every output of the model.
    Families override `encode`, `texts_by_input` and `answer`, or `answers` as a whole.
    """

    method: ClassVar[str] = ""

    def __init__(
        self,
        model: ServedModel,
        columns: Sequence[str],
        num_required: int | None = None,
    ):
        """Connects the client to an export; `num_required` columns, None for all, must be in
        each request.
        """
        self.model = model
        self.columns: Sequence[str] = tuple(columns)
        self.num_required = len(self.columns) if num_required is None else num_required

    def postprocess(self, texts: Texts, answer: dict, **settings: Any) -> Any:
        """Returns the answer as it is, for clients without a `method`.

        Args:
            texts: the texts of the request.
            answer: the answer of `answers` to it.
            **settings: the settings of the caller; this method reads none.
        """
        return answer

    def check(self, texts: Texts) -> None:
        """Validates the number of texts of a request.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: there are fewer texts than `num_required`, or more than `columns`.
        """
        fewest = self.num_required
        most = len(self.columns)
        if not fewest <= len(texts) <= most:
            num_texts = str(most) if fewest == most else f"{fewest} or {most}"
            noun = "text" if most == 1 else "texts"
            raise InputError(
                f"the model takes {num_texts} {noun} ({', '.join(self.columns)}), {len(texts)} "
                "given"
            )

    def is_cut(self, texts: Texts) -> bool:
        """Returns whether `encode` cuts a text or a pair.

        Args:
            texts: the text or the pair.
        """
        return num_tokens(self.model.tokenizer, texts) > self.model.max_seq_length

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns an answer of plain Python values, ready for JSON, for each request.

        Args:
            requests: the texts of each request; all have passed `check`.
        """
        return [self.answer(row) for row in self.rows(requests)]

    def rows(self, requests: Sequence[Texts]) -> list[Row]:
        """Returns the outputs of the model for each request.

        Args:
            requests: the texts of each request.
        """
        if self.model.reads_text:
            return self.model.run_texts(self.texts_by_input(requests))
        outputs = self.model.run(self.encode(requests))
        return split_rows(outputs)

    def encode(self, requests: Sequence[Texts]) -> EncodedSet:
        """Encodes requests for an export of tensors.

        Args:
            requests: one text or a pair for each request.
        """
        encode_pair = pair_encoder(self.model.tokenizer, self.model.max_seq_length)
        return ModelInputs(map(encode_pair, requests))

    def texts_by_input(self, requests: Sequence[Texts]) -> dict[str, Sequence]:
        """Returns the strings of requests by input of an export of text.

        Args:
            requests: the texts of each request; "" stands for a missing optional text in the
                result.
        """
        strings = {}
        for number, name in enumerate(self.columns):
            strings[name] = [texts[number] if number < len(texts) else "" for texts in requests]
        return strings

    def answer(self, row: Row) -> dict:
        """Returns the answer to a request, ready for JSON.

        Args:
            row: the outputs of the model for the request.
        """
        return {name: plain(value) for name, value in row.items()}


def num_tokens(tokenizer: IdEncoder, texts: Texts) -> int:
    """Returns the number of tokens of a text or a pair, special ones included, before anything is
    cut.

    Args:
        tokenizer: the tokenizer of the model.
        texts: the text or the pair; a pair whose second text has no tokens counts as one text.
    """
    lengths = [len(tokenizer.encode(text)) for text in texts]
    first, second = [*lengths, 0][:2]
    return first + second + (3 if second else 2)


def pair_encoder(
    tokenizer: IdEncoder, max_seq_length: int
) -> Callable[[Texts], tuple[list[int], int]]:
    """Returns a function from one or two texts to their ids and the number of ids in segment 0.

    Args:
        tokenizer: the tokenizer of the model.
        max_seq_length: the number of tokens to which the texts are cut, special ones included.
    """

    def encode(texts: Texts) -> tuple[list[int], int]:
        text_a = texts[0]
        text_b = texts[1] if len(texts) > 1 else None
        return model_input_ids(tokenizer, text_a, text_b, max_seq_length)

    return encode


def split_rows(outputs: dict[str, np.ndarray]) -> list[Row]:
    """Splits the outputs of all examples into the outputs of each example.

    Args:
        outputs: the outputs by name, [examples, ...] each.
    """
    rows = zip(*outputs.values(), strict=True)
    return [dict(zip(outputs, row, strict=True)) for row in rows]


def numbers(values: Iterable[np.float32 | float]) -> list[float]:
    """Converts numbers to the shortest decimal numbers that read back as the same float32.

    Args:
        values: the numbers, float32[n].
    """
    return [float(str(value)) for value in values]


def plain(value: Any) -> Any:
    """Converts an output for one request to a string, a number, or nested lists of them.

    Args:
        value: an array, a number, or bytes in UTF-8.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    value = np.asarray(value)[()]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item()

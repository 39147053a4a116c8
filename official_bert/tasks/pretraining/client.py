"""The client of a pre-trained model: it answers a text with words for each [MASK], or with
vectors without [MASK].
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.features import MASKED_LM_POSITIONS
from official_bert.io.errors import InputError
from official_bert.options.serving import NO_POOLING, POOLED, POOLER, SEQUENCE
from official_bert.tasks.clients import (
    Row,
    ServedModel,
    TextClient,
    Texts,
    num_tokens,
    numbers,
    pair_encoder,
    split_rows,
)
from official_bert.tokenization import FullTokenizer

MASK = "[MASK]"
TOP_K = 10  # words for each [MASK]
MASK_SIGNATURE = "serving_masked"
TEXT_MASK_SIGNATURE = "serving_fill_mask"


class PretrainingClient(TextClient):
    """A client for texts or pairs: it answers with words for each [MASK], or with vectors for a
    text without [MASK].
    """

    method = "fill_mask"

    def __init__(self, model: ServedModel, pooling: str):
        super().__init__(model, ("text_a", "text_b"), num_required=1)
        self._answer_name = POOLED if pooling == POOLER else SEQUENCE
        signature = TEXT_MASK_SIGNATURE if model.reads_text else MASK_SIGNATURE
        self._fills_masks = signature in model.inputs
        self._tokenizer = _MaskTokenizer(model.tokenizer)
        self._encode = pair_encoder(self._tokenizer, model.max_seq_length)

    def check(self, texts: Texts) -> None:
        """Validates that the export has outputs for a text, and that the model reads each
        [MASK].
        """
        super().check(texts)
        num_masks = sum(text.count(MASK) for text in texts)
        if num_masks:
            if not self._fills_masks:
                raise InputError(f"has {MASK}, but the model has no head for masked words")
            if self._tokenizer.mask_id is None:
                raise InputError(f"has {MASK}, which the vocabulary of the model lacks")
            ids, _ = self._encode(texts)
            num_cut = num_masks - ids.count(self._tokenizer.mask_id)
            if num_cut:
                subject = (
                    f"the {MASK} is" if num_masks == 1 else f"{num_cut} of {num_masks} {MASK} are"
                )
                raise InputError(
                    f"{subject} behind the {self.model.max_seq_length} tokens that the model "
                    "reads; shorten the text"
                )
        elif self._answer_name not in self.model.outputs:
            raise InputError(
                f"has no {MASK}, and the model was exported without a pooler; give "
                f"--pooling={NO_POOLING}"
            )

    def is_cut(self, texts: Texts) -> bool:
        return num_tokens(self._tokenizer, texts) > self.model.max_seq_length

    def postprocess(self, texts: Texts, answer: dict, top_k: int = 5) -> list:
        """Returns the words for the [MASK] of a text; a list of such lists if it has several.

        Each word is a dict with `score`, its probability, `token`, and `sequence`, the text with
        the token in the place of [MASK].
        """
        is_whole = isinstance(top_k, int) and not isinstance(top_k, bool)
        if not is_whole or not 1 <= top_k <= TOP_K:
            raise InputError(f"top_k: must be a whole number from 1 to {TOP_K}, got {top_k!r}")
        if "masks" not in answer:
            raise InputError(f"the text has no {MASK} to fill; write it in the place of a word")
        results = []
        for number, mask in enumerate(answer["masks"]):
            tokens = mask["tokens"][:top_k]
            scores = mask["probabilities"][:top_k]
            words = []
            for token, score in zip(tokens, scores, strict=True):
                sequence = _filled_text(texts, number, token)
                words.append({"score": score, "token": token, "sequence": sequence})
            results.append(words)
        return results[0] if len(results) == 1 else results

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns `masks` for a text with [MASK]: the `position` among the tokens, `tokens` and
        their `probabilities`.

        The answer for another text is `pooled_output`, or `tokens` and `sequence_output`.
        """
        if self.model.reads_text:
            fill = self._filled_in_graph
            encode = self._encoded_in_graph
        else:
            fill = self._filled
            encode = self._encoded
        with_mask = [texts for texts in requests if _has_mask(texts)]
        without_mask = [texts for texts in requests if not _has_mask(texts)]
        filled = iter(fill(with_mask) if with_mask else [])
        encoded = iter(encode(without_mask) if without_mask else [])
        # Return the answers in the order of the requests.
        answers = []
        for texts in requests:
            results = filled if _has_mask(texts) else encoded
            answers.append(next(results))
        return answers

    def _filled(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        positions = [
            [k for k, piece in enumerate(ids) if piece == self._tokenizer.mask_id]
            for ids, _ in inputs
        ]
        encoded = _MaskedInputs(ModelInputs(inputs), RaggedRows(positions))
        rows = split_rows(self.model.run(encoded, MASK_SIGNATURE))
        return [
            _list_masks(row, mask_positions)
            for row, mask_positions in zip(rows, positions, strict=True)
        ]

    def _filled_in_graph(self, requests: Sequence[Texts]) -> list[dict]:
        strings = self.texts_by_input(requests)
        rows = self.model.run_texts(strings, TEXT_MASK_SIGNATURE)
        answers = []
        for row in rows:
            positions = row["positions"][: row["num_masks"]]
            answers.append(_list_masks(row, positions))
        return answers

    def _encoded(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        rows = split_rows(self.model.run(ModelInputs(inputs)))
        return [
            self._text(row, self.model.tokenizer.convert_ids_to_tokens(ids))
            for row, (ids, _) in zip(rows, inputs, strict=True)
        ]

    def _encoded_in_graph(self, requests: Sequence[Texts]) -> list[dict]:
        answers = []
        for row in self.model.run_texts(self.texts_by_input(requests)):
            tokens = [token.decode() for token in row["tokens"] if token]
            answers.append(self._text(row, tokens))
        return answers

    def _text(self, row: Row, tokens: Sequence[str]) -> dict:
        if self._answer_name == POOLED:
            return {POOLED: numbers(row[POOLED])}
        vectors = row[SEQUENCE][: len(tokens)]
        return {"tokens": tokens, SEQUENCE: [numbers(vector) for vector in vectors]}


def _filled_text(texts: Texts, number: int, token: str) -> str:
    """Returns the texts, joined, with a token in the place of one [MASK], counted from 0."""
    parts = " ".join(texts).split(MASK)
    before = MASK.join(parts[: number + 1])
    after = MASK.join(parts[number + 1 :])
    return before + token + after


def _has_mask(texts: Texts) -> bool:
    return any(MASK in text for text in texts)


def _list_masks(row: Row, positions: Sequence[int]) -> dict:
    """Returns the answer to a text with [MASK] at some positions."""
    masks = [_mask(position, row, number) for number, position in enumerate(positions)]
    return {"masks": masks}


def _mask(position: int, row: Row, number: int) -> dict:
    return {
        "position": int(position),
        "tokens": [token.decode() for token in row["top_k_tokens"][number]],
        "probabilities": numbers(row["top_k_probabilities"][number]),
    }


@dataclasses.dataclass(frozen=True)
class _MaskedInputs:
    """Inputs with the positions of their masked tokens, padded with 0 to the largest number of
    the set.
    """

    inputs: ModelInputs
    positions: RaggedRows

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each input, special tokens included: int64[inputs]."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        most = int(self.positions.lengths.max())
        return self.inputs.features(rows, length) | {
            MASKED_LM_POSITIONS: self.positions.padded(rows, most)
        }


class _MaskTokenizer:
    """A FullTokenizer that keeps [MASK] as one token if the vocabulary contains it."""

    def __init__(self, tokenizer: FullTokenizer):
        self._tokenizer = tokenizer
        self.vocab = tokenizer.vocab
        self.mask_id = tokenizer.vocab.get(MASK)

    def encode(self, text: str) -> list[int]:
        if self.mask_id is None:
            return self._tokenizer.encode(text)
        first, *others = text.split(MASK)
        ids = list(self._tokenizer.encode(first))
        for part in others:
            ids.append(self.mask_id)
            ids += self._tokenizer.encode(part)
        return ids

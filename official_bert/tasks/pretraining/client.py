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
MASK_SIGNATURE, TEXT_MASK_SIGNATURE = "serving_masked", "serving_fill_mask"


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
                    f"the {MASK} lies" if num_masks == 1 else f"{num_cut} of {num_masks} {MASK} lie"
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
        if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= TOP_K:
            raise InputError(f"top_k: must be a whole number from 1 to {TOP_K}, got {top_k!r}")
        if "masks" not in answer:
            raise InputError(f"the text has no {MASK} to fill; write it in the place of a word")
        results = []
        for number, mask in enumerate(answer["masks"]):
            words = zip(mask["tokens"][:top_k], mask["probabilities"][:top_k], strict=True)
            results.append(
                [
                    {"score": score, "token": token, "sequence": _filled_text(texts, number, token)}
                    for token, score in words
                ]
            )
        return results[0] if len(results) == 1 else results

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns `masks` for a text with [MASK]: the `position` among the tokens, `tokens` and
        their `probabilities`.

        The answer for another text is `pooled_output`, or `tokens` and `sequence_output`.
        """
        has_masks = [any(MASK in text for text in texts) for texts in requests]
        fill, encode = (
            (self._filled_in_graph, self._encoded_in_graph)
            if self.model.reads_text
            else (self._filled, self._encoded)
        )
        results = {}
        for needs_mask, answers in ((True, fill), (False, encode)):
            rows = [row for row, has in enumerate(has_masks) if has is needs_mask]
            if rows:
                results |= zip(rows, answers([requests[row] for row in rows]), strict=True)
        return [results[row] for row in range(len(requests))]

    def _filled(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        positions = [
            [k for k, piece in enumerate(ids) if piece == self._tokenizer.mask_id]
            for ids, _ in inputs
        ]
        encoded = _MaskedInputs(ModelInputs(inputs), RaggedRows(positions))
        rows = split_rows(self.model.run(encoded, MASK_SIGNATURE))
        return [
            {
                "masks": [
                    _mask(position, row, number) for number, position in enumerate(mask_positions)
                ]
            }
            for mask_positions, row in zip(positions, rows, strict=True)
        ]

    def _filled_in_graph(self, requests: Sequence[Texts]) -> list[dict]:
        return [
            {"masks": [_mask(row["positions"][k], row, k) for k in range(row["num_masks"])]}
            for row in self.model.run_texts(self.texts_by_input(requests), TEXT_MASK_SIGNATURE)
        ]

    def _encoded(self, requests: Sequence[Texts]) -> list[dict]:
        inputs = [self._encode(texts) for texts in requests]
        rows = split_rows(self.model.run(ModelInputs(inputs)))
        return [
            self._text(row, self.model.tokenizer.convert_ids_to_tokens(ids))
            for row, (ids, _) in zip(rows, inputs, strict=True)
        ]

    def _encoded_in_graph(self, requests: Sequence[Texts]) -> list[dict]:
        rows = self.model.run_texts(self.texts_by_input(requests))
        return [
            self._text(row, [token.decode() for token in row["tokens"] if token]) for row in rows
        ]

    def _text(self, row: Row, tokens: Sequence[str]) -> dict:
        if self._answer_name == POOLED:
            return {POOLED: numbers(row[POOLED])}
        vectors = row[SEQUENCE][: len(tokens)]
        return {"tokens": tokens, SEQUENCE: [numbers(vector) for vector in vectors]}


def _filled_text(texts: Texts, number: int, token: str) -> str:
    """Returns the texts, joined, with a token in the place of one [MASK], counted from 0."""
    parts = " ".join(texts).split(MASK)
    return MASK.join(parts[: number + 1]) + token + MASK.join(parts[number + 1 :])


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
        self._tokenizer, self.vocab = tokenizer, tokenizer.vocab
        self.mask_id = tokenizer.vocab.get(MASK)

    def encode(self, text: str) -> list[int]:
        if self.mask_id is None:
            return self._tokenizer.encode(text)
        first, *others = (self._tokenizer.encode(part) for part in text.split(MASK))
        return first + [piece for part in others for piece in (self.mask_id, *part)]

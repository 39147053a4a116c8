"""Sends texts to an export of an embedding model, with the prompts of their roles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs
from official_bert.data.prompts import (
    Prompts,
    find_signature,
    make_fixed_prompt_error,
)
from official_bert.data.text_examples import TextForm
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.serving.exported_model import DEFAULT
from official_bert.tasks.clients import (
    Row,
    ServedModel,
    TextClient,
    Texts,
    numbers,
    pair_encoder,
    split_rows,
)

_TEXT_SIGNATURE = "serving_text"


class EmbeddingClient(TextClient):
    """A client that gets the vector of a text.

    Attributes:
        prompts: the prompts of the model.
    """

    method = "embed"

    def __init__(self, model: ServedModel, prompts: Prompts | None = None):
        super().__init__(model, ("text_a",))
        self.prompts = prompts or Prompts()
        self._default_form = self.prompts.make_form(model.max_seq_length)

    def vectors(
        self,
        requests: Sequence[Texts],
        role: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Returns the vectors of texts, float32[n, width].

        Args:
            requests: n requests of one text each.
            role: QUERY or DOCUMENT, which has a prompt and a length; None for other texts.
            prompt_name: the name of another prompt.
            prompt: a text to put before each text instead.

        Raises:
            InputError: the model has no such prompt, or is an export that cannot use it.
        """
        form = self.prompts.make_call_form(self.model.max_seq_length, role, prompt_name, prompt)
        return np.stack([row[EMBEDDING] for row in self._rows(requests, form)])

    def rows(self, requests: Sequence[Texts]) -> list[Row]:
        """Returns the outputs for texts with the default prompt.

        Args:
            requests: requests of one text each.
        """
        return self._rows(requests, self._default_form)

    def is_cut(self, texts: Texts) -> bool:
        """Returns whether a text is cut behind the default prompt.

        Args:
            texts: the text.
        """
        return super().is_cut([self._default_form.prompt + text for text in texts])

    def answer(self, row: Row) -> dict:
        return {EMBEDDING: numbers(row[EMBEDDING])}

    def postprocess(self, texts: Texts, answer: dict) -> list[float]:
        return answer[EMBEDDING]

    def _rows(self, requests: Sequence[Texts], form: TextForm) -> list[Row]:
        if self.model.reads_text:
            return self.model.run_texts(self.texts_by_input(requests), self._text_signature(form))
        tokenizer = self.model.tokenizer
        if form.is_prompt_pooled or not form.prompt:
            signature = DEFAULT
            texts = [[form.prompt + text] for (text,) in requests]
            length = form.max_seq_length
        else:
            signature = find_signature(self.prompts, form, self.model.inputs, self.model.path)
            texts = requests
            length = form.max_seq_length - len(tokenizer.encode(form.prompt))
        encoded = ModelInputs(map(pair_encoder(tokenizer, length), texts))
        return split_rows(self.model.run(encoded, signature))

    def _text_signature(self, form: TextForm) -> str:
        """Returns the signature of an export of text that encodes texts in a form."""
        forms = {_TEXT_SIGNATURE: self._default_form}
        forms |= self.prompts.make_forms(self.model.max_seq_length)
        for signature, signature_form in forms.items():
            if signature_form == form:
                return signature
        raise make_fixed_prompt_error(form, self.model.path)

"""The prompts of an embedding model: texts that it expects before the texts of each role."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Self

from official_bert.data.model_inputs import IdEncoder
from official_bert.data.text_examples import DOCUMENT, QUERY, TextForm
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type

_SOME_TEXT = "a"
_FEWEST_TOKENS = 3  # of a text: [CLS], one of its own, [SEP]
DEFAULT_FORM = "default"  # the signature of ids that inserts a default prompt
# The names under which the prompt of a role may be stored, as in sentence-transformers.
_ROLE_NAMES = {QUERY: ("query",), DOCUMENT: ("document", "passage", "corpus")}
_ROLE_FLAGS = {QUERY: "query_prompt", DOCUMENT: "document_prompt"}


@dataclasses.dataclass(frozen=True)
class Prompts:
    """The prompts of a model.

    Attributes:
        texts: the prompts by name.
        default_name: the name of the prompt of texts without a role; None for no prompt.
        is_pooled: whether the tokens of a prompt count in the pooling.
        query_length: the maximum number of tokens of a query; None for that of all texts.
    """

    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_name: str | None = None
    is_pooled: bool = True
    query_length: int | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Read the record of a training or of an export.

        Args:
            settings: the settings of the record.
        """
        return cls(
            settings.get("prompts") or {},
            settings.get("default_prompt_name"),
            settings.get("include_prompt") is not False,
            settings.get("max_query_seq_length"),
        )

    def to_record(self) -> dict[str, Any]:
        """Return the settings for a record, without those that have their defaults."""
        settings = {
            "prompts": dict(self.texts) or None,
            "default_prompt_name": self.default_name,
            "include_prompt": None if self.is_pooled else False,
            "max_query_seq_length": self.query_length,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def override(self, flags: Mapping[str, Any]) -> Prompts:
        """Return the prompts with the values of flags.

        Args:
            flags: the values of --query_prompt, --document_prompt, --include_prompt and
                --max_query_seq_length by name; None or absent without the flag.
        """
        texts = dict(self.texts)
        for role, flag in _ROLE_FLAGS.items():
            if flags.get(flag) is not None:
                texts[_ROLE_NAMES[role][0]] = flags[flag]
        changes: dict[str, Any] = {"texts": texts}
        if flags.get("include_prompt") is not None:
            changes["is_pooled"] = flags["include_prompt"]
        if flags.get("max_query_seq_length") is not None:
            changes["query_length"] = flags["max_query_seq_length"]
        return dataclasses.replace(self, **changes)

    def choose(self, prompt: str | None, prompt_name: str | None) -> str:
        """Return the prompt of a call.

        Args:
            prompt: the text itself; None for the one that is named.
            prompt_name: a name; None for the default prompt.

        Raises:
            InputError: there is no prompt of that name, or an argument is no text.
        """
        for name, value in (("prompt", prompt), ("prompt_name", prompt_name)):
            if value is not None and not has_type(value, str):
                raise InputError(f"{name}={value!r}: must be a text (str)")
        if prompt is not None:
            if prompt_name is not None:
                errors.warn("prompt_name=%r: has no effect beside prompt", prompt_name)
            return prompt
        name = self.default_name if prompt_name is None else prompt_name
        if name is None:
            return ""
        if name not in self.texts:
            names = ", ".join(self.texts) or "none"
            raise InputError(f"prompt_name={name!r}: the model has the prompts: {names}")
        return self.texts[name]

    def find_name(self, role: str) -> str | None:
        """Return the name of the prompt of a role; None if texts of the role get the default one.

        Args:
            role: QUERY or DOCUMENT.
        """
        return next((name for name in _ROLE_NAMES[role] if name in self.texts), None)

    @property
    def has_roles(self) -> bool:
        """Whether queries may be encoded in another way than other texts."""
        return bool(any(self.texts.values()) or self.query_length)

    def make_call_form(
        self,
        max_seq_length: int,
        role: str | None,
        prompt_name: str | None,
        prompt: str | None,
    ) -> TextForm:
        """Return how the texts of a call are encoded.

        Args:
            max_seq_length: the maximum number of tokens of a document.
            role: QUERY or DOCUMENT; None for texts without a role.
            prompt_name: the name of the prompt; None for that of the role.
            prompt: the prompt itself; None for the one that is named.

        Raises:
            InputError: there is no prompt of that name, or an argument is no text.
        """
        if role is None:
            form = self.make_form(max_seq_length)
        else:
            form = self.make_forms(max_seq_length)[role]
        if prompt is None and prompt_name is None:
            return form
        return form._replace(prompt=self.choose(prompt, prompt_name))

    def make_form(self, max_seq_length: int) -> TextForm:
        """Return how texts without a role are encoded: with the default prompt.

        Args:
            max_seq_length: the maximum number of tokens.
        """
        return TextForm(max_seq_length, self.choose(None, None), self.is_pooled)

    def make_forms(self, max_seq_length: int) -> dict[str, TextForm]:
        """Return how texts of each role are encoded.

        Args:
            max_seq_length: the maximum number of tokens of a document.
        """
        query_length = min(self.query_length or max_seq_length, max_seq_length)
        lengths = {QUERY: query_length, DOCUMENT: max_seq_length}
        forms = {}
        for role, length in lengths.items():
            prompt = self.choose(None, self.find_name(role))
            forms[role] = TextForm(length, prompt, self.is_pooled)
        return forms

    def make_signature_forms(self, max_seq_length: int) -> dict[str, TextForm]:
        """Return the forms for which an export of ids has a signature, by its name.

        Args:
            max_seq_length: the maximum number of tokens of a document.
        """
        if not self.has_roles:
            return {}
        forms = self.make_forms(max_seq_length)
        default_form = self.make_form(max_seq_length)
        # The ids of a text with a pooled prompt are those of another text.
        if default_form.prompt and not self.is_pooled:
            forms[DEFAULT_FORM] = default_form
        return forms

    def check_length(self, tokenizer: IdEncoder, max_seq_length: int) -> None:
        """Check that a prompt leaves room for a text.

        Args:
            tokenizer: the tokenizer of the model.
            max_seq_length: the maximum number of tokens of a document.

        Raises:
            InputError: the prompt of a role has as many tokens as its texts may have.
        """
        for role, form in self.make_forms(max_seq_length).items():
            num_tokens = len(tokenizer.encode(form.prompt))
            if num_tokens > form.max_seq_length - _FEWEST_TOKENS:
                raise InputError(
                    f"--{_ROLE_FLAGS[role]}={form.prompt}: has {num_tokens} tokens, and a {role} "
                    f"may have {form.max_seq_length} with its prompt; give a shorter prompt, or "
                    "raise --max_seq_length"
                )


def find_signature(prompts: Prompts, form: TextForm, signatures: Collection[str], path: str) -> str:
    """Return the signature of ids that inserts the prompt of a form.

    Args:
        prompts: the prompts of the model.
        form: the form.
        signatures: the names of the signatures of the model.
        path: the folder of the model, for messages.

    Raises:
        InputError: no signature inserts this prompt.
    """
    forms = prompts.make_signature_forms(form.max_seq_length)
    for signature, signature_form in forms.items():
        if signature_form.prompt == form.prompt and signature in signatures:
            return signature
    raise make_fixed_prompt_error(form, path)


def make_fixed_prompt_error(form: TextForm, path: str) -> InputError:
    """Return the error of a prompt that an export does not have.

    Args:
        form: the form with the prompt.
        path: the folder of the export.
    """
    return InputError(
        f"prompt={form.prompt!r}: {path} puts prompts before texts itself, those of its queries "
        "and documents; leave the argument out, or open the folder of the training with "
        "SentenceEncoder"
    )


def can_insert(prompt: str, tokenizer: IdEncoder) -> bool:
    """Return whether the tokens of a text do not depend on the prompt before it.

    The last word of a prompt that ends in a letter would be joined with the first of the text.

    Args:
        prompt: the prompt.
        tokenizer: the tokenizer of the model.
    """
    separate_ids = tokenizer.encode(prompt) + tokenizer.encode(_SOME_TEXT)
    return tokenizer.encode(prompt + _SOME_TEXT) == separate_ids

"""The settings of SQuAD, passed whole to whatever makes windows of questions or answers of logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from official_bert.errors import InputError
from official_bert.options.squad import AUTO

NO_POSITION = -1e4  # logit where a window has no position: finite, and below every logit of a model


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadRules:
    """How questions are cut into windows, and how logits become answers. The fields are named like the flags.

    Attributes:
        max_seq_length: length of a window with its question and the special tokens, in tokens.
        doc_stride: from the start of a window to the start of the next, in tokens.
        max_query_length: where a question is cut off, in tokens.
        do_lower_case: as for the tokenizer.
        strip_accents: as for the tokenizer.
        n_best_size: how many start and end positions are tried in a window, and entries of an n-best list; with
            version 2 one more for "no answer".
        max_answer_length: of an answer, in tokens.
        version_2_with_negative: whether a question may have no answer.
        null_score_diff_threshold: null odds above which the answer is ""; None as long as it has to be tuned. Only
            version 2 reads it.
        length_aware_batches: whether batches of a prediction are padded to their longest window. Padding then has no
            part in the choice of the best start and end positions; in the original it has.
        verbose_logging: whether answers that could not be cut out of their words are logged.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    do_lower_case: bool = True
    strip_accents: bool | None = None
    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False
    null_score_diff_threshold: float | None = 0.0
    length_aware_batches: bool = False
    verbose_logging: bool = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rules that flags give, or that an export has recorded; what is absent or None keeps its default."""
        names = [field.name for field in dataclasses.fields(cls)]
        given = {name: settings[name] for name in names if settings.get(name) is not None}
        threshold = settings.get("null_score_diff_threshold", 0.0)
        given["null_score_diff_threshold"] = None if threshold in (AUTO, None) else float(threshold)
        return cls(**given)

    @property
    def is_tuned(self) -> bool:
        """Whether the threshold has to be tuned."""
        return self.version_2_with_negative and self.null_score_diff_threshold is None

    @property
    def has_room(self) -> bool:
        """Whether a window has room for a token of the document behind the longest question."""
        return self.max_seq_length > self.max_query_length + 3

    def check_room(self):
        """Refuses lengths that leave no room for a document behind the longest question.

        Raises:
            InputError: names both flags.
        """
        if not self.has_room:
            raise InputError(
                f"--max_seq_length={self.max_seq_length}: must be greater than --max_query_length="
                f"{self.max_query_length} + 3"
            )

"""The settings of SQuAD, for all functions that cut documents into windows or turn logits into
answers.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.options.fields import MAX_LENGTH
from official_bert.options.fine_tuning import AUTO, SquadServing

# The logit of a position outside a window: finite, and below every logit of a model.
NO_POSITION = -1e4


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadRules(SquadServing):
    """The rules for windows and for answers. The fields have the names of the flags.

    Attributes:
        max_seq_length: number of tokens in a window, with the question and the special tokens.
        n_best_size: number of start and end positions considered in a window, and size of an n-best
            list; with version 2 the list has a further entry for "no answer".
        null_score_diff_threshold: null odds above which the answer is ""; None until it is tuned.
            Only version 2 uses it.
        length_aware_batches: whether batches of a prediction are padded to their longest window.
            Padding is then excluded from the best start and end positions; in the original it can
            be among them.
    """

    max_seq_length: int = 384
    do_lower_case: bool = True
    strip_accents: bool | None = None
    null_score_diff_threshold: float | None = 0.0
    verbose_logging: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Makes the rules from flags, or from the settings of an export.

        Args:
            values: values by flag name. An absent value, or None, means the default of the field.
                The threshold is an exception: None means that it is tuned, as do "auto" and the
                "auto:FILE" of an earlier version.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        fields: dict[str, Any] = {
            name: values[name] for name in names if values.get(name) is not None
        }
        value = values.get("null_score_diff_threshold", 0.0)
        threshold = None
        if value is not None and not str(value).startswith(AUTO):
            threshold = float(value)
        if threshold and not fields.get("version_2_with_negative"):
            errors.warn(
                "--null_score_diff_threshold=%s: is ignored without --version_2_with_negative",
                value,
            )
        fields["null_score_diff_threshold"] = threshold
        return cls(**fields)

    @property
    def is_tuned(self) -> bool:
        """Whether the threshold has to be tuned, and has no value yet."""
        return self.version_2_with_negative and self.null_score_diff_threshold is None

    def check_room(self) -> None:
        """Validates that a window can hold the longest question and a token of the document."""
        if self.max_seq_length <= self.max_query_length + 3:
            raise InputError(
                f"--max_seq_length={self.max_seq_length}: leaves no room for a document beside "
                f"--max_query_length={self.max_query_length} question tokens and 3 special tokens; "
                "raise it, or lower --max_query_length"
            )

    def with_all_positions(self) -> Self:
        """Returns the rules that consider every position of a window."""
        return dataclasses.replace(self, n_best_size=MAX_LENGTH)

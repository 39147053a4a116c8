"""The settings of run_late_interaction and of the record of its model."""

import dataclasses

from official_bert.extensions.late_interaction.options import LateInteractionOptions
from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionSettings(TaskSettings, LateInteractionOptions):
    """The flags of run_late_interaction.

    A model's record keeps six of them. An export uses the defaults of the others.
    """

    output_dir: str | None = None
    token_width: int | None = recorded()
    query_length: int | None = recorded()
    attend_to_expansion: bool | None = recorded()
    skip_punctuation: bool | None = recorded()
    query_marker: str | None = recorded()
    document_marker: str | None = recorded()

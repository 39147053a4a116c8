"""The settings of run_embeddings and of the record of an embedding model."""

import dataclasses

from official_bert.extensions.embeddings.options import EmbeddingOptions
from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(TaskSettings, EmbeddingOptions):
    """The flags of run_embeddings.

    A model's record keeps three of them, and its prompts. An export uses the defaults of the
    others.
    """

    output_dir: str | None = None
    pooling: str | None = recorded()
    normalize: bool | None = recorded()
    projection: int | None = recorded()

"""The settings of run_reranker and of the record of a reranker."""

import dataclasses

from official_bert.extensions.reranking.options import RerankerOptions
from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingSettings(TaskSettings, RerankerOptions):
    """The flags of run_reranker.

    A model's record keeps one of them. An export uses the defaults of the others.
    """

    output_dir: str | None = None
    activation: str | None = recorded()

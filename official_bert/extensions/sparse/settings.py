"""The settings of run_sparse_embeddings and of the record of a sparse model."""

import dataclasses

from official_bert.extensions.sparse.options import SparseOptions
from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseSettings(TaskSettings, SparseOptions):
    """The flags of run_sparse_embeddings.

    A model's record keeps three of them. An export uses the defaults of the others.
    """

    output_dir: str | None = None
    query_encoder: str | None = recorded()
    term_activation: str | None = recorded()
    max_terms: int | None = recorded()

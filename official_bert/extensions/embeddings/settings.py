"""The settings of run_embeddings and of the record of an embedding model."""

import dataclasses
from collections.abc import Sequence

from official_bert.extensions.embeddings.options import LOSSES
from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(TaskSettings):
    """The settings that the task reads, named like the flags; the flags have help texts.

    The flags of tables, which `read_examples` reads, are in `values`.
    """

    pooling: str | None = recorded()
    normalize: bool | None = recorded()
    projection: int | None = recorded()
    output_dir: str | None = None
    init_checkpoint: str | None = None
    train_batch_size: int | None = None
    loss: str = LOSSES[0]
    scale: float = 20.0
    symmetric: bool = False
    triplet_margin: float = 5.0
    matryoshka: Sequence[str] | None = None
    teacher: str | None = None
    eval_task: str | None = None

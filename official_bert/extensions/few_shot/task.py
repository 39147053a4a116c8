"""The task few_shot: a classifier of texts whose head is a logistic regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from official_bert.extensions.few_shot.model import BertFewShotClassifier
from official_bert.extensions.few_shot.variants import FEW_SHOT
from official_bert.io.errors import InputError
from official_bert.modeling.heads import POOLINGS
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.settings import recorded

if TYPE_CHECKING:
    from official_bert.config import BertConfig
    from official_bert.tasks.classification.text import TextProcessor


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShotSettings(ClassificationSettings):
    """The settings of a few-shot classifier; those of a classifier, and the vector of a text."""

    vector_pooling: str = recorded("mean")
    normalize: bool = recorded(True)


class FewShotTask(ClassificationTask):
    """Evaluates and serves a `BertFewShotClassifier`; run_few_shot trains it."""

    settings_class = FewShotSettings

    def __init__(
        self, processor: TextProcessor, class_weights: Sequence[float] | None = None, **rules: Any
    ):
        """Makes the task of a processor; `ClassificationTask` documents the arguments."""
        super().__init__(processor, class_weights, **rules)
        self._vectors = FewShotSettings()

    @classmethod
    def from_settings(cls, variant: type[TextProcessor], settings: FewShotSettings) -> Self:
        if settings.do_train:
            raise InputError(
                f"--task_name={FEW_SHOT}: is trained by official-bert run_few_shot; leave "
                "--do_train out"
            )
        if settings.vector_pooling not in POOLINGS:
            raise InputError(
                f"vector_pooling={settings.vector_pooling!r}: must be one of "
                f"{', '.join(POOLINGS)}; restore task.json"
            )
        task = super().from_settings(variant, settings)
        task._vectors = settings
        return task

    def build_model(self, config: BertConfig, **arguments: Any) -> BertFewShotClassifier:
        return BertFewShotClassifier(
            config,
            len(self._label_names),
            self._vectors.vector_pooling,
            self._vectors.normalize,
            **arguments,
        )

    def settings(self) -> dict[str, Any]:
        return super().settings() | {
            "vector_pooling": self._vectors.vector_pooling,
            "normalize": self._vectors.normalize,
        }

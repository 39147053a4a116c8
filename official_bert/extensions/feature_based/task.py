"""The task feature_based of run_ner: named entities by a BiLSTM on layers that are not trained.

It is the task `ner` with another model. `prepare_set` computes the layers once for each sentence,
and keeps them on disk for later runs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import tensorflow as tf

from official_bert import model_hub
from official_bert.extensions.feature_based.cache import (
    BatchSizes,
    SetWithVectors,
    VectorCache,
    encoder_digest,
    layer_name,
    warn_without_cache,
)
from official_bert.extensions.feature_based.model import BertFeatureTagger
from official_bert.extensions.feature_based.options import CONCAT_LAST_FOUR
from official_bert.io.errors import InputError
from official_bert.options.shared import MULTI_WORKER
from official_bert.tasks.settings import recorded
from official_bert.tasks.tagging.task import TaggingSettings, TaggingTask
from official_bert.training.distribution import is_tpu
from official_bert.training.loop import compiled_outputs

if TYPE_CHECKING:
    from official_bert.config import BertConfig
    from official_bert.features import EncodedSet
    from official_bert.tasks.tagging.windows import EncodedWords

_CACHE_FOLDER = "layer_vectors"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings(TaggingSettings):
    """The settings of run_ner --task_name=feature_based; flags have their help texts."""

    feature_layers: str = recorded(CONCAT_LAST_FOUR)
    bilstm_size: int = recorded(768)
    feature_cache_dir: str | None = None
    feature_cache_gb: float = 20.0
    predict_batch_size: int = 8
    max_seq_length: int = 128
    length_aware_batches: bool = True
    distribution_strategy: str | None = None


class FeatureTaggingTask(TaggingTask):
    """Tags words by a `BertFeatureTagger`; reading, metrics and outputs are those of run_ner."""

    settings_class = FeatureSettings

    def __init__(self, labels: Sequence[str] | None = None, document_context: bool = False):
        """Sets the tags in the order of the outputs, None for those of the training file, and
        the kind of windows. The layers and the cache are those of the flags' defaults.
        """
        super().__init__(labels, document_context)
        self._flags = FeatureSettings()
        self._digest: str | None = None  # that of the encoder, which does not change

    @classmethod
    def from_settings(cls, variant: None, settings: FeatureSettings) -> Self:
        if settings.distribution_strategy == MULTI_WORKER:
            raise InputError(
                f"--distribution_strategy={MULTI_WORKER}: feature_based computes the layers on one "
                "machine; give another strategy"
            )
        if settings.values.get("num_bilstm_layers") == 0:
            raise InputError(
                "--num_bilstm_layers=0: feature_based trains a BiLSTM; give 1 or more, or leave "
                "the flag out"
            )
        task = super().from_settings(variant, settings)
        task._flags = settings
        return task

    def build_model(self, config: BertConfig, **arguments: Any) -> BertFeatureTagger:
        return BertFeatureTagger(
            config,
            len(self._known_labels()),
            self._flags.feature_layers,
            self._flags.bilstm_size,
            **arguments,
        )

    def settings(self) -> dict[str, Any]:
        return super().settings() | {
            "feature_layers": self._flags.feature_layers,
            "bilstm_size": self._flags.bilstm_size,
        }

    def prepare_set(self, model: BertFeatureTagger, encoded: EncodedWords) -> EncodedSet:
        """Adds the outputs of the chosen layers to a set.

        Args:
            model: the model, which has loaded its weights.
            encoded: the windows of a file.
        """
        flags = self._flags
        if not len(encoded) or not flags.feature_cache_gb:
            return encoded
        if self._digest is None:
            self._digest = encoder_digest(model)
        folder = flags.feature_cache_dir or os.path.join(model_hub.cache_dir(), _CACHE_FOLDER)
        cache = VectorCache(folder, flags.feature_cache_gb, self._digest, model.config.hidden_size)
        strategy = tf.distribute.get_strategy()

        def compute(numbers: Sequence[int]):
            names = [layer_name(number) for number in numbers]

            def compute_layers(features: dict) -> dict:
                return dict(zip(names, model.compute_layers(features, numbers), strict=True))

            return compiled_outputs(strategy, compute_layers)

        batch = BatchSizes(
            size=flags.predict_batch_size,
            max_length=flags.max_seq_length,
            pads_to_longest=flags.length_aware_batches and not is_tpu(strategy),
        )
        layers = cache.vectors(encoded, model.layer_numbers, compute, batch)
        if layers is None:
            warn_without_cache(flags.feature_cache_gb)
            return encoded
        return SetWithVectors(encoded, layers)

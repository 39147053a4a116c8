"""Masks that are drawn while records are read: other ones in each pass, and the same ones in each run with the seed.

In: batches of records without masks, and for each record which one it is and which pass over the data. Out: the
features of the masked batch.
"""

import numpy as np

from official_bert.data.corpus import streams
from official_bert.data.corpus.bulk_masks import BulkMasks, MaskingSettings
from official_bert.data.corpus.instances import InstanceSettings, InstanceVocabulary

NAMES = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")  # of the results, in order
DTYPES = ("int32", "int32", "int32", "float32")


class DynamicMasks:
    """A function of batches."""

    def __init__(
        self, vocabulary: InstanceVocabulary, settings: InstanceSettings, masking: MaskingSettings, seed: int
    ):
        """Keeps what all batches share.

        Args:
            vocabulary: of the ids.
            settings: the lengths and what is masked.
            masking: of the masks.
            seed: the seed of the run.
        """
        self._masks, self._seed = BulkMasks(vocabulary, settings, masking), seed
        self._special = np.array([vocabulary.cls_id, vocabulary.sep_id])
        self.shape = settings.max_seq_length, settings.max_predictions_per_seq

    def __call__(
        self, input_ids: np.ndarray, input_mask: np.ndarray, passes: np.ndarray, records: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Masks a batch.

        Args:
            input_ids: int32[B, S].
            input_mask: int32[B, S], 1 for tokens and 0 for padding.
            passes: int64[B], the number of the pass over the data, from 0.
            records: int64[B], a hash of each record.

        Returns:
            NAMES: int32[B, S], int32[B, P], int32[B, P] and float32[B, P].
        """
        ids = np.array(input_ids)
        candidates = (input_mask > 0) & ~np.isin(ids, self._special)
        keys = streams.stream(self._seed, passes, records)
        features, _ = self._masks.draw(ids, candidates, input_mask.sum(axis=1), keys)
        features["input_ids"] = ids
        return tuple(features[name].astype(dtype) for name, dtype in zip(NAMES, DTYPES, strict=True))

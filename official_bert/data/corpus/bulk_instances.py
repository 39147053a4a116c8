"""Turns pairs of segments into batches of record features, masked: the generator `sharded`.

In: pairs as spans of the ids of a shard. Out: the seven record features of a batch, and what was counted in it.
"""

import numpy as np

from official_bert.data.corpus.bulk_masks import BulkMasks, MaskingSettings
from official_bert.data.corpus.bulk_pairs import Pairs
from official_bert.data.corpus.instances import Features, InstanceSettings, InstanceVocabulary
from official_bert.features import pretraining_features


class BatchMaker:
    """Makes batches of the instances over the ids of one shard."""

    def __init__(
        self,
        ids: np.ndarray,
        vocabulary: InstanceVocabulary,
        settings: InstanceSettings,
        masking: MaskingSettings,
    ):
        """Keeps what all batches share.

        Args:
            ids: unsigned[tokens], the tokens of the shard.
            vocabulary: of these ids.
            settings: of the instances.
            masking: of their masks.
        """
        self._ids, self._vocabulary, self._settings, self._masking = ids, vocabulary, settings, masking
        self._masks = BulkMasks(vocabulary, settings, masking)
        self._table = pretraining_features(settings.max_seq_length, settings.max_predictions_per_seq)

    def batch(self, pairs: Pairs) -> tuple[Features, dict[str, int]]:
        """Returns the record features of some pairs, name -> int32 or float32[B, length], and counts by name."""
        settings, masking, vocabulary = self._settings, self._masking, self._vocabulary
        a_length, b_length = pairs.a_length[:, None], pairs.b_length[:, None]  # [B, 1]
        b_first = a_length + 2
        length = b_first + b_length + 1 if masking.use_next_sentence else b_first
        position = np.arange(settings.max_seq_length, dtype=np.int32)  # [S]
        in_b = position >= b_first  # [B, S], padding included
        is_real = position < length
        candidates = (position < length - 1) & (position != b_first - 1)
        candidates[:, 0] = False

        source = position + np.where(in_b, pairs.b_begin[:, None] - b_first, pairs.a_begin[:, None] - 1)
        input_ids = np.where(candidates, self._ids.take(source, mode="clip"), 0).astype(np.int32)
        input_ids[:, 0] = vocabulary.cls_id
        rows = np.arange(len(pairs))
        input_ids[rows, b_first[:, 0] - 1] = vocabulary.sep_id
        input_ids[rows, length[:, 0] - 1] = vocabulary.sep_id

        features = {
            "input_ids": input_ids,
            "input_mask": is_real,
            "segment_ids": in_b & is_real,
            "next_sentence_labels": pairs.is_random_next[:, None],
        }
        counts = dict.fromkeys(("predictions", "predictions_masked", "predictions_kept"), 0)
        if masking.mask_tokens:
            drawn, counts = self._masks.draw(input_ids, candidates, length[:, 0], pairs.keys)
            features |= drawn
        features = {
            feature.name: features[feature.name].astype(feature.dtype)
            for feature in self._table
            if feature.name in features
        }
        counts |= {
            "records": len(pairs),
            "random_next": int(pairs.is_random_next.sum()),
            "truncated": int(pairs.is_truncated.sum()),
            "positions": int(length.sum()),
        }
        return features, counts

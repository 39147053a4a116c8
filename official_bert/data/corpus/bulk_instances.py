"""Turns pairs of segments into batches of record features, masked: the generator `sharded`.

In: pairs as spans of the ids of a shard. Out: the seven record features of a batch, and what was counted in it.
"""

import dataclasses

import numpy as np

from official_bert.data.corpus import bulk_masking
from official_bert.data.corpus.bulk_pairs import Pairs
from official_bert.data.corpus.instances import Features, InstanceSettings, InstanceVocabulary
from official_bert.features import pretraining_features


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings:
    """Settings beyond the original's; the fields are flags of create_pretraining_data.py, whose help explains them."""

    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    ngram_masking: int = 1
    use_next_sentence: bool = True


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
        self._word_ids = np.array(vocabulary.word_ids, np.int32)
        self._continues = np.array(vocabulary.continues)
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

        positions, is_masked = self._masked_positions(input_ids, candidates, length[:, 0], pairs.keys)
        masked_lm_ids = np.take_along_axis(input_ids, positions, axis=1) * is_masked
        replaced = bulk_masking.draw_replacements(
            masked_lm_ids,
            pairs.keys,
            vocabulary.mask_id,
            self._word_ids,
            masking.mask_token_rate,
            masking.random_token_rate,
        )
        rows, columns = is_masked.nonzero()
        input_ids[rows, positions[rows, columns]] = replaced[rows, columns]
        values = (
            input_ids,
            is_real,
            in_b & is_real,
            positions,
            masked_lm_ids,
            is_masked,
            pairs.is_random_next[:, None],
        )
        features = {
            feature.name: column.astype(feature.dtype)
            for feature, column in zip(self._table, values, strict=True)
        }
        is_mask = is_masked & (replaced == vocabulary.mask_id)
        counts = {
            "records": len(pairs),
            "random_next": int(pairs.is_random_next.sum()),
            "truncated": int(pairs.is_truncated.sum()),
            "positions": int(length.sum()),
            "predictions": int(is_masked.sum()),
            "predictions_masked": int(is_mask.sum()),
            "predictions_kept": int((is_masked & (replaced == masked_lm_ids) & ~is_mask).sum()),
        }
        return features, counts

    def _masked_positions(self, input_ids, candidates, lengths, keys) -> tuple[np.ndarray, np.ndarray]:
        settings, longest_span = self._settings, self._masking.ngram_masking
        count = bulk_masking.num_predictions(
            lengths, settings.masked_lm_prob, settings.max_predictions_per_seq
        )
        if not settings.do_whole_word_mask:
            return bulk_masking.draw_positions(candidates, count, keys, settings.max_predictions_per_seq)
        starts = candidates & ~self._continues[input_ids]
        starts[:, 1] |= candidates[:, 1]  # a piece "##x" without a piece before it is a word
        if longest_span > 1:
            starts = bulk_masking.span_starts(starts, longest_span, keys)
        return bulk_masking.draw_units(starts, candidates, count, keys, settings.max_predictions_per_seq)

"""Masks batches of sequences as the settings say: for the generator `sharded`, and for masks drawn in training.

In: ids, which of them may be masked, and a stream of random numbers for each sequence. Out: the features of masked
words; [MASK] and random words replace tokens in the ids.
"""

import dataclasses

import numpy as np

from official_bert.data.corpus import bulk_masking
from official_bert.data.corpus.instances import InstanceSettings, InstanceVocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings:
    """Settings beyond the original's; the fields are flags of create_pretraining_data.py, whose help explains them."""

    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    ngram_masking: int = 1
    use_next_sentence: bool = True
    mask_tokens: bool = True


class BulkMasks:
    """Draws masks."""

    def __init__(self, vocabulary: InstanceVocabulary, settings: InstanceSettings, masking: MaskingSettings):
        """Keeps what all batches share.

        Args:
            vocabulary: of the ids.
            settings: of the instances.
            masking: of their masks.
        """
        self._settings, self._masking, self._mask_id = settings, masking, vocabulary.mask_id
        self._word_ids = np.array(vocabulary.word_ids, np.int32)
        self._continues = np.array(vocabulary.continues)

    def draw(
        self, input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Masks sequences.

        Args:
            input_ids: int[B, S], in which tokens are replaced.
            candidates: bool[B, S], the positions that may be masked.
            lengths: int[B], the numbers of tokens, special ones included.
            keys: uint64[B], the streams.

        Returns:
            The features masked_lm_positions, masked_lm_ids and masked_lm_weights, [B, P] each, and counts by name.
        """
        masking = self._masking
        positions, is_masked = self._positions(input_ids, candidates, lengths, keys)
        masked_lm_ids = np.take_along_axis(input_ids, positions, axis=1) * is_masked
        rates = masking.mask_token_rate, masking.random_token_rate
        replaced = bulk_masking.draw_replacements(masked_lm_ids, keys, self._mask_id, self._word_ids, *rates)
        rows, columns = is_masked.nonzero()
        input_ids[rows, positions[rows, columns]] = replaced[rows, columns]
        is_mask = is_masked & (replaced == self._mask_id)
        counts = {
            "predictions": int(is_masked.sum()),
            "predictions_masked": int(is_mask.sum()),
            "predictions_kept": int((is_masked & (replaced == masked_lm_ids) & ~is_mask).sum()),
        }
        return {
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": is_masked,
        }, counts

    def _positions(self, input_ids, candidates, lengths, keys) -> tuple[np.ndarray, np.ndarray]:
        settings, longest_span = self._settings, self._masking.ngram_masking
        most = settings.max_predictions_per_seq
        count = bulk_masking.num_predictions(lengths, settings.masked_lm_prob, most)
        if not settings.do_whole_word_mask:
            return bulk_masking.draw_positions(candidates, count, keys, most)
        starts = candidates & ~self._continues[input_ids]
        starts[:, 1] |= candidates[:, 1]  # a piece "##x" without a piece before it is a word
        if longest_span > 1:
            starts = bulk_masking.span_starts(starts, longest_span, keys)
        return bulk_masking.draw_units(starts, candidates, count, keys, most)

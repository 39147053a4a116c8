"""Keeps pre-training instances compactly until they are written.

In: instances, each stored as two spans of the corpus with its masked positions and the ids that replace their tokens:
about a hundred bytes. Out: batches of the seven record features.
"""

import dataclasses
from array import array
from collections.abc import Iterator, Mapping

import numpy as np

from official_bert.data.corpus.documents import Documents
from official_bert.data.corpus.sentence_pairs import SentencePair
from official_bert.errors import InputError
from official_bert.features import pretraining_features

Features = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """Settings of the instances; the fields are flags of create_pretraining_data.py, whose help explains them."""

    max_seq_length: int
    dupe_factor: int
    short_seq_prob: float
    masked_lm_prob: float
    max_predictions_per_seq: int
    do_whole_word_mask: bool = False


@dataclasses.dataclass(frozen=True)
class InstanceVocabulary:
    """The part of a vocabulary that the making of instances needs.

    Attributes:
        cls_id, sep_id, mask_id: the ids of [CLS], [SEP] and [MASK].
        word_ids: the ids that random words are drawn from: the whole vocabulary in the order of the file, special
            tokens included.
        continues: for every id, whether its WordPiece starts with "##".
    """

    cls_id: int
    sep_id: int
    mask_id: int
    word_ids: list[int]
    continues: list[bool]

    @classmethod
    def of(cls, vocab: Mapping[str, int]) -> "InstanceVocabulary":
        """Takes what is needed from a vocabulary.

        Raises:
            InputError: [CLS], [SEP], [MASK] or [UNK] is missing.
        """
        missing = [token for token in ("[CLS]", "[SEP]", "[MASK]", "[UNK]") if token not in vocab]
        if missing:
            raise InputError(
                f"--vocab_file: the vocabulary lacks {', '.join(missing)}; add a line for each of them"
            )
        continues = [False] * (max(vocab.values()) + 1)
        for piece, piece_id in vocab.items():
            continues[piece_id] = piece.startswith("##")
        return cls(vocab["[CLS]"], vocab["[SEP]"], vocab["[MASK]"], list(vocab.values()), continues)


class Instances:
    """Instances over `documents`, in the order in which they were added."""

    def __init__(self, documents: Documents, vocabulary: InstanceVocabulary, settings: InstanceSettings):
        self._ids = documents.ids
        self._vocabulary = vocabulary
        self._settings = settings
        self._spans = array("q")  # a_begin, a_end, b_begin, b_end of each instance
        self._is_random_next = array("b")
        self._prediction_starts = array("q", [0])
        self._positions = array(np.min_scalar_type(settings.max_seq_length).char)
        self._replacements = array(documents.ids.dtype.char)

    def __len__(self) -> int:
        return len(self._is_random_next)

    def append(self, pair: SentencePair, positions: list[int], replacements: list[int]):
        """Adds an instance.

        Args:
            pair: the two segments, as offsets in `documents.ids`.
            positions: the masked positions, in any order.
            replacements: the input id at each of these positions: [MASK], the token itself or a random word.
        """
        self._spans.extend((pair.a_begin, pair.a_end, pair.b_begin, pair.b_end))
        self._is_random_next.append(pair.is_random_next)
        self._positions.extend(positions)
        self._replacements.extend(replacements)
        self._prediction_starts.append(len(self._positions))

    def batches(self, order: np.ndarray, batch_size: int = 1024) -> Iterator[Features]:
        """Yields the record features of the instances in `order` (int[instances]), `batch_size` at a time."""
        for start in range(0, len(order), batch_size):
            yield self.features(order[start : start + batch_size])

    def features(self, indices: np.ndarray) -> Features:
        """Returns the record features of the chosen instances.

        Args:
            indices: int[batch], the indices of the instances, from 0.

        Returns:
            name -> int32 or float32[batch, length], as `features.pretraining_features` lists them.
        """
        spans = _as_numpy(self._spans).reshape(-1, 4)[indices]
        a_begin, a_end, b_begin, b_end = (column[:, None] for column in spans.T)  # each [B, 1]
        b_first = a_end - a_begin + 2
        length = b_first + b_end - b_begin + 1

        position = np.arange(self._settings.max_seq_length)  # [S]
        source = np.where(position < b_first, a_begin + position - 1, b_begin + position - b_first)  # [B, S]
        input_ids = self._ids.take(source, mode="clip").astype(np.int32)
        input_ids[:, 0] = self._vocabulary.cls_id
        input_ids[(position == b_first - 1) | (position == length - 1)] = self._vocabulary.sep_id
        input_ids[position >= length] = 0

        masked, positions, replacements = self._predictions(indices)
        masked_lm_ids = np.take_along_axis(input_ids, positions, axis=1) * masked
        rows, _ = masked.nonzero()
        input_ids[rows, positions[masked]] = replacements
        columns = (
            input_ids,
            position < length,
            (position >= b_first) & (position < length),
            positions,
            masked_lm_ids,
            masked,
            _as_numpy(self._is_random_next)[indices][:, None],
        )
        table = pretraining_features(self._settings.max_seq_length, self._settings.max_predictions_per_seq)
        return {
            feature.name: column.astype(feature.dtype) for feature, column in zip(table, columns, strict=True)
        }

    def _predictions(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the masked positions of the chosen instances in increasing order.

        Returns:
            bool[batch, max_predictions_per_seq]: true for a masked position, false for padding; int64 of that shape:
            the positions, 0 for padding; unsigned[masked positions of all]: the input ids at them.
        """
        starts = _as_numpy(self._prediction_starts)
        begin, end = starts[indices][:, None], starts[indices + 1][:, None]
        prediction = np.arange(self._settings.max_predictions_per_seq)
        masked = prediction < end - begin
        kept_at = np.zeros(masked.shape, np.int64)
        kept_at[masked] = (begin + prediction)[masked]
        positions = np.full(masked.shape, self._settings.max_seq_length)  # padding sorts last
        positions[masked] = _as_numpy(self._positions)[kept_at[masked]]
        by_position = np.argsort(positions, axis=1)
        kept_at = np.take_along_axis(kept_at, by_position, axis=1)[masked]
        positions = np.take_along_axis(positions, by_position, axis=1) * masked
        return masked, positions, _as_numpy(self._replacements)[kept_at]


def _as_numpy(values: array) -> np.ndarray:
    return np.frombuffer(values, values.typecode)

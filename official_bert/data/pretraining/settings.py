"""What pre-training records are made with: the settings of pairs and masks, and the ids that a vocabulary gives.

In: options and a vocabulary. Out: what the generators, and masks that are drawn in training, need of them.
"""

import dataclasses
from collections.abc import Mapping

from official_bert.io.errors import InputError
from official_bert.options.data_tools import RecordsOptions
from official_bert.options.shared import MaskingOptions


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings:
    """Settings beyond the original's, as of the flags of create_pretraining_data.py, whose help explains them."""

    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    ngram_masking: int = 1
    use_next_sentence: bool = True
    mask_tokens: bool = True


def instance_settings(options: RecordsOptions) -> InstanceSettings:
    """Returns the settings that both generators share."""
    return InstanceSettings(
        max_seq_length=options.max_seq_length,
        dupe_factor=options.dupe_factor,
        short_seq_prob=options.short_seq_prob,
        masked_lm_prob=options.masked_lm_prob,
        max_predictions_per_seq=options.max_predictions_per_seq,
        do_whole_word_mask=options.do_whole_word_mask,
    )


def masking_settings(options: MaskingOptions) -> MaskingSettings:
    """Returns the settings of the masks.

    Raises:
        InputError: they contradict each other.
    """
    if options.ngram_masking > 1 and not options.do_whole_word_mask:
        raise InputError(
            f"--ngram_masking={options.ngram_masking}: masks spans of whole words; add --do_whole_word_mask"
        )
    of_mask, of_random = (float(rate) for rate in options.mask_rates.split(","))
    return MaskingSettings(
        mask_token_rate=of_mask, random_token_rate=of_random, ngram_masking=options.ngram_masking
    )


def masking_settings_of_records(options: RecordsOptions) -> MaskingSettings:
    """Returns the settings of the masks of records, which may have none."""
    if options.dynamic_masking:
        for field in dataclasses.fields(MaskingOptions):
            if getattr(options, field.name) != field.default:
                raise InputError(
                    f"--{field.name}: records of --dynamic_masking have no masks; give the flag to run_pretraining.py"
                )
    settings = masking_settings(options)
    return dataclasses.replace(
        settings, use_next_sentence=options.use_next_sentence, mask_tokens=not options.dynamic_masking
    )

"""What pre-training records are made with: how text becomes pairs, what is masked, and the ids
of a vocabulary.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official_bert.io.errors import InputError
from official_bert.options.data_tools import PretrainingDataOptions
from official_bert.options.shared import MaskingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairConfig:
    """How text becomes pairs of segments, by flags whose help explains them; `exact` has no
    `use_next_sentence`.
    """

    max_seq_length: int
    short_seq_prob: float
    dupe_factor: int
    use_next_sentence: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """What is masked, by flags whose help explains them; `exact` has the last three at their
    defaults.
    """

    masked_lm_prob: float
    max_predictions_per_seq: int
    do_whole_word_mask: bool = False
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    ngram_masking: int = 1


@dataclasses.dataclass(frozen=True)
class InstanceVocabulary:
    """The part of a vocabulary that the making of instances needs."""

    cls_id: int
    sep_id: int
    mask_id: int
    # That random words are drawn from: all, special tokens included, in the order of the file.
    word_ids: list[int]
    continues: list[bool]  # for every id, whether its WordPiece starts with "##"

    @classmethod
    def from_vocab(cls, vocab: Mapping[str, int]) -> "InstanceVocabulary":
        """Reads what is needed from a vocabulary.

        Args:
            vocab: the id of each WordPiece, in the order of the file.

        Raises:
            InputError: a special token is missing.
        """
        missing = [token for token in ("[CLS]", "[SEP]", "[MASK]", "[UNK]") if token not in vocab]
        if missing:
            raise InputError(
                f"--vocab_file: the vocabulary lacks {', '.join(missing)}; add a line for each of "
                "them"
            )
        continues = [False] * (max(vocab.values()) + 1)
        for piece, piece_id in vocab.items():
            continues[piece_id] = piece.startswith("##")
        return cls(vocab["[CLS]"], vocab["[SEP]"], vocab["[MASK]"], list(vocab.values()), continues)


def pair_config(options: PretrainingDataOptions) -> PairConfig:
    """Returns how a script makes pairs of text.

    Args:
        options: the flags of create_pretraining_data.py.
    """
    return _filled(PairConfig, options)


def mask_config(options: MaskingOptions) -> MaskConfig:
    """Returns how a script masks.

    Args:
        options: the flags of the script, which have max_predictions_per_seq, too.

    Raises:
        InputError: --ngram_masking is above 1 without --do_whole_word_mask.
    """
    mask_rate, random_rate = (float(rate) for rate in options.mask_rates.split(","))
    config = _filled(MaskConfig, options, mask_token_rate=mask_rate, random_token_rate=random_rate)
    if config.ngram_masking > 1 and not config.do_whole_word_mask:
        raise InputError(
            f"--ngram_masking={config.ngram_masking}: masks spans of whole words; add "
            "--do_whole_word_mask"
        )
    return config


def records_mask_config(options: PretrainingDataOptions) -> MaskConfig | None:
    """Returns how records are masked; None for records without masks.

    Args:
        options: the flags of create_pretraining_data.py.

    Raises:
        InputError: a masking flag is changed together with --dynamic_masking, or --ngram_masking is
            above 1 without --do_whole_word_mask.
    """
    if not options.dynamic_masking:
        return mask_config(options)
    for field in dataclasses.fields(MaskingOptions):
        if getattr(options, field.name) != field.default:
            raise InputError(
                f"--{field.name}: records of --dynamic_masking have no masks; give the flag to "
                "run_pretraining.py"
            )
    return None


def _filled(config_class: type, options: Any, **overrides: float):
    names = {field.name for field in dataclasses.fields(config_class)} - set(overrides)
    return config_class(**{name: getattr(options, name) for name in names}, **overrides)

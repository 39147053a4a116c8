"""Describes the pre-training records that `framing.read_examples` yields: one as text, many by
statistics.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from official_bert.features import pretraining_features
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

Example = Mapping[str, np.ndarray]  # feature name -> [length]
Block = Mapping[str, np.ndarray]  # feature name -> [B, length]


def with_masks(example: Example) -> Example:
    """Adds padding in place of the masks to a record of --dynamic_masking, which has no masks.

    Other records are returned as they are.
    """
    if "masked_lm_positions" in example or "input_ids" not in example:
        return example
    zero = np.zeros(1, np.int64)
    return {
        **example,
        "masked_lm_positions": zero,
        "masked_lm_ids": zero,
        "masked_lm_weights": zero.astype(np.float32),
    }


def stack_examples(examples: Sequence[Example], places: Sequence[str], vocab_size: int) -> Block:
    """Stacks pre-training records of one length.

    Args:
        examples: the records.
        places: the file and number of each record, for messages.
        vocab_size: the number of ids; no id of a record may reach it.

    Returns:
        One array [B, length] for each feature.

    Raises:
        InputError: a record lacks a feature, has another length, or a value out of range.
    """
    names = [feature.name for feature in pretraining_features(1, 1)]
    try:
        block = {name: np.stack([example[name] for example in examples]) for name in names}
    except (KeyError, ValueError):  # A feature is missing, or lengths differ.
        block = {}
    if block and _is_within(block, vocab_size):
        return block
    # Find the first wrong example, for the error.
    for example, place in zip(examples, places, strict=True):
        _check_example(example, place, vocab_size)
        if any(len(example[name]) != len(examples[0][name]) for name in names):
            raise InputError(
                f"{place}: has another length than {places[0]}; give files of one length"
            )
    return block


def _limits(max_seq_length: int, vocab_size: int) -> dict[str, int]:
    return {
        "input_ids": vocab_size,
        "masked_lm_ids": vocab_size,
        "masked_lm_positions": max_seq_length,
    }


def _is_within(block: Mapping[str, np.ndarray], vocab_size: int) -> bool:
    """Returns whether all values of an example, [length], or a block, [B, length], are in range."""
    limits = _limits(block["input_ids"].shape[-1], vocab_size)
    for name, limit in limits.items():
        values = block[name]
        if ((values < 0) | (values >= limit)).any():
            return False
    return True


def _check_example(example: Example, place: str, vocab_size: int):
    names = [feature.name for feature in pretraining_features(1, 1)]
    missing = [name for name in names if name not in example]
    if missing:
        raise InputError(f"{place} has no {missing[0]}; give records of create_pretraining_data.py")
    max_seq_length = len(example["input_ids"])
    num_predictions = len(example["masked_lm_ids"])
    for name, length, _ in pretraining_features(max_seq_length, num_predictions):
        num_values = len(example[name])
        if num_values != length:
            raise InputError(
                f"{place}: {name} has {num_values} values where {length} are expected; make the "
                "records again"
            )
    for name, limit in _limits(max_seq_length, vocab_size).items():
        values = example[name]
        if ((values < 0) | (values >= limit)).any():
            remedy = "give the --vocab_file of the records"
            if name == "masked_lm_positions":
                remedy = "make the records again"
            raise InputError(
                f"{place}: {name} has a value that is not from 0 to below {limit}; {remedy}"
            )


def format_example(example: Example, inv_vocab: Mapping[int, str]) -> list[str]:
    """Formats a record as text: a line for each segment, and one for the label.

    A predicted token is in braces: the token that the model sees, a bar, and the original token.
    """

    def name_token(token_id: int) -> str:
        return inv_vocab.get(token_id, f"[id {token_id}]")

    length = int(example["input_mask"].sum())
    tokens = [name_token(token_id) for token_id in example["input_ids"][:length].tolist()]
    for position, original_id in _predictions(example):
        tokens[position] = f"{{{tokens[position]}|{name_token(original_id)}}}"
    segments = example["segment_ids"][:length]
    first = [token for token, segment in zip(tokens, segments, strict=True) if not segment]
    second = [token for token, segment in zip(tokens, segments, strict=True) if segment]
    lines = ["A: " + " ".join(first)]
    if second:
        is_random = bool(example["next_sentence_labels"][0])
        lines.append("B: " + " ".join(second))
        lines.append(f"B is {'random' if is_random else 'the next text'}")
    return lines


def _predictions(example: Example) -> list[tuple[int, int]]:
    """Returns the position and the original id of each predicted token."""
    is_real = example["masked_lm_weights"] > 0
    positions = example["masked_lm_positions"][is_real]
    ids = example["masked_lm_ids"][is_real]
    return list(zip(positions.tolist(), ids.tolist(), strict=True))


class Statistics:
    """Counts over records.

    Attributes:
        lengths: the number of records for each number of tokens.
        predictions: the number of records for each number of predictions.
        max_seq_length: the length of the records with padding; 0 before the first one.
    """

    def __init__(self, tokenizer: FullTokenizer):
        missing = [token for token in ("[MASK]", "[UNK]") if token not in tokenizer.vocab]
        if missing:
            raise InputError(
                f"--vocab_file: the vocabulary lacks {', '.join(missing)}; give that of the records"
            )
        self._mask_id = tokenizer.vocab["[MASK]"]
        self._unknown_id = tokenizer.vocab["[UNK]"]
        self.lengths: Counter[int] = Counter()
        self.predictions: Counter[int] = Counter()
        self.max_seq_length = 0
        self._counts = Counter()

    def add(self, block: Block) -> None:
        """Counts the records of a block.

        Raises:
            InputError: they have another length than the records before.
        """
        ids = block["input_ids"]
        if self.max_seq_length not in (0, ids.shape[1]):
            raise InputError(
                f"the records have {self.max_seq_length} and {ids.shape[1]} tokens; give files of "
                "one length"
            )
        self.max_seq_length = ids.shape[1]
        lengths = block["input_mask"].sum(axis=1)
        is_predicted = block["masked_lm_weights"] > 0
        self.lengths.update(lengths.tolist())
        self.predictions.update(is_predicted.sum(axis=1).tolist())

        originals = block["masked_lm_ids"]
        seen = np.take_along_axis(ids, block["masked_lm_positions"], axis=1)
        is_mask = is_predicted & (seen == self._mask_id)
        is_same = is_predicted & (seen == originals) & (seen != self._mask_id)
        # Count the words before masking: put the original tokens in the place of those seen.
        num_unknown = (ids == self._unknown_id).sum()
        num_unknown -= (is_predicted & (seen == self._unknown_id)).sum()
        num_unknown += (is_predicted & (originals == self._unknown_id)).sum()

        num_tokens = lengths.sum()
        num_second = block["segment_ids"].sum()
        counts = {
            "records": len(ids),
            "positions": num_tokens,
            "in_first": num_tokens - num_second,
            "in_second": num_second,
            "predictions": is_predicted.sum(),
            "masked": is_mask.sum(),
            "kept": is_same.sum(),
            "unknown": num_unknown,
            "random_next": block["next_sentence_labels"].sum(),
        }
        self._counts.update({name: int(count) for name, count in counts.items()})

    def lines(self) -> list[str]:
        """Returns the statistics as lines of text; at least one record must have been added."""
        counts = self._counts
        num_records = counts["records"]
        num_tokens = counts["positions"]
        num_predictions = counts["predictions"]
        num_random = num_predictions - counts["masked"] - counts["kept"]
        padding = 1 - num_tokens / (num_records * self.max_seq_length)

        def format_mean(count: int) -> str:
            return f"{count / num_records:.1f}"

        def format_share(count: int) -> str:
            return f"{count / max(num_predictions, 1):.1%}"

        distinct_lengths = sorted(self.lengths)
        repeats = [self.lengths[length] for length in distinct_lengths]
        lengths = np.repeat(distinct_lengths, repeats)
        values = {
            "records": str(num_records),
            "tokens of a record": (
                f"{lengths.mean():.1f} on average, median {np.median(lengths):.0f}, "
                f"{lengths.min()} to {lengths.max()} of {self.max_seq_length}"
            ),
            "in A, in B": (
                f"{format_mean(counts['in_first'])}, {format_mean(counts['in_second'])} on average"
            ),
            "padding": f"{padding:.1%}",
            "predictions": (
                f"{format_mean(num_predictions)} in a record, "
                f"{num_predictions / num_tokens:.1%} of the tokens"
            ),
            "of the predictions": (
                f"{format_share(counts['masked'])} [MASK], {format_share(counts['kept'])} kept, "
                f"{format_share(num_random)} random"
            ),
            "random next": f"{counts['random_next'] / num_records:.1%}",
            "[UNK]": f"{counts['unknown'] / num_tokens:.2%} of the tokens",
        }
        return [f"{name:<21} {value}" for name, value in values.items()]

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

_NAMES = [feature.name for feature in pretraining_features(1, 1)]


def with_masks(example: Example) -> Example:
    """Adds padding in place of the masks to a record of --dynamic_masking, which has no masks.

    Other records are returned as they are.

    Args:
        example: the features of the record.
    """
    has_masks = "masked_lm_positions" in example
    if has_masks or "input_ids" not in example:
        return example
    zero = np.zeros(1, np.int64)
    return {
        **example,
        "masked_lm_positions": zero,
        "masked_lm_ids": zero,
        "masked_lm_weights": zero.astype(np.float32),
    }


def stack_examples(
    examples: Sequence[Example],
    places: Sequence[str],
    vocab_size: int,
) -> Block:
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
    try:
        block = {name: _stack_feature(examples, name) for name in _NAMES}
    except (KeyError, ValueError):  # A feature is missing, or lengths differ.
        block = {}
    if block and _is_within(block, vocab_size):
        return block
    # Find the first wrong example, for the error.
    for example, place in zip(examples, places, strict=True):
        _check_example(example, place, vocab_size)
        if _list_lengths(example) != _list_lengths(examples[0]):
            raise InputError(
                f"{place}: has another length than {places[0]}; give files of one length"
            )
    return block


def _stack_feature(examples: Sequence[Example], name: str) -> np.ndarray:
    """Returns a feature of all examples, [B, length]."""
    return np.stack([example[name] for example in examples])


def _list_lengths(example: Example) -> list[int]:
    """Returns the length of each feature."""
    return [len(example[name]) for name in _NAMES]


def _limits(max_seq_length: int, vocab_size: int) -> dict[str, int]:
    """Returns the smallest integer that is too large for each feature with a limit."""
    return {
        "input_ids": vocab_size,
        "masked_lm_ids": vocab_size,
        "masked_lm_positions": max_seq_length,
    }


def _is_within(block: Mapping[str, np.ndarray], vocab_size: int) -> bool:
    """Returns whether all values of an example, [length], or a block, [B, length], are in range."""
    max_seq_length = block["input_ids"].shape[-1]
    limits = _limits(max_seq_length, vocab_size)
    return not any(_exceeds(block[name], limit) for name, limit in limits.items())


def _exceeds(values: np.ndarray, limit: int) -> bool:
    """Returns whether a value is negative, or not below the limit."""
    is_outside = (values < 0) | (values >= limit)
    return bool(is_outside.any())


def _check_example(example: Example, place: str, vocab_size: int):
    missing = [name for name in _NAMES if name not in example]
    if missing:
        raise InputError(f"{place} has no {missing[0]}; give records of create_pretraining_data.py")
    max_seq_length = len(example["input_ids"])
    num_predictions = len(example["masked_lm_ids"])
    features = pretraining_features(max_seq_length, num_predictions)
    for name, length, _ in features:
        num_values = len(example[name])
        if num_values != length:
            raise InputError(
                f"{place}: {name} has {num_values} values where {length} are expected; make the "
                "records again"
            )
    limits = _limits(max_seq_length, vocab_size)
    for name, limit in limits.items():
        if _exceeds(example[name], limit):
            remedy = "give the --vocab_file of the records"
            if name == "masked_lm_positions":
                remedy = "make the records again"
            raise InputError(
                f"{place}: {name} has a value that is not from 0 to below {limit}; {remedy}"
            )


def format_example(
    example: Example,
    inv_vocab: Mapping[int, str],
) -> list[str]:
    """Formats a record as text: a line for each segment, and one for the label.

    A predicted token is in braces: the token that the model sees, a bar, and the original token.

    Args:
        example: the features of the record, with masks.
        inv_vocab: id -> WordPiece; an id without a WordPiece is shown as a number.
    """

    def name_token(token_id: int) -> str:
        return inv_vocab.get(token_id, f"[id {token_id}]")

    length = int(example["input_mask"].sum())
    ids = example["input_ids"][:length]
    tokens = [name_token(token_id) for token_id in ids.tolist()]
    for position, original_id in _predictions(example):
        original = name_token(original_id)
        tokens[position] = f"{{{tokens[position]}|{original}}}"
    segments = example["segment_ids"][:length]
    first = []
    second = []
    for token, segment in zip(tokens, segments, strict=True):
        segment_tokens = second if segment else first
        segment_tokens.append(token)
    lines = ["A: " + " ".join(first)]
    if second:
        is_random = example["next_sentence_labels"][0]
        origin = "random" if is_random else "the next text"
        lines.append("B: " + " ".join(second))
        lines.append(f"B is {origin}")
    return lines


def _predictions(example: Example) -> list[tuple[int, int]]:
    """Returns the position and the original id of each predicted token."""
    is_real = example["masked_lm_weights"] > 0
    positions = example["masked_lm_positions"][is_real]
    ids = example["masked_lm_ids"][is_real]
    pairs = zip(positions.tolist(), ids.tolist(), strict=True)
    return list(pairs)


class Statistics:
    """Counts over records.

    Attributes:
        lengths: the number of records for each number of tokens.
        predictions: the number of records for each number of predictions.
        max_seq_length: the length of the records with padding; 0 before the first one.
    """

    def __init__(self, tokenizer: FullTokenizer):
        vocab = tokenizer.vocab
        missing = [token for token in ("[MASK]", "[UNK]") if token not in vocab]
        if missing:
            raise InputError(
                f"--vocab_file: the vocabulary lacks {', '.join(missing)}; give that of the records"
            )
        self._mask_id = vocab["[MASK]"]
        self._unknown_id = vocab["[UNK]"]
        self.lengths: Counter[int] = Counter()
        self.predictions: Counter[int] = Counter()
        self.max_seq_length = 0
        self._counts = Counter()

    def add(self, block: Block) -> None:
        """Counts the records of a block.

        Args:
            block: the features of the records.

        Raises:
            InputError: they have another length than the records before.
        """
        ids = block["input_ids"]
        length = ids.shape[1]
        if self.max_seq_length not in (0, length):
            raise InputError(
                f"the records have {self.max_seq_length} and {length} tokens; give files of "
                "one length"
            )
        self.max_seq_length = length
        lengths = block["input_mask"].sum(axis=1)
        is_predicted = block["masked_lm_weights"] > 0
        num_predicted = is_predicted.sum(axis=1)
        self.lengths.update(lengths.tolist())
        self.predictions.update(num_predicted.tolist())

        seen = np.take_along_axis(
            ids,
            block["masked_lm_positions"],
            axis=1,
        )
        # The tokens that the model sees at the predicted positions, and those to predict.
        seen = seen[is_predicted]
        originals = block["masked_lm_ids"][is_predicted]
        is_mask = seen == self._mask_id
        is_same = (seen == originals) & ~is_mask
        # Count the words before masking: put the original tokens in the place of those seen.
        num_unknown = (ids == self._unknown_id).sum()
        num_unknown -= (seen == self._unknown_id).sum()
        num_unknown += (originals == self._unknown_id).sum()

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
        for name, count in counts.items():
            self._counts[name] += int(count)

    def lines(self) -> list[str]:
        """Returns the statistics as lines of text; at least one record must have been added."""
        counts = self._counts
        num_records = counts["records"]
        num_tokens = counts["positions"]
        num_predictions = counts["predictions"]
        num_random = num_predictions - counts["masked"] - counts["kept"]
        num_positions = num_records * self.max_seq_length
        padding = 1 - num_tokens / num_positions

        def format_mean(count: int) -> str:
            return f"{count / num_records:.1f}"

        def format_share(count: int) -> str:
            return f"{count / max(num_predictions, 1):.1%}"

        distinct_lengths = sorted(self.lengths)
        repeats = [self.lengths[length] for length in distinct_lengths]
        lengths = np.repeat(distinct_lengths, repeats)
        mean_in_first = format_mean(counts["in_first"])
        mean_in_second = format_mean(counts["in_second"])
        values = {
            "records": str(num_records),
            "tokens of a record": (
                f"{lengths.mean():.1f} on average, "
                f"median {np.median(lengths):.0f}, "
                f"{lengths.min()} to {lengths.max()} "
                f"of {self.max_seq_length}"
            ),
            "in A, in B": f"{mean_in_first}, {mean_in_second} on average",
            "padding": f"{padding:.1%}",
            "predictions": (
                f"{format_mean(num_predictions)} in a record, "
                f"{num_predictions / num_tokens:.1%} of the tokens"
            ),
            "of the predictions": (
                f"{format_share(counts['masked'])} [MASK], "
                f"{format_share(counts['kept'])} kept, "
                f"{format_share(num_random)} random"
            ),
            "random next": f"{counts['random_next'] / num_records:.1%}",
            "[UNK]": f"{counts['unknown'] / num_tokens:.2%} of the tokens",
        }
        return [f"{name:<21} {value}" for name, value in values.items()]

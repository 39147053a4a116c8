"""Describes pre-training records, as `framing.read_examples` yields them: one as text, many by
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
    """Returns a record as it is; of --dynamic_masking, with a masked position that is padding."""
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
    """Returns examples, all of which must be pre-training records of one length, as one array
    for each feature.
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


def _is_within(block: Block, vocab_size: int) -> bool:
    limits = _limits(block["input_ids"].shape[1], vocab_size)
    return all(((block[name] >= 0) & (block[name] < limit)).all() for name, limit in limits.items())


def _check_example(example: Example, place: str, vocab_size: int):
    missing = [
        feature.name for feature in pretraining_features(1, 1) if feature.name not in example
    ]
    if missing:
        raise InputError(f"{place} has no {missing[0]}; give records of create_pretraining_data.py")
    for name, length, _ in pretraining_features(
        len(example["input_ids"]), len(example["masked_lm_ids"])
    ):
        if len(example[name]) != length:
            raise InputError(
                f"{place}: {name} has {len(example[name])} values where {length} are expected; "
                "make the records anew"
            )
    for name, limit in _limits(len(example["input_ids"]), vocab_size).items():
        remedy = (
            "make the records anew"
            if "positions" in name
            else "give the --vocab_file of the records"
        )
        if not ((example[name] >= 0) & (example[name] < limit)).all():
            raise InputError(
                f"{place}: {name} has a value that is not from 0 to below {limit}; {remedy}"
            )


def format_example(example: Example, inv_vocab: Mapping[int, str]) -> list[str]:
    """Returns a record as text: a line for each segment, and one for the label.

    A predicted token stands in braces, as the model sees it and, after a bar, as it was.
    """
    length = int(example["input_mask"].sum())
    tokens = [
        inv_vocab.get(int(number), f"[id {number}]") for number in example["input_ids"][:length]
    ]
    for position, original in _predictions(example):
        tokens[position] = f"{{{tokens[position]}|{inv_vocab.get(original, f'[id {original}]')}}}"
    segments = example["segment_ids"][:length]
    second = [token for token, segment in zip(tokens, segments, strict=True) if segment]
    first = [token for token, segment in zip(tokens, segments, strict=True) if not segment]
    lines = ["A: " + " ".join(first)]
    if second:
        is_random = bool(example["next_sentence_labels"][0])
        lines.append("B: " + " ".join(second))
        lines.append(f"B is {'random' if is_random else 'the next text'}")
    return lines


def _predictions(example: Example) -> list[tuple[int, int]]:
    is_real = example["masked_lm_weights"] > 0
    positions, ids = example["masked_lm_positions"][is_real], example["masked_lm_ids"][is_real]
    return list(zip(positions.tolist(), ids.tolist(), strict=True))


class Statistics:
    """Counts over records, with Counters of the sequences' numbers of tokens, `lengths`, and of
    `predictions`.
    """

    def __init__(self, tokenizer: FullTokenizer):
        missing = [token for token in ("[MASK]", "[UNK]") if token not in tokenizer.vocab]
        if missing:
            raise InputError(
                f"--vocab_file: the vocabulary lacks {', '.join(missing)}; give that of the records"
            )
        self._mask, self._unknown = tokenizer.vocab["[MASK]"], tokenizer.vocab["[UNK]"]
        self.lengths: Counter[int] = Counter()
        self.predictions: Counter[int] = Counter()
        self.max_seq_length = 0
        self._counts = Counter()

    def add(self, block: Block) -> None:
        """Counts the records of a block; raises InputError if they have another length than
        those before.
        """
        ids, lengths = block["input_ids"], block["input_mask"].sum(axis=1)
        is_predicted = block["masked_lm_weights"] > 0
        seen = np.take_along_axis(ids, block["masked_lm_positions"], axis=1)
        originals = block["masked_lm_ids"]
        self.lengths.update(lengths.tolist())
        self.predictions.update(is_predicted.sum(axis=1).tolist())
        if self.max_seq_length not in (0, ids.shape[1]):
            raise InputError(
                f"the records have {self.max_seq_length} and {ids.shape[1]} tokens; give files of "
                "one length"
            )
        self.max_seq_length = ids.shape[1]
        num_second = block["segment_ids"].sum()
        is_mask = is_predicted & (seen == self._mask)
        is_same = is_predicted & (seen == originals) & (seen != self._mask)
        # Count the words as they were before masking.
        num_unknown = (ids == self._unknown).sum()
        num_unknown -= (is_predicted & (seen == self._unknown)).sum()
        num_unknown += (is_predicted & (originals == self._unknown)).sum()
        counts = {
            "records": len(ids),
            "positions": lengths.sum(),
            "in_first": lengths.sum() - num_second,
            "in_second": num_second,
            "predictions": is_predicted.sum(),
            "masked": is_mask.sum(),
            "kept": is_same.sum(),
            "unknown": num_unknown,
            "random_next": block["next_sentence_labels"].sum(),
        }
        self._counts.update({name: int(count) for name, count in counts.items()})

    def lines(self) -> list[str]:
        """Returns the statistics as lines of text; there is at least one record."""
        counts, lengths = self._counts, np.repeat(*np.array(sorted(self.lengths.items())).T)
        records, predictions = counts["records"], max(counts["predictions"], 1)
        replaced = counts["predictions"] - counts["masked"] - counts["kept"]
        return [
            f"records               {records}",
            f"tokens of a record    {lengths.mean():.1f} on average, median "
            f"{np.median(lengths):.0f}, {lengths.min()} to {lengths.max()} of "
            f"{self.max_seq_length}",
            f"in A, in B            {counts['in_first'] / records:.1f}, "
            f"{counts['in_second'] / records:.1f} on average",
            "padding               "
            f"{1 - counts['positions'] / (records * self.max_seq_length):.1%}",
            f"predictions           {counts['predictions'] / records:.1f} in a record, "
            f"{counts['predictions'] / counts['positions']:.1%} of the tokens",
            f"of the predictions    {counts['masked'] / predictions:.1%} [MASK], "
            f"{counts['kept'] / predictions:.1%} kept, {replaced / predictions:.1%} random",
            f"random next           {counts['random_next'] / records:.1%}",
            f"[UNK]                 {counts['unknown'] / counts['positions']:.2%} of the tokens",
        ]

import numpy as np
import pytest

from official_bert.data.records.statistics import Statistics, format_example, stack_examples
from official_bert.io.errors import InputError
from tests import toy


def example_of(
    text: str, predictions: dict[int, str], b_first: int = 99, is_random: bool = False
) -> dict:
    """A record of twelve tokens and four predictions, whose special tokens are part of the text."""
    ids = [toy.VOCABULARY.index(token) for token in text.split()]
    weights = np.arange(4) < len(predictions)
    originals = [toy.VOCABULARY.index(token) for token in predictions.values()]
    position = np.arange(12)
    return {
        "input_ids": np.array([*ids, *[0] * (12 - len(ids))]),
        "input_mask": (position < len(ids)).astype(int),
        "segment_ids": ((position >= b_first) & (position < len(ids))).astype(int),
        "masked_lm_positions": np.array([*predictions, *[0] * (4 - len(predictions))]),
        "masked_lm_ids": np.array([*originals, *[0] * (4 - len(originals))]),
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": np.array([int(is_random)]),
    }


PAIR = example_of(
    "[CLS] the [MASK] sat [SEP] a train left [SEP]",
    {2: "cat", 6: "train"},
    5,
    True,
)
SINGLE = example_of(
    "[CLS] the [UNK] park [MASK] [SEP]",
    {
        2: "day",
        3: "sun",
        4: "[UNK]",
    },
)


def test_a_record_is_text_with_its_predictions_in_braces():
    inverse = dict(enumerate(toy.VOCABULARY))
    assert format_example(PAIR, inverse) == [
        "A: [CLS] the {[MASK]|cat} sat [SEP]",
        "B: a {train|train} left [SEP]",
        "B is random",
    ]
    follows = PAIR | {"next_sentence_labels": np.array([0])}
    assert format_example(follows, inverse)[-1] == "B is the next text"
    assert format_example(SINGLE, inverse) == [
        "A: [CLS] the {[UNK]|day} {park|sun} {[MASK]|[UNK]} [SEP]"
    ]


def test_the_statistics_are_those_counted_by_hand(tokenizer):
    statistics = Statistics(tokenizer)
    statistics.add(stack_examples([PAIR, SINGLE], ["", ""], 50))
    assert dict(statistics.lengths) == {9: 1, 6: 1}
    assert dict(statistics.predictions) == {2: 1, 3: 1}
    # 15 tokens in all; of 5 predictions 2 are [MASK], 1 is kept and 2 are other words; one original
    # is [UNK].
    assert statistics.lines() == [
        "records               2",
        "tokens of a record    7.5 on average, median 8, 6 to 9 of 12",
        "in A, in B            5.5, 2.0 on average",
        "padding               37.5%",
        "predictions           2.5 in a record, 33.3% of the tokens",
        "of the predictions    40.0% [MASK], 20.0% kept, 40.0% random",
        "random next           50.0%",
        "[UNK]                 6.67% of the tokens",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"masked_lm_ids": None},
            "has no masked_lm_ids; give records of create_pretraining_data.py",
        ),
        ({"segment_ids": np.zeros(3, int)}, "segment_ids has 3 values where 12 are expected"),
        (
            {"input_ids": np.full(12, 50)},
            "input_ids has a value that is not from 0 to below 50; give the --vocab_file",
        ),
        (
            {"masked_lm_positions": np.full(4, 12)},
            "masked_lm_positions has a value that is not from 0 to below 12",
        ),
    ],
)
def test_what_is_no_record_is_refused(changes, sentence):
    changed = {name: value for name, value in (PAIR | changes).items() if value is not None}
    with pytest.raises(InputError) as refused:
        stack_examples(
            [PAIR, changed], ["a.tfrecord: record 6 (from 0)", "a.tfrecord: record 7 (from 0)"], 50
        )
    assert str(refused.value).startswith("a.tfrecord: record 7 (from 0)")
    assert sentence in str(refused.value)


def test_records_and_blocks_of_two_lengths_are_refused(tokenizer):
    shorter = {name: values[:11] for name, values in PAIR.items()}
    with pytest.raises(
        InputError, match="second: has another length than first; give files of one length"
    ):
        stack_examples([PAIR, shorter], ["first", "second"], 50)
    statistics = Statistics(tokenizer)
    statistics.add(stack_examples([PAIR], [""], 50))
    padded = PAIR | {
        name: np.pad(PAIR[name], (0, 1)) for name in ("input_ids", "input_mask", "segment_ids")
    }
    with pytest.raises(InputError, match="the records have 12 and 13 tokens"):
        statistics.add(stack_examples([padded], [""], 50))

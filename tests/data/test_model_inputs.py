"""One example, or a set, as what a model is fed; the log of the first examples, whole ones with
--verbosity=1.
"""

import logging as std_logging

import numpy as np
import pytest
from absl import logging

from official_bert.data.model_inputs import (
    ModelInputs,
    check_unknown,
    check_vocabulary,
    log_example,
    model_input,
    model_input_ids,
    padded_features,
    warn_about_unknown_requests,
)
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy

SEVEN_TOKENS = [
    pytest.param(
        "The cat sat on the mat",
        None,
        "[CLS] the cat sat on the [SEP]",
        "0000000",
        id="long text",
    ),
    pytest.param(
        "",
        None,
        "[CLS] [SEP]",
        "00",
        id="empty text",
    ),
    pytest.param(
        "sunny day",
        "no rain",
        "[CLS] sun ##ny [SEP] no rain [SEP]",
        "0000111",
        id="long first text",
    ),
    pytest.param(
        "a",
        "b the rain",
        "[CLS] a [SEP] [UNK] the rain [SEP]",
        "0001111",
        id="pair that fits",
    ),
    pytest.param(
        "the cat",
        "\u200d",
        "[CLS] the cat [SEP]",
        "0000",
        id="second text without tokens",
    ),
    pytest.param(
        "",
        "the cat",
        "[CLS] [SEP] the cat [SEP]",
        "00111",
        id="empty first text",
    ),
]


@pytest.mark.parametrize(("text_a", "text_b", "tokens", "segments"), SEVEN_TOKENS)
def test_inputs_of_seven_tokens(tokenizer, text_a, text_b, tokens, segments):
    expected_tokens = tokens.split()
    inputs = model_input(tokenizer, text_a, text_b, 7)
    assert inputs.tokens == expected_tokens
    assert inputs.segment_ids == [int(segment) for segment in segments]
    ids, num_first = model_input_ids(tokenizer, text_a, text_b, 7)
    assert tokenizer.convert_ids_to_tokens(ids) == expected_tokens
    assert num_first == segments.count("0")


@pytest.mark.parametrize(
    ("length", "expected_tokens"),
    [
        pytest.param(3, ["[CLS]", "[SEP]"], id="length 3"),
        pytest.param(4, ["[CLS]", "the", "[SEP]"], id="length 4"),
        pytest.param(5, ["[CLS]", "the", "[SEP]", "no", "[SEP]"], id="length 5"),
    ],
)
def test_a_second_text_of_which_nothing_is_left_has_no_separator(
    tokenizer,
    length,
    expected_tokens,
):
    inputs = model_input(tokenizer, "the cat", "no rain", length)
    assert inputs.tokens == expected_tokens
    ids, _ = model_input_ids(tokenizer, "the cat", "no rain", length)
    assert tokenizer.convert_ids_to_tokens(ids) == expected_tokens
    features = tokenizer("the cat", "no rain", max_seq_length=length)
    assert features["input_mask"].tolist() == [[1] * len(expected_tokens)]


def check_features(features: dict[str, np.ndarray], expected: dict[str, list]):
    assert {name: values.tolist() for name, values in features.items()} == expected
    assert {values.dtype.name for values in features.values()} == {"int32"}


def test_features_are_padded_with_zeros(tokenizer):
    pair = model_input(tokenizer, "The cat", "sat", 8)
    empty_text = model_input(tokenizer, "", None, 8)
    features = padded_features([pair, empty_text], tokenizer, 8)
    expected = {
        "input_ids": [
            [2, 5, 6, 3, 7, 3, 0, 0],
            [2, 3, 0, 0, 0, 0, 0, 0],
        ],
        "input_mask": [
            [1, 1, 1, 1, 1, 1, 0, 0],
            [1, 1, 0, 0, 0, 0, 0, 0],
        ],
        "segment_ids": [
            [0, 0, 0, 0, 1, 1, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
        ],
    }
    check_features(features, expected)


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path, tokenizer):
    size = len(toy.VOCABULARY)
    check_vocabulary(tokenizer, size, "vocab.txt")
    message = rf"^vocab.txt: has {size} lines, but .* vocab_size {size - 1}; use"
    with pytest.raises(InputError, match=message):
        check_vocabulary(tokenizer, size - 1, "vocab.txt")

    vocab_file = toy.write_vocabulary(tmp_path, ["[PAD]", "[SEP]", "the"])
    poor_tokenizer = FullTokenizer(vocab_file)
    message = r"^vocab.txt: lacks \[CLS\], \[UNK\]; add a line for each of them$"
    with pytest.raises(InputError, match=message):
        check_vocabulary(poor_tokenizer, size, "vocab.txt")


def test_features_are_padded_to_the_requested_length():
    inputs = ModelInputs(
        [
            ([2, 9, 3], 3),
            ([2, 8, 3, 7, 3], 3),
            ([], 0),
        ]
    )
    assert inputs.lengths.tolist() == [3, 5, 0]
    features = inputs.features(np.array([1, 2, 0]), 6)
    expected = {
        "input_ids": [
            [2, 8, 3, 7, 3, 0],
            [0, 0, 0, 0, 0, 0],
            [2, 9, 3, 0, 0, 0],
        ],
        "input_mask": [
            [1, 1, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0],
        ],
        "segment_ids": [
            [0, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0],
        ],
    }
    check_features(features, expected)
    short_features = inputs.features(np.array([0]), 3)
    assert short_features["input_ids"].tolist() == [[2, 9, 3]]


NO_CAPITALS = "has no capitals, but the text keeps its own: is --do_lower_case=False right?"
CAPITALS = "has capitals, but the text is lower-cased: is --do_lower_case=True right?"
CASINGS = [
    pytest.param(
        ["the"],
        False,
        ["vocab.txt: " + NO_CAPITALS],
        id="no capitals, text keeps its case",
    ),
    pytest.param(
        ["the", "The"],
        True,
        ["vocab.txt: " + CAPITALS],
        id="capitals, lower-cased text",
    ),
    pytest.param(
        ["the"],
        True,
        [],
        id="no capitals, lower-cased text",
    ),
    pytest.param(
        ["the", "The"],
        False,
        [],
        id="capitals, text keeps its case",
    ),
    pytest.param(
        ["the", "काम", "##का"],
        False,
        [],
        id="mostly a script without capitals, text keeps its case",
    ),
    pytest.param(
        ["The", "काम", "##का"],
        True,
        ["but the text is lower-cased: is --do_lower_case=True right?"],
        id="mostly a script without capitals, lower-cased text",
    ),
    pytest.param(
        ["the", "काम"],
        False,
        ["but the text keeps its own: is --do_lower_case=False right?"],
        id="half a script without capitals, text keeps its case",
    ),
]


@pytest.mark.parametrize(("pieces", "lower_case", "message_ends"), CASINGS)
def test_a_vocabulary_of_another_casing_is_warned_of(
    tmp_path,
    caplog,
    pieces,
    lower_case,
    message_ends,
):
    vocabulary = [*toy.VOCABULARY[:5], *pieces]
    path = toy.write_vocabulary(tmp_path, vocabulary)
    tokenizer = FullTokenizer(path, lower_case)
    check_vocabulary(tokenizer, len(vocabulary), path)
    for message, end in zip(caplog.messages, message_ends, strict=True):
        assert message.endswith(end)


def make_ids(num_texts: int, num_unknown: int) -> np.ndarray:
    """Ids of [CLS], [SEP], 100 words and padding; the first `num_unknown` words are unknown."""
    ids = np.full((num_texts, 110), 5)
    ids[:, 0] = 2
    ids[:, 1] = 3
    ids[:, 2 : 2 + num_unknown] = 1
    ids[:, 102:] = 0
    return ids


def test_a_vocabulary_of_another_language_is_warned_of(tmp_path, caplog):
    vocabulary = [*toy.VOCABULARY[:5], "the", "काम"]
    path = toy.write_vocabulary(tmp_path, vocabulary)
    tokenizer = FullTokenizer(path, False)
    # A text has 100 words, which are the fewest that are checked.
    for num_unknown, num_texts in ((20, 1), (40, 1), (21, 1), (24, 4)):
        ids = make_ids(num_texts, num_unknown)
        check_unknown(tokenizer, ids)
        too_few_words = ids[:1, :101]
        check_unknown(tokenizer, too_few_words)
    shares = [message[:4] for message in caplog.messages]
    assert shares == ["40 %", "21 %", "24 %"]


UNKNOWN_TEXTS = [
    pytest.param(
        [("Привет мир", None)],
        ["a text is [UNK] only"],
        id="unknown text",
    ),
    pytest.param(
        [("the cat", None), ("北京", "我"), ("Привет", None)],
        ["2 texts are [UNK] only"],
        id="unknown text and pair",
    ),
    pytest.param(
        [("the Привет", None), ("Привет", "the")],
        [],
        id="known and unknown words",
    ),
    pytest.param(
        [("", None), ("", "")],
        [],
        id="empty texts",
    ),
    pytest.param(
        [("the Привет " * 60, None)],
        ["50 % of the first tokens are [UNK]"],
        id="long text",
    ),
    pytest.param(
        [],
        [],
        id="no text",
    ),
]


@pytest.mark.parametrize(("texts", "message_starts"), UNKNOWN_TEXTS)
def test_a_request_of_unknown_words_only_is_warned_of(tokenizer, caplog, texts, message_starts):
    """However short it is; of a set that is read once, 100 tokens are a sample."""
    inputs = ModelInputs(
        model_input_ids(tokenizer, text_a, text_b, 128) for text_a, text_b in texts
    )
    has_warned = warn_about_unknown_requests(tokenizer, inputs, 128)
    assert has_warned is bool(message_starts)
    for message, start in zip(caplog.messages, message_starts, strict=True):
        assert message.startswith(start)


@pytest.fixture
def set_verbosity(caplog):
    verbosity = logging.get_verbosity()

    def set_to(number):
        caplog.set_level(std_logging.DEBUG, logger="absl")
        logging.set_verbosity(number)

    yield set_to
    logging.set_verbosity(verbosity)


def test_one_line_of_the_first_example_alone(set_verbosity, caplog):
    set_verbosity(0)

    def fail():
        pytest.fail("is not needed")

    log_example(["token0"] * 25, True, fail)
    log_example(["token1"] * 25, False, fail)
    log_example(["token2"] * 25, False, fail)
    assert caplog.messages == ["First example: " + "token0 " * 20 + "..."]


def test_verbosity_1_gives_the_originals_dump_of_each(set_verbosity, caplog):
    set_verbosity(1)
    log_example(["token"], True, lambda: ["guid: 0%d", "label: yes"])
    log_example(["token"], False, lambda: ["guid: 1%d", "label: yes"])
    assert caplog.messages == [
        "*** Example ***",
        "guid: 0%d",
        "label: yes",
        "*** Example ***",
        "guid: 1%d",
        "label: yes",
    ]

    caplog.clear()
    set_verbosity(-1)
    log_example(["token"], True, lambda: ["guid"])
    assert caplog.messages == []

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


@pytest.mark.parametrize(
    ("text_a", "text_b", "tokens", "segments"),
    [
        ("The cat sat on the mat", None, "[CLS] the cat sat on the [SEP]", "0000000"),
        ("", None, "[CLS] [SEP]", "00"),
        ("sunny day", "no rain", "[CLS] sun ##ny [SEP] no rain [SEP]", "0000111"),
        ("a", "b the rain", "[CLS] a [SEP] [UNK] the rain [SEP]", "0001111"),
        ("the cat", "\u200d", "[CLS] the cat [SEP]", "0000"),  # nothing is left of the second text
        ("", "the cat", "[CLS] [SEP] the cat [SEP]", "00111"),
    ],
)
def test_inputs_of_seven_tokens(tokenizer, text_a, text_b, tokens, segments):
    made = model_input(tokenizer, text_a, text_b, 7)
    assert made.tokens == tokens.split()
    assert made.segment_ids == [int(segment) for segment in segments]
    ids, num_first = model_input_ids(tokenizer, text_a, text_b, 7)
    assert tokenizer.convert_ids_to_tokens(ids) == tokens.split()
    assert num_first == segments.count("0")


@pytest.mark.parametrize(
    ("length", "tokens"), [(3, "[CLS] [SEP]"), (4, "[CLS] the [SEP]"), (5, "[CLS] the [SEP] no")]
)
def test_a_second_text_of_which_nothing_is_left_has_no_separator(tokenizer, length, tokens):
    tokens = tokens.split() + ["[SEP]"] * (length > 4)
    assert model_input(tokenizer, "the cat", "no rain", length).tokens == tokens
    assert (
        tokenizer.convert_ids_to_tokens(model_input_ids(tokenizer, "the cat", "no rain", length)[0])
        == tokens
    )
    assert tokenizer("the cat", "no rain", max_seq_length=length)["input_mask"].tolist() == [
        [1] * len(tokens)
    ]


def test_features_are_padded_with_zeros(tokenizer):
    inputs = [model_input(tokenizer, "The cat", "sat", 8), model_input(tokenizer, "", None, 8)]
    batch = padded_features(inputs, tokenizer, 8)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[2, 5, 6, 3, 7, 3, 0, 0], [2, 3, 0, 0, 0, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]],
    }
    assert {values.dtype.name for values in batch.values()} == {"int32"}


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path, tokenizer):
    size = len(toy.VOCABULARY)
    check_vocabulary(tokenizer, size, "vocab.txt")
    with pytest.raises(
        InputError, match=rf"^vocab.txt: has {size} lines, but .* vocab_size {size - 1}; use"
    ):
        check_vocabulary(tokenizer, size - 1, "vocab.txt")
    poor = FullTokenizer(toy.write_vocabulary(tmp_path, ["[PAD]", "[SEP]", "the"]))
    with pytest.raises(
        InputError, match=r"^vocab.txt: lacks \[CLS\], \[UNK\]; add a line for each of them$"
    ):
        check_vocabulary(poor, size, "vocab.txt")


def test_features_are_padded_to_the_length_asked_for():
    inputs = ModelInputs([([2, 9, 3], 3), ([2, 8, 3, 7, 3], 3), ([], 0)])
    assert inputs.lengths.tolist() == [3, 5, 0]
    batch = inputs.features(np.array([1, 2, 0]), 6)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[2, 8, 3, 7, 3, 0], [0] * 6, [2, 9, 3, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 0], [0] * 6, [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 1, 1, 0], [0] * 6, [0] * 6],
    }
    assert {values.dtype.name for values in batch.values()} == {"int32"}
    assert inputs.features(np.array([0]), 3)["input_ids"].tolist() == [[2, 9, 3]]


def test_a_vocabulary_of_another_casing_or_language_is_warned_of(tmp_path, caplog):
    for pieces, lower, expected in (
        (
            ["the"],
            False,
            "vocab.txt: has no capitals, but the text keeps its own: is --do_lower_case=False "
            "right?",
        ),
        (
            ["the", "The"],
            True,
            "vocab.txt: has capitals, but the text is lower-cased: is --do_lower_case=True right?",
        ),
        (["the"], True, ""),
        (["the", "The"], False, ""),
        (["the", "काम", "##का"], False, ""),  # a writing without capitals
        (
            ["The", "काम", "##का"],
            True,
            "but the text is lower-cased: is --do_lower_case=True right?",
        ),
        (["the", "काम"], False, "but the text keeps its own: is --do_lower_case=False right?"),
    ):
        caplog.clear()
        path = toy.write_vocabulary(tmp_path, [*toy.VOCABULARY[:5], *pieces])
        check_vocabulary(FullTokenizer(path, lower), 5 + len(pieces), path)
        assert [message[-len(expected) :] for message in caplog.messages] == [expected] * bool(
            expected
        )
    caplog.clear()
    tokenizer = FullTokenizer(path)
    # Of 100 tokens, or of 99 of each text.
    for num_unknown, num_texts in ((20, 1), (40, 1), (21, 1), (24, 4)):
        ids = np.full((num_texts, 110), 5)
        ids[:, 0], ids[:, 1], ids[:, 102:], ids[:, 2 : 2 + num_unknown] = 2, 3, 0, 1
        check_unknown(tokenizer, ids)
        check_unknown(tokenizer, ids[:1, :101])
    assert [message[:4] for message in caplog.messages] == ["40 %", "21 %", "24 %"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([("Привет мир",)], "a text is [UNK] only"),
        ([("the cat",), ("北京", "我"), ("Привет",)], "2 texts are [UNK] only"),
        ([("the Привет",), ("Привет", "the")], ""),
        ([("",), ("", "")], ""),
        ([("the Привет " * 60,)], "50 % of the first tokens are [UNK]"),
        ([], ""),
    ],
)
def test_a_request_of_unknown_words_only_is_warned_of(tokenizer, caplog, texts, message):
    """However short it is; of a set that is read once, 100 tokens are a sample."""
    encoded = ModelInputs(model_input_ids(tokenizer, *(*text, None)[:2], 128) for text in texts)
    assert warn_about_unknown_requests(tokenizer, encoded, 128) is bool(message)
    assert [text[: len(message)] for text in caplog.messages] == [message] * bool(message)


@pytest.fixture
def verbosity(caplog):
    before = logging.get_verbosity()

    def set_to(number):
        caplog.set_level(std_logging.DEBUG, logger="absl")
        logging.set_verbosity(number)

    yield set_to
    logging.set_verbosity(before)


def test_one_line_of_the_first_example_alone(verbosity, caplog):
    verbosity(0)
    for number in range(3):
        log_example([f"token{number}"] * 25, number == 0, lambda: pytest.fail("is not needed"))
    assert caplog.messages == ["First example: " + "token0 " * 20 + "..."]


def test_verbosity_1_gives_the_originals_dump_of_each(verbosity, caplog):
    verbosity(1)
    for number in range(2):
        log_example(
            ["token"], number == 0, lambda number=number: [f"guid: {number}%d", "label: yes"]
        )
    assert caplog.messages == [
        "*** Example ***", "guid: 0%d", "label: yes", "*** Example ***", "guid: 1%d", "label: yes",
    ]  # fmt: skip
    caplog.clear()
    verbosity(-1)
    log_example(["token"], True, lambda: ["guid"])
    assert caplog.messages == []

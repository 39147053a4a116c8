import pytest

from official_bert.data.model_inputs import check_vocabulary, model_input, model_input_ids, padded_features
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_config import truncate_seq_pair
from tests import toy


@pytest.fixture
def tokenizer(tmp_path):
    return FullTokenizer(toy.write_vocabulary(tmp_path))


@pytest.mark.parametrize(
    ("a", "b", "max_length", "left"),
    [
        ("abc", "de", 5, ("abc", "de")),
        ("abc", "de", 4, ("ab", "de")),
        ("ab", "de", 3, ("ab", "d")),  # a tie takes from b
        ("abcdef", "g", 3, ("ab", "g")),
        ("a", "defg", 2, ("a", "d")),
        ("ab", "de", 0, ("", "")),
    ],
)
def test_the_longer_text_loses_its_last_token(a, b, max_length, left):
    tokens_a, tokens_b = list(a), list(b)
    truncate_seq_pair(tokens_a, tokens_b, max_length)
    assert ("".join(tokens_a), "".join(tokens_b)) == left


@pytest.mark.parametrize(
    ("text_a", "text_b", "tokens", "segments"),
    [
        ("The cat", None, "[CLS] the cat [SEP]", "0000"),
        ("The cat sat on the mat", None, "[CLS] the cat sat on the [SEP]", "0000000"),
        ("", None, "[CLS] [SEP]", "00"),
        ("sunny day", "no rain", "[CLS] sun ##ny [SEP] no rain [SEP]", "0000111"),
        ("a", "b the rain", "[CLS] a [SEP] [UNK] the rain [SEP]", "0001111"),
        ("the cat", "\u200d", "[CLS] the cat [SEP]", "0000"),  # nothing is left of the second text
        ("the cat", "", "[CLS] the cat [SEP]", "0000"),
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
    with pytest.raises(InputError, match=rf"^vocab.txt: has {size} lines, but .* vocab_size {size - 1}; use"):
        check_vocabulary(tokenizer, size - 1, "vocab.txt")
    poor = FullTokenizer(toy.write_vocabulary(tmp_path, ["[PAD]", "[SEP]", "the"]))
    with pytest.raises(InputError, match=r"^vocab.txt: lacks \[CLS\], \[UNK\]; add a line for each of them$"):
        check_vocabulary(poor, size, "vocab.txt")

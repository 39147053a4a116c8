"""A call of the tokenizer with transformers' arguments gives what transformers gives."""

import functools
import gzip
import json
import pathlib

import numpy as np
import pytest

from official_bert.extensions.huggingface_api.tokenizer_inputs import find_offsets
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.golden.record_transformers import TOKENS, record_tokens
from tests.shared import recording

VOCABULARY = recording("uncased_vocab.txt")
INSTALLED = pytest.param("installed", marks=pytest.mark.needs_extra("transformers"))
make_tokenizer = functools.cache(FullTokenizer)


def read_cases(path: pathlib.Path) -> list[list]:
    """Read recorded calls: settings, texts, second texts, arguments and the result of each."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("source", ["recorded", INSTALLED])
def test_equals_transformers(source, tmp_path):
    file = TOKENS
    if source == "installed":
        file = tmp_path / TOKENS.name
        record_tokens(file, num_cases=1000)
    cases = read_cases(file)
    for settings, texts, pairs, arguments, expected in cases:
        tokenizer = make_tokenizer(str(VOCABULARY), *settings)
        result = tokenizer(texts, pairs, **arguments)
        assert json.loads(json.dumps(result)) == expected, (settings, texts, pairs, arguments)

    # The cases are of all kinds.
    assert len(cases) > 250
    last_examples = []
    masks = []
    for *_, expected in cases:
        mapping = expected.get("overflow_to_sample_mapping", [0])
        last_examples.append(max(mapping))
        masks.append(json.dumps(expected["attention_mask"]))
    assert max(last_examples) > 1
    assert any("1, 0" in mask for mask in masks)


def test_offsets_are_those_of_the_pieces(tokenizer):
    text = "Th\u00e9 s\u0075\u0301nny\u200b mat\u00ad."
    pieces = [text[start:end] for start, end in find_offsets(tokenizer, text)]
    assert pieces == ["Th\u00e9", "s\u0075\u0301n", "ny", "mat", "."]
    assert len(pieces) == len(tokenizer.encode(text))


@pytest.mark.parametrize(("kind", "dtype"), [("np", np.int64), ("tf", np.int32)])
def test_arrays_and_tensors_have_the_values_of_lists(tokenizer, kind, dtype):
    texts = ["the cat sat", "rain"]
    settings = {
        "padding": True,
        "truncation": True,
        "max_length": 4,
        "stride": 1,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    lists = tokenizer(texts, **settings)
    arrays = tokenizer(texts, **settings, return_tensors=kind)
    assert lists["overflow_to_sample_mapping"] == [0, 0, 1]
    assert sorted(arrays) == sorted(lists)
    for name, values in lists.items():
        np.testing.assert_array_equal(arrays[name], values)
        assert np.asarray(arrays[name]).dtype == dtype


def test_a_single_pair_has_two_segments(tokenizer):
    segments = [0, 0, 0, 0, 1, 1]
    arrays = tokenizer("the cat", text_pair="rain", return_tensors="np")
    assert arrays["token_type_ids"].tolist() == [segments]
    lists = tokenizer("the cat", "rain", padding=False)
    assert lists["token_type_ids"] == segments


def test_a_second_text_may_be_none(tokenizer):
    single = tokenizer(["the"], padding=False)
    assert tokenizer(["the"], [None], padding=False) == single


def test_the_longest_input_of_a_folder_is_the_usual_max_length(tokenizer, tmp_path):
    toy.write_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 6}')
    short_tokenizer = FullTokenizer.from_pretrained(str(tmp_path))
    text = "the cat " * 9

    truncated = short_tokenizer(text, truncation=True)
    assert len(truncated["input_ids"]) == 6
    padded = short_tokenizer("the", padding="max_length")
    assert len(padded["input_ids"]) == 6
    whole = short_tokenizer(text, padding=True)
    assert len(whole["input_ids"]) == 20

    fits = tokenizer(text, truncation=True)
    assert len(fits["input_ids"]) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"padding": "long"},
            "padding='long': must be one of False, 'do_not_pad', True",
            id="unknown padding",
        ),
        pytest.param(
            {"truncation": "first"},
            "truncation='first': must be one of None, False",
            id="unknown truncation",
        ),
        pytest.param(
            {"padding": "max_length"},
            "padding='max_length': give max_length",
            id="padding without max_length",
        ),
        pytest.param(
            {"truncation": "only_second", "max_length": 3},
            "truncation='only_second': there is no second text",
            id="truncation of no second text",
        ),
        pytest.param(
            {"truncation": True, "max_length": 2},
            "max_length: leaves room for 0 tokens of a text",
            id="max_length of special tokens",
        ),
        pytest.param(
            {"truncation": True, "max_length": 4, "stride": 2},
            "leaves room for 2 tokens of a text, and stride=2",
            id="stride as long as the text",
        ),
        pytest.param(
            {"return_tensors": "np"},
            "input_ids: the examples differ in length; give padding=True",
            id="arrays without padding",
        ),
        pytest.param(
            {"return_tensors": "pt", "padding": True},
            "return_tensors='pt': must be 'tf', 'np' or None",
            id="tensors of PyTorch",
        ),
        pytest.param(
            {"max_seq_length": 9, "padding": True},
            "max_seq_length: is called max_length beside",
            id="max_seq_length",
        ),
    ],
)
def test_wrong_arguments_are_named(tokenizer, arguments, message):
    with pytest.raises(InputError, match=message):
        tokenizer(["the cat sat", "rain"], **arguments)


def test_an_unknown_argument_is_an_error_of_python(tokenizer):
    with pytest.raises(TypeError, match="pading"):
        tokenizer("the cat", pading=True)


def test_names_of_transformers(tokenizer):
    """The expected values are those of transformers' BertTokenizerFast with this vocabulary."""
    assert len(tokenizer) == 50
    assert tokenizer.vocab_size == 50
    assert tokenizer.pad_token_id == 0
    assert tokenizer.unk_token_id == 1
    assert tokenizer.cls_token_id == 2
    assert tokenizer.sep_token_id == 3
    assert tokenizer.mask_token_id == 4
    assert tokenizer.mask_token == "[MASK]"
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert tokenizer.special_tokens_map["unk_token"] == "[UNK]"

    # The vocabulary is a copy.
    tokenizer.get_vocab().clear()
    assert len(tokenizer.get_vocab()) == 50

    assert tokenizer.encode("the cat", "rain") == [2, 5, 6, 3, 38, 3]
    assert tokenizer.encode("the cat", add_special_tokens=True) == [2, 5, 6, 3]
    assert tokenizer.encode("the cat", add_special_tokens=False) == [5, 6]
    assert tokenizer.encode("the cat") == [5, 6]
    texts = tokenizer.batch_decode(
        [
            [2, 5, 6, 7, 3],
            [2, 38, 4, 3, 0],
        ]
    )
    assert texts == ["the cat sat", "rain [MASK]"]


def test_a_vocabulary_without_a_special_token_says_so(tmp_path):
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("[UNK]\nthe\nthe\n")
    lacking = FullTokenizer(str(vocab_file))
    assert len(lacking) == 3  # the ids are 0 and 2
    assert lacking.all_special_ids == [0]
    with pytest.raises(InputError, match=r"the vocabulary lacks \[MASK\]; add a line for it"):
        print(lacking.mask_token_id)


def test_masks_and_lengths_that_are_asked_for(tokenizer):
    """The expected values are those of transformers' BertTokenizerFast with this vocabulary."""
    examples = tokenizer(
        ["the cat sat", "rain [MASK]"],
        padding=True,
        return_special_tokens_mask=True,
        return_length=True,
    )
    assert examples["special_tokens_mask"] == [
        [1, 0, 0, 0, 1],
        [1, 0, 0, 1, 1],
    ]
    assert examples["length"] == [5, 5]

    pair = tokenizer(
        "the cat",
        "rain",
        return_special_tokens_mask=True,
        return_length=True,
        return_token_type_ids=False,
        return_attention_mask=False,
    )
    assert pair == {
        "input_ids": [2, 5, 6, 3, 38, 3],
        "special_tokens_mask": [1, 0, 0, 1, 0, 1],
        "length": [6],
    }


def test_pads_what_it_made(tokenizer):
    """The expected values are those of transformers' BertTokenizerFast with this vocabulary."""
    texts = ["the cat sat", "rain [MASK]"]
    batch = tokenizer(texts, padding=False, return_special_tokens_mask=True)
    expected = tokenizer(texts, padding=True, return_special_tokens_mask=True)
    examples = [
        {name: rows[0] for name, rows in batch.items()},
        {name: rows[1] for name, rows in batch.items()},
    ]
    assert tokenizer.pad(batch) == expected
    assert tokenizer.pad(examples) == expected

    longer = tokenizer.pad(examples, padding="max_length", max_length=6)
    assert longer["attention_mask"] == [
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0, 0],
    ]
    assert longer["special_tokens_mask"] == [
        [1, 0, 0, 0, 1, 1],
        [1, 0, 0, 1, 1, 1],
    ]

    only_ids = tokenizer.pad({"input_ids": [[2, 3], [4]]})
    assert only_ids == {
        "input_ids": [[2, 3], [4, 0]],
        "attention_mask": [[1, 1], [1, 0]],
    }
    one_example = tokenizer.pad({"input_ids": [2, 3]}, "max_length", 3)
    assert one_example == {
        "input_ids": [2, 3, 0],
        "attention_mask": [1, 1, 0],
    }


@pytest.mark.parametrize("kind", ["np", "tf"])
def test_labels_keep_their_values_when_padded(tokenizer, kind):
    examples = [
        {"input_ids": np.array([2, 3]), "labels": 0.5},
        {"input_ids": np.array([4]), "labels": 1.25},
    ]
    batch = tokenizer.pad(examples, return_tensors=kind)
    labels = np.asarray(batch["labels"])
    input_ids = np.asarray(batch["input_ids"])
    assert labels.tolist() == [0.5, 1.25]
    assert input_ids.tolist() == [[2, 3], [4, 0]]

    examples = [{"input_ids": [2], "labels": 3}]
    batch = tokenizer.pad(examples, return_tensors=kind)
    labels = np.asarray(batch["labels"])
    assert labels.dtype.kind == "i"


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param({}, id="empty batch"),
        pytest.param([], id="no example"),
        pytest.param([{"labels": 1}], id="label only"),
        pytest.param({"input_ids": []}, id="no ids"),
    ],
)
def test_what_cannot_be_padded_is_named(tokenizer, encoded):
    message = "encoded: has no input_ids; give what a call of the tokenizer returned"
    with pytest.raises(InputError, match=message):
        tokenizer.pad(encoded)


def test_padding_to_the_maximal_length_needs_the_length(tokenizer):
    with pytest.raises(InputError, match="padding='max_length': give max_length"):
        tokenizer.pad({"input_ids": [2]}, padding="max_length")

import numpy as np
import pytest
from absl import logging

from official_bert.compat.input_functions import (
    InputFeatures,
    convert_examples_to_features,
    convert_single_example,
    file_based_convert_examples_to_features,
)
from official_bert.data.records.framing import read_examples
from official_bert.features import classifier_features
from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import (
    InputExample,
    PaddingInputExample,
    encode_examples,
)
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import GOLDEN

EXAMPLES = [
    InputExample("a", "The cat sat on the mat", "It was a sunny day", "no"),
    InputExample("b", "rain", None, "yes"),
    PaddingInputExample(),
    InputExample("c", "rain started", "", "no"),
    InputExample("d", "", "the cat"),  # without a label
]


@pytest.fixture
def logged(monkeypatch):
    """The lines that --verbosity=1 adds."""
    lines = []
    monkeypatch.setattr(logging, "level_debug", lambda: True)
    monkeypatch.setattr(logging, "debug", lambda form, *values: lines.append(form % values))
    return lines


def test_a_pair_cut_to_ten_tokens(tokenizer, logged):
    features = convert_single_example(0, EXAMPLES[0], ["yes", "no"], 10, tokenizer)
    # [CLS] the cat sat on [SEP] it was a [SEP]: 6 and 6 pieces give way in turn, b first
    assert features == InputFeatures(
        input_ids=[2, 5, 6, 7, 8, 3, 10, 11, 12, 3],
        input_mask=[1] * 10,
        segment_ids=[0] * 6 + [1] * 4,
        label_id=1,
        is_real_example=True,
    )
    assert logged == [
        "*** Example ***",
        "guid: a",
        "tokens: [CLS] the cat sat on [SEP] it was a [SEP]",
        "input_ids: 2 5 6 7 8 3 10 11 12 3",
        "input_mask: 1 1 1 1 1 1 1 1 1 1",
        "segment_ids: 0 0 0 0 0 0 1 1 1 1",
        "label: no (id = 1)",
    ]


def test_padding_and_later_examples_are_not_logged(tokenizer, logged):
    assert convert_single_example(5, EXAMPLES[1], ["yes", "no"], 5, tokenizer) == InputFeatures(
        [2, tokenizer.vocab["rain"], 3, 0, 0], [1, 1, 1, 0, 0], [0] * 5, 0
    )
    assert convert_single_example(0, PaddingInputExample(), ["yes"], 3, tokenizer) == InputFeatures(
        [0] * 3, [0] * 3, [0] * 3, label_id=0, is_real_example=False
    )
    assert logged == []


def as_arrays(features: list[InputFeatures]):
    columns = {
        name: np.array([getattr(one, name) for one in features]) for name in vars(features[0])
    }
    return columns | {"label_ids": columns.pop("label_id")}


def test_the_bulk_path_and_the_file_give_the_same_numbers(tokenizer, tmp_path):
    labels, length = ["yes", "no"], 8
    expected = as_arrays(convert_examples_to_features(EXAMPLES, labels, length, tokenizer))
    encoded = encode_examples(EXAMPLES, labels, length, tokenizer)
    assert (len(encoded), encoded.lengths.tolist()) == (5, [8, 3, 0, 5, 5])
    batch = encoded.features(np.arange(5), length)
    assert (
        batch.keys() == expected.keys() == {feature.name for feature in classifier_features(length)}
    )
    for name, values in batch.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[name], name)

    path = str(tmp_path / "train.tf_record")
    file_based_convert_examples_to_features(EXAMPLES, labels, length, tokenizer, path)
    found = [example for _, example in read_examples(path)]
    assert len(found) == 5
    for feature in classifier_features(length):
        values = np.stack([example[feature.name] for example in found])
        assert values.shape == (5, feature.length)
        np.testing.assert_array_equal(values, expected[feature.name].reshape(5, -1), feature.name)


def test_a_batch_is_as_long_as_it_needs(tokenizer):
    batch = encode_examples(EXAMPLES, ["yes", "no"], 128, tokenizer).features(np.array([3, 1]), 5)
    pieces = [tokenizer.convert_ids_to_tokens(row) for row in batch["input_ids"].tolist()]
    assert pieces == [
        ["[CLS]", "rain", "start", "##ed", "[SEP]"],
        ["[CLS]", "rain", "[SEP]", "[PAD]", "[PAD]"],
    ]
    assert batch["label_ids"].tolist() == [1, 0]


def test_scores_and_several_labels(tokenizer):
    examples = [InputExample("a", "rain", None, "2.5"), PaddingInputExample()]
    encoded = encode_examples(examples, None, 8, tokenizer)
    assert (encoded.label_ids.dtype, encoded.label_ids.tolist()) == (np.float32, [2.5, 0.0])
    examples = [
        InputExample("a", "rain", None, ("x", "z")),
        InputExample("b", "cat", None, ()),
        PaddingInputExample(),
    ]
    encoded = encode_examples(examples, ["x", "y", "z"], 8, tokenizer)
    assert encoded.label_ids.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("label", ["maybe", ("yes", "maybe")])
def test_an_unknown_label_is_refused(tokenizer, label):
    example = InputExample("dev-7", "rain", None, label)
    with pytest.raises(
        InputError, match=r"^example dev-7: has the label 'maybe'; the labels are yes, no$"
    ):
        convert_single_example(0, example, ["yes", "no"], 8, tokenizer)
    with pytest.raises(InputError, match="dev-7"):
        encode_examples([example], ["yes", "no"], 8, tokenizer)


def test_no_examples(tokenizer, tmp_path):
    path = str(tmp_path / "none")
    file_based_convert_examples_to_features([], ["yes"], 8, tokenizer, path)
    assert list(read_examples(path)) == []


@pytest.mark.parametrize("length", [24, 128])
@pytest.mark.parametrize(("key", "labels"), [("CoLA", ["0", "1"]), ("STSB", ["0"])])
def test_the_originals_features_of_made_up_words(tmp_path, key, labels, length):
    """GLUE's texts cannot be copied: a word that stands for an id goes in wherever the original met
    that id.

    No recorded text is cut at length 128, so that all of it is known at length 24, where many are.
    """
    recorded = np.load(GOLDEN / "classifier_features.npz")
    ids, mask = recorded[f"{key}_128_input_ids"], recorded[f"{key}_128_input_mask"]
    vocabulary = [f"word{number}" for number in range(ids.max() + 1)]
    vocabulary[0], vocabulary[100:104] = "[PAD]", ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert mask.sum(axis=1).max() < 128
    examples = []
    for number, (row, length_of_row) in enumerate(zip(ids, mask.sum(axis=1), strict=True)):
        assert (row[0], row[length_of_row - 1]) == (101, 102)
        words = "".join("\t" if i == 102 else f"word{i} " for i in row[1 : length_of_row - 1])
        text_a, _, text_b = words.partition("\t")
        label = labels[recorded[f"{key}_128_label"][number]]
        examples.append(InputExample(str(number), text_a, text_b or None, label))
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, vocabulary))
    one_by_one = as_arrays(convert_examples_to_features(examples, labels, length, tokenizer))
    in_bulk = encode_examples(examples, labels, length, tokenizer).features(
        np.arange(len(examples)), length
    )
    for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        expected = recorded[f"{key}_{length}_{name.replace('label_ids', 'label')}"]
        np.testing.assert_array_equal(one_by_one[name], expected, name)
        np.testing.assert_array_equal(in_bulk[name], expected, name)

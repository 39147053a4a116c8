"""Examples of classification as arrays, one by one and in bulk, with the original's features."""

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
    InputExample("d", "", "the cat"),  # This one has no label.
]
LABELS = ["yes", "no"]


def single_features(tokenizer, examples=EXAMPLES, labels=LABELS, length=8):
    """The features of all examples by name, each [n, ...], made one by one."""
    features = convert_examples_to_features(examples, labels, length, tokenizer)
    columns = {}
    for name in vars(features[0]):
        values = [getattr(example, name) for example in features]
        columns["label_ids" if name == "label_id" else name] = np.array(values)
    return columns


@pytest.fixture
def logged(monkeypatch):
    """The lines that --verbosity=1 adds."""
    lines = []

    def debug(form, *values):
        lines.append(form % values)

    monkeypatch.setattr(logging, "level_debug", lambda: True)
    monkeypatch.setattr(logging, "debug", debug)
    return lines


def test_a_pair_truncated_to_ten_tokens(tokenizer, logged):
    features = convert_single_example(0, EXAMPLES[0], LABELS, 10, tokenizer)
    # [CLS] the cat sat on [SEP] it was a [SEP]: the longer one of the texts loses its last token,
    # the second one of texts of equal length.
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
    later = convert_single_example(5, EXAMPLES[1], LABELS, 5, tokenizer)
    assert later == InputFeatures(
        input_ids=[2, tokenizer.vocab["rain"], 3, 0, 0],
        input_mask=[1, 1, 1, 0, 0],
        segment_ids=[0] * 5,
        label_id=0,
    )
    padding = convert_single_example(0, PaddingInputExample(), ["yes"], 3, tokenizer)
    assert padding == InputFeatures(
        input_ids=[0] * 3,
        input_mask=[0] * 3,
        segment_ids=[0] * 3,
        label_id=0,
        is_real_example=False,
    )
    assert logged == []


def test_examples_in_bulk_have_the_features_of_single_ones(tokenizer):
    expected = single_features(tokenizer)
    encoded = encode_examples(EXAMPLES, LABELS, 8, tokenizer)
    assert len(encoded) == 5
    assert encoded.lengths.tolist() == [8, 3, 0, 5, 5]
    batch = encoded.features(np.arange(5), 8)
    assert batch.keys() == expected.keys()
    features = classifier_features(8)
    assert batch.keys() == {feature.name for feature in features}
    for name, values in batch.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[name], name)


def test_a_record_file_has_the_features_of_single_examples(tokenizer, tmp_path):
    expected = single_features(tokenizer)
    path = str(tmp_path / "train.tf_record")
    file_based_convert_examples_to_features(EXAMPLES, LABELS, 8, tokenizer, path)
    records = [example for _, example in read_examples(path)]
    assert len(records) == 5
    for feature in classifier_features(8):
        name = feature.name
        values = np.stack([record[name] for record in records])
        assert values.shape == (5, feature.length)
        np.testing.assert_array_equal(values, expected[name].reshape(5, -1), name)


def test_a_batch_is_padded_to_the_requested_length(tokenizer):
    encoded = encode_examples(EXAMPLES, LABELS, 128, tokenizer)
    batch = encoded.features(np.array([3, 1]), 5)
    rows = batch["input_ids"].tolist()
    pieces = [tokenizer.convert_ids_to_tokens(row) for row in rows]
    assert pieces == [
        ["[CLS]", "rain", "start", "##ed", "[SEP]"],
        ["[CLS]", "rain", "[SEP]", "[PAD]", "[PAD]"],
    ]
    assert batch["label_ids"].tolist() == [1, 0]


def test_targets_of_a_regression(tokenizer):
    examples = [InputExample("a", "rain", None, "2.5"), PaddingInputExample()]
    encoded = encode_examples(examples, None, 8, tokenizer)
    assert encoded.label_ids.dtype == np.float32
    assert encoded.label_ids.tolist() == [2.5, 0.0]


def test_targets_of_several_labels(tokenizer):
    examples = [
        InputExample("a", "rain", None, ("x", "z")),
        InputExample("b", "cat", None, ()),
        PaddingInputExample(),
    ]
    encoded = encode_examples(examples, ["x", "y", "z"], 8, tokenizer)
    assert encoded.label_ids.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    "label",
    [
        pytest.param("maybe", id="one label"),
        pytest.param(("yes", "maybe"), id="several labels"),
    ],
)
def test_an_unknown_label_is_rejected(tokenizer, label):
    example = InputExample("dev-7", "rain", None, label)
    sentence = r"^example dev-7: has the label 'maybe'; the labels are yes, no$"
    with pytest.raises(InputError, match=sentence):
        convert_single_example(0, example, LABELS, 8, tokenizer)
    with pytest.raises(InputError, match=sentence):
        encode_examples([example], LABELS, 8, tokenizer)


def test_several_labels_in_a_regression_are_rejected(tokenizer):
    example = InputExample("dev-7", "rain", None, ("1", "2"))
    with pytest.raises(InputError, match=r"example dev-7: has the labels .* in place of a score"):
        encode_examples([example], None, 8, tokenizer)


def test_no_examples(tokenizer, tmp_path):
    path = str(tmp_path / "none")
    file_based_convert_examples_to_features([], ["yes"], 8, tokenizer, path)
    assert list(read_examples(path)) == []


@pytest.mark.parametrize("length", [24, 128])
@pytest.mark.parametrize(
    ("task_name", "labels"),
    [
        pytest.param("CoLA", ["0", "1"], id="CoLA"),
        pytest.param("STSB", ["0"], id="STSB"),
    ],
)
def test_the_originals_features(tmp_path, task_name, labels, length):
    """GLUE's texts cannot be copied. A text of made-up words, one for each id, replaces each text.

    No recorded text is truncated at length 128, so that all of it is known at length 24, where many
    are.
    """
    recorded = np.load(GOLDEN / "classifier_features.npz")
    recorded_ids = recorded[f"{task_name}_128_input_ids"]
    recorded_mask = recorded[f"{task_name}_128_input_mask"]
    label_ids = recorded[f"{task_name}_128_label"]
    examples = []
    for row, ids in enumerate(recorded_ids):
        num_tokens = recorded_mask[row].sum()
        assert num_tokens < 128
        text_a, text_b = made_up_texts(ids[:num_tokens])
        label = labels[label_ids[row]]
        examples.append(InputExample(str(row), text_a, text_b or None, label))
    vocab_size = recorded_ids.max() + 1
    tokenizer = made_up_tokenizer(tmp_path, vocab_size)
    single = single_features(tokenizer, examples, labels, length)
    encoded = encode_examples(examples, labels, length, tokenizer)
    batch = encoded.features(np.arange(len(examples)), length)
    recorded_names = {
        "input_ids": "input_ids",
        "input_mask": "input_mask",
        "segment_ids": "segment_ids",
        "label_ids": "label",
    }
    for name, recorded_name in recorded_names.items():
        expected = recorded[f"{task_name}_{length}_{recorded_name}"]
        np.testing.assert_array_equal(single[name], expected, name)
        np.testing.assert_array_equal(batch[name], expected, name)


CLS_ID = 101
SEP_ID = 102


def made_up_texts(ids: np.ndarray) -> tuple[str, str]:
    """The texts of `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`; the second one may be empty."""
    assert ids[0] == CLS_ID
    assert ids[-1] == SEP_ID
    texts = [""]
    for word_id in ids[1:-1]:
        if word_id == SEP_ID:
            texts.append("")
        else:
            texts[-1] += f"word{word_id} "
    text_a, text_b = texts if len(texts) == 2 else (*texts, "")
    return text_a, text_b


def made_up_tokenizer(folder, vocab_size: int) -> FullTokenizer:
    vocabulary = [f"word{word_id}" for word_id in range(vocab_size)]
    vocabulary[0] = "[PAD]"
    vocabulary[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return FullTokenizer(toy.write_vocabulary(folder, vocabulary))

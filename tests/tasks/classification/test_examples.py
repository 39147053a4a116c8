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
from official_bert.data.tables import read_tsv
from official_bert.features import classifier_features
from official_bert.io.errors import InputError
from official_bert.tasks.classification.examples import InputExample, PaddingInputExample, encoded_examples
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import GOLDEN, shared

EXAMPLES = [
    InputExample("a", "The cat sat on the mat", "It was a sunny day", "no"),
    InputExample("b", "rain", None, "yes"),
    PaddingInputExample(),
    InputExample("c", "rain started", "", "no"),
    InputExample("d", "", "the cat"),  # without a label
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return FullTokenizer(toy.write_vocabulary(tmp_path_factory.mktemp("toy")))


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


def test_a_single_text_is_padded_and_later_examples_are_not_logged(tokenizer, logged):
    assert convert_single_example(5, EXAMPLES[1], ["yes", "no"], 5, tokenizer) == InputFeatures(
        [2, tokenizer.vocab["rain"], 3, 0, 0], [1, 1, 1, 0, 0], [0] * 5, 0
    )
    assert logged == []


def test_a_padding_example_is_zeros(tokenizer):
    features = convert_single_example(0, PaddingInputExample(), ["yes"], 3, tokenizer)
    assert features == InputFeatures([0] * 3, [0] * 3, [0] * 3, label_id=0, is_real_example=False)


def as_arrays(features: list[InputFeatures]):
    columns = {
        "input_ids": "input_ids",
        "input_mask": "input_mask",
        "segment_ids": "segment_ids",
        "label_ids": "label_id",
        "is_real_example": "is_real_example",
    }
    return {name: np.array([getattr(one, field) for one in features]) for name, field in columns.items()}


def test_the_bulk_path_and_the_file_give_the_same_numbers(tokenizer, tmp_path):
    labels, length = ["yes", "no"], 8
    expected = as_arrays(convert_examples_to_features(EXAMPLES, labels, length, tokenizer))
    encoded = encoded_examples(EXAMPLES, labels, length, tokenizer)
    assert (len(encoded), encoded.lengths.tolist()) == (5, [8, 3, 0, 5, 5])
    batch = encoded.features(np.arange(5), length)
    assert batch.keys() == expected.keys() == {feature.name for feature in classifier_features(length)}
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
    batch = encoded_examples(EXAMPLES, ["yes", "no"], 128, tokenizer).features(np.array([3, 1]), 5)
    pieces = [tokenizer.convert_ids_to_tokens(row) for row in batch["input_ids"].tolist()]
    assert pieces == [["[CLS]", "rain", "start", "##ed", "[SEP]"], ["[CLS]", "rain", "[SEP]", "[PAD]", "[PAD]"]]
    assert batch["label_ids"].tolist() == [1, 0]


def test_scores(tokenizer, tmp_path):
    examples = [InputExample("a", "rain", None, "2.5"), InputExample("b", "cat", None, "-1"), PaddingInputExample()]
    encoded = encoded_examples(examples, None, 8, tokenizer)
    assert (encoded.label_ids.dtype, encoded.label_ids.tolist()) == (np.float32, [2.5, -1.0, 0.0])
    assert convert_single_example(9, examples[0], None, 8, tokenizer).label_id == 2.5
    path = str(tmp_path / "scores")
    file_based_convert_examples_to_features(examples, None, 8, tokenizer, path)
    scores = [example["label_ids"] for _, example in read_examples(path)]
    assert np.stack(scores).tolist() == [[2.5], [-1.0], [0.0]]
    assert scores[0].dtype == np.float32


def test_several_labels_at_once(tokenizer):
    examples = [InputExample("a", "rain", None, ("x", "z")), InputExample("b", "cat", None, ()), PaddingInputExample()]
    encoded = encoded_examples(examples, ["x", "y", "z"], 8, tokenizer)
    assert encoded.label_ids.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert convert_single_example(9, examples[0], ["x", "y", "z"], 8, tokenizer).label_id == [1, 0, 1]


@pytest.mark.parametrize("label", ["maybe", ("yes", "maybe")])
def test_an_unknown_label_is_refused(tokenizer, label):
    example = InputExample("dev-7", "rain", None, label)
    with pytest.raises(InputError, match=r"^example dev-7: has the label 'maybe'; the labels are yes, no$"):
        convert_single_example(0, example, ["yes", "no"], 8, tokenizer)
    with pytest.raises(InputError, match="dev-7"):
        encoded_examples([example], ["yes", "no"], 8, tokenizer)


def test_fields_of_any_length(tokenizer):
    long = InputExample("a", "the cat " * 50_000, "rain " * 100_000, "no")
    batch = encoded_examples([long], ["no"], 9, tokenizer).features(np.array([0]), 9)
    pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    assert " ".join(pieces) == "[CLS] the cat the [SEP] rain rain rain [SEP]"


def test_no_examples(tokenizer, tmp_path):
    path = str(tmp_path / "none")
    file_based_convert_examples_to_features([], ["yes"], 8, tokenizer, path)
    assert list(read_examples(path)) == []


def assert_recorded_features(examples, labels, tokenizer, key, length):
    recorded = np.load(GOLDEN / "classifier_features.npz")
    one_by_one = as_arrays(convert_examples_to_features(examples, labels, length, tokenizer))
    in_bulk = encoded_examples(examples, labels, length, tokenizer).features(np.arange(len(examples)), length)
    for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        expected = recorded[f"{key}_{length}_{name.replace('label_ids', 'label')}"]
        np.testing.assert_array_equal(one_by_one[name], expected, name)
        np.testing.assert_array_equal(in_bulk[name], expected, name)


@pytest.mark.parametrize("length", [24, 128])
@pytest.mark.parametrize(("key", "labels"), [("CoLA", ["0", "1"]), ("STSB", ["0"])])
def test_the_originals_features_of_made_up_words(tmp_path, key, labels, length):
    """GLUE's texts cannot be copied: a word that stands for an id goes in wherever the original met that id.

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
    assert_recorded_features(examples, labels, tokenizer, key, length)


@pytest.mark.needs_shared("data/glue", "data/vocab")
@pytest.mark.parametrize("length", [24, 128])
@pytest.mark.parametrize(
    ("task", "text_columns", "label_column", "labels"), [("CoLA", (3,), 1, ["0", "1"]), ("STS-B", (7, 8), None, ["0"])]
)
def test_the_originals_features(task, text_columns, label_column, labels, length):
    rows = list(read_tsv(str(shared("data", "glue", task, "dev.tsv"))))
    key = task.replace("-", "")
    examples = []
    for guid in np.load(GOLDEN / "classifier_features.npz")[f"{key}_guid"]:
        fields = rows[int(guid.removeprefix("dev-"))].fields
        label = "0" if label_column is None else fields[label_column]
        examples.append(InputExample(str(guid), *(fields[column] for column in text_columns), label=label))
    tokenizer = FullTokenizer(str(shared("data", "vocab", "uncased_vocab.txt")))
    assert_recorded_features(examples, labels, tokenizer, key, length)

"""The inputs that a graph builds equal those that the scripts build in Python."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from official_bert.compat.feature_writer import convert_examples_to_features
from official_bert.data.model_inputs import ModelInputs, model_input, padded_features
from official_bert.data.tables import read_conll
from official_bert.graph_text.text_reader import TextReader
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.windows import dense
from official_bert.tasks.tagging.windows import encoded_words
from tests.shared import in_test_long

NAMES = ("input_ids", "input_mask", "segment_ids")
WORDS = ("the", "cat", "sunny", "football", "U.S.", "waved,", "unheard", "\u200d")


def ragged(rows):
    values = np.array(joined(rows), np.int32)
    lengths = [len(row) for row in rows]
    return tf.RaggedTensor.from_row_lengths(values, lengths)


def traced(function, *arguments):
    """Calls a function as a graph whose argument lengths are not fixed."""
    spec = tf.RaggedTensorSpec(
        [None, None],
        tf.int32,
        ragged_rank=1,
    )
    graph_function = tf.function(
        function,
        input_signature=[spec] * len(arguments),
        reduce_retracing=True,
    )
    return graph_function(*map(ragged, arguments))


def joined(rows):
    return list(itertools.chain.from_iterable(rows))


def random_words(rng, largest):
    count = rng.randint(0, largest)
    return rng.choices(WORDS, k=count)


def random_text(rng, largest):
    return " ".join(random_words(rng, largest))


def make_reader(tokenizer, max_seq_length) -> TextReader:
    return TextReader(tokenizer.vocab, max_seq_length, None)


def piece_words(word_ids) -> list[int]:
    """Returns the number of the word of each WordPiece of a text."""
    numbers = []
    for number, ids in enumerate(word_ids):
        numbers += [number] * len(ids)
    return numbers


def assert_same_features(features, expected):
    for name in NAMES:
        assert_array_equal(features[name], expected[name], err_msg=name)


def build_features(encoded: ModelInputs):
    """Builds the features of all inputs, as long as the longest one."""
    rows = np.arange(len(encoded))
    length = int(encoded.lengths.max())
    return encoded.features(rows, length)


@pytest.mark.parametrize("max_seq_length", [4, 9, *in_test_long(30)])
def test_pairs_are_cut_as_in_the_scripts(tokenizer, max_seq_length):
    rng = random.Random(max_seq_length)
    inputs = []
    first_ids = []
    second_ids = []
    for _ in range(200):
        first = random_text(rng, 9)
        second = random_text(rng, 9)
        one = model_input(tokenizer, first, second, max_seq_length)
        inputs.append(one)
        first_ids.append(tokenizer.encode(first))
        second_ids.append(tokenizer.encode(second))
    length = max(len(one.tokens) for one in inputs)
    expected = padded_features(inputs, tokenizer, length)
    reader = make_reader(tokenizer, max_seq_length)
    features = traced(reader.build_inputs, first_ids, second_ids)
    assert_same_features(features, expected)
    for name in NAMES:
        assert features[name].dtype == tf.int32


def test_single_texts_by_hand(tokenizer):
    texts = ("the cat sat on the mat", "", "the")
    rows = [tokenizer.encode(text) for text in texts]
    reader = make_reader(tokenizer, 6)
    features = traced(lambda ids: reader.build_inputs(ids, None), rows)
    tokens = ["the", "cat", "sat", "on", "[CLS]", "[SEP]"]
    the, cat, sat, on, cls, sep = tokenizer.convert_tokens_to_ids(tokens)
    expected_ids = [
        [cls, the, cat, sat, on, sep],
        [cls, sep, 0, 0, 0, 0],
        [cls, the, sep, 0, 0, 0],
    ]
    expected_mask = [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
    ]
    assert_array_equal(features["input_ids"], expected_ids)
    assert_array_equal(features["input_mask"], expected_mask)
    assert_array_equal(features["segment_ids"], np.zeros([3, 6]))


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride", "max_query_length"),
    [
        (14, 4, 4),
        (230, 30, 64),
        *in_test_long(
            (9, 1, 5),
            (10, 100, 3),
        ),
    ],
)
def test_document_windows_are_those_of_run_squad(
    tokenizer, max_seq_length, doc_stride, max_query_length
):
    rng = random.Random(doc_stride)
    count, largest = (10, 900) if max_seq_length > 100 else (40, 60)
    examples = []
    for number in range(count):
        question = random_text(rng, 10)
        document_words = random_words(rng, largest)
        example = SquadExample(str(number), question, document_words)
        examples.append(example)
    expected = []
    convert_examples_to_features(
        examples,
        tokenizer,
        max_seq_length,
        doc_stride,
        max_query_length,
        False,
        expected.append,
    )
    question_ids = []
    document_ids = []
    words = []
    for example in examples:
        question_ids.append(tokenizer.encode(example.question_text))
        word_ids = [tokenizer.encode(word) for word in example.doc_tokens]
        document_ids.append(joined(word_ids))
        words.append(piece_words(word_ids))
    reader = make_reader(tokenizer, max_seq_length)
    windows = traced(
        lambda q, d: reader.document_windows(q, d, doc_stride, max_query_length),
        question_ids,
        document_ids,
    )
    expected_texts = [feature.example_index for feature in expected]
    assert_array_equal(windows.texts, expected_texts)
    _, length = windows.features["input_ids"].shape
    assert length == max(len(feature.tokens) for feature in expected)
    for name in NAMES:
        padded_rows = [getattr(feature, name) for feature in expected]
        assert_array_equal(
            windows.features[name],
            np.array(padded_rows)[:, :length],
            err_msg=name,
        )
    for row, feature in enumerate(expected):
        # The last value is for positions without a piece.
        word_numbers = np.array([*words[feature.example_index], -1])
        pieces = windows.pieces[row]
        expected_numbers = dense(feature.token_to_orig_map, length, -1)
        assert_array_equal(word_numbers[pieces], expected_numbers)
        has_prediction = dense(feature.token_is_max_context, length, False)
        assert_array_equal(windows.has_prediction[row], has_prediction)


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride"),
    [
        (9, 3),
        (9, 100),
        *in_test_long((30, 7)),
    ],
)
def test_text_windows_are_those_of_run_classifier(tokenizer, max_seq_length, doc_stride):
    rng = random.Random(doc_stride)
    rules = LongTexts(doc_stride, "mean")
    texts = [""]
    texts += [random_text(rng, 60) for _ in range(40)]
    windows = [rules.encode_windows(tokenizer, text, max_seq_length) for text in texts]
    encoded = ModelInputs(joined(windows))
    expected = build_features(encoded)
    rows = [tokenizer.encode(text) for text in texts]
    reader = make_reader(tokenizer, max_seq_length)
    features, window_texts = traced(
        lambda ids: reader.text_windows(ids, doc_stride),
        rows,
    )
    assert_same_features(features, expected)
    num_windows = [len(text_windows) for text_windows in windows]
    text_numbers = np.arange(len(texts))
    expected_texts = np.repeat(text_numbers, num_windows)
    assert_array_equal(window_texts, expected_texts)


@pytest.mark.parametrize("documents", [[], [[], []]])
def test_no_document_no_window(tokenizer, documents):
    reader = make_reader(tokenizer, 12)
    ids = ragged(documents)
    document_windows = reader.document_windows(ids, ids, 3, 4)
    word_windows = reader.word_windows(ids, ids)
    assert document_windows.texts.shape == [0]
    for windows in (document_windows, word_windows):
        assert windows.pieces.shape[0] == 0
        assert windows.has_prediction.shape[0] == 0
        assert windows.features["input_ids"].shape[0] == 0


@pytest.mark.parametrize("max_seq_length", [3, 16])
def test_word_windows_are_those_of_run_ner(tokenizer, tmp_path, max_seq_length):
    rng = random.Random(max_seq_length)
    sentences = [random_words(rng, 40) or ["the"] for _ in range(60)]
    path = tmp_path / "test.conll"
    paragraphs = ["\n".join(words) for words in sentences]
    text = "\n\n".join(paragraphs) + "\n\n"
    path.write_text(text, encoding="utf-8")
    conll = read_conll(str(path), labelled=False)
    encoded = encoded_words(conll, ["O"], max_seq_length, tokenizer)
    expected = build_features(encoded)

    unknown = [tokenizer.vocab["[UNK]"]]
    sentence_ids = []
    words = []
    for sentence in sentences:
        word_ids = [tokenizer.encode(word) or unknown for word in sentence]
        sentence_ids.append(joined(word_ids))
        words.append(piece_words(word_ids))
    reader = make_reader(tokenizer, max_seq_length)
    windows = traced(reader.word_windows, sentence_ids, words)
    assert_same_features(windows.features, expected)
    assert_array_equal(windows.has_prediction, expected["label_mask"])

    # Every word is tagged once, in order.
    texts = windows.texts.numpy()
    pieces = windows.pieces.numpy()
    tagged_words = []
    rows, positions = np.nonzero(windows.has_prediction)
    for row, position in zip(rows, positions, strict=True):
        text = texts[row]
        piece = pieces[row, position]
        word = words[text][piece]
        tagged_words.append((text, word))
    expected_words = []
    for text, sentence in enumerate(sentences):
        numbers = range(len(sentence))
        expected_words += [(text, number) for number in numbers]
    assert tagged_words == expected_words

"""The inputs that a graph builds equal those that the scripts build in Python."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

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
    spec = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
    graph_function = tf.function(
        function,
        input_signature=[spec] * len(arguments),
        reduce_retracing=True,
    )
    return graph_function(*map(ragged, arguments))


def joined(rows):
    return list(itertools.chain.from_iterable(rows))


def random_words(rng, largest):
    return rng.choices(WORDS, k=rng.randint(0, largest))


@pytest.mark.parametrize("max_seq_length", [4, 9, *in_test_long(30)])
def test_pairs_are_cut_as_in_the_scripts(tokenizer, max_seq_length):
    rng = random.Random(max_seq_length)
    pairs = []
    for _ in range(200):
        first = " ".join(random_words(rng, 9))
        second = " ".join(random_words(rng, 9))
        pairs.append((first, second))
    expected = [model_input(tokenizer, a, b, max_seq_length) for a, b in pairs]
    length = max(len(one.tokens) for one in expected)
    expected = padded_features(expected, tokenizer, length)
    first_ids = [tokenizer.encode(first) for first, _ in pairs]
    second_ids = [tokenizer.encode(second) for _, second in pairs]
    reader = TextReader(None, tokenizer.vocab, max_seq_length)
    features = traced(reader.build_inputs, first_ids, second_ids)
    for name in NAMES:
        np.testing.assert_array_equal(features[name], expected[name], err_msg=name)
        assert features[name].dtype == tf.int32


def test_single_texts_by_hand(tokenizer):
    rows = [tokenizer.encode(text) for text in ("the cat sat on the mat", "", "the")]
    reader = TextReader(None, tokenizer.vocab, 6)
    features = traced(lambda ids: reader.build_inputs(ids, None), rows)
    the, cat, sat, on, cls, sep = tokenizer.convert_tokens_to_ids(
        ["the", "cat", "sat", "on", "[CLS]", "[SEP]"]
    )
    np.testing.assert_array_equal(
        features["input_ids"],
        [[cls, the, cat, sat, on, sep], [cls, sep, 0, 0, 0, 0], [cls, the, sep, 0, 0, 0]],
    )
    np.testing.assert_array_equal(
        features["input_mask"],
        [[1] * 6, [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]],
    )
    np.testing.assert_array_equal(features["segment_ids"], np.zeros([3, 6]))


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride", "max_query_length"),
    [(14, 4, 4), (230, 30, 64), *in_test_long((9, 1, 5), (10, 100, 3))],
)
def test_document_windows_are_those_of_run_squad(
    tokenizer, max_seq_length, doc_stride, max_query_length
):
    rng = random.Random(doc_stride)
    count, largest = (10, 900) if max_seq_length > 100 else (40, 60)
    examples = []
    for number in range(count):
        question = " ".join(random_words(rng, 10))
        document_words = random_words(rng, largest)
        examples.append(SquadExample(str(number), question, document_words))
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
    documents = [[tokenizer.encode(word) for word in example.doc_tokens] for example in examples]
    words = [[word for word, ids in enumerate(document) for _ in ids] for document in documents]
    reader = TextReader(None, tokenizer.vocab, max_seq_length)
    windows = traced(
        lambda q, d: reader.document_windows(q, d, doc_stride, max_query_length),
        [tokenizer.encode(example.question_text) for example in examples],
        [joined(document) for document in documents],
    )
    np.testing.assert_array_equal(windows.texts, [feature.example_index for feature in expected])
    length = windows.features["input_ids"].shape[1]
    assert length == max(len(feature.tokens) for feature in expected)
    for name in NAMES:
        values = np.array([getattr(feature, name) for feature in expected])
        np.testing.assert_array_equal(windows.features[name], values[:, :length], err_msg=name)
    for row, feature in enumerate(expected):
        # The last value is for positions without a piece.
        piece_words = np.array([*words[feature.example_index], -1])
        np.testing.assert_array_equal(
            piece_words[windows.pieces[row]],
            dense(feature.token_to_orig_map, length, -1),
        )
        np.testing.assert_array_equal(
            windows.has_prediction[row],
            dense(feature.token_is_max_context, length, False),
        )


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride"),
    [(9, 3), (9, 100), *in_test_long((30, 7))],
)
def test_text_windows_are_those_of_run_classifier(tokenizer, max_seq_length, doc_stride):
    rng = random.Random(doc_stride)
    rules = LongTexts(doc_stride, "mean")
    texts = ["", *(" ".join(random_words(rng, 60)) for _ in range(40))]
    windows = [rules.encode_windows(tokenizer, text, max_seq_length) for text in texts]
    encoded = ModelInputs(joined(windows))
    expected = encoded.features(np.arange(len(encoded)), int(encoded.lengths.max()))
    rows = [tokenizer.encode(text) for text in texts]
    reader = TextReader(None, tokenizer.vocab, max_seq_length)
    features, window_texts = traced(lambda ids: reader.text_windows(ids, doc_stride), rows)
    for name in NAMES:
        np.testing.assert_array_equal(features[name], expected[name], err_msg=name)
    num_windows = [len(text_windows) for text_windows in windows]
    expected_texts = np.repeat(np.arange(len(texts)), num_windows)
    np.testing.assert_array_equal(window_texts, expected_texts)


@pytest.mark.parametrize("documents", [[], [[], []]])
def test_no_document_no_window(tokenizer, documents):
    reader = TextReader(None, tokenizer.vocab, 12)
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
    path.write_text("\n\n".join(paragraphs) + "\n\n", encoding="utf-8")
    conll = read_conll(str(path), labelled=False)
    encoded = encoded_words(conll, ["O"], max_seq_length, tokenizer)
    expected = encoded.features(np.arange(len(encoded)), int(encoded.lengths.max()))

    unknown = [tokenizer.vocab["[UNK]"]]
    pieces = [[tokenizer.encode(word) or unknown for word in words] for words in sentences]
    words = [[word for word, ids in enumerate(sentence) for _ in ids] for sentence in pieces]
    windows = traced(
        TextReader(None, tokenizer.vocab, max_seq_length).word_windows,
        [joined(sentence) for sentence in pieces],
        words,
    )
    for name in NAMES:
        np.testing.assert_array_equal(windows.features[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(windows.has_prediction, expected["label_mask"])
    # Every word is tagged once, in order.
    has_prediction = windows.has_prediction.numpy()
    position_texts = np.repeat(windows.texts.numpy()[:, None], has_prediction.shape[1], axis=1)
    texts = position_texts[has_prediction]
    predicted_pieces = windows.pieces.numpy()[has_prediction]
    tagged_words = []
    for text, piece in zip(texts, predicted_pieces, strict=True):
        tagged_words.append((text, words[text][piece]))
    expected_words = []
    for text, sentence in enumerate(sentences):
        expected_words += [(text, word) for word in range(len(sentence))]
    assert tagged_words == expected_words

"""The inputs made in a graph equal those that the scripts make in Python."""

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
    lengths = [len(row) for row in rows]
    return tf.RaggedTensor.from_row_lengths(
        np.array([one for row in rows for one in row], np.int32),
        lengths,
    )


def traced(function, *arguments):
    """Calls a function as a graph whose argument lengths are not fixed."""
    return tf.function(
        function,
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32, 1)] * len(arguments),
        reduce_retracing=True,
    )(*map(ragged, arguments))


def joined(rows):
    return list(itertools.chain.from_iterable(rows))


def random_words(rng, largest):
    return rng.choices(WORDS, k=rng.randint(0, largest))


@pytest.mark.parametrize("max_seq_length", [4, 9, *in_test_long(30)])
def test_pairs_are_cut_as_in_the_scripts(tokenizer, max_seq_length):
    rng = random.Random(max_seq_length)
    pairs = [(" ".join(random_words(rng, 9)), " ".join(random_words(rng, 9))) for _ in range(200)]
    expected = [model_input(tokenizer, a, b, max_seq_length) for a, b in pairs]
    length = max(len(one.tokens) for one in expected)
    expected = padded_features(expected, tokenizer, length)
    first, second = (
        [tokenizer.encode(text) for text in column] for column in zip(*pairs, strict=True)
    )
    made = traced(TextReader(None, tokenizer.vocab, max_seq_length).build_inputs, first, second)
    for name in NAMES:
        np.testing.assert_array_equal(made[name], expected[name], err_msg=name)
        assert made[name].dtype == tf.int32


def test_single_texts_by_hand(tokenizer):
    rows = [tokenizer.encode(text) for text in ("the cat sat on the mat", "", "the")]
    made = traced(lambda a: TextReader(None, tokenizer.vocab, 6).build_inputs(a, None), rows)
    the, cat, sat, on, cls, sep = tokenizer.convert_tokens_to_ids(
        ["the", "cat", "sat", "on", "[CLS]", "[SEP]"]
    )
    np.testing.assert_array_equal(
        made["input_ids"],
        [[cls, the, cat, sat, on, sep], [cls, sep, 0, 0, 0, 0], [cls, the, sep, 0, 0, 0]],
    )
    np.testing.assert_array_equal(
        made["input_mask"],
        [[1] * 6, [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]],
    )
    np.testing.assert_array_equal(made["segment_ids"], np.zeros([3, 6]))


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride", "max_query_length"),
    [(14, 4, 4), (230, 30, 64), *in_test_long((9, 1, 5), (10, 100, 3))],
)
def test_document_windows_are_those_of_run_squad(
    tokenizer, max_seq_length, doc_stride, max_query_length
):
    rng = random.Random(doc_stride)
    count, largest = (10, 900) if max_seq_length > 100 else (40, 60)
    examples = [
        SquadExample(str(number), " ".join(random_words(rng, 10)), random_words(rng, largest))
        for number in range(count)
    ]
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
        # The last for positions without a piece.
        word_of = np.array([*words[feature.example_index], -1])
        np.testing.assert_array_equal(
            word_of[windows.pieces[row]],
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
    rng, rules = random.Random(doc_stride), LongTexts(doc_stride, "mean")
    texts = ["", *(" ".join(random_words(rng, 60)) for _ in range(40))]
    windows = [rules.encode_windows(tokenizer, text, max_seq_length) for text in texts]
    encoded = ModelInputs(joined(windows))
    expected = encoded.features(np.arange(len(encoded)), int(encoded.lengths.max()))
    rows = [tokenizer.encode(text) for text in texts]
    reader = TextReader(None, tokenizer.vocab, max_seq_length)
    features, of_windows = traced(lambda ids: reader.text_windows(ids, doc_stride), rows)
    for name in NAMES:
        np.testing.assert_array_equal(features[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(
        of_windows,
        np.repeat(np.arange(len(texts)), list(map(len, windows))),
    )


@pytest.mark.parametrize("documents", [[], [[], []]])
def test_no_document_no_window(tokenizer, documents):
    reader = TextReader(None, tokenizer.vocab, 12)
    windows = reader.document_windows(ragged(documents), ragged(documents), 3, 4)
    assert windows.texts.shape == [0]
    assert (
        windows.pieces.shape[0]
        == windows.has_prediction.shape[0]
        == windows.features["input_ids"].shape[0]
        == 0
    )
    windows = reader.word_windows(ragged(documents), ragged(documents))
    assert (
        windows.pieces.shape[0]
        == windows.has_prediction.shape[0]
        == windows.features["input_ids"].shape[0]
        == 0
    )


@pytest.mark.parametrize("max_seq_length", [3, 16])
def test_word_windows_are_those_of_run_ner(tokenizer, tmp_path, max_seq_length):
    rng = random.Random(max_seq_length)
    sentences = [random_words(rng, 40) or ["the"] for _ in range(60)]
    path = tmp_path / "test.conll"
    path.write_text(
        "".join("".join(f"{word}\n" for word in words) + "\n" for words in sentences),
        encoding="utf-8",
    )
    encoded = encoded_words(read_conll(str(path), labelled=False), ["O"], max_seq_length, tokenizer)
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
    texts = np.repeat(windows.texts.numpy()[:, None], windows.pieces.shape[1], axis=1)[
        windows.has_prediction
    ]
    own = windows.pieces.numpy()[windows.has_prediction]
    assert [(text, words[text][piece]) for text, piece in zip(texts, own, strict=True)] == [
        (text, word) for text, sentence in enumerate(sentences) for word in range(len(sentence))
    ]

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_bert.compat.feature_writer import record_arrays
from official_bert.io.errors import InputError
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import (
    PositionMap,
    dense,
    doc_spans,
    encode_questions,
    encode_training,
    max_context_span,
)
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.oracles import plain_squad
from tests.shared import recording
from tests.tasks.squad.sample import LENGTHS, features_of, recorded, toy_windows

RULES = SquadRules(**LENGTHS)


@pytest.mark.parametrize("name", ["squad_train", "squad_v1", "squad_v2", "squad_v1cased"])
def test_recorded_windows_of_the_original(name):
    settings, examples, features = recorded(name, is_training=name == "squad_train")
    assert (len(examples), len(features)) == (settings["examples"], settings["features"])
    with np.load(recording(name, "features.npz")) as expected:
        for key in expected.files:
            np.testing.assert_array_equal(
                [getattr(f, key) for f in features], expected[key], err_msg=key
            )
    if name == "squad_train":
        return
    recorded_spans = json.loads(recording(name, "spans.json").read_text())
    for feature, spans in zip(features, recorded_spans, strict=True):
        for key, expected in spans.items():
            assert getattr(feature, key) == {
                int(position): value for position, value in expected.items()
            }


def test_an_answer_shrinks_to_its_own_pieces(tmp_path):
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "(", "1895", "-", "1943", ")", ".")
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, pieces))
    example = SquadExample("q", "-", ["(1895-1943)."], "1895", 0, 0)
    (feature,) = features_of([example], tokenizer, True)
    assert " ".join(feature.tokens) == "[CLS] - [SEP] ( 1895 - 1943 ) . [SEP]"
    assert (feature.start_position, feature.end_position) == (4, 4)
    example.orig_answer_text = "189"  # is no run of pieces: the whole word stays
    (feature,) = features_of([example], tokenizer, True)
    assert (feature.start_position, feature.end_position) == (3, 8)


@pytest.mark.parametrize(("last_word", "position"), [(0, 3), (1, 5), (2, 7), (3, 8)])
def test_an_answer_without_matching_pieces_ends_at_its_last_word(tokenizer, last_word, position):
    """The answer "ca" is no WordPiece of the document, so the span of whole words stays."""
    words = ["cat", "sunny", "football", "mat"]
    example = SquadExample("q", "the", words, "ca", 0, last_word)
    (feature,) = features_of([example], tokenizer, True)
    assert " ".join(feature.tokens) == "[CLS] the [SEP] cat sun ##ny foot ##ball mat [SEP]"
    assert (feature.start_position, feature.end_position) == (3, position)


def test_a_question_without_an_answer_points_at_cls(tokenizer):
    example = SquadExample("q", "the", ["cat", "sat"], "", -1, -1, is_impossible=True)
    (feature,) = features_of([example], tokenizer, True)
    assert (feature.start_position, feature.end_position, feature.is_impossible) == (0, 0, True)


def test_words_without_pieces_are_passed_over(tokenizer):
    example = SquadExample("q", "the", ["cat", "\u200b", "sat", "\u200b"], "sat", 2, 2)
    (feature,) = features_of([example], tokenizer, True)
    assert " ".join(feature.tokens) == "[CLS] the [SEP] cat sat [SEP]"
    assert feature.token_to_orig_map == {3: 0, 4: 2}
    assert (feature.start_position, feature.end_position) == (4, 4)


def test_a_long_question_is_cut_and_an_empty_document_gives_no_window(tokenizer, caplog):
    examples = [
        SquadExample("empty", "the", []),
        SquadExample("q", "the cat sat on the mat", ["train"]),
    ]
    (feature,) = features_of(examples, tokenizer, False)
    assert " ".join(feature.tokens) == "[CLS] the cat sat on [SEP] train [SEP]"
    assert (feature.unique_id, feature.example_index) == (1000000000, 1)
    assert "1 questions have an empty document" in caplog.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"doc_stride": 0}, "--doc_stride=0"),
        ({"max_seq_length": 7}, "--max_seq_length=7: question q of 4 tokens leaves no room"),
    ],
)
def test_lengths_without_room_are_refused(tokenizer, changed, message):
    with pytest.raises(InputError, match=message):
        features_of(
            [SquadExample("q", "the cat sat on", ["mat"])], tokenizer, False, LENGTHS | changed
        )


def test_a_stride_beyond_the_window_becomes_its_length():
    assert doc_spans(5, 2, 9) == [(0, 2), (2, 2), (4, 1)]


def test_the_length_of_a_window_counts_as_context():
    # Two hundred tokens more, 0.01 each, count as two tokens of context.
    assert max_context_span([(0, 300), (200, 101)]).tolist() == [0] * 300 + [1]


@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 12))
def test_owners_are_those_of_the_plain_rule(num_tokens, max_tokens, doc_stride):
    spans = doc_spans(num_tokens, max_tokens, doc_stride)
    expected = [plain_squad.max_context_span(spans, position) for position in range(num_tokens)]
    assert max_context_span(spans).tolist() == expected


@pytest.mark.parametrize("position_map", [PositionMap(2, np.array([7, 8])), {2: 7, 3: 8}])
def test_a_position_map_is_a_dictionary_and_an_array(position_map):
    assert position_map == {2: 7, 3: 8}
    assert type(position_map[3]) is int
    assert [position in position_map for position in (1, 2, 3, 4)] == [False, True, True, False]
    assert dense(position_map, 5, -1).tolist() == [-1, -1, 7, 8, -1]
    assert dense(position_map, 3, -1).tolist() == [-1, -1, 7]


def test_batches_and_records_are_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=True)
    encoded = encode_training(examples, tokenizer, RULES)
    rows = np.array([5, 0, 7, 7])
    expected = record_arrays([windows[row] for row in rows], is_training=True)
    batch, record = encoded.features(rows, 14), encoded.record(rows, 14)
    for name in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[name], expected[name])
        np.testing.assert_array_equal(
            encoded.features(rows[1:2], 12)[name], expected[name][1:2, :12]
        )
    for name in ("start_positions", "end_positions"):
        np.testing.assert_array_equal(batch[name], expected[name][:, 0])
    assert {value.dtype for value in batch.values()} == {np.dtype(np.int32)}
    assert record.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(record[name].reshape(values.shape), values)


def test_prediction_has_no_positions_and_keeps_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=False)
    encoded = encode_questions(examples, tokenizer, RULES)
    assert sorted(encoded.features(np.array([0]), 14)) == ["input_ids", "input_mask", "segment_ids"]
    expected = record_arrays(windows, is_training=False)
    record = encoded.record(np.arange(len(windows)), 14)
    assert record.keys() == expected.keys()
    np.testing.assert_array_equal(record["unique_ids"], expected["unique_ids"][:, 0])
    assert [window.tokens for window in encoded.windows] == [window.tokens for window in windows]

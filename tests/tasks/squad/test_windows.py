import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_bert.compat.feature_writer import convert_examples_to_features
from official_bert.io.errors import InputError
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.windows import PositionMap, dense, doc_spans, max_context_span
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.oracles import plain_squad
from tests.shared import recording
from tests.tasks.squad.sample import LENGTHS, features_of, recorded, toy_windows


@pytest.fixture
def tokenizer(tmp_path):
    return FullTokenizer(toy.write_vocabulary(tmp_path))


def test_the_recorded_windows_of_two_questions(tmp_path):
    _, features = toy_windows(tmp_path, is_training=True)
    assert [feature.unique_id for feature in features] == list(range(1000000000, 1000000008))
    assert [(feature.example_index, feature.doc_span_index) for feature in features] == [
        *((0, i) for i in range(4)),
        *((1, i) for i in range(4)),
    ]
    first = features[0]
    assert " ".join(first.tokens) == "[CLS] [UNK] wave ##d [UNK] [SEP] the driver wave ##d his hand . [SEP]"
    assert first.token_to_orig_map == {6: 0, 7: 1, 8: 2, 9: 2, 10: 3, 11: 4, 12: 4}
    is_max = {feature.doc_span_index: feature.token_is_max_context for feature in features[:4]}
    assert [position for position in is_max[0] if is_max[0][position]] == [6, 7, 8, 9, 10, 11]
    np.testing.assert_array_equal(first.input_ids, [toy.VOCABULARY.index(token) for token in first.tokens])
    np.testing.assert_array_equal(first.input_mask, [1] * 14)
    np.testing.assert_array_equal(first.segment_ids, [0] * 6 + [1] * 8)
    positions = [(feature.start_position, feature.end_position) for feature in features]
    assert positions == [(7, 7), *[(0, 0)] * 4, (9, 9), *[(0, 0)] * 2]
    assert " ".join(features[5].tokens[6:-1]) == "his hand . rain start ##ed fall"
    assert not any(feature.is_impossible for feature in features)


def test_prediction_windows_have_no_positions_and_are_padded(tmp_path):
    _, features = toy_windows(tmp_path, is_training=False)
    last = features[3]
    assert (last.start_position, last.end_position, last.is_impossible) == (None, None, False)
    num_tokens = len(last.tokens)
    assert num_tokens < 14
    for values, padding in ((last.input_ids, 0), (last.input_mask, 0), (last.segment_ids, 0)):
        assert list(values[num_tokens:]) == [padding] * (14 - num_tokens)
    assert sum(last.input_mask) == num_tokens


def assert_recorded(features, name: str):
    with np.load(recording(name, "features.npz")) as expected:
        for key in expected.files:
            np.testing.assert_array_equal([getattr(f, key) for f in features], expected[key], err_msg=key)


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2", "squad_v1cased"])
def test_recorded_windows_of_the_original(name):
    settings, examples, features = recorded(name)
    assert (len(examples), len(features)) == (settings["examples"], settings["features"])
    assert_recorded(features, name)
    recorded_spans = json.loads(recording(name, "spans.json").read_text())
    for feature, spans in zip(features, recorded_spans, strict=True):
        for key, expected in spans.items():
            assert getattr(feature, key) == {int(position): value for position, value in expected.items()}


def test_recorded_training_windows_of_the_original():
    settings, examples, features = recorded("squad_train", is_training=True)
    assert (len(examples), len(features)) == (settings["examples"], settings["features"])
    assert_recorded(features, "squad_train")


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
    examples = [SquadExample("empty", "the", []), SquadExample("q", "the cat sat on the mat", ["train"])]
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
        convert_examples_to_features(
            [SquadExample("q", "the cat sat on", ["mat"])],
            tokenizer,
            **LENGTHS | changed,
            is_training=False,
            output_fn=print,
        )


@pytest.mark.parametrize(
    ("arguments", "spans"),
    [
        ((300, 200, 128), [(0, 200), (128, 172)]),
        ((200, 200, 128), [(0, 200)]),
        ((5, 2, 9), [(0, 2), (2, 2), (4, 1)]),  # the stride becomes the window's length
        ((0, 2, 1), []),
    ],
)
def test_windows_over_a_document(arguments, spans):
    assert doc_spans(*arguments) == spans


def test_the_window_with_most_context_owns_a_token():
    owner = max_context_span([(0, 5), (3, 5), (6, 5)])
    assert owner.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    # Two hundred tokens more, 0.01 each, count as two tokens of context.
    assert max_context_span([(0, 300), (200, 101)]).tolist() == [0] * 300 + [1]


@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 12))
def test_owners_are_those_of_the_plain_rule(num_tokens, max_tokens, doc_stride):
    spans = doc_spans(num_tokens, max_tokens, doc_stride)
    expected = [plain_squad.max_context_span(spans, position) for position in range(num_tokens)]
    assert max_context_span(spans).tolist() == expected


def test_a_position_map_is_a_dictionary():
    position_map = PositionMap(3, np.array([5, 6]))
    assert position_map == {3: 5, 4: 6}
    assert (list(position_map), len(position_map), repr(position_map)) == ([3, 4], 2, "{3: 5, 4: 6}")
    assert type(position_map[3]) is int
    assert 2 not in position_map
    assert 5 not in position_map
    with pytest.raises(KeyError):
        position_map[2]


@pytest.mark.parametrize("position_map", [PositionMap(2, np.array([7, 8])), {2: 7, 3: 8}])
def test_a_position_map_as_an_array(position_map):
    assert dense(position_map, 5, -1).tolist() == [-1, -1, 7, 8, -1]
    assert dense(position_map, 3, -1).tolist() == [-1, -1, 7]

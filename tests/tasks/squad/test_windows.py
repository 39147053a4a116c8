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
INPUT_NAMES = {"input_ids", "input_mask", "segment_ids"}


def assert_equal(actual, expected, message: str = ""):
    np.testing.assert_array_equal(actual, expected, message)


def only_window(example: SquadExample, tokenizer):
    """The one window of a question to train on."""
    (window,) = features_of([example], tokenizer, True)
    return window


def positions_of(window) -> tuple[int, int]:
    """Where the answer starts and ends in a window."""
    return window.start_position, window.end_position


@pytest.mark.parametrize("name", ["squad_train", "squad_v1", "squad_v2", "squad_v1cased"])
def test_recorded_windows_of_the_original(name):
    is_training = name == "squad_train"
    settings, examples, windows = recorded(name, is_training)
    assert len(examples) == settings["examples"]
    assert len(windows) == settings["features"]
    with np.load(recording(name, "features.npz")) as expected:
        for key in expected.files:
            values = [getattr(window, key) for window in windows]
            assert_equal(values, expected[key], key)
    if not is_training:
        check_position_maps(windows, recording(name, "spans.json"))


def check_position_maps(windows, path):
    """Compares the maps of positions with those of a recording, whose keys are texts."""
    recorded_maps = json.loads(path.read_text())
    for window, expected_maps in zip(windows, recorded_maps, strict=True):
        for name, expected_map in expected_maps.items():
            expected_map = {int(position): value for position, value in expected_map.items()}
            assert getattr(window, name) == expected_map


def test_an_answer_shrinks_to_its_own_pieces(tmp_path):
    special_pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [*special_pieces, "(", "1895", "-", "1943", ")", "."]
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, pieces))
    example = SquadExample("q", "-", ["(1895-1943)."], "1895", 0, 0)
    window = only_window(example, tokenizer)
    assert " ".join(window.tokens) == "[CLS] - [SEP] ( 1895 - 1943 ) . [SEP]"
    assert positions_of(window) == (4, 4)
    example.orig_answer_text = "189"  # is no run of pieces: the whole word stays
    window = only_window(example, tokenizer)
    assert positions_of(window) == (3, 8)


@pytest.mark.parametrize(
    ("last_word", "position"),
    [
        pytest.param(0, 3, id="cat"),
        pytest.param(1, 5, id="sunny"),
        pytest.param(2, 7, id="football"),
        pytest.param(3, 8, id="mat"),
    ],
)
def test_an_answer_without_matching_pieces_ends_at_its_last_word(tokenizer, last_word, position):
    """The answer "ca" is no WordPiece of the document, so the span of whole words stays."""
    words = ["cat", "sunny", "football", "mat"]
    example = SquadExample("q", "the", words, "ca", 0, last_word)
    window = only_window(example, tokenizer)
    assert " ".join(window.tokens) == "[CLS] the [SEP] cat sun ##ny foot ##ball mat [SEP]"
    assert positions_of(window) == (3, position)


def test_a_question_without_an_answer_points_at_cls(tokenizer):
    example = SquadExample("q", "the", ["cat", "sat"], "", -1, -1, is_impossible=True)
    window = only_window(example, tokenizer)
    assert positions_of(window) == (0, 0)
    assert window.is_impossible is True


def test_words_without_pieces_are_passed_over(tokenizer):
    example = SquadExample("q", "the", ["cat", "\u200b", "sat", "\u200b"], "sat", 2, 2)
    window = only_window(example, tokenizer)
    assert " ".join(window.tokens) == "[CLS] the [SEP] cat sat [SEP]"
    assert window.token_to_orig_map == {3: 0, 4: 2}
    assert positions_of(window) == (4, 4)


def test_a_long_question_is_cut_and_an_empty_document_gives_no_window(tokenizer, caplog):
    examples = [
        SquadExample("empty", "the", []),
        SquadExample("q", "the cat sat on the mat", ["train"]),
    ]
    (window,) = features_of(examples, tokenizer, False)
    assert " ".join(window.tokens) == "[CLS] the cat sat on [SEP] train [SEP]"
    assert window.unique_id == 1000000000
    assert window.example_index == 1
    assert "1 questions have an empty document" in caplog.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(
            {"doc_stride": 0},
            "--doc_stride=0",
            id="no stride",
        ),
        pytest.param(
            {"max_seq_length": 7},
            "--max_seq_length=7: question q of 4 tokens leaves no room",
            id="a question as long as the window",
        ),
    ],
)
def test_lengths_without_room_are_refused(tokenizer, changed, message):
    example = SquadExample("q", "the cat sat on", ["mat"])
    lengths = LENGTHS | changed
    with pytest.raises(InputError, match=message):
        features_of([example], tokenizer, False, lengths)


def test_a_stride_beyond_the_window_becomes_its_length():
    assert doc_spans(5, 2, 9) == [(0, 2), (2, 2), (4, 1)]


def test_the_length_of_a_window_counts_as_context():
    # Two hundred tokens more, 0.01 each, count as two tokens of context.
    spans = [(0, 300), (200, 101)]
    assert max_context_span(spans).tolist() == [0] * 300 + [1]


@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 12))
def test_owners_are_those_of_the_plain_rule(num_tokens, max_tokens, doc_stride):
    spans = doc_spans(num_tokens, max_tokens, doc_stride)
    owners = max_context_span(spans).tolist()
    assert len(owners) == num_tokens
    for position, owner in enumerate(owners):
        assert owner == plain_squad.max_context_span(spans, position)


@pytest.mark.parametrize(
    "position_map",
    [
        pytest.param(PositionMap(2, np.array([7, 8])), id="an array"),
        pytest.param({2: 7, 3: 8}, id="a dictionary"),
    ],
)
def test_a_position_map_is_a_dictionary_and_an_array(position_map):
    assert position_map == {2: 7, 3: 8}
    assert type(position_map[3]) is int
    assert 1 not in position_map
    assert 2 in position_map
    assert 3 in position_map
    assert 4 not in position_map
    assert dense(position_map, 5, -1).tolist() == [-1, -1, 7, 8, -1]
    assert dense(position_map, 3, -1).tolist() == [-1, -1, 7]


def test_batches_and_records_are_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=True)
    encoded = encode_training(examples, tokenizer, RULES)
    rows = np.array([5, 0, 7, 7])
    batch_windows = [windows[row] for row in rows]
    expected = record_arrays(batch_windows, is_training=True)
    batch = encoded.features(rows, 14)
    shorter_batch = encoded.features(rows[1:2], 12)
    record = encoded.record(rows, 14)
    assert batch.keys() == INPUT_NAMES | {"start_positions", "end_positions"}
    for name in INPUT_NAMES:
        values = expected[name]
        assert_equal(shorter_batch[name], values[1:2, :12])
    for name, values in batch.items():
        expected_values = expected[name].reshape(values.shape)
        assert values.dtype == np.int32
        assert_equal(values, expected_values)
    assert record.keys() == expected.keys()
    for name, values in expected.items():
        record_values = record[name].reshape(values.shape)
        assert_equal(record_values, values)


def test_prediction_has_no_positions_and_keeps_the_windows(tmp_path, tokenizer):
    examples, windows = toy_windows(tmp_path, is_training=False)
    encoded = encode_questions(examples, tokenizer, RULES)
    batch = encoded.features(np.array([0]), 14)
    assert batch.keys() == INPUT_NAMES
    expected = record_arrays(windows, is_training=False)
    all_rows = np.arange(len(windows))
    record = encoded.record(all_rows, 14)
    assert record.keys() == expected.keys()
    unique_ids = expected["unique_ids"][:, 0]
    assert_equal(record["unique_ids"], unique_ids)
    for window, expected_window in zip(encoded.windows, windows, strict=True):
        assert window.tokens == expected_window.tokens

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert.compat.feature_writer import write_predictions
from official_bert.io.errors import InputError
from official_bert.tasks.squad.answers import (
    CERTAINLY_NO_ANSWER,
    RawResult,
    average_results,
    choose_answers,
    extract_candidates,
    get_final_text,
    read_logits,
    write_logits,
)
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import InputFeatures, PositionMap
from official_bert.tokenization import BasicTokenizer
from tests.oracles import plain_squad
from tests.shared import recording
from tests.tasks.squad.sample import fed_logits, recorded


def in_one_window(start_logits, end_logits, n_best_size=20):
    """n-best lists and null odds of a question whose document "a b" stands at positions 1 and 2
    of its window.
    """
    example = SquadExample("q", "?", ["a", "b"])
    window = make_window(
        0,
        ["[CLS]", "a", "b", "[SEP]"],
        token_to_orig_map={1: 0, 2: 1},
        token_is_max_context={1: True, 2: True},
    )
    result = RawResult(0, start_logits, end_logits)
    rules = SquadRules(n_best_size=n_best_size, version_2_with_negative=True)
    return extract_candidates([example], [window], [result], rules)


def make_window(number: int, tokens, token_to_orig_map, token_is_max_context) -> InputFeatures:
    """A window of the only question, of which the ids do not matter."""
    return InputFeatures(
        unique_id=number,
        example_index=0,
        doc_span_index=number,
        tokens=tokens,
        token_to_orig_map=token_to_orig_map,
        token_is_max_context=token_is_max_context,
        input_ids=None,
        input_mask=None,
        segment_ids=None,
    )


def fed_results(windows, max_seq_length: int) -> list[RawResult]:
    """The logits that the original was fed."""
    start_logits, end_logits = fed_logits(len(windows), max_seq_length)
    results = []
    for window, start, end in zip(windows, start_logits, end_logits, strict=True):
        results.append(RawResult(window.unique_id, start, end))
    return results


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2", "squad_v1cased"])
def test_recorded_files_of_the_original_byte_for_byte(tmp_path, name):
    settings, examples, features = recorded(name)
    results = fed_results(features, settings["max_seq_length"])
    names = ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    num_recorded = 3 if name == "squad_v2" else 2
    write_predictions(
        examples,
        features,
        results,
        settings["n_best_size"],
        settings["max_answer_length"],
        settings["do_lower_case"],
        *(str(tmp_path / file) for file in names),
        settings["version_2_with_negative"],
        settings["null_score_diff_threshold"],
    )
    expected = {file: recording(name, file).read_bytes() for file in names[:num_recorded]}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected


def test_null_odds_without_a_file_are_refused_after_the_answers_as_in_the_original(tmp_path):
    settings, examples, features = recorded("squad_v2")
    results = fed_results(features, settings["max_seq_length"])
    with pytest.raises(TypeError, match=r"output_null_log_odds_file: is None, .*; give a path"):
        write_predictions(
            examples,
            features,
            results,
            settings["n_best_size"],
            settings["max_answer_length"],
            settings["do_lower_case"],
            output_prediction_file=str(tmp_path / "predictions.json"),
            output_nbest_file=str(tmp_path / "nbest_predictions.json"),
            output_null_log_odds_file=None,
            version_2_with_negative=True,
        )
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predictions.json", "nbest_predictions.json"}


def test_the_threshold_is_strict():
    candidates = in_one_window([1, 3, 0, 0], [1, 0, 0, 0])  # 2 for no answer, 3 for the best
    assert candidates.null_odds == {"q": -1.0}
    assert choose_answers(*candidates, -1.0) == {"q": "a"}
    assert choose_answers(*candidates, -1.001) == {"q": ""}


def test_a_list_of_one_has_the_best_span_beside_no_answer():
    # 17 and 4; the original crashed.
    candidates = in_one_window([9, 2, 1, 0], [8, 1, 2, 0], n_best_size=1)
    assert [entry["text"] for entry in candidates.nbest["q"]] == ["", "a b"]
    assert candidates.null_odds == {"q": 13.0}
    assert choose_answers(*candidates, null_score_diff_threshold=13.0) == {"q": "a b"}
    assert choose_answers(*candidates, null_score_diff_threshold=12.0) == {"q": ""}


@pytest.mark.parametrize(
    ("version_2", "text"),
    [
        pytest.param(False, "empty", id="SQuAD 1.1"),
        pytest.param(True, "", id="SQuAD 2.0"),
    ],
)
def test_an_empty_document_is_answered(version_2, text):
    example = SquadExample("q", "?", [])
    rules = SquadRules(version_2_with_negative=version_2)
    candidates = extract_candidates([example], [], [], rules)
    entry = {
        "text": text,
        "probability": 1.0,
        "start_logit": 0.0,
        "end_logit": 0.0,
    }
    assert candidates.nbest == {"q": [entry]}
    assert candidates.null_odds == ({"q": CERTAINLY_NO_ANSWER} if version_2 else {})
    assert CERTAINLY_NO_ANSWER == 1000000.0
    assert choose_answers(*candidates) == {"q": text}


def test_logits_that_are_no_numbers_are_refused():
    message = "question q: the model gives logits that are no finite numbers"
    with pytest.raises(InputError, match=message):
        in_one_window([0, math.nan, 0, 0], [0] * 4)


@st.composite
def questions(draw):
    """A document in up to three windows of which each has few different logits, so that many
    scores are equal.
    """
    logits = st.lists(st.integers(0, 2), min_size=12, max_size=12)
    pieces = {"Ab": "ab", "c,": "c", "Éd": "ed", "(e)": "e"}
    words = draw(st.lists(st.sampled_from(list(pieces)), min_size=8, max_size=8))
    windows = []
    for number in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 6))
        document = [pieces[word] for word in words[number : number + length]]
        tokens = ["[CLS]", "?", "[SEP]", *document, "[SEP]"]
        words_of = PositionMap(3, np.arange(number, number + length))
        is_max = draw(st.lists(st.booleans(), min_size=length, max_size=length))
        if draw(st.booleans()):  # users' own windows have dictionaries
            words_of = dict(words_of)
        window = make_window(number, tokens, words_of, PositionMap(3, np.array(is_max)))
        windows.append((window, draw(logits), draw(logits)))
    return words, windows


@settings(max_examples=100, deadline=None)
@given(questions(), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_lists_are_those_of_the_plain_rules(question, n_best_size, max_answer_length, version_2):
    words, windows = question
    tokenizer = BasicTokenizer(True)

    def cut(pred_text, orig_text):
        return plain_squad.final_text(pred_text, orig_text, tokenizer)

    expected = plain_squad.nbest(windows, words, n_best_size, max_answer_length, cut, version_2)
    results = [RawResult(feature.unique_id, start, end) for feature, start, end in windows]
    rules = SquadRules(
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        version_2_with_negative=version_2,
    )
    example = SquadExample("q", "?", words)
    features = [feature for feature, _, _ in windows]
    candidates = extract_candidates([example], features, results, rules)
    entries = [tuple(entry.values()) for entry in candidates.nbest["q"]]
    assert entries == expected
    answers = [entry for entry in expected if entry[0]]
    if version_2 and answers:
        _, _, best_start, best_end = answers[0]
        lowest = min(start[0] + end[0] for _, start, end in windows)
        assert candidates.null_odds["q"] == lowest - best_start - best_end


@pytest.mark.parametrize(
    ("pred_text", "orig_text", "final_text"),
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943).", "1895"),
        ("cafe", "Café's,", "Café"),
        ("a b", "A  B c", "A  B"),  # spaces between count as they stand
    ],
)
def test_recorded_and_written_out_cuts(pred_text, orig_text, final_text):
    assert get_final_text(pred_text, orig_text, do_lower_case=True) == final_text


def test_casing_and_accents_are_those_of_the_tokenizer():
    assert get_final_text("Steve", "(Steve)", do_lower_case=False) == "Steve"
    assert get_final_text("한", "(한)", do_lower_case=True, strip_accents=False) == "한"


@pytest.mark.parametrize(
    ("pred_text", "orig_text", "message"),
    [
        pytest.param(
            "x",
            "Steve",
            "'x' does not occur in the words 'Steve'",
            id="an absent text",
        ),
        # Lower-casing takes the syllable apart: three characters for one.
        pytest.param(
            "(",
            "(한)",
            "Normalization changed the number of characters",
            id="a syllable",
        ),
        pytest.param(
            "",
            "Steve",
            "'' begins or ends between two words of",
            id="an empty text",
        ),
    ],
)
def test_what_cannot_be_cut_is_logged_when_asked_for(caplog, pred_text, orig_text, message):
    caplog.set_level("INFO", logger="absl")
    assert get_final_text(pred_text, orig_text, True) == orig_text
    assert caplog.text == ""
    get_final_text(pred_text, orig_text, True, verbose_logging=True)
    assert message in caplog.text


@settings(max_examples=150, deadline=None)
@given(st.text("aBé ,.(Σ한\u0301\xa0\u200b", max_size=12), st.data(), st.booleans())
def test_cuts_are_those_of_the_plain_rule(orig_text, data, do_lower_case):
    tokenizer = BasicTokenizer(do_lower_case)
    tok_text = " ".join(tokenizer.tokenize(orig_text))
    first = data.draw(st.integers(0, len(tok_text)))
    pred_text = tok_text[first : data.draw(st.integers(first, len(tok_text)))]
    expected = plain_squad.final_text(pred_text, orig_text, tokenizer)
    assert get_final_text(pred_text, orig_text, do_lower_case) == expected


def test_logits_of_another_run_are_refused(tmp_path):
    path = str(tmp_path / "logits.npz")
    source = {
        "file": "abc",
        "strip_accents": None,
        "max_seq_length": 3,
    }
    write_logits(path, [], source)
    other_source = source | {"file": "abd", "max_seq_length": 4}
    with pytest.raises(InputError, match="logits are of another file and another max_seq_length;"):
        read_logits(path, other_source)


def test_logits_are_averaged_window_by_window():
    first = [
        RawResult(7, [0.0, 1.0], [2.0, 3.0]),
        RawResult(5, [4.0, 4.0], [0.0, 0.0]),
    ]
    second = [
        RawResult(7, np.float32([2, 2]), np.float32([0, 0])),
        RawResult(5, np.float32([2, 2]), np.float32([0, 0])),
    ]
    averaged = average_results([first, second])
    assert [result.unique_id for result in averaged] == [7, 5]
    start_logits = [result.start_logits for result in averaged]
    np.testing.assert_array_equal(start_logits, [[1.0, 1.5], [3.0, 3.0]])
    end_logits = [result.end_logits for result in averaged]
    np.testing.assert_array_equal(end_logits, [[1.0, 1.5], [0.0, 0.0]])

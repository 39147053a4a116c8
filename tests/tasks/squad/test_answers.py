import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert.compat.feature_writer import write_predictions
from official_bert.io.errors import InputError
from official_bert.tasks.squad.answers import CERTAINLY_NO_ANSWER, RawResult, choose_answers, extract_candidates
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import InputFeatures, PositionMap
from official_bert.tokenization import BasicTokenizer
from tests.oracles import plain_squad
from tests.shared import recording
from tests.tasks.squad.sample import fed_logits, recorded, toy_windows


def waves(feature) -> RawResult:
    """The logits of the recorded answers to the toy questions."""
    shift = feature.unique_id - 1000000000
    start = [round(3 * math.sin(1.3 * i + shift), 3) for i in range(14)]
    return RawResult(feature.unique_id, start, [round(3 * math.cos(0.9 * i + shift), 3) for i in range(14)])


THREE_BEST = SquadRules(n_best_size=3, max_answer_length=4)
WITH_NULL = SquadRules(n_best_size=3, max_answer_length=4, version_2_with_negative=True)


def in_one_window(start_logits, end_logits, **changed):
    """n-best lists and null odds of a question whose document "a b" stands at positions 1 and 2 of its window."""
    feature = InputFeatures(0, 0, 0, ["[CLS]", "a", "b", "[SEP]"], {1: 0, 2: 1}, {1: True, 2: True}, None, None, None)
    arguments = {"n_best_size": 20, "max_answer_length": 30, "version_2_with_negative": True}
    return extract_candidates(
        [SquadExample("q", "?", ["a", "b"])],
        [feature],
        [RawResult(0, start_logits, end_logits)],
        SquadRules(**arguments | changed),
    )


def texts(candidates) -> list[str]:
    return [entry["text"] for entry in candidates.nbest["q"]]


def test_the_recorded_answers_to_two_questions(tmp_path):
    examples, features = toy_windows(tmp_path, is_training=False)
    candidates = extract_candidates(examples, features, map(waves, features), THREE_BEST)
    first, second = candidates.nbest["q1"], candidates.nbest["q2"]
    assert [(entry["text"], entry["start_logit"], entry["end_logit"]) for entry in first] == [
        ("The Driver", 2.996, 3.0),
        ("falling, soon after", 2.718, 2.918),
        ("started fall", 2.972, 2.161),
    ]
    assert [entry["probability"] for entry in first] == pytest.approx(
        [0.4717936237, 0.3291592421, 0.1990471342], abs=1e-10
    )
    assert [entry["text"] for entry in second] == ["waved his", "waved"]
    assert [entry["probability"] for entry in second] == pytest.approx([0.5104984568, 0.4895015432], abs=1e-10)
    assert candidates.null_odds == {}
    assert choose_answers(*candidates) == {"q1": "The Driver", "q2": "waved his"}


def test_the_recorded_answers_with_none_as_an_answer(tmp_path):
    examples, features = toy_windows(tmp_path, is_training=False)
    candidates = extract_candidates(examples, features, map(waves, features), WITH_NULL)
    first, second = candidates.nbest["q1"], candidates.nbest["q2"]
    assert (len(first), len(second)) == (4, 3)  # one more than n_best_size
    assert first[-1] == {
        "text": "",
        "probability": pytest.approx(9.1946e-05, abs=5e-10),
        "start_logit": 0.423,
        "end_logit": -2.97,
    }
    assert (second[-1]["start_logit"], second[-1]["end_logit"]) == (-2.27, -1.961)
    assert second[-1]["probability"] == pytest.approx(2.6927e-05, abs=5e-10)
    assert candidates.null_odds == pytest.approx({"q1": -8.543, "q2": -9.85}, abs=1e-12)
    assert choose_answers(*candidates) == {"q1": "The Driver", "q2": "waved his"}
    assert choose_answers(*candidates, null_score_diff_threshold=-9) == {"q1": "", "q2": "waved his"}


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2", "squad_v1cased"])
def test_recorded_files_of_the_original_byte_for_byte(tmp_path, name):
    settings, examples, features = recorded(name)
    fed = zip(*fed_logits(len(features), settings["max_seq_length"]), strict=True)
    results = [RawResult(feature.unique_id, *logits) for feature, logits in zip(features, fed, strict=True)]
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


def test_files_keep_the_order_of_the_questions_and_are_ascii(tmp_path):
    examples = [SquadExample("b", "?", ["Ü"]), SquadExample("a", "?", [])]
    feature = InputFeatures(7, 0, 0, ["[CLS]", "u", "[SEP]"], {1: 0}, {1: True}, None, None, None)
    paths = [str(tmp_path / name) for name in ("predictions", "nbest", "null_odds")]
    write_predictions(examples, [feature], [RawResult(7, [0, 1, 0], [0, 2, 0])], 1, 30, True, *paths)
    assert (tmp_path / "predictions").read_text() == '{\n    "b": "\\u00dc",\n    "a": "empty"\n}\n'
    nbest = json.loads((tmp_path / "nbest").read_text())
    assert nbest["b"] == [{"text": "Ü", "probability": 1.0, "start_logit": 1.0, "end_logit": 2.0}]
    assert not (tmp_path / "null_odds").exists()


def test_of_equal_scores_the_first_start_then_the_first_end_wins():
    assert texts(in_one_window([0] * 4, [0] * 4)) == ["a", "a b", "b", ""]
    assert texts(in_one_window([0] * 4, [0] * 4, version_2_with_negative=False)) == ["a", "a b", "b"]


def test_candidates_are_bounded():
    assert texts(in_one_window([0] * 4, [0] * 4, max_answer_length=1)) == ["a", "b", ""]
    # Only the best position of each kind is tried, and "no answer" comes on top.
    assert texts(in_one_window([0, 1, 2, 0], [0, 1, 2, 0], n_best_size=1)) == ["b", ""]
    # The best start is behind the document.
    only_null = in_one_window([0, 1, 2, 3], [0, 1, 2, 0], n_best_size=1)
    assert texts(only_null) == [""]


def test_the_threshold_is_strict():
    candidates = in_one_window([1, 3, 0, 0], [1, 0, 0, 0])  # 2 for no answer, 3 for the best
    assert candidates.null_odds == {"q": -1.0}
    assert choose_answers(*candidates, -1.0) == {"q": "a"}
    assert choose_answers(*candidates, -1.001) == {"q": ""}


def test_the_lowest_null_score_of_all_windows_counts(tmp_path):
    examples, features = toy_windows(tmp_path, is_training=False)
    logits = np.zeros((4, 14))
    logits[:, 0] = [0.5, -1, 2, -1]
    logits[:, 7] = 4
    results = [RawResult(f.unique_id, row, row) for f, row in zip(features[:4], logits, strict=True)]
    candidates = extract_candidates(examples[:1], features[:4], results, WITH_NULL)
    assert candidates.null_odds["q1"] == -2 - 8
    assert candidates.nbest["q1"][-1]["start_logit"] == -1


def test_a_question_with_no_answer_at_all_is_answered_so():
    candidates = in_one_window([0, 1, 2, 3], [0, 1, 2, 0], n_best_size=1)  # the original crashed
    assert candidates.null_odds == {"q": CERTAINLY_NO_ANSWER} == {"q": 1000000.0}
    assert choose_answers(*candidates, null_score_diff_threshold=2e6) == {"q": ""}


@pytest.mark.parametrize(("version_2", "text"), [(False, "empty"), (True, "")])
def test_an_empty_document_is_answered(version_2, text):
    candidates = extract_candidates([SquadExample("q", "?", [])], [], [], SquadRules(version_2_with_negative=version_2))
    assert candidates.nbest == {"q": [{"text": text, "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}]}
    assert candidates.null_odds == ({"q": CERTAINLY_NO_ANSWER} if version_2 else {})
    assert choose_answers(*candidates) == {"q": text}


@pytest.mark.parametrize("damage", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(damage):
    with pytest.raises(InputError, match="question q: the model gives logits that are no finite numbers"):
        in_one_window([0, damage, 0, 0], [0] * 4)


@st.composite
def questions(draw):
    """A document in up to three windows of which each has few different logits, so that many scores are equal."""
    logits = st.lists(st.integers(0, 2), min_size=12, max_size=12)
    words = draw(st.lists(st.sampled_from(["Ab", "c,", "Éd", "(e)"]), min_size=8, max_size=8))
    pieces = {"Ab": "ab", "c,": "c", "Éd": "ed", "(e)": "e"}
    windows = []
    for number in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 6))
        tokens = ["[CLS]", "?", "[SEP]", *(pieces[words[number + i]] for i in range(length)), "[SEP]"]
        words_of = PositionMap(3, np.arange(number, number + length))
        is_max = draw(st.lists(st.booleans(), min_size=length, max_size=length))
        if draw(st.booleans()):  # users' own windows have dictionaries
            words_of = dict(words_of)
        feature = InputFeatures(number, 0, number, tokens, words_of, PositionMap(3, np.array(is_max)), None, None, None)
        windows.append((feature, draw(logits), draw(logits)))
    return words, windows


@settings(max_examples=150, deadline=None)
@given(questions(), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_lists_are_those_of_the_plain_rules(question, n_best_size, max_answer_length, version_2):
    words, windows = question
    tokenizer = BasicTokenizer(True)
    expected = plain_squad.nbest(
        windows,
        words,
        n_best_size,
        max_answer_length,
        lambda pred, orig: plain_squad.final_text(pred, orig, tokenizer),
        version_2,
    )
    results = [RawResult(feature.unique_id, start, end) for feature, start, end in windows]
    features = [feature for feature, _, _ in windows]
    candidates = extract_candidates(
        [SquadExample("q", "?", words)],
        features,
        results,
        SquadRules(n_best_size=n_best_size, max_answer_length=max_answer_length, version_2_with_negative=version_2),
    )
    assert [tuple(entry.values()) for entry in candidates.nbest["q"]] == expected

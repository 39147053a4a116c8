import json
import pathlib

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.examples import read_gold_answers, read_squad_examples
from tests.tasks.squad.sample import QUESTIONS, write_json, write_squad

IMPOSSIBLE = {"id": "q3", "question": "Why?", "answers": [], "is_impossible": True}


def question(text: str, start: int, **others) -> dict:
    return {"id": "q", "question": "?", "answers": [{"text": text, "answer_start": start}]} | others


def test_prediction_ignores_the_answers(tmp_path):
    questions = [question("nowhere", 900), {"id": "a", "question": "?"}, IMPOSSIBLE]
    examples = read_squad_examples(write_squad(tmp_path, questions), is_training=False)
    assert [example.qas_id for example in examples] == ["q", "a", "q3"]
    assert {(e.orig_answer_text, e.start_position, e.is_impossible) for e in examples} == {
        (None, None, False)
    }


def test_only_some_blanks_separate_words(tmp_path):
    path = write_squad(tmp_path, QUESTIONS[:1], " a\tb\r\nc\u202fd\xa0e\u3000f\x0bg ")
    (example,) = read_squad_examples(path, is_training=False)
    assert example.doc_tokens == ["a", "b", "c", "d\xa0e\u3000f\x0bg"]


def test_an_answer_within_a_word_and_one_over_several(tmp_path):
    questions = [question("and", 23), question("Driver  waved", 4, id="r")]
    path = write_squad(tmp_path, questions, "The Driver waved his (hand). Rain")
    within, over = read_squad_examples(path, is_training=True)
    assert (within.start_position, within.end_position) == (4, 4)
    assert (over.start_position, over.end_position) == (1, 2)


@pytest.mark.parametrize(
    ("text", "start"), [("driver", 4), ("Driver", 1000), ("Driver", -61), ("", 4), (" ", 3)]
)
def test_an_answer_that_is_not_there_is_skipped_and_counted(tmp_path, caplog, text, start):
    path = write_squad(tmp_path, [question(text, start), QUESTIONS[1]])
    examples = read_squad_examples(path, is_training=True)
    assert [example.qas_id for example in examples] == ["q2"]
    assert "where the answer" in caplog.text
    assert "skipped 1 of 2 questions" in caplog.text


def test_version_2_reads_what_is_impossible(tmp_path):
    path = write_squad(tmp_path, [QUESTIONS[0], IMPOSSIBLE])
    possible, impossible = read_squad_examples(path, True, version_2_with_negative=True)
    assert (possible.is_impossible, possible.start_position) == (False, 1)
    assert possible.doc_tokens is impossible.doc_tokens  # windows_of cuts a document once
    assert impossible.is_impossible
    assert (impossible.orig_answer_text, impossible.start_position, impossible.end_position) == (
        "",
        -1,
        -1,
    )


def test_repeated_ids_stay_and_are_counted(tmp_path, caplog):
    assert (
        len(read_squad_examples(write_squad(tmp_path, [QUESTIONS[0]] * 3), is_training=False)) == 3
    )
    assert "2 questions repeat an id, the first q1" in caplog.text


def test_long_fields_line_ends_a_byte_order_mark_and_a_number_as_id(tmp_path):
    context = f'{"x" * 100_000} "Driver"\r\nwaved'
    path = pathlib.Path(write_squad(tmp_path, [question("Driver", 100_002, id=7)], context))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b", ", b",\r\n\r\n"))
    (example,) = read_squad_examples(str(path), is_training=True)
    assert example.doc_tokens == ["x" * 100_000, '"Driver"', "waved"]
    assert (example.qas_id, example.start_position, example.end_position) == ("7", 1, 1)


def _asking(question) -> dict:
    return {"data": [{"paragraphs": [{"context": "a", "qas": [question]}]}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], '"data"'),
        ({"data": {}}, '"data" is not a list'),
        ({"data": ["t"]}, "article 1: is not an object"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, 'article 1, paragraph 1: "context" is missing'),
        (_asking({"question": "?"}), 'article 1, paragraph 1, question 1: "id" is missing'),
        (_asking({"id": "q9", "question": None}), 'question q9: "question" is not a text'),
    ],
)
def test_what_is_no_squad_file_is_refused(tmp_path, content, message):
    path = write_json(tmp_path, content)
    with pytest.raises(InputError, match=f"^{path}.*{message}"):
        read_squad_examples(path, is_training=False)


@pytest.mark.parametrize(
    ("changed", "version_2", "message"),
    [
        ({"is_impossible": 1}, True, 'question q: "is_impossible" is not true or false'),
        ({}, True, 'question q: "is_impossible" is missing'),
        (
            {"answers": []},
            False,
            "has 0 answers, but a question to train on has one; pass --version_2_with_negative",
        ),
        (
            {"answers": [], "is_impossible": False},
            True,
            'has 0 answers, but a question to train on has one; give it one, or "is_impossible": true',
        ),
        (
            {"answers": [{}, {}]},
            False,
            "has 2 answers, but a question to train on has one; keep one",
        ),
        ({"answers": [{"text": 3, "answer_start": 0}]}, False, 'question q: "text" is not a text'),
        ({"answers": None}, False, 'question q: "answers" is not a list'),
    ],
)
def test_training_questions_that_lack_something_are_refused(tmp_path, changed, version_2, message):
    path = write_squad(tmp_path, [question("The", 0) | changed])
    with pytest.raises(InputError, match=f"^{path}.*{message}"):
        read_squad_examples(path, True, version_2)


def test_gold_answers(tmp_path):
    several = {"id": 7, "question": "?", "answers": [{"text": "a"}, {"text": "b"}]}
    path = write_squad(tmp_path, [QUESTIONS[0], several, IMPOSSIBLE])
    assert read_gold_answers(path) == [("q1", ["Driver"]), ("7", ["a", "b"]), ("q3", [])]


def test_a_file_of_questions_only_has_no_gold_answers(tmp_path, caplog):
    unknown = [{"id": name, "question": "?"} for name in "ab"]
    assert read_gold_answers(write_squad(tmp_path, unknown)) is None
    assert not caplog.text
    path = write_squad(tmp_path, [unknown[0], QUESTIONS[0], unknown[1]])
    assert read_gold_answers(path) is None
    assert f'{path}: 2 of 3 questions have no field "answers", so nothing is scored' in caplog.text
    with pytest.raises(InputError, match=r"squad\.json: question a: is not an object"):
        read_gold_answers(write_squad(tmp_path, [unknown[0] | {"answers": ["Driver"]}]))


def write_rows(folder, rows) -> str:
    path = folder / "squad.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_of_hugging_face_are_the_questions_of_a_squad_file(tmp_path):
    """Neighbours with one context share its words."""
    context = "The Driver waved his hand."
    possible = {"is_impossible": False}
    questions = [
        question("Driver", 4, **possible),
        question("hand", 21, id="r", **possible),
        IMPOSSIBLE,
    ]
    rows = [
        {"id": one["id"], "title": "t", "context": context, "question": one["question"]}
        | {
            "answers": {
                name: [answer[name] for answer in one["answers"]]
                for name in ("text", "answer_start")
            }
        }
        for one in questions
    ]
    path, expected = write_rows(tmp_path, rows), write_squad(tmp_path, questions, context)
    for settings in ((False,), (True, True)):
        examples = read_squad_examples(path, *settings)
        assert examples == read_squad_examples(expected, *settings)
        assert examples[0].doc_tokens is examples[1].doc_tokens
    assert read_gold_answers(path) == read_gold_answers(expected)
    assert (
        read_gold_answers(write_rows(tmp_path, [row | {"answers": None} for row in rows])) is None
    )
    capitals = [{name.title(): value for name, value in row.items()} for row in rows]
    assert read_squad_examples(write_rows(tmp_path, capitals), False) == read_squad_examples(
        expected, False
    )
    with pytest.raises(
        InputError, match="each of the columns answers and Answers could be answers; rename all but"
    ):
        read_squad_examples(write_rows(tmp_path, [rows[0] | {"Answers": None}]), True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": {"text": ["a"], "answer_start": []}},
            'line 1: its "answers" have 1 "text" and 0 "answer_start"',
        ),
        ({"answers": {"text": "a", "answer_start": [0]}}, 'line 1: "text" is not a list'),
        (
            {"answers": [{"text": "a", "answer_start": 0}]},
            'line 1: is not an object; it should be one with the field "text"',
        ),
        ({"answers": {"text": [], "answer_start": []}}, "question q: has 0 answers"),
        ({"context": ["a"]}, 'line 1: "context" is not a text'),
        ({"id": None}, 'line 1, question 1: "id" is missing'),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, changes, message):
    row = {
        "id": "q",
        "context": "a",
        "question": "?",
        "answers": {"text": ["a"], "answer_start": [0]},
    } | changes
    with pytest.raises(InputError, match=message):
        read_squad_examples(write_rows(tmp_path, [row]), is_training=True)


@pytest.mark.parametrize(
    ("given", "flag"),
    [({}, "predict_file"), ({"is_training": True}, "train_file"), ({"flag": "init"}, "init")],
)
def test_a_glob_without_files_is_refused_by_the_name_of_its_flag(given, flag):
    with pytest.raises(InputError, match=rf"--{flag}: no file matches 'absent\*.jsonl'"):
        read_squad_examples("absent*.jsonl", **{"is_training": False, **given})


CHINESE = "我爱北京天安门.北京的人民在上海工作.我的北京"


@pytest.mark.parametrize(("answer", "num_ambiguous"), [("北京", 2), ("上海", 0)])
def test_answers_that_stand_several_times_in_a_word_are_counted(
    tmp_path, caplog, answer, num_ambiguous
):
    questions = [
        question(answer, CHINESE.index(answer)),
        question(answer, CHINESE.rindex(answer), id="r"),
    ]
    read_squad_examples(write_squad(tmp_path, questions, CHINESE), is_training=True)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(num_ambiguous)
    assert all(
        f"of {num_ambiguous} questions, the answer stands several times" in warning
        for warning in warnings
    )


def test_a_rare_ambiguous_answer_is_not_warned_of(tmp_path, caplog):
    common = [question("Driver", 4, id=str(number)) for number in range(99)]
    rare = question("3", 18, id="rare")
    read_squad_examples(
        write_squad(tmp_path, [*common, rare], "The Driver waved, 3-3."), is_training=True
    )
    assert caplog.text == ""

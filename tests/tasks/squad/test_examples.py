import json
import pathlib

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.examples import read_gold_answers, read_squad_examples
from tests.tasks.squad.sample import QUESTIONS, write_json, write_squad

IMPOSSIBLE = {"id": "q3", "question": "Why?", "answers": [], "is_impossible": True}


def question(text: str, start: int, **others) -> dict:
    answer = {"text": text, "answer_start": start}
    return {"id": "q", "question": "?", "answers": [answer]} | others


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


def test_prediction_ignores_the_answers(tmp_path):
    questions = [question("nowhere", 900), {"id": "a", "question": "?"}, IMPOSSIBLE]
    examples = read_squad_examples(write_squad(tmp_path, questions), is_training=False)
    assert [example.qas_id for example in examples] == ["q", "a", "q3"]
    for example in examples:
        assert example.orig_answer_text is None
        assert example.start_position is None
        assert example.is_impossible is False


def test_only_some_blanks_separate_words(tmp_path):
    path = write_squad(tmp_path, QUESTIONS[:1], " a\tb\r\nc\u202fd\xa0e\u3000f\x0bg ")
    (example,) = read_squad_examples(path, is_training=False)
    assert example.doc_tokens == ["a", "b", "c", "d\xa0e\u3000f\x0bg"]


def test_an_answer_within_a_word_and_one_over_several(tmp_path):
    questions = [question("and", 23), question("Driver  waved", 4, id="r")]
    path = write_squad(tmp_path, questions, "The Driver waved his (hand). Rain")
    within, over = read_squad_examples(path, is_training=True)
    assert positions_of(within) == (4, 4)
    assert positions_of(over) == (1, 2)


def positions_of(example) -> tuple[int, int]:
    """The first and the last word of an answer."""
    return example.start_position, example.end_position


@pytest.mark.parametrize(
    ("text", "start"),
    [
        pytest.param("driver", 4, id="another case"),
        pytest.param("Driver", 1000, id="behind the end"),
        pytest.param("Driver", -61, id="before the start"),
        pytest.param("", 4, id="an empty answer"),
        pytest.param(" ", 3, id="a blank"),
    ],
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
    assert possible.is_impossible is False
    assert possible.start_position == 1
    assert possible.doc_tokens is impossible.doc_tokens  # windows_of cuts a document once
    assert impossible.is_impossible
    assert impossible.orig_answer_text == ""
    assert positions_of(impossible) == (-1, -1)


def test_repeated_ids_stay_and_are_counted(tmp_path, caplog):
    path = write_squad(tmp_path, [QUESTIONS[0]] * 3)
    assert len(read_squad_examples(path, is_training=False)) == 3
    assert "2 questions repeat an id, the first q1" in caplog.text


def test_long_fields_line_ends_a_byte_order_mark_and_a_number_as_id(tmp_path):
    long_word = "x" * 100_000
    context = f'{long_word} "Driver"\r\nwaved'
    questions = [question("Driver", 100_002, id=7)]
    path = pathlib.Path(write_squad(tmp_path, questions, context))
    lines = path.read_bytes().replace(b", ", b",\r\n\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + lines)
    (example,) = read_squad_examples(str(path), is_training=True)
    assert example.doc_tokens == [long_word, '"Driver"', "waved"]
    assert example.qas_id == "7"
    assert positions_of(example) == (1, 1)


def _with_paragraph(**fields) -> dict:
    """A SQuAD file of one paragraph."""
    article = {"paragraphs": [fields]}
    return {"data": [article]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            [],
            '"data"',
            id="a list",
        ),
        pytest.param(
            {"data": {}},
            '"data" is not a list',
            id="data in an object",
        ),
        pytest.param(
            {"data": ["t"]},
            "article 1: is not an object",
            id="an article that is a text",
        ),
        pytest.param(
            _with_paragraph(qas=[]),
            'article 1, paragraph 1: "context" is missing',
            id="no context",
        ),
        pytest.param(
            _with_paragraph(context="a", qas=[{"question": "?"}]),
            'article 1, paragraph 1, question 1: "id" is missing',
            id="no id",
        ),
        pytest.param(
            _with_paragraph(context="a", qas=[{"id": "q9", "question": None}]),
            'question q9: "question" is not a text',
            id="a question that is null",
        ),
    ],
)
def test_what_is_no_squad_file_is_refused(tmp_path, content, message):
    path = write_json(tmp_path, content)
    with refusal(f"^{path}.*{message}"):
        read_squad_examples(path, is_training=False)


@pytest.mark.parametrize(
    ("changed", "version_2", "message"),
    [
        pytest.param(
            {"is_impossible": 1},
            True,
            'question q: "is_impossible" is not true or false',
            id="is_impossible is a number",
        ),
        pytest.param(
            {},
            True,
            'question q: "is_impossible" is missing',
            id="no is_impossible",
        ),
        pytest.param(
            {"answers": []},
            False,
            "has 0 answers, but a question to train on has one; pass --version_2_with_negative",
            id="no answer in SQuAD 1.1",
        ),
        pytest.param(
            {"answers": [], "is_impossible": False},
            True,
            'has 0 answers, but a question to train on has one; give it one, or "is_impossible": true',
            id="no answer in SQuAD 2.0",
        ),
        pytest.param(
            {"answers": [{}, {}]},
            False,
            "has 2 answers, but a question to train on has one; keep one",
            id="two answers",
        ),
        pytest.param(
            {"answers": [{"text": 3, "answer_start": 0}]},
            False,
            'question q: "text" is not a text',
            id="an answer that is a number",
        ),
        pytest.param(
            {"answers": None},
            False,
            'question q: "answers" is not a list',
            id="answers that are null",
        ),
    ],
)
def test_training_questions_that_lack_something_are_refused(tmp_path, changed, version_2, message):
    path = write_squad(tmp_path, [question("The", 0) | changed])
    with refusal(f"^{path}.*{message}"):
        read_squad_examples(path, True, version_2)


def test_gold_answers(tmp_path):
    several = {
        "id": 7,
        "question": "?",
        "answers": [{"text": "a"}, {"text": "b"}],
    }
    path = write_squad(tmp_path, [QUESTIONS[0], several, IMPOSSIBLE])
    assert read_gold_answers(path) == [
        ("q1", ["Driver"]),
        ("7", ["a", "b"]),
        ("q3", []),
    ]


def test_a_file_of_questions_only_has_no_gold_answers(tmp_path, caplog):
    first = {"id": "a", "question": "?"}
    second = {"id": "b", "question": "?"}
    path = write_squad(tmp_path, [first, second])
    assert read_gold_answers(path) is None
    assert not caplog.text
    write_squad(tmp_path, [first, QUESTIONS[0], second])
    assert read_gold_answers(path) is None
    assert f'{path}: 2 of 3 questions have no field "answers", so nothing is scored' in caplog.text
    write_squad(tmp_path, [first | {"answers": ["Driver"]}])
    with refusal(r"squad\.json: question a: is not an object"):
        read_gold_answers(path)


def write_rows(folder, rows) -> str:
    path = folder / "squad.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def row_of(one: dict, context: str) -> dict:
    """A question as a row of a data set of Hugging Face."""
    texts = [answer["text"] for answer in one["answers"]]
    starts = [answer["answer_start"] for answer in one["answers"]]
    return {
        "id": one["id"],
        "title": "t",
        "context": context,
        "question": one["question"],
        "answers": {"text": texts, "answer_start": starts},
    }


def test_rows_of_hugging_face_are_the_questions_of_a_squad_file(tmp_path):
    """Neighbours with one context share its words."""
    context = "The Driver waved his hand."
    questions = [
        question("Driver", 4, is_impossible=False),
        question("hand", 21, id="r", is_impossible=False),
        IMPOSSIBLE,
    ]
    rows = [row_of(one, context) for one in questions]
    path = write_rows(tmp_path, rows)
    squad_file = write_squad(tmp_path, questions, context)
    for settings in ((False,), (True, True)):
        examples = read_squad_examples(path, *settings)
        assert examples == read_squad_examples(squad_file, *settings)
        assert examples[0].doc_tokens is examples[1].doc_tokens
    assert read_gold_answers(path) == read_gold_answers(squad_file)
    write_rows(tmp_path, [row | {"answers": None} for row in rows])
    assert read_gold_answers(path) is None
    capitals = [{name.title(): value for name, value in row.items()} for row in rows]
    write_rows(tmp_path, capitals)
    expected = read_squad_examples(squad_file, False)
    assert read_squad_examples(path, False) == expected
    write_rows(tmp_path, [rows[0] | {"Answers": None}])
    message = "each of the columns answers and Answers could be answers; rename all but"
    with refusal(message):
        read_squad_examples(path, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"answers": {"text": ["a"], "answer_start": []}},
            'line 1: its "answers" have 1 "text" and 0 "answer_start"',
            id="a text without a start",
        ),
        pytest.param(
            {"answers": {"text": "a", "answer_start": [0]}},
            'line 1: "text" is not a list',
            id="a text in place of a list",
        ),
        pytest.param(
            {"answers": [{"text": "a", "answer_start": 0}]},
            'line 1: is not an object; it should be one with the field "text"',
            id="answers as in a SQuAD file",
        ),
        pytest.param(
            {"answers": {"text": [], "answer_start": []}},
            "question q: has 0 answers",
            id="no answer",
        ),
        pytest.param(
            {"context": ["a"]},
            'line 1: "context" is not a text',
            id="a list as context",
        ),
        pytest.param(
            {"id": None},
            'line 1, question 1: "id" is missing',
            id="no id",
        ),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, changes, message):
    row = {
        "id": "q",
        "context": "a",
        "question": "?",
        "answers": {"text": ["a"], "answer_start": [0]},
    }
    path = write_rows(tmp_path, [row | changes])
    with refusal(message):
        read_squad_examples(path, is_training=True)


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        pytest.param(
            {"is_training": False},
            "predict_file",
            id="prediction",
        ),
        pytest.param(
            {"is_training": True},
            "train_file",
            id="training",
        ),
        pytest.param(
            {"is_training": False, "flag": "init"},
            "init",
            id="a named flag",
        ),
    ],
)
def test_a_glob_without_files_is_refused_by_the_name_of_its_flag(arguments, flag):
    with refusal(rf"--{flag}: no file matches 'absent\*.jsonl'"):
        read_squad_examples("absent*.jsonl", **arguments)


CHINESE = "我爱北京天安门.北京的人民在上海工作.我的北京"


@pytest.mark.parametrize(
    ("answer", "num_ambiguous"),
    [
        pytest.param("北京", 2, id="several times"),
        pytest.param("上海", 0, id="once"),
    ],
)
def test_answers_that_stand_several_times_in_a_word_are_counted(
    tmp_path, caplog, answer, num_ambiguous
):
    questions = [
        question(answer, CHINESE.index(answer)),
        question(answer, CHINESE.rindex(answer), id="r"),
    ]
    path = write_squad(tmp_path, questions, CHINESE)
    read_squad_examples(path, is_training=True)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(num_ambiguous)
    for warning in warnings:
        assert f"of {num_ambiguous} questions, the answer stands several times" in warning


def test_a_rare_ambiguous_answer_is_not_warned_of(tmp_path, caplog):
    common = [question("Driver", 4, id=str(number)) for number in range(99)]
    rare = question("3", 18, id="rare")
    path = write_squad(tmp_path, [*common, rare], "The Driver waved, 3-3.")
    read_squad_examples(path, is_training=True)
    assert caplog.text == ""

import json

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.squad.examples import read_squad_examples
from official_bert.tasks.squad.triviaqa import find_answer, triviaqa_to_squad
from tests.scripts import flag_list, run_here

WHALES = "Whales are mammals.\n\nThe blue  whale is the largest; it eats krill.\n" + "It swims. " * 300
SEAS = "The krill of cold seas " + "and more " * 300 + "feeds the Blue Whale"


def entry(number: int, value: str, documents, **answer) -> dict:
    return {
        "QuestionId": f"tq_{number}",
        "Question": f"Question {number}?",
        "Answer": {"Value": value, "Aliases": [value]} | answer,
        "EntityPages": [{"Filename": name} for name in documents],
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "Whales.txt").write_text(WHALES, encoding="utf-8")
    (tmp_path / "evidence" / "Seas.txt").write_bytes(SEAS.encode() + b"\xff")
    return tmp_path


def convert(folder, content, **arguments):
    path = folder / "trivia.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    output = folder / "squad.json"
    counts = triviaqa_to_squad(str(path), str(folder / "evidence"), str(output), **arguments)
    return counts, json.loads(output.read_text())["data"]


def test_documents_that_begin_with_an_answer_become_training_data(folder):
    content = {
        "Data": [
            entry(1, "Blue Whale", ["Whales.txt", "Seas.txt"], Aliases=["whale", "Balaenoptera musculus"]),
            entry(2, "Krill", ["Whales.txt", "Seas.txt", "Absent.txt"]),
            entry(3, "Squid", ["Whales.txt"], HumanAnswers=["MAMMALS"]),
        ]
    }
    counts, articles = convert(folder, content)
    assert counts == (4, 1, 1)  # the end of the second document is too far from its beginning
    by_script = folder / "by_script.json"
    flags = flag_list(input_file=folder / "trivia.json", data_dir=folder / "evidence", output_file=by_script)
    log = run_here("convert_triviaqa.py", *flags).stderr
    said = "by_script.json: 4 questions with a document; left out: 1 whose document begins without an answer, 1 without"
    assert said in log
    assert json.loads(by_script.read_text())["data"] == articles
    assert [article["title"] for article in articles] == ["Whales.txt", "Seas.txt"]
    first, second = (article["paragraphs"][0] for article in articles)
    assert len(first["context"].split()) == len(second["context"].split()) == 400
    assert WHALES.startswith(first["context"])
    answers = {question["id"]: question["answers"] for question in first["qas"] + second["qas"]}
    assert answers == {
        "tq_1--Whales.txt": [{"text": "blue  whale", "answer_start": WHALES.index("blue")}],
        "tq_2--Whales.txt": [{"text": "krill", "answer_start": WHALES.index("krill")}],
        "tq_2--Seas.txt": [{"text": "krill", "answer_start": 4}],
        "tq_3--Whales.txt": [{"text": "mammals", "answer_start": WHALES.index("mammals")}],
    }


def test_every_blank_of_a_document_separates_words_in_training(folder):
    text = "In\u00a0New\u00a0York\u2009City,\u202fby\x0bthe\tsea"
    (folder / "evidence" / "York.txt").write_text(text, encoding="utf-8")
    content = {"Data": [entry(1, "New York City", ["York.txt"]), entry(2, "by the sea", ["York.txt"])]}
    counts, ((article),) = convert(folder, content)
    assert counts == (2, 0, 0)
    assert article["paragraphs"][0]["context"] == "In New York City,\u202fby the\tsea"
    city, sea = read_squad_examples(str(folder / "squad.json"), is_training=True)
    assert city.doc_tokens == ["In", "New", "York", "City,", "by", "the", "sea"]
    assert (city.start_position, city.end_position) == (1, 3)
    assert (sea.start_position, sea.end_position) == (4, 6)


def test_a_document_counts_once_is_cut_where_asked_and_human_answers_may_be_null(folder):
    documents = ["Whales.txt", "Seas.txt", "Seas.txt", "Absent.txt", "Absent.txt"]
    counts, ((article),) = convert(
        folder, {"Data": [entry(1, "krill", documents, HumanAnswers=None)]}, max_document_words=3
    )
    assert counts == (1, 1, 1)
    assert article["paragraphs"][0]["context"] == "The krill of"
    assert [question["id"] for question in article["paragraphs"][0]["qas"]] == ["tq_1--Seas.txt"]


@pytest.mark.parametrize(
    ("text", "aliases", "found"),
    [
        ("the whole hen", ["he", "hen"], "hen"),  # whole words only
        ("New York City", ["York", "New York"], "New York"),
        ("of C++ and C", ["C++"], "C++"),
        ("axb", ["a.b", " "], None),
    ],
)
def test_the_first_and_longest_alias_is_found(text, aliases, found):
    match = find_answer(text, aliases)
    assert (match and match.group()) == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, '"Data" is missing'),
        ({"Data": [{}]}, 'question 1: "QuestionId" is missing'),
        ({"Data": [entry(1, "a", ["x"], Aliases=[3])]}, "question tq_1: has an answer that is no text"),
        ({"Data": [entry(1, "a", ["x"], HumanAnswers="a b")]}, 'question tq_1: "HumanAnswers" is not a list'),
        ({"Data": [entry(1, "a", ["x", "y"])]}, "has none of the 2 documents"),
        ({"Data": [entry(1, "sharks", ["Whales.txt"])]}, "none of its questions has a document that begins"),
    ],
)
def test_what_is_no_triviaqa_is_refused_and_nothing_written(folder, content, message):
    with pytest.raises(InputError, match=message):
        convert(folder, content)
    assert not (folder / "squad.json").exists()

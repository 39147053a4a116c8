"""TriviaQA in SQuAD's format, on files of the layout of its archive triviaqa-rc."""

import dataclasses
import json
import pathlib

import pytest

from official_bert import InputError
from official_bert.extensions.triviaqa.converter import AnswerFinder, Counts, cut_text, run
from official_bert.extensions.triviaqa.options import TriviaQaOptions
from official_bert.tasks.squad.examples import read_squad_examples
from tests.scripts import flag_list, run_script

LONG = "Filler word. " * 200  # 600 tokens


def make_question(number: int, aliases: list[str], pages=(), results=(), **answer) -> dict:
    """A question with the fields of the archive."""
    return {
        "Answer": {
            "Aliases": aliases,
            "MatchedWikiEntityName": aliases[0].title(),
            "NormalizedAliases": [alias.lower() for alias in aliases],
            "NormalizedValue": aliases[0].lower(),
            "Type": "WikipediaEntity",
            "Value": aliases[0],
            **answer,
        },
        "EntityPages": [
            {"DocSource": "TagMe", "Filename": name, "Title": name.removesuffix(".txt")}
            for name in pages
        ],
        "Question": f"Which answer has number {number}?",
        "QuestionId": f"tc_{number}",
        "QuestionSource": "http://www.triviacountry.com/",
        "SearchResults": [{"Filename": name, "Rank": 0, "Url": "http://a.b"} for name in results],
    }


QUESTIONS = [
    make_question(
        1, ["WILLIAM SHAKESPEARE", "Shakespeare"], ["Drama.txt", "Poets.txt", "Late_page.txt"]
    ),
    make_question(2, ["Paris"], ["Drama.txt"]),
    make_question(3, ["Mount Everest"], ["Lost.txt"], ["12/12_3.txt"]),
    make_question(4, ["?"], ["Drama.txt"], HumanAnswers=["the globe"]),
]
DOCUMENTS = {
    "wikipedia/Drama.txt": "The Globe was the theatre\nof William  Shakespeare, an Englishman.",
    "wikipedia/Poets.txt": "\n\nShakespeareans read SHAKESPEARE and Dante.",
    "wikipedia/Late_page.txt": f"{LONG}William Shakespeare.",
    "web/12/12_3.txt": "Caf\u00e9s \U0001f600 near mount everest.",
}


@pytest.fixture
def archive(tmp_path) -> pathlib.Path:
    """A folder of the archive's layout."""
    for name, text in DOCUMENTS.items():
        path = tmp_path / "evidence" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write_questions(tmp_path, QUESTIONS)
    return tmp_path


def write_questions(folder: pathlib.Path, questions: list[dict]):
    content = {"Data": questions, "Domain": "Wikipedia", "VerifiedEval": False, "Version": 1.0}
    (folder / "qa").mkdir(exist_ok=True)
    (folder / "qa" / "wikipedia-train.json").write_text(json.dumps(content))


def make_options(folder: pathlib.Path, **changes) -> TriviaQaOptions:
    options = TriviaQaOptions(
        input_file=str(folder / "qa" / "wikipedia-train.json"),
        evidence_dir=str(folder / "evidence"),
        output_file=str(folder / "train.json"),
    )
    return dataclasses.replace(options, **changes)


def test_every_document_with_an_answer_becomes_a_paragraph(archive):
    counts = run(make_options(archive))
    content = json.loads((archive / "train.json").read_text())
    paragraphs = [each for article in content["data"] for each in article["paragraphs"]]
    answers = {}
    for paragraph in paragraphs:
        (question,) = paragraph["qas"]
        (answer,) = question["answers"]
        start = answer["answer_start"]
        assert paragraph["context"][start : start + len(answer["text"])] == answer["text"]
        answers[question["id"]] = answer["text"]
    # The case and the blanks are those of the documents; an alias is no part of a word.
    assert answers == {
        "tc_1--Drama.txt": "William  Shakespeare",
        "tc_1--Poets.txt": "SHAKESPEARE",
        "tc_3--12/12_3.txt": "mount everest",
        "tc_4--Drama.txt": "The Globe",
    }
    assert content["version"] == "1.1"
    assert counts == Counts(
        questions=4, documents=7, missing=1, without_answer=2, paragraphs=4, left_out=1
    )


def test_run_squad_reads_all_of_it(archive):
    run(make_options(archive))
    examples = read_squad_examples(str(archive / "train.json"), is_training=True)
    assert len(examples) == 4
    words = []
    for example in examples:
        start, end = example.start_position, example.end_position
        assert start is not None
        assert end is not None
        words.append(" ".join(example.doc_tokens[start : end + 1]))
    assert words == ["William Shakespeare,", "SHAKESPEARE", "mount everest.", "The Globe"]


def test_the_number_of_tokens_decides_which_answers_count(archive):
    counts = run(make_options(archive, max_tokens=602))
    assert counts.paragraphs == 5
    contexts = json.loads((archive / "train.json").read_text())["data"][0]["paragraphs"]
    assert contexts[2]["context"] == f"{LONG}William Shakespeare"
    # The first token of a name is not enough.
    assert run(make_options(archive, max_tokens=601)).paragraphs == 4


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("One, two three.", 2, "One,"),
        ("One, two three.", 3, "One, two"),
        ("One, two  ", 9, "One, two"),
        ("  don't", 3, "  don't"),
        ("", 5, ""),
    ],
)
def test_a_text_is_cut_after_its_first_tokens(text, count, expected):
    assert cut_text(text, count) == expected


@pytest.mark.parametrize(
    ("aliases", "text", "expected"),
    [
        (["York", "New York"], "in new  york today", ("new  york", 3)),
        (["York", "New York"], "York or New York", ("York", 0)),
        (["Ann"], "Anna and ANN", ("ANN", 9)),
        (["C++"], "written in c++.", ("c++", 11)),
        (["St. Louis"], "St Louis, st. louis", ("st. louis", 10)),
        (["?", " "], "why ?", None),
        (["\u00e9t\u00e9"], "L' \u00c9T\u00c9", ("\u00c9T\u00c9", 3)),
    ],
)
def test_the_first_and_longest_alias_is_found(aliases, text, expected):
    assert AnswerFinder(aliases).find(text) == expected


def test_what_cannot_be_converted_is_refused_and_nothing_is_written(archive):
    def refuse(message: str, **changes):
        with pytest.raises(InputError, match=message):
            run(make_options(archive, **changes))
        assert not (archive / "train.json").exists()

    refuse("has none of the 7 documents of .*; name the folder evidence", evidence_dir=str(archive))
    refuse("no document has an answer in its first 1 tokens", max_tokens=1)
    refuse("is also an input of this run", output_file=make_options(archive).input_file)
    for key, message in (("QuestionId", "question 1.*QuestionId"), ("Answer", "has no Answer")):
        question = {name: value for name, value in QUESTIONS[0].items() if name != key}
        write_questions(archive, [question])
        refuse(message)
    (archive / "qa" / "wikipedia-train.json").write_text("[]")
    refuse("wikipedia-train.json")
    write_questions(archive, [])
    refuse("wikipedia-train.json: has no questions; give a file such as wikipedia-train.json")


def test_the_command_says_what_it_left_out(archive):
    options = vars(make_options(archive))
    finished = run_script("convert_triviaqa", *flag_list(**options))
    assert "Wrote" in finished.stderr
    assert "4 paragraphs of 3 questions" in finished.stderr
    assert "Left out: 1 of 4 questions" in finished.stderr
    assert "2 of 7 documents" in finished.stderr

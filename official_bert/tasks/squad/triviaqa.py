"""Converts TriviaQA-Wiki to SQuAD training data, as in the paper: the first 400 words of documents with an answer."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from absl import logging

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.data_tools import TriviaqaOptions

MAX_DOCUMENT_WORDS = 400

_QUESTIONS_BETWEEN_LINES = 10_000
_WORD = re.compile(r"\S+")
_OTHER_BLANKS = re.compile("[^\\S \t\r\n\u202f]")  # white space inside the words of find_words


def convert(options: TriviaqaOptions):
    """Writes the SQuAD file of TriviaQA's JSON and the folder of its documents: the function of convert_triviaqa.py."""
    documents = files.matching("*", options.data_dir)
    writing.keep_apart([options.output_file], {"input_file": [options.input_file], "data_dir": documents})
    triviaqa_to_squad(options.input_file, options.data_dir, options.output_file)


def triviaqa_to_squad(
    input_file: str, evidence_dir: str, output_file: str, max_document_words: int = MAX_DOCUMENT_WORDS
) -> tuple[int, int, int]:
    """Writes a SQuAD file with a question `<question id>--<document>` for each pair.

    Returns the numbers of pairs written, of those without an answer in the beginning of the document, and of those
    whose document is not in the folder.
    """
    paragraphs: dict[str, dict[str, Any] | None] = {}  # by document: its questions share one
    written = without_answer = missing = 0
    for number, (question_id, question, aliases, documents) in enumerate(_questions(input_file), 1):
        if number % _QUESTIONS_BETWEEN_LINES == 0:
            logging.info("%d questions, %d with a document so far", number, written)
        for name in documents:
            if name not in paragraphs:
                text = _beginning(_document(evidence_dir, name, input_file), max_document_words)
                paragraphs[name] = None if text is None else {"context": text, "qas": []}
            paragraph = paragraphs[name]
            if paragraph is None:
                missing += 1
                continue
            found = find_answer(paragraph["context"], aliases)
            if found is None:
                without_answer += 1
                continue
            written += 1
            answer = {"text": found.group(), "answer_start": found.start()}
            paragraph["qas"].append({"id": f"{question_id}--{name}", "question": question, "answers": [answer]})
    if missing and not written + without_answer:
        raise InputError(
            f"{evidence_dir}: has none of the {missing} documents that {input_file} names; give the folder of "
            "TriviaQA's Wikipedia evidence"
        )
    articles = [
        {"title": name, "paragraphs": [paragraph]}
        for name, paragraph in paragraphs.items()
        if paragraph and paragraph["qas"]
    ]
    if not articles:
        raise InputError(
            f"{input_file}: none of its questions has a document that begins with an answer; give the "
            "file that these documents belong to"
        )
    with writing.replacing(output_file) as file:
        json.dump({"version": "1.1", "data": articles}, file)
    logging.info(
        "%s: %d questions with a document; left out: %d whose document begins without an answer, %d without a document",
        output_file,
        written,
        without_answer,
        missing,
    )
    return written, without_answer, missing


def find_answer(text: str, aliases: Iterable[str]) -> re.Match | None:
    """Finds the first occurrence of an alias as whole words in a text, in any case; the longest alias wins there."""
    plain = " ".join(text.lower().split())
    # Compiling dozens of aliases would take most of the time, and few of them occur in the text.
    words = [alias.split() for alias in aliases]
    patterns = [r"\s+".join(map(re.escape, alias)) for alias in words if " ".join(alias).lower() in plain and alias]
    if not patterns:
        return None
    patterns.sort(key=len, reverse=True)
    return re.search(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", text, re.IGNORECASE)


def _questions(input_file: str) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yields id, question, aliases of the answer and documents of every question."""
    seen = set()
    for number, entry in enumerate(field(reading.read_json(input_file), "Data", list, input_file), 1):
        question_id = field(entry, "QuestionId", str, f"{input_file}: question {number}")
        where = f"{input_file}: question {question_id}"
        if question_id in seen:
            raise InputError(f"{where}: is there twice; give each question a QuestionId of its own")
        seen.add(question_id)
        answer = field(entry, "Answer", dict, where)
        aliases = [field(answer, "Value", str, where), *field(answer, "Aliases", list, where)]
        if answer.get("HumanAnswers") is not None:
            aliases += field(answer, "HumanAnswers", list, where)
        if not all(isinstance(alias, str) for alias in aliases):
            raise InputError(f"{where}: has an answer that is no text; put it into quotes")
        pages = field(entry, "EntityPages", list, where)
        documents = dict.fromkeys(field(page, "Filename", str, where) for page in pages)  # each once
        yield question_id, field(entry, "Question", str, where), aliases, list(documents)


def _document(evidence_dir: str, name: str, input_file: str) -> str:
    """Returns the path of a document, which lies in the folder whatever its name says."""
    if not os.path.basename(name):
        raise InputError(f"{input_file}: the document {name!r} is no file; correct its Filename")
    if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == os.pardir:
        raise InputError(f"{input_file}: the document {name!r} is outside of {evidence_dir}; correct its Filename")
    return os.path.join(evidence_dir, name)


def _beginning(path: str, max_words: int) -> str | None:
    """Reads the first words of a document, with plain spaces for other white space; None if there is no document."""
    if not files.exists(path):
        return None
    with files.open_file(path, "rb") as file:
        text = file.read().decode("utf-8", "ignore")
    end = 0
    for _, word in zip(range(max_words), _WORD.finditer(text), strict=False):
        end = word.end()
    return _OTHER_BLANKS.sub(" ", text[:end])

"""Converts TriviaQA (Joshi et al., 2017) to SQuAD's format: the runner of convert_triviaqa.

In: a file of questions with the names of their documents, and the documents. Out: a paragraph for
each pair of a question and a document whose beginning contains an answer. Devlin et al. (2019) use
the first 400 tokens of the documents of Wikipedia.

The answer of a paragraph is the first occurrence of any alias, in any case. It is written as the
document spells it, because `run_squad` compares case.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from absl import logging

from official_bert.extensions.triviaqa.options import TriviaQaOptions
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.io.reading import field

# A word, or a punctuation mark.
_TOKEN = re.compile(r"\w+|[^\w\s]")
_HAS_WORD = re.compile(r"\w").search
# The lists of documents of a question -> their folder below --evidence_dir.
_SOURCES = {"EntityPages": "wikipedia", "SearchResults": "web"}


class Answer(NamedTuple):
    """An answer as its document spells it, and the offset of its first character."""

    text: str
    start: int


@dataclasses.dataclass
class Counts:
    """What a conversion has read, written and left out.

    Attributes:
        questions: the questions of the file.
        documents: the documents of all questions, each as often as a question names it.
        missing: the documents that the folder lacks.
        without_answer: the documents whose beginning contains no answer.
        paragraphs: the pairs of a question and a document that were written.
        left_out: the questions without such a pair.
    """

    questions: int = 0
    documents: int = 0
    missing: int = 0
    without_answer: int = 0
    paragraphs: int = 0
    left_out: int = 0


def run(options: TriviaQaOptions) -> Counts:
    """Converts a file of questions.

    Args:
        options: the flags of the command.

    Returns:
        The numbers of questions and documents.

    Raises:
        InputError: a file cannot be read or written, or no document contains an answer.
    """
    writing.keep_apart([options.output_file], {"input_file": [options.input_file]})
    content = reading.check_object(reading.read_json(options.input_file), options.input_file)
    questions = field(content, "Data", list, options.input_file)
    if not questions:
        raise InputError(
            f"{options.input_file}: has no questions; give a file such as wikipedia-train.json"
        )
    counts = Counts()
    with writing.replacing(options.output_file) as file:
        file.write('{"version": "1.1", "data": [')
        separator = "\n"
        for article in _convert(questions, options, counts):
            file.write(separator + json.dumps(article, ensure_ascii=False))
            separator = ",\n"
        file.write("\n]}\n")
        if not counts.paragraphs:
            raise InputError(_explain_no_answer(options, counts))
    logging.info(
        "Wrote %s: %d paragraphs of %d questions",
        options.output_file,
        counts.paragraphs,
        counts.questions - counts.left_out,
    )
    logging.info(
        "Left out: %d of %d questions, because none of their documents has an answer; %d of %d "
        "documents, because their first %d tokens have none; %d documents that are not in %s",
        counts.left_out,
        counts.questions,
        counts.without_answer,
        counts.documents,
        options.max_tokens,
        counts.missing,
        options.evidence_dir,
    )
    return counts


def _explain_no_answer(options: TriviaQaOptions, counts: Counts) -> str:
    """Returns the error of a conversion that would write nothing."""
    if counts.missing == counts.documents:
        return (
            f"--evidence_dir={options.evidence_dir}: has none of the {counts.documents} documents "
            f"of {options.input_file}; name the folder evidence of the archive, which has the "
            "folders wikipedia and web"
        )
    return (
        f"{options.input_file}: no document has an answer in its first {options.max_tokens} "
        "tokens; check that the documents belong to these questions"
    )


def _convert(questions: Iterable[dict], options: TriviaQaOptions, counts: Counts) -> Iterator[dict]:
    """Yields an article of SQuAD for each question with an answer."""
    for number, question in enumerate(counted(questions, "questions"), 1):
        where = f"{options.input_file}: question {number}"
        question_id = field(question, "QuestionId", str, where)
        text = field(question, "Question", str, where)
        find_answer = AnswerFinder(_read_aliases(question, where)).find
        counts.questions += 1
        paragraphs = []
        for name, path in _list_documents(question, options.evidence_dir, where):
            counts.documents += 1
            if not files.exists(path):
                counts.missing += 1
                continue
            context = cut_text("\n".join(reading.read_lines(path, "replace")), options.max_tokens)
            answer = find_answer(context)
            if answer is None:
                counts.without_answer += 1
                continue
            answers = [{"text": answer.text, "answer_start": answer.start}]
            qas = [{"id": f"{question_id}--{name}", "question": text, "answers": answers}]
            paragraphs.append({"context": context, "qas": qas})
        counts.paragraphs += len(paragraphs)
        if paragraphs:
            yield {"title": question_id, "paragraphs": paragraphs}
        else:
            counts.left_out += 1


def _read_aliases(question: dict, where: str) -> list[str]:
    """Returns all answers of a question."""
    if "Answer" not in question:
        raise InputError(
            f"{where}: has no Answer, as the questions of a test set; give a file of train or dev"
        )
    answer = field(question, "Answer", dict, where)
    return [*field(answer, "Aliases", list, where), *answer.get("HumanAnswers", ())]


def _list_documents(question: dict, folder: str, where: str) -> Iterator[tuple[str, str]]:
    """Yields the names and the paths of the documents of a question."""
    for source, subfolder in _SOURCES.items():
        for document in question.get(source, ()):
            name = field(document, "Filename", str, where)
            yield name, os.path.join(folder, subfolder, name)


def cut_text(text: str, max_tokens: int) -> str:
    """Returns the beginning of a text.

    Args:
        text: the text.
        max_tokens: the number of words and punctuation marks that are kept.
    """
    end = 0
    for number, token in enumerate(_TOKEN.finditer(text)):
        if number == max_tokens:
            return text[:end]
        end = token.end()
    return text[:end]


class AnswerFinder:
    """Finds the answers of a question in documents."""

    def __init__(self, aliases: Iterable[str]):
        """Prepares the search.

        Args:
            aliases: the answers, in any case and with any white space. An alias without a letter
                or a digit is ignored.
        """
        patterns = []
        for alias in sorted(aliases, key=len, reverse=True):  # The longest is tried first.
            if _HAS_WORD(alias):
                words = [re.escape(word) for word in alias.split()]
                patterns.append(r"\s+".join(words))
        self._search = None
        if patterns:
            pattern = rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"
            self._search = re.compile(pattern, re.IGNORECASE).search

    def find(self, text: str) -> Answer | None:
        """Returns the first answer in a text, the longest one at that place; None without one.

        Args:
            text: the text.
        """
        match = self._search(text) if self._search else None
        return Answer(match.group(), match.start()) if match else None

"""Reads SQuAD files and tables with its columns: questions, and documents as words, by the
original's rules.
"""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

from official_bert.data.column_roles import Role, decide_columns
from official_bert.data.table_formats import is_table, read_records
from official_bert.data.tables import Row
from official_bert.io import reading
from official_bert.io.errors import InputError
from official_bert.io.reading import field, has_type
from official_bert.metrics.squad import Question

# The separators of a document's words; other white space, such as the no-break space, is part of a
# word.
find_words = re.compile("[^ \t\r\n\u202f]+").finditer
_ROLES = [Role(name, (name,)) for name in ("id", "question", "context", "answers", "is_impossible")]
_MAX_AMBIGUOUS_SHARE = (
    0.01  # of the questions; text with blanks has a few such answers, as in "3-3"
)


@dataclass(slots=True)
class SquadExample:
    """A question and the document that answers it.

    Attributes:
        doc_tokens: the words of the document; the questions of a paragraph share one list.
        orig_answer_text: the answer as in the file, "" if there is none; None in prediction.
        start_position, end_position: indices of the answer's first and last word, -1 if there is
            none.
    """

    qas_id: str
    question_text: str
    doc_tokens: list[str]
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False


def read_squad_examples(
    input_file: str,
    is_training: bool,
    version_2_with_negative: bool = False,
    flag: str | None = None,
) -> list[SquadExample]:
    """Reads the questions of a SQuAD file of version 1.1 or 2.0.

    In training, a question whose answer does not occur in its document is skipped with a warning.
    In prediction, the answers are ignored. A repeated id causes a warning: all its questions are
    kept, but a file of answers can hold only the last answer.

    Args:
        input_file: the JSON file. JSON lines and Parquet may be several files, as of a flag: paths
            with commas between them, or a glob.
        is_training: whether the answers are read.
        version_2_with_negative: whether the file is of version 2.0, whose `is_impossible` is read
            in training.
        flag: the flag as whose value errors name `input_file`, if it names no file; None for
            train_file in training, and predict_file in prediction.

    Raises:
        InputError: a field is missing or has another type, or a question to train on has not one
            answer.
    """
    examples, num_questions = [], 0
    flag = flag or ("train_file" if is_training else "predict_file")
    for where, paragraph in _paragraphs(input_file, flag):
        context = field(paragraph, "context", str, where)
        matches = list(find_words(context))
        doc_tokens, word_starts = [m.group() for m in matches], [m.start() for m in matches]
        for number, question in enumerate(field(paragraph, "qas", list, where), 1):
            num_questions += 1
            qas_id = _id(question, f"{where}, question {number}")
            at_question = f"{input_file}: question {qas_id}"
            example = SquadExample(
                qas_id, field(question, "question", str, at_question), doc_tokens
            )
            if is_training:
                if version_2_with_negative:
                    example.is_impossible = field(question, "is_impossible", bool, at_question)
                if not example.is_impossible:
                    _check_one_answer(question, version_2_with_negative, at_question)
                if not _add_answer(example, question, context, word_starts, at_question):
                    continue
            examples.append(example)
    if len(examples) < num_questions:
        logging.warning(
            "%s: skipped %d of %d questions, whose answers do not stand in their documents",
            input_file,
            num_questions - len(examples),
            num_questions,
        )
    _warn_of_repeated_ids(input_file, examples)
    _warn_of_ambiguous_answers(input_file, examples)
    return examples


def read_gold_answers(input_file: str) -> list[Question] | None:
    """Reads the true answers of a SQuAD file for the metrics.

    Args:
        input_file: the file or files, as in `read_squad_examples`.

    Returns:
        The questions with their answers; None if a question lacks the field of the answers.

    Raises:
        InputError: a field other than the answers is missing, or a field has another type.
    """
    gold, num_without = [], 0
    for where, paragraph in _paragraphs(input_file, "predict_file"):
        for number, question in enumerate(field(paragraph, "qas", list, where), 1):
            qas_id = _id(question, f"{where}, question {number}")
            if "answers" not in question:
                num_without += 1
                continue
            at_question = f"{input_file}: question {qas_id}"
            answers = field(question, "answers", list, at_question)
            gold.append(
                Question(qas_id, [field(answer, "text", str, at_question) for answer in answers])
            )
    if gold and num_without:
        logging.warning(
            '%s: %d of %d questions have no field "answers", so nothing is scored; add it, or '
            "leave it out of all",
            input_file,
            num_without,
            num_without + len(gold),
        )
    return None if num_without else gold


def read_squad_json(input_file: str) -> list[dict]:
    """Reads the articles of a SQuAD file, whose paragraphs are not validated.

    Args:
        input_file: the JSON file.

    Raises:
        InputError: the file is not JSON, or has no list of articles.
    """
    return field(reading.read_json(input_file), "data", list, input_file)


def _paragraphs(input_file: str, flag: str) -> Iterator[tuple[str, dict]]:
    """Yields the location of each paragraph, for error messages, and the paragraph."""
    if is_table(input_file):
        yield from _table_paragraphs(input_file, flag)
        return
    for number, article in enumerate(read_squad_json(input_file), 1):
        at_article = f"{input_file}: article {number}"
        for index, paragraph in enumerate(field(article, "paragraphs", list, at_article), 1):
            yield f"{at_article}, paragraph {index}", paragraph


def _table_paragraphs(paths: str, flag: str) -> Iterator[tuple[str, dict]]:
    """Yields neighbouring rows with the same `context` as a paragraph, from the columns of
    Hugging Face's data set.
    """
    records = _records(paths, flag)
    for context, group in itertools.groupby(records, key=lambda pair: pair[1].get("context")):
        rows = list(group)
        yield (
            rows[0][0].where,
            {"context": context, "qas": [_question(row, record) for row, record in rows]},
        )


def _records(paths: str, flag: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields the rows of tables and their fields by the names of Hugging Face's columns, which
    may be in any case.
    """
    path, columns = "", {}
    for row, record in read_records(paths, flag):
        if path != row.path:
            path = row.path
            decided = decide_columns(path, list(record), _ROLES)
            columns = {role.name: decided.column_name(role.name) for role in _ROLES}
        yield row, {name: record[column] for name, column in columns.items() if column is not None}


def _question(row: Row, record: dict[str, Any]) -> dict[str, Any]:
    question = {
        name: record[name]
        for name in ("id", "question", "is_impossible")
        if record.get(name) is not None
    }
    if record.get("answers") is None:
        return question
    texts, starts = (
        field(record["answers"], name, list, row.where) for name in ("text", "answer_start")
    )
    if len(texts) != len(starts):
        raise row.error(
            f'its "answers" have {len(texts)} "text" and {len(starts)} "answer_start"; give as many'
        )
    answers = [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]
    return {"is_impossible": not answers, "answers": answers} | question


def _id(question: Any, where: str) -> str:
    """Returns the id of a question; a number is converted to the string that the files of
    answers contain.
    """
    if isinstance(question, dict) and has_type(question.get("id"), int):
        return str(question["id"])
    return field(question, "id", str, where)


def _check_one_answer(question: dict, version_2_with_negative: bool, where: str):
    answers = field(question, "answers", list, where)
    if len(answers) == 1:
        return
    if answers:
        remedy = "keep one"
    elif version_2_with_negative:
        remedy = 'give it one, or "is_impossible": true'
    else:
        remedy = "pass --version_2_with_negative if some questions have none"
    raise InputError(
        f"{where}: has {len(answers)} answers, but a question to train on has one; {remedy}"
    )


def _add_answer(
    example: SquadExample, question: dict, context: str, word_starts: Sequence[int], where: str
) -> bool:
    """Sets text and positions of a training answer; returns False, after a warning, if the
    context lacks the answer.
    """
    if example.is_impossible:
        example.orig_answer_text, example.start_position, example.end_position = "", -1, -1
        return True
    (answer,) = question["answers"]
    text = field(answer, "text", str, where)
    start = field(answer, "answer_start", int, where)
    end = start + len(text) - 1
    stored_answer = ""
    if start >= 0 and end < len(context):
        # The last word that starts at or before the character; -1 before the first word.
        first, last = (bisect.bisect_right(word_starts, at) - 1 for at in (start, end))
        stored_answer = " ".join(example.doc_tokens[first : last + 1])
        example.orig_answer_text, example.start_position, example.end_position = text, first, last
    cleaned = " ".join(text.split())
    if cleaned and cleaned in stored_answer:
        return True
    logging.warning("The document has '%s' where the answer '%s' should be", stored_answer, cleaned)
    return False


def _warn_of_ambiguous_answers(input_file: str, examples: Sequence[SquadExample]):
    """Warns of a text without blanks, of which the original takes the first place of an answer,
    not `answer_start`.
    """
    num_ambiguous = sum(map(_is_ambiguous, examples))
    if num_ambiguous > _MAX_AMBIGUOUS_SHARE * len(examples):
        logging.warning(
            "%s: of %d questions, the answer stands several times in the same word, and the "
            "training takes the first place, whatever answer_start says, as the original does; "
            "separate the words of the text by blanks",
            input_file,
            num_ambiguous,
        )


def _is_ambiguous(example: SquadExample) -> bool:
    first = example.start_position
    if not example.orig_answer_text or first is None or first != example.end_position:
        return False
    return example.doc_tokens[first].count(example.orig_answer_text.strip()) > 1


def _warn_of_repeated_ids(input_file: str, examples: Sequence[SquadExample]):
    seen, repeated = set(), []
    for example in examples:
        if example.qas_id in seen:
            repeated.append(example.qas_id)
        seen.add(example.qas_id)
    if repeated:
        logging.warning(
            "%s: %d questions repeat an id, the first %s; of the answers to one id only the last "
            "is written",
            input_file,
            len(repeated),
            repeated[0],
        )

"""Folders of the benchmarks BEIR and NanoBEIR: a corpus, queries, and which documents answer them.

    corpus.jsonl or corpus/*.parquet      _id, title (may be absent), text
    queries.jsonl or queries/*.parquet    _id, text
    qrels/test.tsv or qrels/*.parquet     query-id, corpus-id, score (may be absent)

Thakur et al. (2021), BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information
Retrieval Models.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from official_bert.data import table_formats
from official_bert.data.tables import Row, parse_number
from official_bert.io import files
from official_bert.io.errors import InputError

_CORPUS, _QUERIES, _ANSWERS = "corpus", "queries", "qrels"
_IDS = ("_id", "id")
_SET = "test"  # of the sets in a folder of answers


class Document(NamedTuple):
    """A query or a document: where it stands, and its text."""

    where: str
    text: str


class RankedQuery(NamedTuple):
    """A query and the documents that answer it."""

    where: str
    text: str
    answers: tuple[str, ...]


def is_beir_folder(path: str) -> bool:
    """Returns whether a folder has a corpus and queries.

    Args:
        path: the folder.
    """
    if not files.is_folder(path):
        return False
    has_corpus = bool(_list_tables(path, _CORPUS))
    has_queries = bool(_list_tables(path, _QUERIES))
    return has_corpus and has_queries


def read_beir_folder(path: str, flag: str) -> tuple[list[RankedQuery], list[str]]:
    """Reads the queries with their answers, and all documents.

    Args:
        path: the folder.
        flag: the flag that names it, for messages.

    Returns:
        The queries that have an answer, and the distinct texts of the corpus. A score of at most 0
        marks a document that is no answer.

    Raises:
        InputError: a file is missing or has other columns, or names an id that is not there.
    """
    documents = _read_texts(path, _CORPUS, flag)
    queries = _read_texts(path, _QUERIES, flag)
    answers = _read_answers(path, flag, queries, documents)
    ranked = []
    for query_id, query in queries.items():
        texts = answers.get(query_id)
        if texts:
            ranked.append(RankedQuery(query.where, query.text, tuple(texts)))
    if not ranked:
        raise InputError(f"{path}: no query has an answer with a score above 0 in {_ANSWERS}")
    return ranked, list(dict.fromkeys(document.text for document in documents.values()))


def _read_answers(
    path: str,
    flag: str,
    queries: Mapping[str, Document],
    documents: Mapping[str, Document],
) -> dict[str, list[str]]:
    """Returns the texts that answer each query, by its id."""
    answers: dict[str, list[str]] = collections.defaultdict(list)
    for row, record in _read_records(path, _ANSWERS, flag):
        query_id = _read_id(row, record, "query-id", queries)
        document_id = _read_id(row, record, "corpus-id", documents)
        score = str(record.get("score", 1))
        if parse_number(score) > 0:
            answers[query_id].append(documents[document_id].text)
    return answers


def _list_tables(folder: str, part: str) -> list[str]:
    """Returns the tables of a part: corpus.jsonl, or the files of the folder corpus."""
    tables = []
    for name in sorted(files.list_folder(folder)):
        path = os.path.join(folder, name)
        is_part = name.partition(".")[0] == part
        if name == part and files.is_folder(path):
            tables += _list_tables_in(path)
        elif is_part and table_formats.has_table_ending(name):
            tables.append(path)
    if part == _ANSWERS:
        for table in tables:
            if os.path.basename(table).startswith(f"{_SET}."):
                return [table]
    return tables


def _list_tables_in(folder: str) -> list[str]:
    tables = []
    for name in sorted(files.list_folder(folder)):
        if table_formats.has_table_ending(name):
            tables.append(os.path.join(folder, name))
    return tables


def _read_records(folder: str, part: str, flag: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields the rows of a part, and their fields by the name of the column."""
    tables = _list_tables(folder, part)
    if not tables:
        raise InputError(
            f"{folder}: has no {part}; put {part}.jsonl, .tsv or .parquet there, or a folder "
            f"{part} with such files"
        )
    for table in tables:
        yield from table_formats.read_records(table, flag)


def _read_texts(folder: str, part: str, flag: str) -> dict[str, Document]:
    """Returns the texts of a part by their ids; a title stands before its text."""
    texts = {}
    for row, record in _read_records(folder, part, flag):
        names = [name for name in _IDS if name in record]
        if not names or "text" not in record:
            raise row.error("has no column _id or no column text; name the two so")
        text_id = str(record[names[0]])
        title = record.get("title") or ""
        text = f"{title} {record['text']}".strip()
        text = table_formats.parse_text(row, text, "text")
        texts[text_id] = Document(row.where, text)
    return texts


def _read_id(row: Row, record: Mapping[str, Any], name: str, texts: Mapping[str, Document]) -> str:
    """Returns an id that is one of some texts."""
    if name not in record:
        raise row.error(f"has no column {name}; name the columns query-id, corpus-id and score")
    text_id = str(record[name])
    if text_id not in texts:
        raise row.error(f"{name} is {text_id!r}, which no text has; correct it, or remove the row")
    return text_id

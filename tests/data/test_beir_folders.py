"""Tests of folders of BEIR and NanoBEIR."""

import json
import pathlib

import pytest

from official_bert.data.text_tables import Example, read_examples
from official_bert.io.errors import InputError

CORPUS = [
    {"_id": "d1", "title": "Cats", "text": "They sit on mats."},
    {"_id": "d2", "title": "", "text": "A train left."},
    {"_id": "d3", "text": "Rain fell."},
    {"_id": "d4", "text": "It was noon."},
]
QUERIES = [
    {"_id": "q1", "text": "where do cats sit"},
    {"_id": "q2", "text": "nothing answers this"},
    {"_id": "q3", "text": "what left at noon"},
]
ANSWERS = "query-id\tcorpus-id\tscore\nq3\td2\t1\nq1\td1\t2\nq3\td4\t1\nq2\td3\t0\n"


def write_lines(path: pathlib.Path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(ANSWERS)
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t1\n")
    return tmp_path


def expected(folder, first="queries.jsonl") -> list[Example]:
    """The queries with answers; the first ranks the other documents, too."""
    path = folder / first
    return [
        Example(
            f"{path}: line 1", "where do cats sit", ("Cats They sit on mats.",), ("Rain fell.",)
        ),
        Example(f"{path}: line 3", "what left at noon", ("A train left.", "It was noon.")),
    ]


def test_queries_have_their_answers_and_the_first_all_other_documents(folder):
    assert read_examples(str(folder), "dev_file", {}) == expected(folder)


@pytest.mark.needs_extra("pyarrow")
def test_the_parquet_files_of_nanobeir_give_the_same(folder):
    import pyarrow
    import pyarrow.parquet

    wanted = [example[1:] for example in expected(folder)]
    answers = [line.split("\t") for line in ANSWERS.splitlines()[1:]]
    tables = {
        "corpus": [
            {"_id": one["_id"], "text": f"{one.get('title', '')} {one['text']}".strip()}
            for one in CORPUS
        ],
        "queries": QUERIES,
        "qrels": [{"query-id": q, "corpus-id": d} for q, d, score in answers if score != "0"],
    }
    for path in folder.glob("*.jsonl"):
        path.unlink()
    for name in ("test.tsv", "train.tsv"):
        (folder / "qrels" / name).unlink()
    for name, rows in tables.items():
        (folder / name).mkdir(exist_ok=True)
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), folder / name / "train-00000-of-00001.parquet"
        )
    assert [example[1:] for example in read_examples(str(folder), "dev_file", {})] == wanted


@pytest.mark.parametrize(
    ("part", "content", "sentence"),
    [
        ("qrels/test.tsv", None, "has no qrels; put qrels.jsonl, .tsv or .parquet there"),
        ("qrels/test.tsv", "query-id\tdocument\nq1\td1\n", "has no column corpus-id; name the"),
        ("qrels/test.tsv", "query-id\tcorpus-id\nq1\td9\n", "corpus-id is 'd9', which no text has"),
        ("qrels/test.tsv", "query-id\tcorpus-id\nq9\td1\n", "query-id is 'q9', which no text has"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n", "no query has an answer"),
        ("corpus.jsonl", '{"_id": "d1", "body": "a"}\n', "no column text; name the two so"),
        ("queries.jsonl", '{"number": "q1", "text": "a"}\n', "has no column _id or no column"),
        ("queries.jsonl", '{"_id": "q1", "text": "\\ud800"}\n', "half"),
    ],
)
def test_what_is_missing_is_named(folder, part, content, sentence):
    (folder / "qrels" / "train.tsv").unlink()
    if content is None:
        (folder / part).unlink()
    else:
        (folder / part).write_text(content)
    with pytest.raises(InputError, match=sentence):
        read_examples(str(folder), "dev_file", {})


def test_another_folder_is_none(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": "a"}\n')
    with pytest.raises(InputError):
        read_examples(str(tmp_path), "dev_file", {})

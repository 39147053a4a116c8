"""The real data that experiments run on: which part of the source becomes which file, and what a missing part says."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.shared import ROOT

CODAH_ROWS, DEV_ROWS = 560, 555  # the last rows are the development set
PARTS = [
    "corpus",
    "glue/CoLA",
    "glue/STS-B",
    "glue/SST-2/train.tsv",
    "wnut17",
    "codah/full_data.tsv",
    "squad/v2.0-half.json",
]


def lay_out(source: pathlib.Path, data_dir: pathlib.Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "benchmarks" / "experiment_data.py")]
    command += [f"--source={source}", f"--data_dir={data_dir}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def articles(*counts: int) -> list[dict]:
    """Articles with a paragraph each, of so many questions with two answers."""
    return [
        {
            "title": f"article {number}",
            "paragraphs": [
                {
                    "context": "the cat sat",
                    "qas": [
                        {
                            "id": f"{number}-{index}",
                            "question": "who sat",
                            "answers": [
                                {"text": "cat", "answer_start": 4},
                                {"text": "the cat", "answer_start": 0},
                            ],
                        }
                        for index in range(count)
                    ],
                }
            ],
        }
        for number, count in enumerate(counts)
    ]


@pytest.fixture
def source(tmp_path) -> pathlib.Path:
    """The layout of the team's folder: 100 documents in two files, and some rows of each task."""
    folder = tmp_path / "source"

    def put(name: str, text: str):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    for name, numbers in (("a", range(60)), ("b", range(60, 100))):
        put(f"corpus/{name}.txt", "\n".join(f"Text {number} .\nIt goes on é .\n" for number in numbers))
    for task in ("CoLA", "SST-2", "STS-B"):
        for name in ("train", "dev"):
            put(f"glue/{task}/{name}.tsv", f"the rows of {task} {name}\n")
    for name in ("train", "dev", "test"):
        put(f"wnut17/{name}.conll", f"{name}\tO\n")
    put("codah/full_data.tsv", "".join(f"o\trow {number}\n" for number in range(CODAH_ROWS)))
    put("squad/train-v1.1-subset.json", json.dumps({"version": "1.1", "data": articles(1)}))
    put("squad/dev-v1.1.json", json.dumps({"version": "1.1", "data": articles(1500, 700, 3)}))
    put("squad/v2.0-half.json", json.dumps({"version": "v2.0", "data": articles(1, 2, 1, 1, 1, 1, 1)}))
    return folder


def test_each_file_has_its_part_of_the_source(source, tmp_path):
    data = tmp_path / "new" / "data"
    ran = lay_out(source, data)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["corpus/train.txt: 98 documents", "corpus/held_out.txt: 2 documents"]
    assert [path.name for path in data.parent.iterdir()] == ["data"]
    files = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert files == {
        *("corpus/train.txt", "corpus/held_out.txt"),
        *(f"{task}/{name}.tsv" for task in ("CoLA", "SST-2", "STS-B", "CODAH") for name in ("train", "dev")),
        *(f"WNUT-17/{name}.conll" for name in ("train", "dev", "test")),
        *(f"SQuAD/{name}.json" for name in ("train-v1.1", "dev-v1.1", "train-v2.0", "dev-v2.0")),
    }

    for name, numbers in (("train", range(98)), ("held_out", range(98, 100))):
        expected = "\n".join(f"Text {number} .\nIt goes on é .\n" for number in numbers)
        assert (data / f"corpus/{name}.txt").read_text(encoding="utf-8") == expected
    for task in ("CoLA", "SST-2", "STS-B"):
        for name in ("train", "dev"):
            assert (data / task / f"{name}.tsv").read_text() == f"the rows of {task} {name}\n"
    for name in ("train", "dev", "test"):
        assert (data / f"WNUT-17/{name}.conll").read_text() == f"{name}\tO\n"
    first_dev = CODAH_ROWS - DEV_ROWS
    for name, numbers in (("train", range(first_dev)), ("dev", range(first_dev, CODAH_ROWS))):
        assert (data / f"CODAH/{name}.tsv").read_text() == "".join(f"o\trow {number}\n" for number in numbers)


def test_squad_is_cut_to_questions_and_articles(source, tmp_path):
    lay_out(source, tmp_path / "data")
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "data/SQuAD").iterdir()}
    half = articles(1, 2, 1, 1, 1, 1, 1)
    one_answer = articles(1, 2)
    for article in one_answer:
        for question in article["paragraphs"][0]["qas"]:
            del question["answers"][1:]
    assert (
        found
        == {
            "train-v1.1": {"version": "1.1", "data": articles(1)},
            "dev-v1.1": {"version": "1.1", "data": articles(1500, 500)},  # 2,000 questions
            "train-v2.0": {"version": "v2.0", "data": one_answer},
            "dev-v2.0": {"version": "v2.0", "data": half[2:]},
        }
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_is_named_and_nothing_is_left(source, tmp_path, part):
    path = source / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    ran = lay_out(source, tmp_path / "data")
    assert_sentence(ran, f"{path}: no such file or folder; --source must name a folder with")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_the_outermost_missing_folder_is_named(source, tmp_path):
    absent = tmp_path / "absent"
    assert_sentence(lay_out(absent, tmp_path / "data"), f"{absent}: no such file or folder")
    shutil.rmtree(source / "glue")
    assert_sentence(lay_out(source, tmp_path / "data"), f"{source}/glue: no such file or folder")
    for path in (source / "corpus").iterdir():
        path.unlink()
    assert_sentence(lay_out(source, tmp_path / "data"), f"{source}/corpus/*.txt: no such file or folder")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_an_existing_folder_is_not_touched(source, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").write_text("kept")
    ran = lay_out(source, tmp_path / "data")
    assert_sentence(ran, f"--data_dir={tmp_path}/data: exists already; name another folder")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["kept"]


def test_a_failure_in_the_middle_leaves_nothing(source, tmp_path):
    (source / "squad/v2.0-half.json").write_text("{")
    assert lay_out(source, tmp_path / "data").returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def assert_sentence(ran: subprocess.CompletedProcess, beginning: str):
    """The process has ended with status 1 and this one sentence."""
    assert ran.returncode == 1
    assert ran.stderr.startswith(beginning)
    assert ran.stderr.count("\n") == 1
    assert not ran.stdout

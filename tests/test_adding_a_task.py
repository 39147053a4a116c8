"""docs/adding_a_task.md: its file is written and its commands run as they stand, on a toy model and
toy data.

The second part of the page is a task of a new kind in one file outside the package, which goes
through training, evaluation, prediction, a search, both exports and official-bert predict, on one
and on two replicas.
"""

import csv
import importlib
import json
import os
import pathlib
import re
import shlex
import string
import subprocess

import numpy as np
import pytest

from official_bert.metrics.classification import spearman
from official_bert.tasks import registry
from official_bert.tasks.classification import task_table
from official_bert.training import run_log
from tests import toy
from tests.fine_tuning_runs import figures
from tests.scripts import MAIN, forked_python, run_here
from tests.serving.answers import answers, answers_to_records
from tests.shared import ROOT

DOCUMENT = (ROOT / "docs" / "adding_a_task.md").read_text(encoding="utf-8")
TICKETS, TABLE_LINE = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
RUN_TICKETS, ASK_TICKETS, RUN, RUN_ON_TWO, SEARCH, EXPORT_TEXT, ASK = re.findall(
    r"```shell\n(.*?)```", DOCUMENT, re.DOTALL
)

# What the toy needs to learn something.
FOR_THE_TOY = (
    " --learning_rate=3e-3 --num_train_epochs=24 --train_batch_size=32 --random_seed=1 "
    "--max_seq_length=24"
)
FILLERS = ["the", "sat", "on", "mat", "was", "in", "at", "park"]
WORD_OF_URGENCY = {"low": "sunny", "high": "rain"}
SCORE_OF_WORD = {"sunny": 0.0, "cat": 0.5, "rain": 1.0}
COUNTS = {"train": 192, "dev": 48, "test": 30}


def sentence(draws, word: str) -> str:
    words = list(draws.choice(FILLERS, draws.integers(2, 5)))
    words.insert(draws.integers(len(words) + 1), word)
    return " ".join(words)


def drawn_tickets(name: str) -> list[tuple[str, str]]:
    """Labels and texts of train, dev or test."""
    draws = np.random.default_rng(list(COUNTS).index(name))
    labels = draws.choice(list(WORD_OF_URGENCY), COUNTS[name])
    return [(label, sentence(draws, WORD_OF_URGENCY[label])) for label in labels]


def drawn_texts(name: str) -> tuple[list[str], list[list[float]]]:
    """Texts of one to three sentences, and the scores of their sentences, each of which one word
    tells.
    """
    draws = np.random.default_rng(10 + list(COUNTS).index(name))
    words = [draws.choice(list(SCORE_OF_WORD), draws.integers(1, 4)) for _ in range(COUNTS[name])]
    texts = [" | ".join(sentence(draws, word) for word in of_text) for of_text in words]
    return texts, [[SCORE_OF_WORD[word] for word in of_text] for of_text in words]


def write_data(folder: pathlib.Path):
    """What the commands read; the test files have no labels."""
    (folder / "tickets").mkdir()
    (folder / "texts").mkdir()
    for name in COUNTS:
        has_labels = name != "test"
        tickets = [
            {"text": text} | ({"urgency": label} if has_labels else {})
            for label, text in drawn_tickets(name)
        ]
        texts, scores = drawn_texts(name)
        ends = ["\t" + " ".join(map(str, of_text)) if has_labels else "" for of_text in scores]
        (folder / "tickets" / f"{name}.jsonl").write_text(
            "".join(f"{json.dumps(row)}\n" for row in tickets)
        )
        rows = "".join(f"{text}{end}\n" for text, end in zip(texts, ends, strict=True))
        (folder / "texts" / f"{name}.tsv").write_text(rows)


class Reader:
    """Someone who does what the document says, in a folder outside the repository."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        model = toy.make_bert_base_dir(folder / "model", num_hidden_layers=2)
        (folder / "tickets.py").write_text(TICKETS)
        write_data(folder)
        python = pathlib.Path(forked_python()).parent
        programs = folder / "programs"
        programs.mkdir()
        (programs / "official-bert").write_text(
            f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec {forked_python()} -c "{MAIN}" "$@"\n'
        )
        (programs / "official-bert").chmod(0o755)
        self._places = {
            "REPOSITORY": str(ROOT),
            "MODEL": str(model),
            "PATH": f"{programs}:{python}:{os.environ['PATH']}",
        }

    def run(self, commands: str):
        """Runs commands in a shell."""
        finished = subprocess.run(
            ["sh", "-euc", commands],
            cwd=self.folder,
            env=os.environ | self._places,
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, finished.stderr

    def run_here(self, command: str):
        """Runs a command in this process, which saves the start of another one."""
        words = string.Template(command).substitute(self._places).replace("\\\n", "")
        path, program, name, *flags = shlex.split(words)
        assert path == "PYTHONPATH=."
        if program == "python":
            assert pathlib.Path(name).parent == ROOT
        else:
            assert program == "official-bert"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.syspath_prepend(self.folder)
            run_here(pathlib.Path(name).name, *flags)


def for_the_toy(commands: str) -> str:
    return commands.replace("run_classifier.py", f"run_classifier.py{FOR_THE_TOY}")


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Reader:
    """Has done what the document says, but for the commands of tests marked long.

    Commands of scripts that an earlier command has run as a process run in this process.
    """
    reader = Reader(tmp_path_factory.mktemp("reader"))
    tickets = for_the_toy(RUN_TICKETS).replace("--learning_rate=3e-3", "--learning_rate=1e-3")
    copy, *highlights = for_the_toy(RUN).replace("\\\n", "").splitlines()
    # official-bert predict finds no tickets.py: it runs elsewhere.
    ask_tickets = ASK_TICKETS.replace("tickets_export", f"{reader.folder}/tickets_export").rstrip()
    ask_tickets = f"(cd / && {ask_tickets}) > answer_to_a_ticket.json"
    reader.run(f"{tickets}\n{ask_tickets}\n{copy}")
    for command in (*highlights, EXPORT_TEXT):
        reader.run_here(command)
    write_questions, *ask_both = ASK.replace("\\\n", "").splitlines()
    reader.run(write_questions)
    for command in ask_both:
        reader.run_here(command)
    return reader


@pytest.fixture
def folder(reader) -> pathlib.Path:
    return reader.folder


def read_scores(path: pathlib.Path) -> list[list[float]]:
    return [[float(score) for score in line.split(" ")] for line in path.read_text().splitlines()]


def test_texts_in_a_layout_of_ones_own(folder):
    output, version = folder / "tickets_output", folder / "tickets_export" / "1"
    results = figures(output)
    assert set(results) == {"eval_accuracy", "eval_f1", "eval_loss", "loss", "global_step"}
    assert results["eval_f1"] > 0.95
    predicted = np.loadtxt(output / "test_results.tsv")
    labels = np.array(["low", "high"])[predicted.argmax(1)]
    assert (labels == [label for label, _ in drawn_tickets("test")]).mean() > 0.95

    found = answers_to_records(version, output / "predict.tf_record")
    np.testing.assert_allclose(found["probabilities"], predicted, atol=1e-5)
    assert [label.decode() for label in found["label"]] == labels.tolist()
    record = json.loads((version / "assets.extra" / "export.json").read_text())
    assert (record["task_name"], record["family"]) == ("tickets:TicketProcessor", "classification")
    assert json.loads((folder / "answer_to_a_ticket.json").read_text())["label"] == "high"


def test_a_task_of_a_new_kind_is_trained_evaluated_and_predicts(folder):
    results = figures(folder / "highlights_output")
    assert set(results) == {"eval_spearman", "eval_loss", "loss", "global_step"}
    assert results["global_step"] == 24 * 192 / 32
    assert results["eval_spearman"] > 0.7  # 0.94 at most, for many true scores are equal
    predicted = read_scores(folder / "highlights_output" / "highlights.txt")
    _, truth = drawn_texts("test")
    assert [len(scores) for scores in predicted] == [len(scores) for scores in truth]
    flat_truth, flat = np.concatenate(truth), np.concatenate(predicted)
    assert np.abs(flat - flat_truth).mean() < 0.25
    assert spearman(flat_truth, flat)["spearman"] > 0.7


@pytest.mark.long
def test_a_task_of_a_new_kind_runs_on_two_replicas(reader, folder):
    """192 texts a pass, of which the dev set's last batch of 8 is full and the test set's, of 6,
    is not.
    """
    reader.run(for_the_toy(RUN_ON_TWO).replace("--num_train_epochs=24", "--num_train_epochs=2"))
    assert figures(folder / "highlights_on_two")["global_step"] == 2 * 192 / 32
    predicted = read_scores(folder / "highlights_on_two" / "highlights.txt")
    assert [len(scores) for scores in predicted] == [
        len(scores) for scores in drawn_texts("test")[1]
    ]
    assert run_log.read(str(folder / "highlights_on_two"), run_log.START)[0]["num_replicas"] == 2


@pytest.mark.long
def test_a_task_of_a_new_kind_is_searched(reader, folder):
    reader.run_here(for_the_toy(SEARCH))
    rows = list(
        csv.DictReader((folder / "highlights_search" / "search_results.tsv").open(), delimiter="\t")
    )
    scores = {float(row["learning_rate"]): float(row["eval_spearman"]) for row in rows}
    assert scores[3e-3] > 0.6 > abs(scores[1e-6])
    (best,) = (row["run"] for row in rows if row["best"])
    assert (folder / "highlights_search" / best / "highlights.txt").exists()


def test_a_task_of_a_new_kind_is_served_and_answers(folder):
    predicted = read_scores(folder / "highlights_output" / "highlights.txt")
    texts = [text.encode() for text in drawn_texts("test")[0]]
    found = answers(
        folder / "highlights_text" / "1", "serving_text", {"text": np.array(texts, object)}
    )
    for scores, of_text, count in zip(
        predicted, found["scores"], found["num_sentences"], strict=True
    ):
        np.testing.assert_allclose(of_text[:count], scores, atol=1e-5)

    by_tensors, by_text = (
        [json.loads(line)["scores"] for line in (folder / name).read_text().splitlines()]
        for name in ("answers.jsonl", "answers_of_text.jsonl")
    )
    assert [len(scores) for scores in by_tensors] == [2, 1]
    for one, other in zip(by_tensors, by_text, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    (cat, rain), (alone,) = by_tensors
    assert cat < min(rain, alone)


def test_a_line_in_the_table_gives_a_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    processor = importlib.import_module("tickets").TicketProcessor
    names = {"TASKS": dict(task_table.TASKS), "TicketProcessor": processor}
    exec(TABLE_LINE, names)
    monkeypatch.setattr(task_table, "TASKS", names["TASKS"])
    assert registry.make_task("Tickets", {"task_name": "Tickets"}).labels == ["low", "high"]

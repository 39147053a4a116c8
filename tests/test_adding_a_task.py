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
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
TICKETS, TABLE_LINE = PYTHON_BLOCKS
SHELL_BLOCKS = re.findall(r"```shell\n(.*?)```", DOCUMENT, re.DOTALL)
(
    RUN_TICKETS,
    ASK_TICKETS,
    RUN,
    RUN_ON_TWO,
    SEARCH,
    EXPORT_TEXT,
    ASK,
) = SHELL_BLOCKS

# What the toy needs to learn something.
FOR_THE_TOY = (
    " --learning_rate=3e-3 --num_train_epochs=24 --train_batch_size=32 --random_seed=1 "
    "--max_seq_length=24"
)
FILLERS = ["the", "sat", "on", "mat", "was", "in", "at", "park"]
WORDS_BY_URGENCY = {"low": "sunny", "high": "rain"}
SCORES_BY_WORD = {"sunny": 0.0, "cat": 0.5, "rain": 1.0}
COUNTS = {"train": 192, "dev": 48, "test": 30}
PARTS = list(COUNTS)


def draw_sentence(random: np.random.Generator, word: str) -> str:
    """A sentence of fillers that has this word somewhere."""
    num_fillers = random.integers(2, 5)
    words = list(random.choice(FILLERS, num_fillers))
    place = random.integers(len(words) + 1)
    words.insert(place, word)
    return " ".join(words)


def draw_tickets(part: str) -> list[tuple[str, str]]:
    """Labels and texts of train, dev or test."""
    random = np.random.default_rng(PARTS.index(part))
    urgencies = list(WORDS_BY_URGENCY)
    tickets = []
    for urgency in random.choice(urgencies, COUNTS[part]):
        word = WORDS_BY_URGENCY[urgency]
        text = draw_sentence(random, word)
        tickets.append((urgency, text))
    return tickets


def draw_texts(part: str) -> tuple[list[str], list[list[float]]]:
    """Texts of one to three sentences, and the scores of their sentences, each of which one word
    tells.
    """
    random = np.random.default_rng(10 + PARTS.index(part))
    vocabulary = list(SCORES_BY_WORD)
    words_by_text = []
    for _ in range(COUNTS[part]):
        num_sentences = random.integers(1, 4)
        words = random.choice(vocabulary, num_sentences)
        words_by_text.append(words)
    texts = []
    scores = []
    for words in words_by_text:
        sentences = [draw_sentence(random, word) for word in words]
        texts.append(" | ".join(sentences))
        scores.append([SCORES_BY_WORD[word] for word in words])
    return texts, scores


def write_tickets(path: pathlib.Path, part: str, has_labels: bool):
    lines = []
    for label, text in draw_tickets(part):
        row = {"text": text}
        if has_labels:
            row["urgency"] = label
        lines.append(f"{json.dumps(row)}\n")
    path.write_text("".join(lines))


def write_texts(path: pathlib.Path, part: str, has_labels: bool):
    texts, scores = draw_texts(part)
    lines = []
    for text, text_scores in zip(texts, scores, strict=True):
        if has_labels:
            label = " ".join(map(str, text_scores))
            lines.append(f"{text}\t{label}\n")
        else:
            lines.append(f"{text}\n")
    path.write_text("".join(lines))


def write_data(folder: pathlib.Path):
    """What the commands read; the test files have no labels."""
    tickets = folder / "tickets"
    texts = folder / "texts"
    tickets.mkdir()
    texts.mkdir()
    for part in PARTS:
        has_labels = part != "test"
        write_tickets(tickets / f"{part}.jsonl", part, has_labels)
        write_texts(texts / f"{part}.tsv", part, has_labels)


class Reader:
    """Someone who does what the document says, in a folder outside the repository."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        model = toy.make_bert_base_dir(folder / "model", num_hidden_layers=2)
        (folder / "tickets.py").write_text(TICKETS)
        write_data(folder)
        python = forked_python()
        programs = folder / "programs"
        programs.mkdir()
        console_command = programs / "official-bert"
        console_command.write_text(
            f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec {python} -c "{MAIN}" "$@"\n'
        )
        console_command.chmod(0o755)
        python_folder = pathlib.Path(python).parent
        self._places = {
            "REPOSITORY": str(ROOT),
            "MODEL": str(model),
            "PATH": f"{programs}:{python_folder}:{os.environ['PATH']}",
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
        words = string.Template(command).substitute(self._places)
        python_path, program, name, *flags = shlex.split(words.replace("\\\n", ""))
        assert python_path == "PYTHONPATH=."
        script = pathlib.Path(name)
        if program == "python":
            assert script.parent == ROOT
        else:
            assert program == "official-bert"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.syspath_prepend(self.folder)
            run_here(script.name, *flags)


def for_the_toy(commands: str) -> str:
    return commands.replace("run_classifier", f"run_classifier{FOR_THE_TOY}")


def split_commands(block: str) -> list[str]:
    """The commands of a block, each of which becomes one line."""
    return block.replace("\\\n", "").splitlines()


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Reader:
    """Has done what the document says, but for the commands of tests marked long.

    Commands of scripts that an earlier command has run as a process run in this process.
    """
    reader = Reader(tmp_path_factory.mktemp("reader"))
    tickets = for_the_toy(RUN_TICKETS)
    tickets = tickets.replace("--learning_rate=3e-3", "--learning_rate=1e-3")
    copy, *highlights = split_commands(for_the_toy(RUN))
    # official-bert predict finds no tickets.py: it runs elsewhere.
    ask_tickets = ASK_TICKETS.replace("tickets_export", f"{reader.folder}/tickets_export")
    ask_tickets = f"(cd / && {ask_tickets.rstrip()}) > answer_to_a_ticket.json"
    reader.run(f"{tickets}\n{ask_tickets}\n{copy}")
    for command in (*highlights, EXPORT_TEXT):
        reader.run_here(command)
    write_questions, *ask_both = split_commands(ASK)
    reader.run(write_questions)
    for command in ask_both:
        reader.run_here(command)
    return reader


@pytest.fixture
def folder(reader) -> pathlib.Path:
    return reader.folder


def read_scores(path: pathlib.Path) -> list[list[float]]:
    scores = []
    for line in path.read_text().splitlines():
        fields = line.split(" ")
        scores.append([float(field) for field in fields])
    return scores


def read_json(path: pathlib.Path) -> dict:
    return json.loads(path.read_text())


def test_texts_in_a_layout_of_ones_own(folder):
    output = folder / "tickets_output"
    results = figures(output)
    assert set(results) == {
        "eval_accuracy",
        "eval_f1",
        "eval_loss",
        "loss",
        "global_step",
    }
    assert results["eval_f1"] > 0.95
    probabilities = np.loadtxt(output / "test_results.tsv")
    label_names = np.array(["low", "high"])
    labels = label_names[probabilities.argmax(1)]
    true_labels = [label for label, _ in draw_tickets("test")]
    is_right = labels == true_labels
    assert is_right.mean() > 0.95

    version = folder / "tickets_export" / "1"
    exported = answers_to_records(version, output / "predict.tf_record")
    np.testing.assert_allclose(exported["probabilities"], probabilities, atol=1e-5)
    exported_labels = [label.decode() for label in exported["label"]]
    assert exported_labels == labels.tolist()
    record = read_json(version / "assets.extra" / "export.json")
    assert record["task_name"] == "tickets:TicketProcessor"
    assert record["family"] == "classification"
    answer = read_json(folder / "answer_to_a_ticket.json")
    assert answer["label"] == "high"


def assert_one_score_for_each_sentence(scores: list[list[float]]):
    _, true_scores = draw_texts("test")
    num_scores = [len(text_scores) for text_scores in scores]
    num_sentences = [len(text_scores) for text_scores in true_scores]
    assert num_scores == num_sentences


def test_a_task_of_a_new_kind_is_trained_evaluated_and_predicts(folder):
    output = folder / "highlights_output"
    results = figures(output)
    assert set(results) == {
        "eval_spearman",
        "eval_loss",
        "loss",
        "global_step",
    }
    assert results["global_step"] == 24 * 192 / 32
    assert results["eval_spearman"] > 0.7  # 0.94 at most, for many true scores are equal
    scores = read_scores(output / "highlights.txt")
    assert_one_score_for_each_sentence(scores)
    _, true_scores = draw_texts("test")
    flat_truth = np.concatenate(true_scores)
    flat_scores = np.concatenate(scores)
    errors = np.abs(flat_scores - flat_truth)
    assert errors.mean() < 0.25
    correlation = spearman(flat_truth, flat_scores)
    assert correlation["spearman"] > 0.7


@pytest.mark.long
def test_a_task_of_a_new_kind_runs_on_two_replicas(reader, folder):
    """192 texts a pass, of which the dev set's last batch of 8 is full and the test set's, of 6,
    is not.
    """
    command = for_the_toy(RUN_ON_TWO)
    command = command.replace("--num_train_epochs=24", "--num_train_epochs=2")
    reader.run(command)
    output = folder / "highlights_on_two"
    results = figures(output)
    assert results["global_step"] == 2 * 192 / 32
    scores = read_scores(output / "highlights.txt")
    assert_one_score_for_each_sentence(scores)
    start, *_ = run_log.read(str(output), run_log.START)
    assert start["num_replicas"] == 2


@pytest.mark.long
def test_a_task_of_a_new_kind_is_searched(reader, folder):
    write_grid, search_command = split_commands(for_the_toy(SEARCH))
    reader.run(write_grid)
    reader.run_here(search_command)
    search = folder / "highlights_search"
    with (search / "search_results.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    scores = {}
    for row in rows:
        learning_rate = float(row["learning_rate"])
        scores[learning_rate] = float(row["eval_spearman"])
    assert scores[3e-3] > 0.6
    assert abs(scores[1e-6]) < 0.6
    (best_row,) = [row for row in rows if row["best"]]
    predictions = search / best_row["run"] / "highlights.txt"
    assert predictions.exists()


def test_a_task_of_a_new_kind_is_served_and_answers(folder):
    scores = read_scores(folder / "highlights_output" / "highlights.txt")
    texts, _ = draw_texts("test")
    encoded_texts = np.array([text.encode() for text in texts], object)
    version = folder / "highlights_text" / "1"
    exported = answers(version, "serving_text", {"text": encoded_texts})
    for text_scores, padded_scores, num_sentences in zip(
        scores,
        exported["scores"],
        exported["num_sentences"],
        strict=True,
    ):
        np.testing.assert_allclose(padded_scores[:num_sentences], text_scores, atol=1e-5)


def read_answers(path: pathlib.Path) -> list[list[float]]:
    scores = []
    for line in path.read_text().splitlines():
        answer = json.loads(line)
        scores.append(answer["scores"])
    return scores


def test_the_exports_of_a_task_of_a_new_kind_give_the_same_answers(folder):
    tensor_scores = read_answers(folder / "answers.jsonl")
    text_scores = read_answers(folder / "answers_of_text.jsonl")
    assert [len(scores) for scores in tensor_scores] == [2, 1]
    for one, other in zip(tensor_scores, text_scores, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    (cat, rain), (rain_alone,) = tensor_scores
    assert cat < min(rain, rain_alone)


def test_a_line_in_the_table_gives_a_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    tickets = importlib.import_module("tickets")
    names = {
        "TASKS": dict(task_table.TASKS),
        "TicketProcessor": tickets.TicketProcessor,
    }
    exec(TABLE_LINE, names)
    monkeypatch.setattr(task_table, "TASKS", names["TASKS"])
    task = registry.make_task("Tickets", {"task_name": "Tickets"})
    assert task.labels == ["low", "high"]

"""A few kilobytes of data for experiments at the scale smoke: a corpus and some tasks, made by a
seeded generator.
"""

import json
import pathlib
import zipfile

import numpy as np

from official_bert.extensions.experiments.declarations import (
    Experiment,
    Scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.plan import Plan, make_plan

_TEXT = """
the cat sat on mat it was a sunny day in park children were playing football train left station at noon nobody
driver waved his hand rain started falling soon after Anna Paris Berlin Tom
"""
_WORDS = _TEXT.split()
_NAMES = {"Anna": "B-person", "Tom": "B-person", "Paris": "B-location", "Berlin": "B-location"}

# An experiment of two rows that pre-train, with a column for a measure and one for a task.
TWO_ROWS = """
title = "Two rows"
source = "made up"
is_ablation = true
columns = [{ label = "Perplexity", measure = "perplexity" }, { task = "STS-B" }]

[[rows]]
label = "BERT"
size = "12/768/12"
paper = { "Perplexity" = 3.5, "STS-B" = 85.8 }

[[rows]]
label = "No NSP"
size = "12/768/12"
pretraining = { use_next_sentence = false }
"""


_ROOT = pathlib.Path(__file__).resolve().parent.parent  # users without pytest run this module
CATALOGUE = read_catalogue(str(_ROOT / "official_bert/extensions/experiments/tables"))


def plan_of(experiment: str | Experiment, scale: str | Scale = "desk", **settings) -> Plan:
    """The plan of an experiment at a scale, each of which may be named."""
    if isinstance(experiment, str):
        experiment = read_experiment(experiment, CATALOGUE)
    if isinstance(scale, str):
        scale = CATALOGUE.scales[scale]
    settings.setdefault("encoders", ("base", "large"))
    return make_plan(experiment, scale, CATALOGUE, **settings)


def write_data(
    folder: pathlib.Path, tasks=("STS-B", "CoLA", "WNUT-17", "SQuAD", "CODAH")
) -> pathlib.Path:
    """Writes a corpus and tasks in the layout of --data_dir, and returns the folder."""
    writer = _Writer(folder)
    writer.write_corpus()
    writer.write_minimal_pairs()
    # The tasks draw from one generator, so their order decides the texts.
    if "STS-B" in tasks:
        writer.write_scored_pairs("train", 16)
        writer.write_scored_pairs("dev", 8)
    if "CoLA" in tasks:
        writer.write_judgements("train", 16)
        writer.write_judgements("dev", 8)
    if "WNUT-17" in tasks:
        writer.write_tags("train", 16)
        writer.write_tags("dev", 8)
        writer.write_tags("test", 8)
    if "SQuAD" in tasks:
        writer.write_questions("train", 16)
        writer.write_questions("dev", 8)
    if "CODAH" in tasks:
        writer.write_choices("train", 16)
        writer.write_choices("dev", 8)
    return folder


class _Writer:
    """Writes files of seeded texts into a folder."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._random = np.random.default_rng(5)

    def _text(self, least: int = 4, most: int = 10) -> str:
        num_words = self._random.integers(least, most)
        return " ".join(self._random.choice(_WORDS, num_words))

    def _write(self, name: str, content: str):
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def write_corpus(self):
        self._write_documents("train", 30)
        self._write_documents("held_out", 6)

    def _write_documents(self, name: str, count: int):
        documents = []
        for _ in range(count):
            lines = [f"{self._text()} .\n" for _ in range(8)]
            documents.append("".join(lines))
        self._write(f"corpus/{name}.txt", "\n".join(documents))

    def write_minimal_pairs(self):
        with zipfile.ZipFile(self._folder / "BLiMP.zip", "w") as archive:
            for name in ("agreement", "island"):
                lines = []
                for _ in range(3):
                    pair = {
                        "sentence_good": self._text(),
                        "sentence_bad": self._text(),
                        "UID": f"{name}_1",
                        "linguistics_term": name,
                    }
                    lines.append(json.dumps(pair) + "\n")
                archive.writestr(f"data/{name}.jsonl", "".join(lines))

    def write_scored_pairs(self, name: str, count: int):
        rows = [["index", *"bcdefg", "sentence1", "sentence2", "score"]]
        for number in range(count):
            text_a = self._text()
            text_b = self._text()
            score = self._random.uniform(0, 5)
            rows.append([str(number), *"bcdefg", text_a, text_b, f"{score:.2f}"])
        lines = ["\t".join(row) for row in rows]
        self._write(f"STS-B/{name}.tsv", "\n".join(lines) + "\n")

    def write_judgements(self, name: str, count: int):
        lines = [f"x\t{number % 2}\t\t{self._text()}\n" for number in range(count)]
        self._write(f"CoLA/{name}.tsv", "".join(lines))

    def write_tags(self, name: str, count: int):
        sentences = []
        for _ in range(count):
            words = self._text().split()
            lines = [f"{word}\t{_NAMES.get(word, 'O')}\n" for word in words]
            sentences.append("".join(lines))
        self._write(f"WNUT-17/{name}.conll", "\n".join(sentences))

    def write_questions(self, name: str, count: int):
        """Both versions of SQuAD: the second one asks each question twice, once without answer."""
        paragraphs = []
        for number in range(count):
            words = self._text(8, 16).split()
            beginning = " ".join([*words[:3], ""])
            answer = {"text": words[3], "answer_start": len(beginning)}
            question = {
                "id": f"{name}{number}",
                "question": "what was it",
                "answers": [answer],
            }
            paragraphs.append({"context": " ".join(words), "qas": [question]})
        self._write_squad(name, "1.1", "v1.1", paragraphs)
        for paragraph in paragraphs:
            (question,) = paragraph["qas"]
            answerable = question | {"is_impossible": False}
            unanswerable = question | {
                "id": f"{question['id']}-other",
                "answers": [],
                "is_impossible": True,
            }
            paragraph["qas"] = [answerable, unanswerable]
        self._write_squad(name, "v2.0", "v2.0", paragraphs)

    def _write_squad(self, name: str, version: str, suffix: str, paragraphs: list[dict]):
        article = {"title": "t", "paragraphs": paragraphs}
        dataset = {"version": version, "data": [article]}
        self._write(f"SQuAD/{name}-{suffix}.json", json.dumps(dataset))

    def write_choices(self, name: str, count: int):
        lines = []
        for number in range(count):
            question = self._text()
            choices = [self._text() for _ in range(4)]
            label = str(number % 4)
            lines.append("\t".join(["o", question, *choices, label]))
        self._write(f"CODAH/{name}.tsv", "\n".join(lines) + "\n")

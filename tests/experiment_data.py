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
from tests.shared import ROOT

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


CATALOGUE = read_catalogue(str(ROOT / "official_bert/extensions/experiments/tables"))


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
    draws = np.random.default_rng(5)

    def text(least: int = 4, most: int = 10) -> str:
        return " ".join(draws.choice(_WORDS, draws.integers(least, most)))

    def put(name: str, content: str):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    for name, count in (("train", 30), ("held_out", 6)):
        documents = ["".join(f"{text()} .\n" for _ in range(8)) for _ in range(count)]
        put(f"corpus/{name}.txt", "\n".join(documents))
    with zipfile.ZipFile(folder / "BLiMP.zip", "w") as archive:
        for name in ("agreement", "island"):
            pairs = [{"sentence_good": text(), "sentence_bad": text()} for _ in range(3)]
            lines = [
                json.dumps(pair | {"UID": f"{name}_1", "linguistics_term": name}) + "\n"
                for pair in pairs
            ]
            archive.writestr(f"data/{name}.jsonl", "".join(lines))
    sizes = (("train", 16), ("dev", 8))
    if "STS-B" in tasks:
        for name, count in sizes:
            rows = [
                [str(n), *"bcdefg", text(), text(), f"{draws.uniform(0, 5):.2f}"]
                for n in range(count)
            ]
            rows.insert(0, ["index", *"bcdefg", "sentence1", "sentence2", "score"])
            put(f"STS-B/{name}.tsv", "".join("\t".join(row) + "\n" for row in rows))
    if "CoLA" in tasks:
        for name, count in sizes:
            put(
                f"CoLA/{name}.tsv",
                "".join(f"x\t{number % 2}\t\t{text()}\n" for number in range(count)),
            )
    if "WNUT-17" in tasks:
        for name, count in (*sizes, ("test", 8)):
            sentences = [
                "".join(f"{word}\t{_NAMES.get(word, 'O')}\n" for word in text().split())
                for _ in range(count)
            ]
            put(f"WNUT-17/{name}.conll", "\n".join(sentences))
    if "SQuAD" in tasks:
        for name, count in sizes:
            paragraphs = []
            for number in range(count):
                words = text(8, 16).split()
                answer = {"text": words[3], "answer_start": len(" ".join([*words[:3], ""]))}
                question = {"id": f"{name}{number}", "question": "what was it", "answers": [answer]}
                paragraphs.append({"context": " ".join(words), "qas": [question]})
            dataset = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
            put(f"SQuAD/{name}-v1.1.json", json.dumps(dataset))
            for paragraph in paragraphs:
                (question,) = paragraph["qas"]
                other = {"id": f"{question['id']}-other", "answers": [], "is_impossible": True}
                paragraph["qas"] = [question | {"is_impossible": False}, question | other]
            put(f"SQuAD/{name}-v2.0.json", json.dumps(dataset | {"version": "v2.0"}))
    if "CODAH" in tasks:
        for name, count in sizes:
            rows = [
                "\t".join(["o", text(), *(text() for _ in range(4)), str(n % 4)])
                for n in range(count)
            ]
            put(f"CODAH/{name}.tsv", "\n".join(rows) + "\n")
    return folder

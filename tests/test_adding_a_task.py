"""docs/adding_a_task.md: its files are written and its commands run as they stand, on a toy model and toy data."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from official_bert.tasks.classification.examples import InputExample, encoded_examples
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.serving.answers import answers, answers_to_records
from tests.shared import ROOT

DOCUMENT = (ROOT / "docs" / "adding_a_task.md").read_text(encoding="utf-8")
TICKETS, REGISTRY_LINE, STARS, RUN_STARS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
RUN_TICKETS, TRAIN_STARS, EXPORT_STARS = re.findall(r"```shell\n(.*?)```", DOCUMENT, re.DOTALL)

# What the toy needs to learn something; the last of two equal flags counts.
FOR_THE_TOY = (
    " --learning_rate=3e-3 --num_train_epochs=24 --train_batch_size=32 --random_seed=1 --max_seq_length=24"
)
FILLERS = ["the", "sat", "on", "mat", "was", "in", "at", "park"]
WORD_OF_URGENCY = {"low": "sunny", "high": "rain"}
WORD_OF_STARS = {"1": "nobody", "2": "board", "3": "noon", "4": "playing", "5": "cat"}


class DataSet(NamedTuple):
    """Labels, and texts in which one word tells the label."""

    labels: np.ndarray
    texts: list[str]


def drawn(word_of: dict[str, str], name: str) -> DataSet:
    """The set train, dev or test."""
    seed, count = {"train": (0, 192), "dev": (1, 48), "test": (2, 30)}[name]
    draws = np.random.default_rng(seed)
    labels, texts = draws.choice(list(word_of), count), []
    for label in labels:
        words = list(draws.choice(FILLERS, draws.integers(2, 9)))
        words.insert(draws.integers(len(words) + 1), word_of[label])
        texts.append(" ".join(words))
    return DataSet(labels, texts)


def write_data(folder: pathlib.Path):
    """What the commands read; the test files have no labels."""
    (folder / "tickets").mkdir()
    (folder / "reviews").mkdir()
    for name in ("train", "dev", "test"):
        tickets = [
            {"text": text} | ({} if name == "test" else {"urgency": label})
            for label, text in zip(*drawn(WORD_OF_URGENCY, name), strict=True)
        ]
        reviews = [
            text if name == "test" else f"{text}\t{stars}"
            for stars, text in zip(*drawn(WORD_OF_STARS, name), strict=True)
        ]
        (folder / "tickets" / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tickets))
        (folder / "reviews" / f"{name}.tsv").write_text("".join(f"{row}\n" for row in reviews))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Where a reader has done all that the document says, outside the repository."""
    folder = tmp_path_factory.mktemp("reader")
    model = toy.make_bert_base_dir(folder / "model")
    (model / "checkpoint").write_text('model_checkpoint_path: "bert_model.ckpt"\n')
    for name, text in (("tickets.py", TICKETS), ("stars.py", STARS), ("run_stars.py", RUN_STARS)):
        (folder / name).write_text(text)
    write_data(folder)
    python = pathlib.Path(sys.executable).parent
    places = {"REPOSITORY": str(ROOT), "MODEL": str(model), "PATH": f"{python}:{os.environ['PATH']}"}

    def run(commands: str):
        return subprocess.run(
            ["sh", "-euc", commands],
            cwd=folder,
            env=os.environ | places,
            capture_output=True,
            text=True,
            check=False,
        )

    tickets, stars = RUN_TICKETS.rstrip() + FOR_THE_TOY, TRAIN_STARS.rstrip() + FOR_THE_TOY
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for finished in pool.map(run, [tickets, f"{stars}\n{EXPORT_STARS}"]):
            assert finished.returncode == 0, finished.stderr
    return folder


def results_of(folder: pathlib.Path) -> dict[str, float]:
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def test_texts_in_a_layout_of_ones_own(folder):
    output, version = folder / "tickets_output", folder / "tickets_export" / "1"
    results = results_of(output)
    assert set(results) == {"eval_accuracy", "eval_f1", "eval_loss", "loss", "global_step"}
    assert results["eval_f1"] > 0.95
    predicted = np.loadtxt(output / "test_results.tsv")
    labels = np.array(["low", "high"])[predicted.argmax(1)]
    assert (labels == drawn(WORD_OF_URGENCY, "test").labels).mean() > 0.95

    found = answers_to_records(version, output / "predict.tf_record")
    np.testing.assert_allclose(found["probabilities"], predicted, atol=1e-5)
    assert [label.decode() for label in found["label"]] == labels.tolist()
    record = json.loads((version / "assets.extra" / "export.json").read_text())
    assert record["task_name"] == "tickets:TicketProcessor"


def test_a_head_of_ones_own(folder):
    results = results_of(folder / "stars_output")
    assert set(results) == {"eval_error", "eval_spearman", "eval_loss", "loss", "global_step"}
    assert results["eval_spearman"] > 0.95
    assert results["eval_error"] < 0.3
    stars, texts = drawn(WORD_OF_STARS, "test")
    predicted = np.loadtxt(folder / "stars_output" / "test_results.tsv")
    assert np.abs(predicted - stars.astype(int)).mean() < 0.3

    tokenizer = FullTokenizer(str(folder / "model" / "vocab.txt"))
    encoded = encoded_examples([InputExample("", text) for text in texts], None, 24, tokenizer)
    features = encoded.features(np.arange(len(texts)), 24)
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    found = answers(folder / "stars_export" / "1", "serving_default", inputs)
    assert set(found) == {"score"}
    np.testing.assert_allclose(found["score"], predicted, atol=1e-5)


def test_a_line_in_the_registry_gives_a_name(tmp_path):
    """In a copy of the package, for the document's line goes into a file of ours."""
    ignored = shutil.ignore_patterns("__pycache__")
    tasks = shutil.copytree(ROOT / "official_bert", tmp_path / "official_bert", ignore=ignored) / "tasks"
    (tasks / "tickets.py").write_text(TICKETS)
    registry = (tasks / "registry.py").read_text()
    last_line, last_import = (
        '    "tsv": _tsv,\n',
        "from official_bert.tasks.classification.xnli import XnliProcessor\n",
    )
    for place, added in (
        (last_line, REGISTRY_LINE),
        (last_import, "from official_bert.tasks.tickets import TicketProcessor\n"),
    ):
        assert registry.count(place) == 1
        registry = registry.replace(place, place + added)
    (tasks / "registry.py").write_text(registry)
    code = (
        "from official_bert.options.classification import ClassificationOptions\n"
        "from official_bert.tasks.registry import make_processor\n"
        "options = dict.fromkeys(('data_dir', 'output_dir', 'bert_config_file', 'vocab_file'), '')\n"
        "print(make_processor(ClassificationOptions(task_name='Tickets', **options)).get_labels())\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (finished.stdout, finished.stderr) == ("['low', 'high']\n", "")

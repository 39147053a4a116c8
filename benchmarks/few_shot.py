#!/usr/bin/env python3
"""Compares classifiers from few examples with SetFit on PyTorch: accuracy by seed.

In: data sets, and the folder of a sentence-transformers encoder. Out: tables, and a line of JSON in
--output for each finished run. Runs that this file already contains are not repeated; each is a
process of its own.

    python benchmarks/few_shot.py --data=data --model=minilm --setfit_python=venv/bin/python \
        --output=few_shot.jsonl

A seed chooses the training texts, and the pairs of each side. All sides have the same texts, 20
pairs of one label and 20 of two labels for each text, one epoch, batches of 16 pairs, 2e-5 and 128
tokens. The test set has at most 1,000 texts, the same for all seeds.

`ours`: `Classifier.few_shot`. `setfit`: the trainer of setfit, in another interpreter. `vectors`:
ours with train_encoder=False, a logistic regression on the vectors of the encoder. `their_pairs`,
which only --sides measures: ours with pairs that are drawn as setfit draws them, among all
combinations of two texts and of a text with itself.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from result_rows import measure_missing

from official_bert.metrics.summaries import difference, summarize

SIDES = ("vectors", "ours", "setfit")
THEIR_PAIRS = "their_pairs"
SHOTS = (8, 16)
# The data sets by the cost of a training, and the pairs of each kind that a text begins.
NUM_PAIRS = {"CR": 20, "MR": 20, "TREC": 20, "CLINC150": 2}
MOST_TEST_TEXTS = 1000
BATCH_SIZE, LEARNING_RATE, MAX_LENGTH = 16, 2e-5, 128

_SETFIT = """
import json, sys, time, warnings
import torch
torch.set_num_threads(int(sys.argv[2]))
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
task = json.load(open(sys.argv[1]))
start = time.perf_counter()
model = SetFitModel.from_pretrained(task["model"])
model.model_body.max_seq_length = task["max_length"]
arguments = TrainingArguments(
    output_dir=task["folder"], batch_size=task["batch_size"], num_epochs=1,
    num_iterations=task["num_pairs"], body_learning_rate=task["learning_rate"],
    seed=task["seed"], save_strategy="no", report_to="none", show_progress_bar=False)
texts, labels = task["train"]
trainer = Trainer(
    model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts, "label": labels}))
trainer.train()
secs = time.perf_counter() - start
texts, labels = task["test"]
predicted = [str(label) for label in model.predict(texts)]
right = sum(a == b for a, b in zip(predicted, labels))
print(json.dumps({"accuracy": 100 * right / len(labels), "secs": secs}))
"""


def read_set(data: pathlib.Path, name: str) -> tuple[list, list]:
    """Returns the training and the test examples of a data set, pairs of text and label.

    A set without a test set is split by a fixed seed.
    """
    if name == "CLINC150":
        content = json.loads((data / "intents" / "clinc150_small.json").read_text("utf-8"))
        return content["train"], content["test"]
    if name == "TREC":
        return read_lines(data, "TREC.train.all"), read_lines(data, "TREC.test.all")
    examples = read_lines(data, {"CR": "custrev.all", "MR": "rt-polarity.all"}[name])
    order = np.random.default_rng(0).permutation(len(examples))
    examples = [examples[row] for row in order]
    return examples[MOST_TEST_TEXTS:], examples[:MOST_TEST_TEXTS]


def read_lines(data: pathlib.Path, name: str) -> list[tuple[str, str]]:
    """Returns the examples of a file whose lines are a label, a space and a text."""
    examples = []
    # A file is read by its line feeds: splitlines() would also split at characters of a text.
    with (data / "fewshot" / name).open(encoding="latin-1", newline="\n") as file:
        for line in file:
            label, _, text = line.partition(" ")
            examples.append((text.strip(), label))
    return examples


def choose_examples(flags, which: dict) -> dict[str, list]:
    """Returns texts and labels of the training and the test of a run."""
    train, test = read_set(flags.data, which["set"])
    draws = np.random.default_rng(which["seed"])
    rows_by_label: dict[str, list[int]] = {}
    for row, (_, label) in enumerate(train):
        rows_by_label.setdefault(label, []).append(row)
    chosen = [
        train[row]
        for label in sorted(rows_by_label)
        for row in draws.choice(rows_by_label[label], which["shots"], replace=False)
    ]
    order = np.random.default_rng(0).permutation(len(test))[:MOST_TEST_TEXTS]
    test = [test[row] for row in order]
    return {
        name: [[text for text, _ in examples], [label for _, label in examples]]
        for name, examples in (("train", chosen), ("test", test))
    }


def one_run(flags, which: dict) -> dict:
    from finetuning import device_name

    examples = choose_examples(flags, which)
    with tempfile.TemporaryDirectory() as folder:
        run = our_run if which["side"] != "setfit" else setfit_run
        row = run(flags, which, examples, pathlib.Path(folder))
    return which | row | {"num_pairs": NUM_PAIRS[which["set"]], "device": device_name()}


def our_run(flags, which: dict, examples: dict, folder: pathlib.Path) -> dict:
    from official_bert import Classifier
    from official_bert.extensions.few_shot import pairs

    if which["side"] == THEIR_PAIRS:
        pairs.draw_pairs = draw_their_pairs
    start = time.perf_counter()
    classifier = Classifier.few_shot(
        folder / "classifier",
        *examples["train"],
        model=flags.model,
        verbose=0,
        num_pairs=NUM_PAIRS[which["set"]],
        train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        max_seq_length=MAX_LENGTH,
        random_seed=which["seed"],
        train_encoder=which["side"] != "vectors",
    )
    secs = time.perf_counter() - start
    texts, labels = examples["test"]
    answers = classifier.classify(texts)
    is_right = [answer["label"] == label for answer, label in zip(answers, labels, strict=True)]
    return {"accuracy": 100 * float(np.mean(is_right)), "secs": secs}


def draw_their_pairs(
    texts: list[str], labels: list[str], num_pairs: int, seed: int, has_negatives: bool
):
    """Yields what `pairs.draw_pairs` does, chosen as setfit does, if there are enough of them."""
    from official_bert.extensions.few_shot.pairs import Pair

    assert has_negatives
    names = np.array(labels, object)
    first, second = np.triu_indices(len(texts))
    is_positive = names[first] == names[second]
    draws = np.random.default_rng(seed)
    positives = draws.permutation(np.flatnonzero(is_positive))
    negatives = draws.permutation(np.flatnonzero(~is_positive))
    for row in range(num_pairs * len(texts)):
        for chosen, has_same_label in ((positives[row], True), (negatives[row], False)):
            yield Pair(texts[first[chosen]], texts[second[chosen]], has_same_label)


def setfit_run(flags, which: dict, examples: dict, folder: pathlib.Path) -> dict:
    task = examples | {
        "model": str(flags.model.resolve()),
        "folder": str(folder / "setfit"),
        "max_length": MAX_LENGTH,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "num_pairs": NUM_PAIRS[which["set"]],
        "seed": which["seed"],
    }
    path = folder / "task.json"
    path.write_text(json.dumps(task), encoding="utf-8")
    num_threads = len(os.sched_getaffinity(0))
    command = [flags.setfit_python, "-c", _SETFIT, str(path), str(num_threads)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def list_runs(flags) -> list[dict]:
    """Returns what identifies each run; all sides of a seed follow each other."""
    return [
        {"set": name, "shots": shots, "seed": seed, "side": side}
        for shots, name, seed, side in itertools.product(
            flags.shots, flags.sets, range(flags.num_seeds), flags.sides
        )
    ]


def print_table(rows: list[dict]):
    """Prints mean and deviation of each side over the seeds that all sides have.

    The difference is that of ours and setfit's means.
    """
    print(
        "| set | examples of a label | seeds | vectors alone | ours | setfit | difference "
        "| in standard errors |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    for name, shots in itertools.product(NUM_PAIRS, SHOTS):
        accuracies = {}
        for side in SIDES:
            which = {"set": name, "shots": shots, "side": side}
            side_rows = [row for row in rows if which.items() <= row.items()]
            accuracies[side] = {row["seed"]: row["accuracy"] for row in side_rows}
        seeds = sorted(set.intersection(*map(set, accuracies.values())))
        if len(seeds) < 2:
            continue
        summaries = {side: summarize([accuracies[side][seed] for seed in seeds]) for side in SIDES}
        means = [f"{summary.mean:.1f} ± {summary.deviation:.1f}" for summary in summaries.values()]
        lead, num_errors = difference(summaries["setfit"], summaries["ours"])
        errors = "–" if num_errors is None else f"{num_errors:.1f}"
        print(f"| {name} | {shots} | {len(seeds)} | {' | '.join(means)} | {lead:+.1f} | {errors} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with fewshot")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="folder of an encoder")
    parser.add_argument("--setfit_python", help="an interpreter that has setfit")
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument("--sets", nargs="+", choices=NUM_PAIRS, default=list(NUM_PAIRS))
    parser.add_argument("--shots", nargs="+", type=int, default=SHOTS)
    parser.add_argument("--num_seeds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=(*SIDES, THEIR_PAIRS), default=SIDES)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    rows = measure_missing(__file__, flags.output, list_runs(flags), {})
    print_table(rows)


if __name__ == "__main__":
    main()

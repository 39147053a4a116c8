#!/usr/bin/env python3
"""Exports trained models in float32 and in bfloat16 and compares their answers to a task's
development set.

In: the models and the data that finetuning.py leaves with --keep_models. Out: a table, and a line
of JSON in --output for each task. Rows that this file already contains are not made again.

Answers agree if the labels are the same; of STS-B, if the scores have the same nearest whole
number; of SQuAD, if the texts of the answers are the same. The metrics are the tasks' own.

    python benchmarks/finetuning.py --data=data --model=encoder --work_dir=work --output=runs.jsonl \\
        --sides ours --tasks CoLA --keep_models=models
    python benchmarks/export_dtypes.py --data=work/data --models=models --work_dir=exports
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/export_dtypes.jsonl"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
DTYPES = "float32", "bfloat16"
TASKS = "STS-B", "CoLA", "SST-2", "SQuAD 1.1"


def export(model: pathlib.Path, folder: pathlib.Path, dtype: str) -> float:
    """Exports a model, unless it is there, and returns the size of the export in MB."""
    if not folder.exists():
        command = [sys.executable, "-m", "official_bert", "export_saved_model", f"--model={model}"]
        command += [f"--export_dir={folder}", f"--dtype={dtype}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(ran.stderr[-2000:])
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def read_requests(task: str, data: pathlib.Path) -> tuple[list[tuple[str, ...]], list]:
    """Returns the requests of a development set, and their labels, or of SQuAD the questions
    with true answers.
    """
    if task == "SQuAD 1.1":
        from official_bert.metrics.squad import Question

        articles = json.loads((data / "SQuAD-1.1/dev.json").read_text(encoding="utf-8"))["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        pairs = [
            (question, paragraph["context"])
            for paragraph in paragraphs
            for question in paragraph["qas"]
        ]
        questions = [
            Question(each["id"], [answer["text"] for answer in each["answers"]])
            for each, _ in pairs
        ]
        return [(question["question"], context) for question, context in pairs], questions
    from official_bert.tasks import registry
    from official_bert.tasks.base import DataFiles

    reader = registry.make_task(task, {"task_name": task})
    examples = reader.read(DataFiles(str(data / task), {}), "dev")[""]
    texts = [
        (each.text_a,) if each.text_b is None else (each.text_a, each.text_b) for each in examples
    ]
    return texts, [each.label for each in examples]


def predict_targets(task: str, version: pathlib.Path, requests: list[tuple[str, ...]]) -> list:
    """Returns what an export answers: labels, scores or texts."""
    from official_bert import Predictor

    key = {"STS-B": "score", "SQuAD 1.1": "answer"}.get(task, "label")
    return [answer[key] for answer in Predictor(str(version)).answers(requests)]


def compute_metrics(task: str, targets: list, answers: list) -> dict[str, float]:
    """Returns the metrics of a task, as percentages."""
    from official_bert.metrics import classification, squad

    if task == "SQuAD 1.1":
        ids = [question.qas_id for question in targets]
        return squad.evaluate_v1(targets, dict(zip(ids, answers, strict=True)))
    if task == "STS-B":
        metrics = classification.spearman(np.array(targets, float), np.array(answers, float))
    else:
        metric = classification.matthews if task == "CoLA" else classification.accuracy
        metrics = metric(np.array(targets, int), np.array(answers, int))
    return {name: 100.0 * value for name, value in metrics.items()}


def compare(task: str, data: pathlib.Path, model: pathlib.Path, work_dir: pathlib.Path) -> dict:
    """Exports a model in both types and returns the row of its task."""
    requests, targets = read_requests(task, data)
    row, answers = {"task": task, "requests": len(requests)}, []
    for dtype in DTYPES:
        folder = work_dir / f"{model.name}-{dtype}"
        row[f"{dtype}_mb"] = round(export(model, folder, dtype), 1)
        answers.append(predict_targets(task, folder, requests))
        for name, value in compute_metrics(task, targets, answers[-1]).items():
            row[f"{dtype}_{name}"] = round(value, 3)
    compared = [np.rint(each).astype(int) for each in answers] if task == "STS-B" else answers
    equal = sum(first == second for first, second in zip(*compared, strict=True))
    row["agreement"] = round(equal / len(requests), 5)
    if task == "STS-B":
        row["largest_difference"] = round(float(np.abs(np.subtract(*answers)).max()), 4)
    return row


def print_table(rows: list[dict]):
    print("\n| task | requests | MB | answers that agree | metric | float32 | bfloat16 |")
    print("|---|--:|--:|--:|---|--:|--:|")
    for row in rows:
        sizes = " / ".join(f"{row[f'{dtype}_mb']:.0f}" for dtype in DTYPES)
        for name in [key.removeprefix("float32_") for key in row if key.startswith("float32_")][1:]:
            values = " | ".join(f"{row[f'{dtype}_{name}']:.2f}" for dtype in DTYPES)
            print(
                f"| {row['task']} | {row['requests']:,} | {sizes} | {row['agreement']:.2%} | "
                f"{name} | {values} |"
            )
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="the data that finetuning.py prepared"
    )
    parser.add_argument("--models", type=pathlib.Path, required=True, help="its --keep_models")
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for the exports"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the rows"
    )
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    for task in flags.tasks:
        if task not in [row["task"] for row in rows]:
            model = flags.models / task.replace(" ", "-")
            rows.append(compare(task, flags.data, model, flags.work_dir))
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()

